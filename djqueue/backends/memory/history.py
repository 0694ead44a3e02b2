"""The history of a queue in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from heapq import nlargest
from itertools import count

from djqueue.backends.history import MOMENT, BaseHistory, HistoryRow, most_records


class MemoryHistory(BaseHistory):
    """Records by id, in the order in which they were kept, under the lock of its queue and by its clock."""

    def __init__(self, lock: AbstractContextManager, now: Callable[[], float]) -> None:
        self._lock, self._now = lock, now
        self._records: dict[str, tuple[int, bytes]] = {}
        self._numbers = count()

    def keep(self, ids: Iterable[str], records: Iterable[bytes]) -> None:
        """As in the contract; without empty ones; the oldest beyond the bound go."""
        with self._lock:
            for id, record in zip(ids, records, strict=True):
                if record:
                    self._records.pop(id, None)
                    self._records[id] = next(self._numbers), record
            self._drop_beyond(most_records())

    def get(self, id: str) -> bytes | None:
        with self._lock:
            found = self._records.get(id)
        return None if found is None else found[1]

    def page(self, limit: int = 100, before: str = "") -> Sequence[HistoryRow]:
        with self._lock:
            found = [(number, id) for id, (number, _) in self._records.items() if not before or number < int(before)]
            return [HistoryRow(id, self._records[id][1], str(number)) for number, id in nlargest(limit, found)]

    def trim(self, count: int, age: float) -> int:
        with self._lock:
            until = (self._now() - age) * 1e6
            old = [id for id, (_, record) in self._records.items() if int(record[:MOMENT]) < until]
            for id in old:
                del self._records[id]
            return len(old) + self._drop_beyond(count)

    def _drop_beyond(self, most: int) -> int:
        surplus = max(0, len(self._records) - most)
        for _ in range(surplus):
            del self._records[next(iter(self._records))]
        return surplus
