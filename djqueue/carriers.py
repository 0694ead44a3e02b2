"""Metadata: what producers send along with every message, and consumers take up around its run."""

from __future__ import annotations

import logging

from djqueue.codecs import to_json
from djqueue.logs import tell
from djqueue.registrations import Registrations

logger = logging.getLogger(__name__)

DEPTH = 2
"""How many containers enclose a value of metadata in the header of its message."""


class MetadataProducerConsumer:
    """Carries a value from where a message is enqueued to where it runs: a correlation id, a tenant, a host name.

    Subclass it, name its ``NAMESPACE``, write the two methods, and register an object with
    :func:`register_metadata_producer_consumer`. Raises ValueError if there is no ``NAMESPACE``.
    """

    NAMESPACE: str | None = None
    """Under which its value travels; unique among those of one queue."""

    def __init__(self) -> None:
        if not self.NAMESPACE:
            raise ValueError(f"{type(self).__name__} has no NAMESPACE: give it a text of its own.")

    def produce_metadata(self) -> object:
        """Called for every message that is enqueued: what travels with it, any value that JSON can carry."""
        return None

    def consume_metadata(self, metadata: object) -> None:
        """Called before every start, in the context in which the command runs; None if the message carries nothing."""


class Carriers(Registrations[MetadataProducerConsumer]):
    """Those that are registered."""

    def register(self, carrier: MetadataProducerConsumer, queue_name: str | None = None) -> None:
        """Raises TypeError for what is none, ValueError if another of its NAMESPACE serves the same queue."""
        if not isinstance(carrier, MetadataProducerConsumer):
            raise TypeError(f"{carrier!r} carries no metadata: give an object of a MetadataProducerConsumer class.")
        if not carrier.NAMESPACE:
            raise ValueError(f"{type(carrier).__name__} has no NAMESPACE: give it a text of its own.")
        with self._lock:
            for alias, other in self._all:
                if other.NAMESPACE == carrier.NAMESPACE and (None in (alias, queue_name) or alias == queue_name):
                    raise ValueError(f"The NAMESPACE {carrier.NAMESPACE!r} is taken by {type(other).__name__}.")
            super().register(carrier, queue_name)

    def produce(self, queue_name: str) -> dict[str, object]:
        """By namespace what a message of that queue carries. One that fails is logged and left out."""
        values: dict[str, object] = {}
        for carrier in self.of(queue_name):
            try:
                value = carrier.produce_metadata()
                to_json(value, models=False, depth=DEPTH)  # what cannot travel must not keep the message from it
                values[carrier.NAMESPACE] = value
            except BaseException as error:
                _complain(carrier, "produce_metadata", error)
        return values

    def consume(self, metadata: dict[str, object], queue_name: str) -> None:
        """Hand each its value. One that fails is logged, and changes nothing."""
        for carrier in self.of(queue_name):
            try:
                carrier.consume_metadata(metadata.get(carrier.NAMESPACE))
            except BaseException as error:  # sys.exit() in a carrier
                _complain(carrier, "consume_metadata", error)


def _complain(carrier: MetadataProducerConsumer, method: str, error: BaseException) -> None:
    tell(logger, logging.ERROR, "%s.%s() failed", type(carrier).__name__, method, exc_info=error)


carriers = Carriers()


def register_metadata_producer_consumer(carrier: MetadataProducerConsumer, queue_name: str | None = None) -> None:
    """Have it carry for the queue of that alias, or for all queues. Raises ValueError for a NAMESPACE that is taken."""
    carriers.register(carrier, queue_name)


def clear_metadata_producer_consumers(queue_name: str | None = None) -> None:
    """Forget those of the queue of that alias; without one, all."""
    carriers.clear(queue_name)
