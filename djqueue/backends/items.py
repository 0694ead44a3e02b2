"""A queue of plain items, for scripts and loops of one's own."""

from __future__ import annotations

from collections.abc import Iterable

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.exceptions import InvalidMessage
from djqueue.message import new_id, pack_item, unpack_item


class ItemVerbs:
    """What a queue offers beside the contract, over its verbs. Items are signed, as messages are."""

    def push(self, item: object, priority: int = 0, delay: float = 0.0) -> str:
        """Put one item that the codec can carry; returns its id.

        Raises EncodeError if it cannot, MessageTooLarge beyond ``QUEUE_MAX_MESSAGE_SIZE``.
        """
        return self.push_many([item], priority, delay)[0]

    def push_many(self, items: Iterable[object], priority: int = 0, delay: float = 0.0) -> list[str]:
        """Put any number of items, in their order; returns their ids.

        Raises as :meth:`push` does, before any is put.
        """
        entries = [self._entry(item, priority, delay) for item in items]
        self.put(entries)
        return [entry.id for entry in entries]

    def _entry(self, item: object, priority: int, delay: float) -> Entry:
        id = new_id()
        data = pack_item(
            item,
            id=id,
            queue=self.logical,
            codec=conf.get("QUEUE_CODEC"),
            models=conf.get("QUEUE_MODELS"),
            max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
        )
        return Entry(data, id, priority=priority, delay=delay)

    def pop(self, timeout: float = 0.0, default: object = None) -> object:
        """The next item, or ``default`` after ``timeout`` seconds. At most once: it is gone when this returns."""
        lease, item = self.take(wait=timeout)
        if lease is None:
            return default
        self.complete([lease])
        return item

    def take(self, lease: float = 60.0, wait: float = 0.0) -> tuple[Lease, object] | tuple[None, None]:
        """The next item with its lease, at least once: then ``complete``, ``touch`` or ``release`` it.

        ``(None, None)`` after ``wait`` seconds without one. An item that does not verify goes to the error queue and
        raises InvalidMessage; after any other error, as of the database that a model is read from, it is put back.
        """
        held = self.first_of(self.reserve(1, lease, wait=wait))
        if held is None:
            return None, None
        try:
            return held, self._open(held.entry)
        except InvalidMessage:
            self.bury([held])
            raise
        except Exception:
            self.release([held])
            raise

    def _open(self, entry: Entry) -> object:
        return unpack_item(
            entry.data,
            id=entry.id,
            queue=self.logical,
            accept=conf.get("QUEUE_ACCEPT"),
            max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
        )

    def clear(self) -> None:
        """Flush."""
        self.flush()
