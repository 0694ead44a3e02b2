"""SQLite: one writer at a time, and every statement is a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from math import ceil

from djqueue.backends.database.rows import ClaimRequest, NewRow
from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.dialect import Completion, Dialect, alike, flat, marks, rows_of_marks
from djqueue.backends.database.sql.text import NOW


class SQLite(Dialect):
    """From version 3.35, which has RETURNING."""

    name = "sqlite"
    # julianday() would be off by a millisecond in half of all calls. Django wants the % doubled.
    now = (
        "(CAST(strftime('%%s', 'now') AS INTEGER) * 1000000 "
        "+ CAST(substr(strftime('%%f', 'now'), 4) AS INTEGER) * 1000)"
    )

    has = "instr(records, %s) > 0"

    @property
    def failed_at(self) -> str:
        """By the clock of Python, which is the clock of the same machine, and finer."""
        return str(time.time_ns() // 1000)

    def keep_deadline(self, seconds: float) -> None:
        """It has no server: what takes long is to wait for the lock."""
        ((own,),) = self.rows("PRAGMA busy_timeout")
        self.rows(f"PRAGMA busy_timeout = {min(own, ceil(seconds * 1000))}")

    def insert(self, arrivals: Sequence[NewRow]) -> set[str]:
        """Insert in the order of the call: the clock is too coarse to order two puts, so seq orders them."""
        if len(arrivals) == 1:
            return self._insert_one(arrivals[0])
        given, params = table([arrival.row for arrival in arrivals], text.ARRIVING)
        sql = (
            f"INSERT INTO djqueue_message ({text.COLUMNS}) SELECT %s, {text.arrived()} FROM "
            f"(SELECT *, {text.DUE} FROM {given}) WHERE true ON CONFLICT (queue, id) DO NOTHING RETURNING id"
        )
        return {row[0] for row in self.rows(sql, [self.queue, *params])}

    def take(self, ask: ClaimRequest, which: str) -> Sequence[tuple]:
        sql = f"UPDATE djqueue_message SET {ask.change} WHERE seq IN ({which}) RETURNING {text.ENTRY}"
        return self.rows(sql, ask._asdict())

    def change_first(self, change: str, which: str, params: Mapping[str, object]) -> int:
        return self.count(f"UPDATE djqueue_message SET {change} WHERE seq IN ({which})", params)

    def complete(
        self, pairs: Sequence[tuple], finish: Completion, kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        ours, params = fence(pairs)
        with self.atomic():
            rows = self.rows(f"DELETE FROM djqueue_message WHERE {ours} RETURNING seq, id", params)
            count = f"{text.INSERT_FACT} VALUES (%s, x'', NULL, %s) {self.fact_counts}"
            self.count(count, [finish.counter, len(rows)])
            remember = f"{text.INSERT_FACT} VALUES (%s, x'', {NOW} + %s, %s) {self.mark_replaces}"
            for seq, id in rows if finish.remember else ():
                self.count(remember, [finish.marks + id, finish.remember, seq])
            self._keep(rows, kept, ended)
        return rows

    def _keep(self, rows: Sequence[tuple], kept: Sequence[tuple], ended: Sequence[tuple]) -> None:
        """Keep the facts and the records of the rows that were held."""
        seqs = {row[0] for row in rows} if kept or ended else set()
        if facts := {fact[0]: tuple(fact) for seq, _, *fact in kept if seq in seqs}:
            self.put(list(facts.values()))
        if held := [one for one in ended if one[0] in seqs]:
            self.keep_records(held)

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        ours, params = fence(pairs)
        return self.rows(f"UPDATE djqueue_message SET begun = 1 WHERE {ours} AND {text.HOLDS} RETURNING seq", params)

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        ours, params = fence(pairs)
        sql = f"UPDATE djqueue_message SET {text.EXTEND}, sort_at = {NOW} + %s WHERE {ours} RETURNING seq, sort_at"
        return self.rows(sql, [lease, *params])

    def give_up(
        self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        given = f"WITH u ({text.SAID}) AS (VALUES {rows_of_marks(said)})"
        ours = "FROM u WHERE m.seq = u.seq AND m.token = u.token RETURNING seq"
        sql = f"{given} UPDATE djqueue_message AS m SET queue = %s, {change} {ours}"
        with self.atomic() if kept or ended else nullcontext():
            rows = self.rows(sql, [*flat(said), queue])
            self._keep(rows, kept, ended)
        return rows

    # ---- lanes, guards and operators

    locking = skipping = ""

    def turn_at(self, now: int) -> int:
        """By our clock, as several claims have the same moment by its own."""
        return max(now, time.time_ns() // 1000)

    def begin(self) -> None:
        """A transaction that writes first waits for its turn; one that reads first may fail, being too late.

        A transaction that Django begins as IMMEDIATE or EXCLUSIVE has waited already.
        """
        if getattr(self.connection, "transaction_mode", None) not in ("IMMEDIATE", "EXCLUSIVE"):  # from Django 5.1 on
            self.count("DELETE FROM djqueue_ticket WHERE seq < 0")

    def withhold(self, ids: Sequence[str]) -> set[str]:
        """Locks nothing: a transaction that holds a key is the only writer until it ends."""
        return set(ids)

    def requeue(self, failed: str, ids: Sequence[str]) -> int:
        """Requeue with a new seq, as this clock is too coarse to order it after earlier puts."""
        moving = (
            "SELECT seq, (SELECT max(seq) FROM djqueue_message) + row_number() OVER (ORDER BY sort_at, seq) AS last "
            f"FROM djqueue_message d WHERE queue = %s AND id IN ({marks(ids)}) AND {text.WAITS} "
            f"AND {text.absent('d.id')}"
        )
        change = f"seq = x.last, queue = %s, {text.REQUEUED}"
        sql = f"UPDATE djqueue_message AS m SET {change} FROM ({moving}) x WHERE m.seq = x.seq"
        return self.count(sql, [self.queue, failed, *ids, self.queue])


def table(rows: Sequence[tuple], names: str) -> tuple[str, list]:
    """The rows as a table expression."""
    columns, same = alike(rows)
    varied = [column for at, column in enumerate(columns) if at not in same]
    order = iter(range(1, len(varied) + 1))
    shown = [f"{'%s' if at in same else f'column{next(order)}'} AS {name}" for at, name in enumerate(names.split(", "))]
    values = list(zip(*varied, strict=True))
    return f"(SELECT {', '.join(shown)} FROM (VALUES {rows_of_marks(values)}))", [*same.values(), *flat(values)]


def fence(pairs: Sequence[tuple]) -> tuple[str, list]:
    """The condition that a row is one of the pairs, by way of the primary key."""
    condition = f"seq IN ({marks(pairs)}) AND (seq, token) IN (VALUES {rows_of_marks(pairs)})"
    return condition, [*(seq for seq, _ in pairs), *flat(pairs)]
