"""What operators ask and do, in Python: the management commands are views of it.

The public names are loaded when they are asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

_NAMES = {
    "djqueue.operations.actions": "actions",
    "djqueue.operations.consumers": "consumers forget named quiet resume_consumer stop",
    "djqueue.operations.explaining": "Explanation Reason explain explain_queue",
    "djqueue.operations.health": "Limit Problem health",
    "djqueue.operations.lanes": "head_of lanes_of pause_lane resume_lane skip_lane",
    "djqueue.operations.paging": "messages_of",
    "djqueue.operations.messages": "cancel find_message move remove reprioritise requeue run_now",
    "djqueue.operations.pausing": "pause pauses resume",
    "djqueue.operations.purging": "purge",
    "djqueue.operations.rates": "CommandRates Point QueueRates queue_rates rates time_to_drain",
    "djqueue.operations.rehearsing": "Rehearsal rehearse",
    "djqueue.operations.schedules": "schedules",
}
"""Modules, and the public names that live in each."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CommandRates",
    "Explanation",
    "Limit",
    "Point",
    "Problem",
    "QueueRates",
    "Reason",
    "Rehearsal",
    "actions",
    "cancel",
    "consumers",
    "explain",
    "explain_queue",
    "find_message",
    "forget",
    "head_of",
    "health",
    "lanes_of",
    "messages_of",
    "move",
    "named",
    "pause",
    "pause_lane",
    "pauses",
    "purge",
    "queue_rates",
    "quiet",
    "rates",
    "rehearse",
    "remove",
    "reprioritise",
    "requeue",
    "resume",
    "resume_consumer",
    "resume_lane",
    "run_now",
    "schedules",
    "skip_lane",
    "stop",
    "time_to_drain",
]

if TYPE_CHECKING:
    from djqueue.operations.actions import actions
    from djqueue.operations.consumers import consumers, forget, named, quiet, resume_consumer, stop
    from djqueue.operations.explaining import Explanation, Reason, explain, explain_queue
    from djqueue.operations.health import Limit, Problem, health
    from djqueue.operations.lanes import head_of, lanes_of, pause_lane, resume_lane, skip_lane
    from djqueue.operations.messages import (
        cancel,
        find_message,
        move,
        remove,
        reprioritise,
        requeue,
        run_now,
    )
    from djqueue.operations.paging import messages_of
    from djqueue.operations.pausing import pause, pauses, resume
    from djqueue.operations.purging import purge
    from djqueue.operations.rates import CommandRates, Point, QueueRates, queue_rates, rates, time_to_drain
    from djqueue.operations.rehearsing import Rehearsal, rehearse
    from djqueue.operations.schedules import schedules


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """Keeps the public names when modules of the same names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
