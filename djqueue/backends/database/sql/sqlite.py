"""SQLite: one writer at a time, and every statement is a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.messages import Arrival, Ask, Dialect, Finish
from djqueue.backends.database.sql.statements import (
    ARRIVED,
    ARRIVING,
    ARRIVING_WIDTH,
    COLUMNS,
    COUNTED,
    DUE,
    ENTRY,
    EXTEND,
    HOLDS,
    RECORD,
    REQUEUED,
    SAID,
    SAID_WIDTH,
    WAITS,
    absent,
    flat,
    leasing,
    marks,
    rows_of_marks,
)

INTEGERS = ("neg_priority", "due_since", "created", "attempts", "failures", "lost", "lane_number", "state")
TEXTS = ("id", "lane", "command", "errors", "gate", "owner")
OF_ITS_TYPE = {
    "body": "CAST(body AS BLOB)",
    **{name: f"CASE WHEN typeof({name}) = 'text' THEN {name} ELSE '' END" for name in TEXTS},
    **{name: f"CAST({name} AS INTEGER)" for name in INTEGERS},
}
"""A column holds whatever somebody wrote into it; of a wrong type it must not stop a claim."""


def of_their_types(columns: str) -> str:
    return ", ".join(OF_ITS_TYPE.get(name, name) for name in columns.split(", "))


class SQLite(Dialect):
    """From version 3.35, which has RETURNING."""

    name = "sqlite"
    # julianday() would be off by a millisecond in half of all calls. Django wants the % doubled.
    now = (
        "(CAST(strftime('%%s', 'now') AS INTEGER) * 1000000 "
        "+ CAST(substr(strftime('%%f', 'now'), 4) AS INTEGER) * 1000)"
    )

    entry, record = of_their_types(ENTRY), of_their_types(RECORD)

    @property
    def died(self) -> str:
        """By our clock, which is that of the same machine, and finer."""
        return str(time.time_ns() // 1000)

    def insert(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        """In the order of the call: its clock is too coarse to tell two puts apart, so seq must."""
        sql = (
            f"WITH a ({ARRIVING}) AS (VALUES {rows_of_marks(ARRIVING_WIDTH, len(arrivals))}) "
            f"INSERT INTO djqueue_message ({COLUMNS}) SELECT %s, {ARRIVED} FROM (SELECT *, {DUE} FROM a) WHERE true "
            "ON CONFLICT (queue, id) DO NOTHING RETURNING id"
        )
        return {row[0] for row in run.rows(sql, [*flat([arrival.row for arrival in arrivals]), queue])}

    def take(self, run: Session, ask: Ask, which: str) -> Sequence[tuple]:
        change = f"UPDATE djqueue_message SET {leasing(ask.since, ask.begun)}"
        return run.rows(f"{change} WHERE seq IN ({which}) RETURNING {self.entry}", ask._asdict())

    def change_first(self, run: Session, change: str, which: str, params: Mapping[str, object]) -> int:
        return run.count(f"UPDATE djqueue_message SET {change} WHERE seq IN ({which})", params)

    def complete(
        self, run: Session, pairs: Sequence[tuple], finish: Finish, kept: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        ours, params = fence(pairs)
        with run.atomic():
            rows = run.rows(f"DELETE FROM djqueue_message WHERE {ours} RETURNING seq, id", params)
            self._count(run, finish, len(rows))
            if finish.remember:
                self._remember(run, finish, rows)
            self._keep(run, rows, kept)
        return rows

    def _keep(self, run: Session, rows: Sequence[tuple], kept: Sequence[tuple]) -> None:
        """The facts of those rows that were ours."""
        seqs = {row[0] for row in rows}
        if facts := {fact[0]: tuple(fact) for seq, _, *fact in kept if seq in seqs}:
            self.put(run, list(facts.values()))

    def _count(self, run: Session, finish: Finish, done: int) -> None:
        sql = (
            "INSERT INTO djqueue_fact (name, value, until, counter) VALUES (%s, x'', NULL, %s) "
            f"ON CONFLICT (name) DO UPDATE SET counter = {COUNTED} + excluded.counter"
        )
        run.count(sql, [finish.counter, done])

    def _remember(self, run: Session, finish: Finish, rows: Sequence[tuple]) -> None:
        sql = (
            "INSERT INTO djqueue_fact (name, value, until, counter) VALUES (%s, x'', NOW + %s, %s) "
            "ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter"
        )
        for seq, id in rows:
            run.count(sql, [finish.marks + id, finish.remember, seq])

    def mark_begun(self, run: Session, pairs: Sequence[tuple]) -> Iterable[tuple]:
        ours, params = fence(pairs)
        return run.rows(f"UPDATE djqueue_message SET begun = 1 WHERE {ours} AND {HOLDS} RETURNING seq", params)

    def touch(self, run: Session, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        ours, params = fence(pairs)
        sql = f"UPDATE djqueue_message SET {EXTEND}, sort_at = NOW + %s WHERE {ours} RETURNING seq, sort_at"
        return run.rows(sql, [lease, *params])

    def give_up(
        self, run: Session, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        sql = (
            f"WITH u ({SAID}) AS (VALUES {rows_of_marks(SAID_WIDTH, len(said))}) "
            f"UPDATE djqueue_message AS m SET queue = %s, {change} FROM u WHERE m.seq = u.seq AND m.token = u.token "
            "RETURNING seq"
        )
        with run.atomic() if kept else nullcontext():
            rows = run.rows(sql, [*flat(said), queue])
            self._keep(run, rows, kept)
        return rows

    # ---- lanes, guards and operators

    locking = skipping = ""

    def turn_at(self, now: int) -> int:
        """By our clock, as several claims have the same moment by its own."""
        return max(now, time.time_ns() // 1000)

    def begin(self, run: Session) -> None:
        """A transaction that writes first waits for its turn; one that reads first may find that it came too late.

        One that Django begins as IMMEDIATE or EXCLUSIVE has waited already.
        """
        if getattr(run.connection, "transaction_mode", None) not in ("IMMEDIATE", "EXCLUSIVE"):  # from Django 5.1 on
            run.count("DELETE FROM djqueue_ticket WHERE seq < 0")

    def withhold(self, run: Session, queue: str, ids: Sequence[str]) -> set[str]:
        """Whoever holds a key is the one writer until its transaction ends."""
        return set(ids)

    def requeue(self, run: Session, dead: str, queue: str, ids: Sequence[str]) -> int:
        """With a new seq, as this clock is too coarse to tell it from a put."""
        moving = (
            "SELECT seq, (SELECT max(seq) FROM djqueue_message) + row_number() OVER (ORDER BY sort_at, seq) AS last "
            f"FROM djqueue_message d WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS} AND {absent('d.id')}"
        )
        change = f"seq = x.last, queue = %s, {REQUEUED}"
        sql = f"UPDATE djqueue_message AS m SET {change} FROM ({moving}) x WHERE m.seq = x.seq"
        return run.count(sql, [queue, dead, *ids, queue])


def fence(pairs: Sequence[tuple]) -> tuple[str, list]:
    """The condition that a row is one of the pairs, by way of the primary key."""
    seqs = [seq for seq, _ in pairs]
    condition = f"seq IN ({', '.join(['%s'] * len(seqs))}) AND (seq, token) IN (VALUES {rows_of_marks(2, len(seqs))})"
    return condition, [*seqs, *flat(pairs)]
