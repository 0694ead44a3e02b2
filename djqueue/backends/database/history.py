"""The history of a queue in a table. A row has the records of one settlement, so that many cost little more than one.

A row is written by the statement that settles, or in its transaction; whoever reads takes it apart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import DatabaseError

from djqueue.backends.database.rows import BATCH, is_text, key_of, lines_of, micros, text_of
from djqueue.backends.database.session import Database
from djqueue.backends.database.sql.dialect import PAGE, Dialect
from djqueue.backends.history import MOST_AT_ONCE, BaseHistory, HistoryRow, most_records
from djqueue.utils import log_safely, slices

logger = logging.getLogger(__name__)

LAST = 2**62
"""A seq that no row has."""
SHARE = 10
"""Each process trims when it has kept a tenth of what a history may have."""


class DatabaseHistory(BaseHistory):
    """The records of one queue, the newest in the row with the highest seq."""

    def __init__(self, database: Database):
        self._db = database
        self._kept = 0
        """How many records this process has kept since it trimmed."""
        self._trimmed: tuple[int, int] | None = None
        """The seq of the newest row when it trimmed last, and the count to which."""

    def keep(self, ids: Sequence[str], records: Sequence[bytes]) -> None:
        ended = [(0, id, record) for id, record in zip(ids, records, strict=True) if record]
        for some in slices(ended, BATCH):
            self._db.run(self._db.sql.keep_records, some)
        self.kept(len(ended))

    def kept(self, count: int) -> None:
        """Trim, if so many records were kept that there may be too many. What was settled is settled if that fails."""
        self._kept += count
        if not count or self._kept < max(1, (most := most_records()) // SHARE):
            return
        self._kept = 0
        try:
            self._trim_surplus(most)
        except DatabaseError as error:
            log_safely(logger, logging.ERROR, "%s: the history could not be trimmed", self._db.queue, exc_info=error)

    def get(self, id: str) -> bytes | None:
        record = self._db.run(_record_of, id) if is_text(id) else None
        return None if record is None else record.encode()

    def page(self, limit: int = 100, before: str = "") -> list[HistoryRow]:
        """A cursor is the seq of a row, and how many of its records were listed."""
        last, listed = map(int, before.split(".")) if before else (LAST, 0)
        found: dict[str, HistoryRow] = {}
        while len(found) < limit and (page := self._db.run(_page, last, limit - len(found))):
            rows = [row for seq, some in page for row in (some[listed:] if seq == last else some)]
            again = self._db.run(_kept_again, page[0][0], {row.id for row in rows}) if last < LAST else set()
            for row in rows:
                if row.id not in again:
                    found.setdefault(row.id, row)
            last, listed = page[-1][0] - 1, 0
        return [*found.values()][:limit]

    def trim(self, count: int, age: float) -> int:
        """Checks the oldest and the newest, and counts only what was kept since the last call. Between two calls each
        process lets it grow by a tenth."""
        return self._delete_oldest("at < {now} - %s", micros(age)) + self._trim_surplus(count)

    def _trim_surplus(self, most: int) -> int:
        """Counts only if something was kept since the last time: that reads a number of each row."""
        newest = self._db.run(self._db.sql.last_record)
        if self._trimmed is not None and self._trimmed[0] == newest and self._trimmed[1] <= most:
            return 0
        self._trimmed = newest, most
        seq, dropped = self._db.run(_cut, most)
        return dropped + self._delete_oldest("seq < %s", seq)

    def _delete_oldest(self, which: str, param: int) -> int:
        """Delete the oldest rows under a condition; how many records they had."""
        dropped, rows = 0, PAGE
        while rows == PAGE:
            rows, count = self._db.run(_delete_some, which, param)
            dropped += count
        return dropped


def _record_of(sql: Dialect, id: str) -> str | None:
    line = f"\n{key_of(id)} "
    for (text,) in sql.records_with(id, line):
        return text.partition(line)[2].partition("\n")[0]
    return None


def _page(sql: Dialect, last: int, limit: int) -> list[tuple[int, list[HistoryRow]]]:
    """Seqs of rows, and the records of each, the newest first."""
    return [(seq, _listed(seq, text)) for seq, text in sql.newest_records(last, limit)]


def _kept_again(sql: Dialect, seq: int, ids: set[str]) -> set[str]:
    """Those of some ids that have a record in a newer row than this one: that one counts."""
    again: set[str] = set()
    while ids and (rows := sql.records_within(seq, min(ids), max(ids))):
        again |= {id for _, text in rows for id, _ in lines_of(text) if id in ids}
        seq = rows[-1][0]
    return again


def _listed(seq: int, text: str) -> list[HistoryRow]:
    lines = enumerate(lines_of(text), 1)
    return [HistoryRow(id, record.encode(), f"{seq}.{place}") for place, (id, record) in lines]


def _cut(sql: Dialect, most: int) -> tuple[int, int]:
    """Drop the records beyond ``most`` of the row in which they begin. All rows before a seq, which is returned next to
    the number of dropped records, are beyond too."""
    for seq, newer, text in sql.beyond(most):
        lines = lines_of(text)
        left = lines[: max(0, min(most - int(newer), MOST_AT_ONCE))]  # MariaDB has a Decimal
        if not left:
            return seq + 1, 0
        sql.cut_records(seq, len(left), text_of(left))
        return seq, len(lines) - len(left)
    return 0, 0


def _delete_some(sql: Dialect, which: str, param: int) -> tuple[int, int]:
    """Delete some of the oldest rows under a condition; how many rows and how many records."""
    rows = sql.oldest_records(which, [param])
    if rows:
        sql.delete_rows("djqueue_history", [seq for seq, _ in rows])
    return len(rows), sum(count for _, count in rows)
