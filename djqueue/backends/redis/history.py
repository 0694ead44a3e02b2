"""The history of a queue on Redis, which keeps its records in two hashes, in no order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from djqueue.backends.history import MOMENT, BaseHistory, HistoryRow, most_records
from djqueue.backends.redis import protocol

READINGS = 3
"""How often at most a history is read until it did not turn meanwhile."""
READ_AT_ONCE = 10_000
"""Records of a history that are held at once."""


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


class RedisHistory(BaseHistory):
    """The records of a queue, by its scripts, which ``call`` runs."""

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    def keep(self, ids: Sequence[str], records: Sequence[bytes]) -> None:
        for some in protocol.slices(zip(map(protocol.text, ids), records, strict=True)):
            self._call("remember", *records_of([record for _, record in some]), *(id for id, _ in some))

    def get(self, id: str) -> bytes | None:
        return self._call("history_of", protocol.text(id))

    def page(self, limit: int = 100, before: str = "") -> list[HistoryRow]:
        """As in the contract. Each call reads all records, so pages should be large, and holds a page or two of them.

        If the hashes are turned meanwhile, some may be passed over: they are read again then.
        """
        for _ in range(READINGS):
            turns: set[bytes] = set()
            newest = Newest(limit, protocol.text(before))
            for hash in ("new", "old"):
                newest.add(self._scanned(hash, newest, turns))
            if len(turns) == 1:
                break
        return newest.rows()

    def _scanned(self, hash: str, newest: Newest, turns: set[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Id and record of each record in a hash that may be among the newest; ``turns`` gets the moments of the last
        turn."""
        cursor = None
        while cursor != b"0":
            turn, cursor, *pairs = self._call("scan_history", hash, cursor or b"0", protocol.AT_ONCE, newest.oldest)
            turns.add(turn)
            yield from zip(*[iter(pairs)] * 2, strict=True)

    def trim(self, count: int, age: float) -> int:
        trimmed, left = self._call("trim_history", protocol.microseconds(age / 2), count)
        if left > count:  # it was lowered
            last = [row.cursor for row in self.page(count)][count - 1 :]  # none if another process has trimmed it
            while last and (surplus := [protocol.text(row.id) for row in self.page(READ_AT_ONCE, last[0])]):
                trimmed += sum(self._call("forget_records", *some) for some in protocol.slices(surplus))
        return trimmed


def records_of(history: Sequence[bytes]) -> tuple[int, bytes]:
    """The records as the scripts take them: how many one of the two hashes may have, and a line for each."""
    return max(1, most_records() // 2), b"\n".join(history)
