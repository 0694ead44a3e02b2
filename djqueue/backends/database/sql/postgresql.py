"""PostgreSQL: every verb is one statement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from django.db import DataError

from djqueue.backends.database.rows import Arrival, Ask
from djqueue.backends.database.sql.dialect import (
    ASSIGNED,
    FIRST_ENTRIES,
    FIRST_IN_LINE,
    INSERT_FACT,
    LIVING,
    OF_LANES,
    WRITTEN,
    Dialect,
    Finish,
    Glance,
    Heads,
    Payment,
    Reaping,
    Taken,
    flat,
    heads_of,
)
from djqueue.backends.database.sql.statements import (
    ARRIVED,
    ARRIVING,
    COLUMNS,
    COUNTED,
    DELAYED,
    DUE,
    ENTRY,
    EXTEND,
    FIRST_READY,
    HOLDS,
    KEPT,
    LAST_READY,
    LEASE,
    LEASED,
    NUMBERS,
    OUT,
    PROMOTE,
    PROMOTED,
    REAPED,
    SAID,
    absent,
    first_over,
    next_of,
    over_by,
    soonest,
)

SKIPPING = "FOR UPDATE SKIP LOCKED"
INSTANT = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
"""When this is read, and not when its statement began."""

ARRIVALS = f"SELECT nextval('djqueue_message_seq_seq') AS seq, *, {DUE} FROM"
TYPES = ("text", "bytea", "int", "bigint", "bigint", "text", "text", "text", "int", "int", "int", "text", "bigint")
"""Of ARRIVING."""
INSERT = f"INSERT INTO djqueue_message (seq, queue, {COLUMNS.removeprefix('queue, ')}) SELECT seq, %s, {ARRIVED} FROM e"
REFUSING = 'ORDER BY id COLLATE "C" ON CONFLICT (queue, id) DO NOTHING RETURNING id'
"""Numbered in the order of the call, inserted in that of the ids: two puts of the same ids would deadlock otherwise."""

SAID_TYPES = ("bigint", "bigint", "bigint", "int", "int", "int", "text")
KEPT_TYPES = ("bigint", "bigint", "text", "bytea", "bigint")
ARRAYS_FROM = 8
"""So many rows are given as arrays, fewer as values."""
PAIRS = "unnest(%s::bigint[], %s::bigint[]) u (seq, token)"
OURS = "m.seq = u.seq AND m.token = u.token"


LANE_TYPES = ("bigint", "text", "int", "bigint", "bigint", "text", "text", "bigint", "int", "bigint")
"""Of WRITTEN."""


class PostgreSQL(Dialect):
    """From version 14."""

    name = "postgresql"
    # Not now(), which stands still in a transaction; nor clock_timestamp(), which cannot be an index condition.
    now = "(extract(epoch from statement_timestamp()) * 1000000)::bigint"

    # Or it may read the whole table to join it.
    in_lanes = (
        f"{NUMBERS} CROSS JOIN LATERAL (SELECT sort_at FROM djqueue_message "
        "WHERE queue = %(queue)s AND state = l.number ORDER BY sort_key, sort_at, seq OFFSET 0) m"
    )

    def insert(self, arrivals: Sequence[Arrival]) -> set[str]:
        rows, params = table([arrival.row for arrival in arrivals], TYPES)
        sql = f"WITH e AS ({ARRIVALS} {rows} a ({ARRIVING})) {INSERT} {REFUSING}"
        return {row[0] for row in self.rows(sql, [*params, self.queue])}

    def insert_guarded(self, arrivals: Sequence[Arrival]) -> set[str]:
        """The guards in the same statement: g has the keys that were free, each with the id of the first to ask.

        Everywhere keys are locked in the order of their bytes.
        """
        guarded = [(*arrival.row, arrival.key, arrival.ttl) for arrival in arrivals]
        rows, params = table(guarded, (*TYPES, "text", "bigint"))
        sql = (
            f"WITH e AS MATERIALIZED ({ARRIVALS} {rows} a ({ARRIVING}, name, ttl)), "
            f"g AS ({INSERT_FACT} "
            """SELECT DISTINCT ON (name COLLATE "C") name, convert_to(id, 'UTF8'), NOW + ttl, 0 FROM e """
            """WHERE name <> '' """
            f'AND {absent("e.id")} ORDER BY name COLLATE "C", seq '
            f"{self.fact_replaces} WHERE djqueue_fact.until <= NOW RETURNING name, value) "
            f"{INSERT} WHERE name = '' OR EXISTS (SELECT 1 FROM g WHERE g.name = e.name AND g.value = "
            "convert_to(e.id, 'UTF8')) "
            f"{REFUSING}"
        )
        return {row[0] for row in self.rows(sql, [*params, self.queue, self.queue])}

    def claim(self, ask: Ask) -> Taken:
        """No part of a statement sees what another promoted: a claim that promotes takes nothing, and is repeated."""
        taken, promoted = self._claim(ask, CLAIMS[ask.lifo, ask.look])
        if promoted:
            taken, _ = self._claim(ask, CLAIMS_READY[ask.lifo, ask.look])
        return taken._replace(more=promoted == PROMOTE)

    def _claim(self, ask: Ask, sql: str) -> tuple[Taken, int]:
        rows = self.rows(sql.replace("SINCE", ask.since).replace("BEGUN", ask.begun), ask._asdict())
        now, promoted, next, *of_lanes = rows[0][:GLANCED]
        glance = Glance(now, None, None, next, *of_lanes)
        taken = [row[GLANCED:] for row in rows if row[GLANCED] is not None]
        return Taken(taken, now, next, glance=glance if ask.look else None), promoted

    def claim_paid(self, ask: Ask, payment: Payment) -> tuple[int, Sequence[tuple]]:
        if self.joined:
            return 0, []
        sql = PAID[ask.lifo].replace("SINCE", str(payment.since)).replace("BEGUN", ask.begun)
        try:
            rows = self.rows(sql, ask._asdict() | payment._asdict())
        except DataError:  # somebody has one of them
            return ask.limit, []
        return rows[0][0], [row[PAID_FOR:] for row in rows if row[PAID_FOR] is not None]

    def take(self, ask: Ask, which: str) -> Sequence[tuple]:
        return self.rows(f"{change(ask.change, which)} RETURNING {ENTRY}", ask._asdict())

    def reap(self, limit: int, by: int) -> Reaping:
        sql = (
            f"WITH gone AS ({change(REAPED, over_by(LEASED))} RETURNING 1) "
            f"SELECT (SELECT count(*) FROM gone), NOW, ({soonest(LEASED, OUT)}), ({first_over(OUT, 1)}) IS NOT NULL"
        )
        return Reaping(*self.rows(sql, {"queue": self.queue, "limit": limit, "by": by})[0])

    def change_first(self, what: str, which: str, params: Mapping[str, object]) -> int:
        return self.count(change(what, which), params)

    def hold_as_of(self, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """One statement that writes nothing, if all of them are there. Its clock is read behind the locks."""
        held = f"SELECT name, value, {LIVING} AS lives FROM djqueue_fact WHERE name = ANY(%s) ORDER BY name FOR UPDATE"
        rows = self.rows(f"WITH held AS MATERIALIZED ({held}) SELECT held.*, {INSTANT} FROM held", [sorted(keys)])
        if len(rows) < len(keys):
            return super().hold_as_of(keys)
        return {key: bytes(value) for key, value, lives, _ in rows if lives}, rows[-1][-1]

    def heads(self, wants: Mapping[int, int], outers: Collection[int]) -> Heads:
        entries = FIRST_ENTRIES.replace("state = %s", "state = n.number").replace("LIMIT %s", "LIMIT n.most")
        line = FIRST_IN_LINE.replace("state = %s", "state = n.number")
        sql = (
            "SELECT NOW, x.* FROM (SELECT 1) one LEFT JOIN ("
            f"SELECT e.* FROM unnest(%s::bigint[], %s::int[]) n (number, most) CROSS JOIN LATERAL ({entries}) e "
            f"UNION ALL SELECT l.* FROM unnest(%s::bigint[]) n (number) CROSS JOIN LATERAL ({line}) l) x ON true"
        )
        rows = self.rows(sql, [list(wants), list(wants.values()), self.queue, list(outers), self.queue])
        return heads_of(rows[0][0], [row[1:] for row in rows if row[1] is not None])

    def write_lanes(self, rows: Sequence[tuple]) -> None:
        table_of, params = table(rows, LANE_TYPES)
        self.count(f"UPDATE djqueue_lane l SET {ASSIGNED} FROM {table_of} u ({WRITTEN}) WHERE l.seq = u.seq", params)

    def delete_some(self, table: str, key: str, condition: str, order: str, params: list, limit: int) -> int:
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s {SKIPPING}"
        return self.count(f"DELETE FROM {table} WHERE {key} = ANY(ARRAY({picked}))", [*params, limit])

    def complete(self, pairs: Sequence[tuple], finish: Finish, kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        keeping, facts = self._keeping(kept)
        sql = (
            f"WITH d AS (DELETE FROM djqueue_message m USING {PAIRS} WHERE {OURS} RETURNING m.seq, m.id), "
            f"c AS ({INSERT_FACT} "
            "SELECT %s, '', NULL, count(*) FROM d HAVING count(*) > 0 "
            f"ON CONFLICT (name) DO UPDATE SET counter = {COUNTED} + excluded.counter), "
            f"r AS ({INSERT_FACT} "
            "SELECT %s::text || id, '', NOW + %s, seq FROM d WHERE %s ORDER BY id "
            f"ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter){keeping} "
            "SELECT seq FROM d"
        )
        params = [finish.counter, finish.marks, finish.remember, finish.remember > 0]
        return self.rows(sql, [*columns(pairs), *params, *facts])

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        sql = f"UPDATE djqueue_message m SET begun = 1 FROM {PAIRS} WHERE {OURS} AND {HOLDS} RETURNING m.seq"
        return self.rows(sql, columns(pairs))

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        change = f"UPDATE djqueue_message m SET {EXTEND}, sort_at = NOW + %s"
        sql = f"{change} FROM {PAIRS} WHERE {OURS} RETURNING m.seq, m.sort_at"
        return self.rows(sql, [lease, *columns(pairs)])

    def give_up(self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        rows, params = table(said, SAID_TYPES)
        sql = f"UPDATE djqueue_message m SET queue = %s, {change} FROM {rows} u ({SAID}) WHERE {OURS} RETURNING m.seq"
        if kept:
            keeping, facts = self._keeping(kept)
            sql, params = f"WITH d AS ({sql}){keeping} SELECT seq FROM d", [*params, *facts]
        return self.rows(sql, [queue, *params])

    def _keeping(self, kept: Sequence[tuple]) -> tuple[str, list]:
        """A further part of a statement, which keeps the facts of those rows that are in its part ``d``."""
        if not kept:
            return "", []
        rows, params = table(kept, KEPT_TYPES)
        part = (
            f", f AS ({INSERT_FACT} "
            f"""SELECT DISTINCT ON (name COLLATE "C") name, value, NOW + ttl, 0 FROM {rows} x ({KEPT}) """
            f"""WHERE seq IN (SELECT seq FROM d) ORDER BY name COLLATE "C" {self.fact_replaces})"""
        )
        return part, params


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


def claiming(first: str, condition: str, ready: str, look: bool) -> str:
    """Always a row; the entries beside it, and what else there is to do only if there were too few of them."""
    few = "CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN"
    glance = ", ".join(
        [f"{few} ({next_of(DELAYED)}) END", *(f"{few} {one} END" if look else "NULL" for one in OF_LANES)]
    )
    return (
        f"WITH {first} pick AS MATERIALIZED ({ready.replace(' ORDER', f' {condition} ORDER')} {SKIPPING}), "
        f"got AS (UPDATE djqueue_message SET {LEASE} WHERE seq = ANY(ARRAY(SELECT seq FROM pick)) RETURNING {ENTRY}) "
        "SELECT NOW, (SELECT count(*) FROM due), "
        f"{glance}, got.* "
        "FROM (SELECT 1) one LEFT JOIN got ON true"
    )


GLANCED = 7
"""So many columns stand before those of an entry."""
DUE_FIRST = f"due AS ({change(PROMOTED, first_over(DELAYED, PROMOTE))} RETURNING 1),"
READY = {(ready is LAST_READY, look): (ready, look) for ready in (FIRST_READY, LAST_READY) for look in (False, True)}
CLAIMS = {way: claiming(DUE_FIRST, "AND NOT EXISTS (SELECT 1 FROM due)", *how) for way, how in READY.items()}
CLAIMS_READY = {way: claiming("due AS (SELECT 1 LIMIT 0),", "", *how) for way, how in READY.items()}


def paying(ready: str) -> str:
    """Who finds the fact changed takes nothing; who pays and cannot have what is paid for, or is late, fails: 1 / 0."""
    return (
        f"WITH there AS MATERIALIZED ({ready.replace(' ORDER', f' AND ({first_over(DELAYED, 1)}) IS NULL ORDER')}), "
        "paid AS (UPDATE djqueue_fact SET value = %(value)s, until = NOW + %(keep)s "
        f"WHERE name = %(key)s AND value = %(was)s AND {LIVING} AND NOW < SINCE + {STALE} "
        "AND (SELECT count(*) FROM there) = %(limit)s RETURNING 1), "
        "pick AS MATERIALIZED (SELECT seq FROM djqueue_message WHERE seq = ANY(ARRAY(SELECT seq FROM there)) "
        f"AND state = 0 AND EXISTS (SELECT 1 FROM paid) AND {INSTANT} < SINCE + {LATE} {SKIPPING}), "
        f"got AS (UPDATE djqueue_message SET {LEASE} WHERE seq = ANY(ARRAY(SELECT seq FROM pick)) RETURNING {ENTRY}) "
        "SELECT (SELECT count(*) FROM there), "
        "1 / ((SELECT count(*) FROM got) = %(limit)s * (SELECT count(*) FROM paid))::int, got.* "
        "FROM (SELECT 1) one LEFT JOIN got ON true"
    )


STALE, LATE = 10_000, 20_000
"""µs after which what a budget was seen to have is not what leaves now, before and behind the lock."""
PAID_FOR = 2
"""So many columns stand before those of an entry."""
PAID = {ready is LAST_READY: paying(ready) for ready in (FIRST_READY, LAST_READY)}
