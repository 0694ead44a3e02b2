"""djqueue: background work for Django. The public names are loaded when they are asked for, and never touch models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Consumer": "djqueue.consumer",
    "PeriodicQueueCommand": "djqueue.classes",
    "QueueCommand": "djqueue.classes",
    "autodiscover": "djqueue.registry",
    "current_message": "djqueue.running",
    "invoker": "djqueue.classes",
    "periodic_command": "djqueue.decorators",
    "queue_command": "djqueue.decorators",
}
"""The public names, and the modules that they live in."""

__all__ = [
    "Consumer",
    "PeriodicQueueCommand",
    "QueueCommand",
    "autodiscover",
    "current_message",
    "invoker",
    "periodic_command",
    "queue_command",
]

if TYPE_CHECKING:
    from djqueue.classes import PeriodicQueueCommand, QueueCommand, invoker
    from djqueue.consumer import Consumer
    from djqueue.decorators import periodic_command, queue_command
    from djqueue.registry import autodiscover
    from djqueue.running import current_message


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
