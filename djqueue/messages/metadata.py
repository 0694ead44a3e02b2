"""Metadata that travels with every message, and the objects that a project registers for it.

There are two kinds of such objects: one carries a value from the producer to the run of the command, the other has
methods named ``on_…`` that are called as the signals are sent.
"""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar

from djqueue import signals
from djqueue.messages.codecs import to_json
from djqueue.messages.envelope import DEPTH
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

T = TypeVar("T")

request_id: ContextVar[str] = ContextVar("djqueue_request_id", default="")
"""The id of the web request that is served, or from which the message comes that runs."""


class Registrations(Generic[T]):
    """Objects in the order in which they were registered, each for the queue of an alias, or (None) for all queues."""

    def __init__(self) -> None:
        self.registered: list[tuple[str | None, T]] = []
        """Each object with its alias. The list is replaced, never changed, so that reading needs no lock."""
        self._lock = threading.RLock()

    def register(self, one: T, queue_name: str | None = None) -> None:
        with self._lock:
            self.registered = [*self.registered, (queue_name, one)]

    def clear(self, queue_name: str | None = None) -> None:
        """Forget the objects of one queue; without a name, all objects."""
        with self._lock:
            self.registered = [pair for pair in self.registered if queue_name not in (None, pair[0])]

    def of(self, queue_name: str) -> list[T]:
        return [one for alias, one in self.registered if alias in (None, queue_name)]


class MetadataProducerConsumer:
    """Carries a value from where a message is enqueued to where it runs: a correlation id, a tenant, a host name.

    Subclass it, name its ``NAMESPACE``, write the two methods, and register an object with
    :func:`register_metadata_producer_consumer`. Raises ValueError if there is no ``NAMESPACE``.
    """

    NAMESPACE: str | None = None
    """The name under which its value is sent; unique among the carriers of one queue."""

    def __init__(self) -> None:
        if not self.NAMESPACE:
            raise ValueError(f"{type(self).__name__} has no NAMESPACE: give it a text of its own.")

    def produce_metadata(self) -> object:
        """Called for every message that is enqueued: returns the value to send with it, any that JSON can carry."""
        return None

    def consume_metadata(self, metadata: object) -> None:
        """Called before every start, in the context in which the command runs; None if the message carries nothing."""


class Carriers(Registrations[MetadataProducerConsumer]):
    def register(self, carrier: MetadataProducerConsumer, queue_name: str | None = None) -> None:
        """Have it carry for the queue of that alias, or for all queues.

        Raises TypeError for what is no carrier, ValueError if another of its NAMESPACE serves the same queue.
        """
        if not isinstance(carrier, MetadataProducerConsumer):
            raise TypeError(f"{carrier!r} carries no metadata: give an object of a MetadataProducerConsumer class.")
        if not carrier.NAMESPACE:
            raise ValueError(f"{type(carrier).__name__} has no NAMESPACE: give it a text of its own.")
        with self._lock:
            for alias, other in self.registered:
                if other.NAMESPACE == carrier.NAMESPACE and (None in (alias, queue_name) or alias == queue_name):
                    raise ValueError(f"The NAMESPACE {carrier.NAMESPACE!r} is taken by {type(other).__name__}.")
            super().register(carrier, queue_name)

    def produce(self, queue_name: str) -> dict[str, object]:
        """The metadata of a message of that queue, by namespace. A carrier that fails is logged and left out."""
        values: dict[Any, object] = {}  # registered carriers have a NAMESPACE
        for carrier in self.of(queue_name):
            try:
                value = carrier.produce_metadata()
                to_json(value, models=False, depth=DEPTH)  # a value that cannot be sent must not stop the message
                values[carrier.NAMESPACE] = value
            except BaseException as error:
                _complain(carrier, "produce_metadata", error)
        return values

    def consume(self, metadata: dict[Any, object], queue_name: str) -> None:
        """Give each carrier its value. A carrier that fails is logged, and changes nothing."""
        for carrier in self.of(queue_name):
            try:
                carrier.consume_metadata(metadata.get(carrier.NAMESPACE))
            except BaseException as error:  # sys.exit() in a carrier
                _complain(carrier, "consume_metadata", error)


def _complain(registered: object, method: str, error: BaseException) -> None:
    log_safely(logger, logging.ERROR, "%s.%s() failed", type(registered).__name__, method, exc_info=error)


carriers = Carriers()
register_metadata_producer_consumer = carriers.register
clear_metadata_producer_consumers = carriers.clear


# ---- Objects with methods named ``on_…``, another way to receive the signals

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
    """Objects with methods named ``on_…``. The signals are received while there are any."""

    def register(self, consumer: object, queue_name: str | None = None) -> None:
        """Notify an object of what happens to the messages of the queue of that alias, or of all queues.

        It has any of the methods ``on_push``, ``on_pop``, ``on_empty``, ``on_complete``, ``on_expire``, ``on_retry``,
        ``on_error``, ``on_debounce_hit``, ``on_debounce_miss`` and ``on_debounce_error``. Each is called with a
        dictionary of what the signal carries, ``id``, ``command`` and ``queue_name`` first of all; ``on_empty`` with
        None. Raises TypeError for a class, and for what has none of the methods.
        """
        known = dict.fromkeys(method for methods in METHODS.values() for method in methods)
        if isinstance(consumer, type) or not any(getattr(consumer, method, None) for method in known):
            raise TypeError(f"{consumer!r} is no event consumer: give an object with a method of {', '.join(known)}.")
        with self._lock:
            super().register(consumer, queue_name)
            for name, ear in _EARS.items():
                getattr(signals, name).connect(ear, dispatch_uid="djqueue.messages.metadata")

    def clear(self, queue_name: str | None = None) -> None:
        with self._lock:
            super().clear(queue_name)
            for name in () if self.registered else _EARS:
                getattr(signals, name).disconnect(dispatch_uid="djqueue.messages.metadata")

    def hear(self, event: str, sender: object, signal: object, queue_name: str, **named: object) -> None:
        """Call the methods of an event. An exception of a method is logged, and changes nothing."""
        item = None if event == "empty" else {"command": sender, "queue_name": queue_name, **named}
        for consumer, method in product(self.of(queue_name), METHODS[event]):
            try:
                handler = getattr(consumer, method, None)
                if handler is not None:
                    handler(item)
            except BaseException as error:  # sys.exit() in a handler
                _complain(consumer, method, error)


event_consumers = EventConsumers()
_EARS = {event: partial(event_consumers.hear, event) for event in METHODS}  # signals hold them weakly
register_event_consumer = event_consumers.register
clear_event_consumers = event_consumers.clear
