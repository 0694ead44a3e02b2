"""The newest records of a history on Redis, which keeps them in no order."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from djqueue.backends.history import MOMENT, HistoryRow
from djqueue.backends.redis import protocol


class Newest:
    """The newest of many records of a history, ``limit`` of them behind a cursor: the moment of the end, and the id."""

    def __init__(self, limit: int, behind: bytes):
        self._limit, self._behind = limit, behind
        self._found: dict[bytes, tuple[bytes, bytes]] = {}
        """Cursor and record by id."""
        self._least = b""
        """There are enough with this cursor or a greater one."""

    @property
    def oldest(self) -> bytes:
        """No record that ended before this moment is wanted."""
        return self._least[:MOMENT]

    def add(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Add ids with their records. What is to be passed over may be among them."""
        oldest = self.oldest
        for id, record in pairs:
            moment = record[:MOMENT]
            if moment < oldest:
                continue
            cursor = b"%b %b" % (moment, id)
            if cursor > self._least and not (self._behind and cursor >= self._behind):
                self._found[id] = cursor, record
                if len(self._found) > 2 * self._limit:
                    best = self._best()
                    self._found, self._least = dict(best), best[-1][1][0] if best else cursor
                    oldest = self.oldest

    def rows(self) -> list[HistoryRow]:
        return [
            HistoryRow(protocol.untext(id), record, protocol.untext(cursor)) for id, (cursor, record) in self._best()
        ]

    def _best(self) -> list[tuple[bytes, tuple[bytes, bytes]]]:
        return sorted(self._found.items(), key=itemgetter(1), reverse=True)[: self._limit]
