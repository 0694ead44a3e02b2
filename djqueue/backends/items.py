"""A queue of plain items, for scripts and loops of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from djqueue import conf
from djqueue.backends.entries import LEASED, Entry, Lease, untried
from djqueue.backends.guards import Mark, Unique
from djqueue.durations import priority as checked_priority
from djqueue.exceptions import InvalidMessage, QueueError
from djqueue.fingerprints import fingerprint
from djqueue.message import new_id, pack_item, unpack_item

TRIES = 100
"""So often an equal item may come or go between two looks at it, before that is an error."""


class ItemVerbs:
    """What a queue offers beside the contract, over its verbs. Items are signed, as messages are."""

    def push(self, item: object, priority: int = 0, delay: float = 0.0, unique: bool = False) -> str:
        """Put one item that the codec can carry; returns its id.

        ``unique``: while an equal item waits, that one takes the new priority instead, and keeps its place among those
        of its own. One that was taken and is not completed does not count. Needs a backend that can look into its
        queue; an item that has waited for a day longer than it was to may come to have an equal beside it. Raises
        TypeError or ValueError for a priority that is no 32-bit number, EncodeError for what cannot be carried,
        MessageTooLarge beyond ``QUEUE_MAX_MESSAGE_SIZE``.
        """
        if unique:
            return self._push_unique(self._entry(item, priority, delay), Unique(f"item:{fingerprint(item)}", False))
        return self.push_many([item], priority, delay)[0]

    def _push_unique(self, entry: Entry, guard: Unique) -> str:
        for _ in range(TRIES):
            if self.put([entry], [guard])[0]:
                return entry.id
            if (waits := self._raised(guard.key, entry.priority)) is not None:
                return waits
        raise QueueError(f"An equal item came and went {TRIES} times in a row; this one was not put.")

    def _raised(self, key: str, priority: int) -> str | None:
        """The id of the item that waits under a key, once it has this priority; None if it left meanwhile."""
        mark = self.store.get(key)
        record = None if mark is None else self.find(Mark.read(mark).id)
        if record is None or record.state == LEASED:
            return None
        same = record.entry.priority == priority or self.reprioritise([record.entry.id], priority)
        return record.entry.id if same else None

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
        return Entry(data, id, priority=checked_priority(priority), delay=delay)

    def pop(self, timeout: float = 0.0, default: object = None) -> object:
        """The next item, or ``default`` after ``timeout`` seconds. At most once: it is gone when this returns.

        Then :attr:`refusal` says why there was none, and when there may be one.
        """
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

    def first_of(self, claimed: Sequence[Lease]) -> Lease | None:
        """The first of what was claimed, for who serves one at a time: what left its lane with it goes back."""
        if rest := claimed[1:]:
            self.release([untried(lease) for lease in rest])
        return claimed[0] if claimed else None

    def _open(self, entry: Entry) -> object:
        return unpack_item(
            entry.data,
            id=entry.id,
            queue=self.logical,
            accept=conf.get("QUEUE_ACCEPT"),
            max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
        )

    def clear(self) -> None:
        """Flush; a throttled queue forgets what was spent, too."""
        self.flush()
