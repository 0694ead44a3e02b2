"""djqueue: background work for Django. The public names are loaded when they are asked for, and never touch models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Backoff": "djqueue.policies.outcomes",
    "Batch": "djqueue.flow.limits",
    "BatchCommand": "djqueue.enqueueing.batch",
    "CommandFailed": "djqueue.exceptions",
    "Concurrency": "djqueue.flow.limits",
    "Consumer": "djqueue.consumer",
    "Debounce": "djqueue.flow.limits",
    "Deferrable": "djqueue.deferrable",
    "Discard": "djqueue.exceptions",
    "Fail": "djqueue.exceptions",
    "MetadataProducerConsumer": "djqueue.messages.metadata",
    "NoResult": "djqueue.exceptions",
    "PartialFailure": "djqueue.exceptions",
    "PeriodicQueueCommand": "djqueue.classes",
    "QueueCommand": "djqueue.classes",
    "Result": "djqueue.results",
    "ResultTimeout": "djqueue.exceptions",
    "Retry": "djqueue.exceptions",
    "Route": "djqueue.flow.limits",
    "Throttle": "djqueue.flow.limits",
    "Throttled": "djqueue.exceptions",
    "TimeLimitExceeded": "djqueue.exceptions",
    "Unique": "djqueue.flow.limits",
    "autodiscover": "djqueue.registry",
    "clear_event_consumers": "djqueue.messages.metadata",
    "clear_metadata_producer_consumers": "djqueue.messages.metadata",
    "current_batch": "djqueue.running.context",
    "current_message": "djqueue.running.context",
    "invoker": "djqueue.classes",
    "periodic_command": "djqueue.decorators",
    "queue_command": "djqueue.decorators",
    "register_event_consumer": "djqueue.messages.metadata",
    "register_metadata_producer_consumer": "djqueue.messages.metadata",
}
"""The public names, and the modules that they live in."""

__all__ = [
    "Backoff",
    "Batch",
    "BatchCommand",
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
    "Route",
    "Throttle",
    "Throttled",
    "TimeLimitExceeded",
    "Unique",
    "autodiscover",
    "clear_event_consumers",
    "clear_metadata_producer_consumers",
    "current_batch",
    "current_message",
    "invoker",
    "periodic_command",
    "queue_command",
    "register_event_consumer",
    "register_metadata_producer_consumer",
]

if TYPE_CHECKING:
    from djqueue.classes import PeriodicQueueCommand, QueueCommand, invoker
    from djqueue.consumer import Consumer
    from djqueue.decorators import periodic_command, queue_command
    from djqueue.deferrable import Deferrable
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
    from djqueue.policies.outcomes import Backoff
    from djqueue.registry import autodiscover
    from djqueue.results import Result
    from djqueue.running.context import current_batch, current_message


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
