"""Objects that are told what happens to messages, by methods named ``on_…``: another way to hear the signals."""

from __future__ import annotations

import logging

from djqueue import events
from djqueue.logs import tell
from djqueue.registrations import Registrations

logger = logging.getLogger(__name__)

METHODS = {
    "enqueued": ("on_push",),
    "claimed": ("on_pop",),
    "empty": ("on_empty",),
    "completed": ("on_complete",),
    "discarded": ("on_complete",),
    "retried": ("on_retry", "on_complete"),
    "expired": ("on_expire", "on_complete"),
    "failed": ("on_error", "on_complete"),
    "debounced": ("on_debounce_hit",),
    "debounce_missed": ("on_debounce_miss",),
    "debounce_failed": ("on_debounce_error",),
}
"""The signals, and the methods that each calls, in order. ``on_complete`` ends every settlement."""


class EventConsumers(Registrations[object]):
    """Those that are registered. The signals are heard while there are any."""

    def register(self, consumer: object, queue_name: str | None = None) -> None:
        """Raises TypeError for a class, and for what has none of the methods."""
        known = dict.fromkeys(method for methods in METHODS.values() for method in methods)
        if isinstance(consumer, type) or not any(getattr(consumer, method, None) for method in known):
            raise TypeError(f"{consumer!r} is no event consumer: give an object with a method of {', '.join(known)}.")
        with self._lock:
            super().register(consumer, queue_name)
            for name, ear in _EARS.items():
                getattr(events, name).connect(ear, dispatch_uid="djqueue.event_consumers")

    def clear(self, queue_name: str | None = None) -> None:
        with self._lock:
            super().clear(queue_name)
            for name in () if self._all else _EARS:
                getattr(events, name).disconnect(dispatch_uid="djqueue.event_consumers")

    def hear(self, event: str, item: dict | None, queue_name: str) -> None:
        for consumer in self.of(queue_name):
            for method in METHODS[event]:
                _call(consumer, method, item)


def _call(consumer: object, method: str, item: dict | None) -> None:
    """What a handler raises is logged, and changes nothing."""
    try:
        handler = getattr(consumer, method, None)
        if handler is not None:
            handler(item)
    except BaseException as error:  # sys.exit() in a handler
        tell(logger, logging.ERROR, "%s.%s() failed", type(consumer).__name__, method, exc_info=error)


def _ear(event: str):
    def ear(sender: object, signal: object, queue_name: str, **named: object) -> None:
        item = None if event == "empty" else {"command": sender, "queue_name": queue_name, **named}
        event_consumers.hear(event, item, queue_name)

    return ear


_EARS = {event: _ear(event) for event in METHODS}
event_consumers = EventConsumers()


def register_event_consumer(consumer: object, queue_name: str | None = None) -> None:
    """Tell an object what happens to the messages of the queue of that alias, or of all queues.

    It has any of the methods ``on_push``, ``on_pop``, ``on_empty``, ``on_complete``, ``on_expire``, ``on_retry``,
    ``on_error``, ``on_debounce_hit``, ``on_debounce_miss`` and ``on_debounce_error``. Each is called with a dictionary
    of what the signal carries, ``id``, ``command`` and ``queue_name`` first of all; ``on_empty`` with None.
    """
    event_consumers.register(consumer, queue_name)


def clear_event_consumers(queue_name: str | None = None) -> None:
    """Forget those of the queue of that alias; without one, all."""
    event_consumers.clear(queue_name)
