"""The history of a queue in memory."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import count

from djqueue.backends.history import MOMENT, HistoryRow


class MemoryHistory:
    """Records by id, in the order in which they were kept. Its queue holds the lock."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[int, bytes]] = {}
        self._numbers = count()

    def keep(self, pairs: Iterable[tuple[str, bytes]], most: int) -> None:
        """Keep a record of each id, without those that are empty; the oldest beyond ``most`` go."""
        for id, record in pairs:
            if record:
                self._records.pop(id, None)
                self._records[id] = next(self._numbers), record
        self._drop_beyond(most)

    def of(self, id: str) -> bytes | None:
        found = self._records.get(id)
        return None if found is None else found[1]

    def rows(self, limit: int, before: str) -> list[HistoryRow]:
        found = [(number, id) for id, (number, _) in self._records.items() if not before or number < int(before)]
        return [HistoryRow(id, self._records[id][1], str(number)) for number, id in nlargest(limit, found)]

    def trim(self, most: int, until: float) -> int:
        """Drop the oldest beyond ``most``, and those that ended before ``until`` (microseconds); how many."""
        old = [id for id, (_, record) in self._records.items() if int(record[:MOMENT]) < until]
        for id in old:
            del self._records[id]
        return len(old) + self._drop_beyond(most)

    def _drop_beyond(self, most: int) -> int:
        surplus = max(0, len(self._records) - most)
        for _ in range(surplus):
            del self._records[next(iter(self._records))]
        return surplus
