"""A queue of plain items, for scripts and loops of one's own."""

from __future__ import annotations

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.message import new_id, pack_item, unpack_item


class ItemVerbs:
    """What a queue offers beside the contract, over its verbs. Items are signed, as messages are."""

    def push(self, item: object, priority: int = 0, delay: float = 0.0) -> str:
        """Put one picklable item; returns its id."""
        id = new_id()
        data = pack_item(item, id=id, queue=self.logical, codec=conf.get("QUEUE_CODEC"))
        self.put([Entry(data, id, priority=priority, delay=delay)])
        return id

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
        raises InvalidMessage.
        """
        claimed = self.reserve(1, lease, wait=wait)
        if not claimed:
            return None, None
        entry = claimed[0].entry
        try:
            item = unpack_item(entry.data, id=entry.id, queue=self.logical, accept=conf.get("QUEUE_ACCEPT"))
            return claimed[0], item
        except Exception:
            self.bury(claimed)
            raise

    def clear(self) -> None:
        """Flush."""
        self.flush()
