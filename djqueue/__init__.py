"""djqueue: background work for Django. The public names are loaded when they are asked for, and never touch models."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from djqueue.version import VERSION

__version__ = VERSION

_NAMES = {
    "djqueue.classes": "PeriodicQueueCommand QueueCommand invoker",
    "djqueue.consumer": "Consumer",
    "djqueue.decorators": "periodic_command queue_command",
    "djqueue.deferrable": "Deferrable",
    "djqueue.enqueueing.batch": "BatchCommand",
    "djqueue.exceptions": "CommandFailed Discard Fail NoResult PartialFailure ResultTimeout Retry Throttled "
    "TimeLimitExceeded",
    "djqueue.flow.limits": "Batch Concurrency Debounce Route Throttle Unique",
    "djqueue.messages.metadata": "MetadataProducerConsumer clear_event_consumers clear_metadata_producer_consumers "
    "register_event_consumer register_metadata_producer_consumer",
    "djqueue.policies.outcomes": "Backoff RetryPolicy",
    "djqueue.discovery": "autodiscover",
    "djqueue.results": "Cancelled Result",
    "djqueue.tasks.declaring": "task",
    "djqueue.running.context": "current_batch current_message",
    "djqueue.timetables": "crontab",
    "djqueue.wiring": "queues",
}
"""Modules, and the public names that live in each."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Backoff",
    "Batch",
    "BatchCommand",
    "Cancelled",
    "CommandFailed",
    "Concurrency",
    "Consumer",
    "Debounce",
    "Deferrable",
    "Discard",
    "Fail",
    "MetadataProducerConsumer",
    "NoResult",
    "PartialFailure",
    "PeriodicQueueCommand",
    "QueueCommand",
    "Result",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Route",
    "Throttle",
    "Throttled",
    "TimeLimitExceeded",
    "Unique",
    "autodiscover",
    "clear_event_consumers",
    "clear_metadata_producer_consumers",
    "crontab",
    "current_batch",
    "current_message",
    "invoker",
    "periodic_command",
    "queue_command",
    "queues",
    "register_event_consumer",
    "register_metadata_producer_consumer",
]
"""What ``from djqueue import *`` gives: not ``task``, which needs django-tasks on Django 5.2."""

if TYPE_CHECKING:
    from djqueue.classes import PeriodicQueueCommand, QueueCommand, invoker
    from djqueue.consumer import Consumer
    from djqueue.decorators import periodic_command, queue_command
    from djqueue.deferrable import Deferrable
    from djqueue.discovery import autodiscover
    from djqueue.enqueueing.batch import BatchCommand
    from djqueue.exceptions import (
        CommandFailed,
        Discard,
        Fail,
        NoResult,
        PartialFailure,
        ResultTimeout,
        Retry,
        Throttled,
        TimeLimitExceeded,
    )
    from djqueue.flow.limits import Batch, Concurrency, Debounce, Route, Throttle, Unique
    from djqueue.messages.metadata import (
        MetadataProducerConsumer,
        clear_event_consumers,
        clear_metadata_producer_consumers,
        register_event_consumer,
        register_metadata_producer_consumer,
    )
    from djqueue.policies.outcomes import Backoff, RetryPolicy
    from djqueue.results import Cancelled, Result
    from djqueue.running.context import current_batch, current_message
    from djqueue.tasks.declaring import task as task
    from djqueue.timetables import crontab
    from djqueue.wiring import queues


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    said = None if name.startswith("_") else import_module("djqueue.hints").package_hint(name, __all__)
    if said is None or _is_module(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap":
        raise ImportError(said, name=__name__)  # "from djqueue import ..." would drop an AttributeError and its text
    raise AttributeError(said, name=name)


def _is_module(name: str) -> bool:
    """Whether it is a module of the package, which "from djqueue import ..." imports once it is no attribute."""
    return import_module("importlib.util").find_spec(f"{__name__}.{name}") is not None
