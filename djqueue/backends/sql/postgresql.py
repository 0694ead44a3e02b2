"""PostgreSQL: every verb is one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from djqueue.backends.sql.common import Arrival, Ask, Dialect, Finish, Taken
from djqueue.backends.sql.session import Session
from djqueue.backends.sql.text import (
    ARRIVED,
    ARRIVING,
    COLUMNS,
    DELAYED,
    DUE,
    ENTRY,
    EXTEND,
    FIRST_READY,
    LEASE,
    LEASED,
    PROMOTE,
    PROMOTED,
    REAPED,
    SAID,
    absent,
    first_over,
    flat,
    next_of,
)

SKIPPING = "FOR UPDATE SKIP LOCKED"

ARRIVALS = f"SELECT nextval('djqueue_message_seq_seq') AS seq, *, {DUE} FROM"
TYPES = ("text", "bytea", "int", "bigint", "bigint", "text", "text", "text", "int", "int", "int")
"""Of ARRIVING."""
INSERT = f"INSERT INTO djqueue_message (seq, queue, {COLUMNS.removeprefix('queue, ')}) SELECT seq, %s, {ARRIVED} FROM e"
REFUSING = 'ORDER BY id COLLATE "C" ON CONFLICT (queue, id) DO NOTHING RETURNING id'
"""Numbered in the order of the call, inserted in that of the ids: two puts of the same ids would deadlock otherwise."""

SAID_TYPES = ("bigint", "bigint", "bigint", "int", "int", "int", "text")
ARRAYS_FROM = 8
"""So many rows are given as arrays, fewer as values."""
PAIRS = "unnest(%s::bigint[], %s::bigint[]) u (seq, token)"
OURS = "m.seq = u.seq AND m.token = u.token"


class PostgreSQL(Dialect):
    """From version 14."""

    name = "postgresql"
    # Not now(), which stands still in a transaction; nor clock_timestamp(), which cannot be an index condition.
    now = "(extract(epoch from statement_timestamp()) * 1000000)::bigint"

    def insert(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        rows, params = table([arrival.row for arrival in arrivals], TYPES)
        sql = f"WITH e AS ({ARRIVALS} {rows} a ({ARRIVING})) {INSERT} {REFUSING}"
        return {row[0] for row in run.rows(sql, [*params, queue])}

    def insert_guarded(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        """The guards in the same statement: g has the keys that were free, each with the id of the first to ask.

        Everywhere keys are locked in the order of their bytes.
        """
        rows = [(*arrival.row, arrival.key, arrival.ttl) for arrival in arrivals]
        rows, params = table(rows, (*TYPES, "text", "bigint"))
        sql = (
            f"WITH e AS MATERIALIZED ({ARRIVALS} {rows} a ({ARRIVING}, k, ttl)), "
            "g AS (INSERT INTO djqueue_fact (k, value, until, tally) "
            """SELECT DISTINCT ON (k COLLATE "C") k, convert_to(id, 'UTF8'), NOW + ttl, 0 FROM e WHERE k <> '' """
            f'AND {absent("e.id")} ORDER BY k COLLATE "C", seq '
            f"{self.fact_replaces} WHERE djqueue_fact.until <= NOW RETURNING k, value) "
            f"{INSERT} WHERE k = '' OR EXISTS (SELECT 1 FROM g WHERE g.k = e.k AND g.value = convert_to(e.id, 'UTF8')) "
            f"{REFUSING}"
        )
        return {row[0] for row in run.rows(sql, [*params, queue, queue])}

    def claim(self, run: Session, ask: Ask) -> Taken:
        """No part of a statement sees what another promoted: a claim that promotes takes nothing, and is repeated."""
        taken, promoted = self._claim(run, ask, CLAIM)
        if promoted:
            taken, _ = self._claim(run, ask, CLAIM_READY)
        return taken._replace(more=promoted == PROMOTE)

    def _claim(self, run: Session, ask: Ask, sql: str) -> tuple[Taken, int]:
        rows = run.rows(sql, ask._asdict())
        now, promoted, next = rows[0][:3]
        return Taken([row[3:] for row in rows if row[3] is not None], now, next), promoted

    def reap(self, run: Session, queue: str, limit: int) -> tuple[int, int, int | None]:
        sql = (
            f"WITH gone AS ({change(REAPED, first_over(LEASED))} RETURNING 1) "
            f"SELECT (SELECT count(*) FROM gone), NOW, ({next_of(LEASED)})"
        )
        return run.rows(sql, {"queue": queue, "limit": limit})[0]

    def change_over(self, run: Session, what: str, state: int, queue: str, limit: int) -> int:
        return run.count(change(what, first_over(state)), {"queue": queue, "limit": limit})

    def delete_some(
        self, run: Session, table: str, key: str, condition: str, order: str, params: list, limit: int
    ) -> int:
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s {SKIPPING}"
        return run.count(f"DELETE FROM {table} WHERE {key} = ANY(ARRAY({picked}))", [*params, limit])

    def complete(self, run: Session, pairs: Sequence[tuple], finish: Finish) -> Iterable[tuple]:
        sql = (
            f"WITH d AS (DELETE FROM djqueue_message m USING {PAIRS} WHERE {OURS} RETURNING m.seq, m.id), "
            "c AS (INSERT INTO djqueue_fact (k, value, until, tally) "
            "SELECT %s, '', NULL, count(*) FROM d HAVING count(*) > 0 "
            "ON CONFLICT (k) DO UPDATE SET tally = djqueue_fact.tally + excluded.tally), "
            "r AS (INSERT INTO djqueue_fact (k, value, until, tally) "
            "SELECT %s::text || id, '', NOW + %s, seq FROM d WHERE %s ORDER BY id "
            "ON CONFLICT (k) DO UPDATE SET until = excluded.until, tally = excluded.tally) "
            "SELECT seq FROM d"
        )
        params = [finish.counter, finish.marks, finish.remember, finish.remember > 0]
        return run.rows(sql, [*columns(pairs), *params])

    def touch(self, run: Session, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        change = f"UPDATE djqueue_message m SET {EXTEND}, moment = NOW + %s"
        sql = f"{change} FROM {PAIRS} WHERE {OURS} RETURNING m.seq, m.moment"
        return run.rows(sql, [lease, *columns(pairs)])

    def give_up(self, run: Session, queue: str, change: str, said: Sequence[tuple]) -> Iterable[tuple]:
        rows, params = table(said, SAID_TYPES)
        sql = f"UPDATE djqueue_message m SET queue = %s, {change} FROM {rows} u ({SAID}) WHERE {OURS} RETURNING m.seq"
        return run.rows(sql, [queue, *params])


def table(rows: Sequence[tuple], types: Sequence[str]) -> tuple[str, list]:
    """The rows as a table expression. Arrays are faster by far for many rows, and slower for one."""
    if len(rows) < ARRAYS_FROM:
        row = f"({', '.join(f'CAST(%s AS {type})' for type in types)})"
        return f"(VALUES {', '.join([row] * len(rows))})", flat(rows)
    return f"unnest({', '.join(f'%s::{type}[]' for type in types)})", columns(rows)


def columns(rows: Sequence[tuple]) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]


def change(what: str, which: str) -> str:
    """An update of picked rows by primary key. The array keeps the planner from a join that would lock more."""
    return f"UPDATE djqueue_message SET {what} WHERE seq = ANY(ARRAY({which} {SKIPPING}))"


def claiming(first: str, condition: str) -> str:
    """Always a row; the entries beside it, when the next falls due only if there were too few of them."""
    return (
        f"WITH {first} pick AS MATERIALIZED ({FIRST_READY.replace(' ORDER', f' {condition} ORDER')} {SKIPPING}), "
        f"got AS (UPDATE djqueue_message SET {LEASE} WHERE seq = ANY(ARRAY(SELECT seq FROM pick)) RETURNING {ENTRY}) "
        "SELECT NOW, (SELECT count(*) FROM due), "
        f"CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN ({next_of(DELAYED)}) END, got.* "
        "FROM (SELECT 1) one LEFT JOIN got ON true"
    )


CLAIM = claiming(
    f"due AS ({change(PROMOTED, first_over(DELAYED, PROMOTE))} RETURNING 1),", "AND NOT EXISTS (SELECT 1 FROM due)"
)
CLAIM_READY = claiming("due AS (SELECT 1 LIMIT 0),", "")
