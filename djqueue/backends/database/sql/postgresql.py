"""PostgreSQL: every verb is one statement, but for lanes, which are locked, read and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from zlib import crc32

from djqueue.backends.database.rows import ClaimRequest, NewRow, records_of
from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.dialect import (
    CHUNK,
    LANE_CAP,
    ClaimResult,
    Completion,
    Dialect,
    Glance,
    Heads,
    Payment,
    Spent,
    alike,
    flat,
    heads_of,
    in_order,
)
from djqueue.backends.database.sql.spending import FOUND, SPENT
from djqueue.backends.database.sql.text import NOW, SINCE

SKIPPING = "FOR UPDATE SKIP LOCKED"
INSTANT = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
"""When this is read, and not when its statement began."""

ARRIVALS = f"SELECT nextval('djqueue_message_seq_seq') AS seq, *, {text.DUE} FROM"
INSERT = f"INSERT INTO djqueue_message (seq, {text.COLUMNS}) SELECT seq, %s, {text.arrived()} FROM e"
REFUSING = 'ORDER BY id COLLATE "C" ON CONFLICT (queue, id) DO NOTHING RETURNING id'
"""Rows are numbered in the order of the call, but inserted in the order of ids: otherwise two puts may deadlock."""

DELAY = 2
"""Its place in SAID."""
SAID_TYPES = ("bigint", "bigint", "bigint", "int", "int", "int", "text")
KEPT_TYPES = ("bigint", "bigint", "text", "bytea", "bigint")
ARRAYS_FROM = 8
"""From this number on rows are given as arrays, fewer rows as values."""
OURS = "m.seq = u.seq AND m.token = u.token"


def held_by(seqs: str, tokens: str) -> str:
    """The rows of pairs. No join: of a table that was vacuumed while it was empty, it would read all. IS TRUE keeps the
    planner from making one.
    """
    pairs = f"SELECT * FROM unnest({seqs}::bigint[], {tokens}::bigint[])"
    return f"m.seq = ANY({seqs}::bigint[]) AND ((m.seq, m.token) IN ({pairs})) IS TRUE"


HELD = held_by("%s", "%s")


def counting(counter: str) -> str:
    """Counts the completed rows, which are the part ``d`` of a statement."""
    return f"{text.INSERT_FACT} SELECT {counter}, '', NULL, count(*) FROM d HAVING count(*) > 0 {Dialect.fact_counts}"


HELD_ONLY = (
    "SELECT string_agg(chr(10) || line, '') FROM unnest(string_to_array(substr(whole, 2), chr(10)), "
    "%(recorded)s::bigint[]) x (line, seq) WHERE seq IN (SELECT seq FROM d)"
)
"""The lines of those records whose rows are in the part ``d`` of a statement."""
RECORDING = (
    f"{text.INSERT_RECORDS} SELECT %(queue)s, {NOW}, %(count)s, %(first_id)s, %(last_id)s, records FROM (SELECT CASE "
    f"WHEN (SELECT count(*) FROM d) = %(number)s THEN whole ELSE ({HELD_ONLY}) END AS records "
    "FROM (SELECT %(records)s::text AS whole) r OFFSET 0) k WHERE records IS NOT NULL"
)
"""Keeps the records of the rows in the part ``d`` of a statement: all of them, unless some were not held. Then the
count may be too high, and only trims the history a little early."""

LANE_TYPES = ("bigint", "text", "int", "bigint", "bigint", "text", "text", "bigint", "int", "bigint")
"""Of WRITTEN."""


# ---- Notifications: a process that waits for work listens, and holds an advisory lock as long as it does

BUCKETS = 16
"""Each queue is in one bucket, which has a channel and a lock: a server has room for some thousand locks."""
LOCKS = 1684698469
"""The first key of these locks; the second is the bucket."""
SOON = 1_000_000
"""µs: a put does not notify of entries that are due later. A process that waits looks by itself before then."""
NOT_LISTENING = "UNLISTEN *; SELECT pg_advisory_unlock_all()"


@lru_cache(maxsize=4096)
def bucket_of(queue: str) -> int:
    return crc32(queue.encode("utf-8", "surrogatepass")) % BUCKETS


def listening(buckets: Iterable[int]) -> str:
    """Statements that listen for buckets, of a connection that keeps its session."""
    each = (f"SELECT pg_advisory_lock_shared({LOCKS}, {bucket}); LISTEN djqueue_{bucket}" for bucket in buckets)
    return "; ".join(each)


@lru_cache(maxsize=2 * BUCKETS)
def notifying(bucket: int, queue: str = "%s") -> str:
    """Notifies of a queue when the transaction commits, if a process listens: then its lock is not to be had.

    Notifying costs more than putting, and of the transactions that notify one commits at a time.
    """
    key = f"{LOCKS}, {bucket}"
    return (
        f"(SELECT CASE WHEN pg_try_advisory_lock({key}) THEN pg_advisory_unlock({key})::text "
        f"ELSE pg_notify('djqueue_{bucket}', {queue})::text END)"
    )


class PostgreSQL(Dialect):
    """From version 14."""

    name = "postgresql"
    # Not now(), which stands still in a transaction; nor clock_timestamp(), which cannot be an index condition.
    now = "(extract(epoch from statement_timestamp()) * 1000000)::bigint"

    # Or it may read the whole table to join it.
    in_lanes = (
        f"{text.NUMBERS} CROSS JOIN LATERAL (SELECT sort_at FROM djqueue_message "
        "WHERE queue = %(queue)s AND state = l.number ORDER BY sort_key, sort_at, seq OFFSET 0) m"
    )

    def insert(self, arrivals: Sequence[NewRow]) -> set[str]:
        wakes = self._any_soon(arrivals)
        if len(arrivals) == 1:
            return self._insert_one(arrivals[0], self._notifying(wakes, "%(queue)s")[0])
        notifying, queue = self._notifying(wakes)
        rows, params = table([arrival.row for arrival in arrivals], text.ARRIVING_TYPES)
        sql = f"WITH e AS ({ARRIVALS} {rows} a ({text.ARRIVING})) {INSERT} {REFUSING}{notifying}"
        return {row[0] for row in self.rows(sql, [*params, self.queue, *queue])}

    def insert_in_lanes(self, arrivals: Sequence[NewRow], insert: Callable, lanes: Mapping[str, tuple]) -> set[str]:
        """One statement for one arrival without a guard."""
        if insert is not type(self).insert or len(arrivals) > 1:
            return super().insert_in_lanes(arrivals, insert, lanes)
        notifying, _ = self._notifying(self._any_soon(arrivals), "%(queue)s")
        sql = f"{text.INSERT_IN_LANE}{notifying} FROM e"
        named = dict(zip(text.ARRIVING.split(", "), arrivals[0].row, strict=True))
        return {row[0] for row in self.rows_of_often(sql, named | {"queue": self.queue}, is_text=True)}

    def rows_of_often(
        self, sql: str, params: dict[str, object], is_text: bool = False, **fields: object
    ) -> list[tuple]:
        from djqueue.backends.database.sql import prepared  # it needs the driver, which not every project has

        return prepared.rows_of(self, self.filled(sql, **fields), params, is_text)

    def _any_soon(self, arrivals: Sequence[NewRow]) -> bool:
        now = time.time_ns() // 1000
        for one in arrivals:
            if one.due(now) - now <= SOON:
                return True
        return False

    def _notifying(self, wakes: bool, queue: str = "%s") -> tuple[str, list[str]]:
        """What a change returns behind its columns, once if it changes anything; and the parameters.

        ``queue``: the placeholder of the queue.
        """
        if wakes and self.notifies:
            return f", {notifying(bucket_of(self.queue), queue)}", [self.queue]
        return "", []

    def keep_deadline(self, seconds: float) -> None:
        """Not behind a pooler, which has another number for it: a later client would inherit what is set."""
        own = "least(nullif(setting::bigint, 0), %s)::text"
        sql = f"SELECT set_config(name, {own}, false) FROM pg_settings WHERE name = %s AND pg_backend_pid() = %s"
        self.rows(sql, [ceil(seconds * 1000), "statement_timeout", self.connection.connection.info.backend_pid])

    def notify(self) -> None:
        if self.notifies:
            self.rows(f"SELECT {notifying(bucket_of(self.queue))}", [self.queue])

    def insert_guarded(self, arrivals: Sequence[NewRow]) -> set[str]:
        """The guards in the same statement: g has the keys that were free, each with the id of the first to ask.

        Everywhere keys are locked in the order of their bytes.
        """
        guarded = [(*arrival.row, arrival.key, arrival.ttl) for arrival in arrivals]
        notifying, queue = self._notifying(self._any_soon(arrivals))
        rows, params = table(guarded, (*text.ARRIVING_TYPES, "text", "bigint"))
        sql = (
            f"WITH e AS MATERIALIZED ({ARRIVALS} {rows} a ({text.ARRIVING}, name, ttl)), g AS ({text.INSERT_FACT} "
            """SELECT DISTINCT ON (name COLLATE "C") name, convert_to(id, 'UTF8'), {now} + ttl, 0 FROM e """
            f"""WHERE name <> '' AND {text.absent("e.id")} ORDER BY name COLLATE "C", seq {self.fact_replaces} """
            f"WHERE djqueue_fact.until <= {NOW} RETURNING name, value) {INSERT} WHERE name = '' "
            "OR EXISTS (SELECT 1 FROM g WHERE g.name = e.name AND g.value = convert_to(e.id, 'UTF8')) "
            f"{REFUSING}{notifying}"
        )
        return {row[0] for row in self.rows(sql, [*params, self.queue, self.queue, *queue])}

    def claim(self, ask: ClaimRequest) -> ClaimResult:
        """No part of a statement sees what another promoted: a claim that promotes takes nothing, and is repeated."""
        taken, promoted = self._claim(ask, PROMOTING[ask.lifo, ask.look])
        if promoted:
            taken, _ = self._claim(ask, CLAIMING[ask.lifo, ask.look])
        return taken._replace(more=promoted == text.PROMOTE)

    def _fields(self, ask: ClaimRequest) -> dict[str, object]:
        return {"since": ask.since.format(now=self.now), "begun": ask.begun}

    def _claim(self, ask: ClaimRequest, sql: str) -> tuple[ClaimResult, int]:
        rows = self.rows(sql, ask._asdict(), **self._fields(ask))
        return _result_of(rows, ask), rows[0][PROMOTED]

    def exchange(
        self, pairs: Sequence[tuple], counter: str, ask: ClaimRequest, ended: Sequence[tuple] = ()
    ) -> tuple[Collection[int] | None, ClaimResult]:
        """A claim that promotes takes nothing, as in ``claim``. Here it is not repeated: after an error that ends only
        the second statement, the first would not say again what it completed."""

        seqs, _, tokens = held_arrays(pairs)
        sql = EXCHANGING[ask.lifo, ask.look, bool(ended)]
        done = {"counter": counter, "number": len(pairs), "seqs": seqs, "tokens": tokens}
        rows = self.rows(sql, ask._asdict() | done | named_records(ended), **self._fields(ask))
        return rows[0][COMPLETED], _result_of(rows, ask)._replace(more=rows[0][PROMOTED] > 0)

    def claim_paid(self, ask: ClaimRequest, payment: Payment) -> tuple[int, Sequence[tuple]]:
        if self.joined:
            return 0, []
        named = ask._asdict() | payment._asdict()
        rows = self.rows(PAID[ask.lifo], named, since=payment.since, begun=ask.begun)
        return rows[0][0], [row[PAID_FOR:] for row in rows if row[PAID_FOR] is not None]

    def spend(self, ask: ClaimRequest, ahead: int, laned_last: bool) -> Spent | None:
        named = ask._asdict() | {"ahead": ahead, "laned_last": int(laned_last)}
        rows = self.rows_of_often(SPENT[ask.lifo], named, begun=ask.begun, limit=ask.limit)
        is_calm, *found = rows[0][:FOUND]
        return Spent([row[FOUND:] for row in rows if row[FOUND] is not None], *found) if is_calm else None

    def take(self, ask: ClaimRequest, which: str) -> Sequence[tuple]:
        return self.rows(f"{change(ask.change, which)} RETURNING {text.ENTRY}", ask._asdict())

    def reap(self, limit: int, by: int) -> tuple[int, int, int | None, bool]:
        sql = (
            f"WITH gone AS ({change(text.REAPED, text.EXPIRED)} RETURNING 1) SELECT (SELECT count(*) FROM gone), "
            f"{NOW}, ({text.NEXT_EXPIRY}), ({text.first_over(text.OUT, 1)}) IS NOT NULL"
        )
        reaped, now, next, laned = self.rows(sql, {"queue": self.queue, "limit": limit, "by": by})[0]
        if reaped:
            self.notify()
        return reaped, now, next, laned

    def reclaim(self, owner: str, limit: int) -> int:
        reclaimed = super().reclaim(owner, limit)
        if reclaimed:
            self.notify()
        return reclaimed

    def requeue(self, failed: str, ids: Sequence[str]) -> int:
        requeued = super().requeue(failed, ids)
        self.notify()
        return requeued

    def make_due(self, ids: Sequence[str]) -> int:
        made_due = super().make_due(ids)
        self.notify()
        return made_due

    def change_first(self, what: str, which: str, params: Mapping[str, object]) -> int:
        return self.count(change(what, which), params)

    def hold_as_of(self, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """One statement that writes nothing, if all of them are there. Its clock is read behind the locks."""
        facts = f"SELECT name, value, {text.LIVING} AS lives FROM djqueue_fact"
        held = f"held AS MATERIALIZED ({facts} WHERE name = ANY(%s) ORDER BY name FOR UPDATE)"
        rows = self.rows(f"WITH {held} SELECT held.*, {INSTANT} FROM held", [sorted(keys)])
        if len(rows) < len(keys):
            return super().hold_as_of(keys)
        return {key: bytes(value) for key, value, lives, _ in rows if lives}, rows[-1][-1]

    def heads(self, wants: Mapping[int, int], outers: Collection[int]) -> Heads:
        entries, line = text.first_entries("n.number", "n.most"), text.first_in_line("n.number")
        sql = (
            "SELECT {now}, x.* FROM (SELECT 1) one LEFT JOIN ("
            f"SELECT e.* FROM unnest(%s::bigint[], %s::int[]) n (number, most) CROSS JOIN LATERAL ({entries}) e "
            f"UNION ALL SELECT l.* FROM unnest(%s::bigint[]) n (number) CROSS JOIN LATERAL ({line}) l) x ON true"
        )
        rows = self.rows(sql, [list(wants), list(wants.values()), self.queue, list(outers), self.queue])
        return heads_of(rows[0][0], [row[1:] for row in rows if row[1] is not None])

    def write_lanes(self, rows: Sequence[tuple], opened: bool = False) -> None:
        table_of, params = table(rows, LANE_TYPES)
        notifying, queue = self._notifying(opened)
        sql = f"UPDATE djqueue_lane l SET {text.ASSIGNED} FROM {table_of} u ({text.WRITTEN}) WHERE l.seq = u.seq"
        self.count(f"{sql} RETURNING l.seq{notifying}" if notifying else sql, [*params, *queue])

    def waiting_in(self, numbers: Sequence[int]) -> dict[int, int]:
        """One plan serves all lanes; the order keeps it in the index."""
        waiting = "FROM djqueue_message WHERE queue = %s AND state = l.number"
        count = f"SELECT count(*) FROM (SELECT 1 {waiting} {text.ORDER} LIMIT {LANE_CAP}) x"
        return dict(
            self.rows(f"SELECT l.number, ({count}) FROM unnest(%s::bigint[]) l (number)", [self.queue, numbers])
        )

    def delete_some(self, table: str, key: str, condition: str, order: str, params: list, limit: int) -> int:
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s {SKIPPING}"
        return self.count(f"DELETE FROM {table} WHERE {key} = ANY(ARRAY({picked}))", [*params, limit])

    def flush(self, state: int, after: tuple = ()) -> tuple | None:
        """Entries of the index that lead to deleted rows stay until the next vacuum."""
        behind = f"AND {self.behind}" if after else ""
        which = f"queue = %(queue)s AND state = %(state)s {behind}"
        place = dict(zip(("sort_key", "sort_at", "seq"), after, strict=True)) if after else {}
        return self._delete_chunk(
            which, "sort_key, sort_at, seq", "sort_key, sort_at, seq", {"queue": self.queue, "state": state, **place}
        )

    def flush_lanes(self, numbers: Sequence[int]) -> int | None:
        which, order = "queue = %(queue)s AND state = ANY(%(numbers)s::bigint[])", "state, sort_key, sort_at, seq"
        last = self._delete_chunk(which, order, "state", {"queue": self.queue, "numbers": numbers_array(numbers)})
        return None if last is None else last[0]

    def _delete_chunk(self, which: str, order: str, columns: str, params: Mapping[str, object]) -> tuple | None:
        """These columns of the last row that was deleted."""
        backwards = ", ".join(f"{column} DESC" for column in columns.split(", "))
        rows = f"SELECT seq FROM djqueue_message WHERE {which} AND {ANYWHERE} ORDER BY {order} LIMIT {CHUNK}"
        sql = (
            f"WITH gone AS (DELETE FROM djqueue_message WHERE seq = ANY(ARRAY({rows} {SKIPPING})) RETURNING {columns}) "
            f"SELECT {columns} FROM gone ORDER BY {backwards} LIMIT 1"
        )
        return next(iter(self.rows(sql, params)), None)

    def dead_rows(self) -> tuple[int, int]:
        row = "'djqueue_message'::regclass"
        sql = (
            f"SELECT pg_stat_get_dead_tuples({row}), pg_stat_get_live_tuples({row}) FROM pg_class "
            f"WHERE oid = {row} AND pg_has_role(relowner, 'USAGE')"
        )
        return next(iter(self.rows(sql)), (0, 0))

    def vacuum(self) -> None:
        self.count("VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) djqueue_message")

    def complete(
        self, pairs: Sequence[tuple], finish: Completion, kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        keeping, facts = self._keeping(len(pairs), kept, ended)
        sql = (
            f"WITH d AS (DELETE FROM djqueue_message m WHERE {HELD} RETURNING m.seq, m.id), c AS "
            f"({counting('%s')}), r AS "
            f"({text.INSERT_FACT} SELECT %s::text || id, '', {NOW} + %s, seq FROM d WHERE %s ORDER BY id "
            f"{self.mark_replaces}){keeping} SELECT seq FROM d"
        )
        params = [finish.counter, finish.marks, finish.remember, finish.remember > 0]
        return self.rows(sql, [*held_arrays(pairs), *params, *facts])

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        sql = f"UPDATE djqueue_message m SET begun = 1 WHERE {HELD} AND {text.HOLDS} RETURNING m.seq"
        return self.rows(sql, held_arrays(pairs))

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        change = f"UPDATE djqueue_message m SET {text.EXTEND}, sort_at = {NOW} + %s"
        sql = f"{change} WHERE {HELD} RETURNING m.seq, m.sort_at"
        return self.rows(sql, [lease, *held_arrays(pairs)])

    def give_up(
        self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        keeping, facts = self._keeping(len(said), kept, ended)
        rows, params = table(said, SAID_TYPES)
        notifying, own = self._notifying(queue == self.queue and any(row[DELAY] <= SOON for row in said))
        update = f"UPDATE djqueue_message m SET queue = %s, {change}"
        sql = f"{update} FROM {rows} u ({text.SAID}) WHERE {OURS} RETURNING m.seq{notifying}"
        params += own
        if keeping:
            sql, params = f"WITH d AS ({sql}){keeping} SELECT seq FROM d", [*params, *facts]
        return self.rows(sql, [queue, *params])

    def _keeping(self, number: int, kept: Sequence[tuple], ended: Sequence[tuple]) -> tuple[str, list]:
        """Further parts of a statement: they keep the facts of the rows in its part ``d``, and the records if that has
        ``number`` rows."""
        sql = ""
        params: list = []
        if kept:
            rows, params = table(kept, KEPT_TYPES)
            sql = (
                f", f AS ({text.INSERT_FACT} "
                f"""SELECT DISTINCT ON (name COLLATE "C") name, value, {NOW} + ttl, 0 FROM {rows} x ({text.KEPT}) """
                f"""WHERE seq IN (SELECT seq FROM d) ORDER BY name COLLATE "C" {self.fact_replaces})"""
            )
        if ended:
            recording, values = in_order(RECORDING, named_records(ended) | {"queue": self.queue, "number": number})
            sql, params = f"{sql}, h AS ({recording})", [*params, *values]
        return sql, params


def table(rows: Sequence[tuple], types: Sequence[str]) -> tuple[str, list]:
    """The rows as a table expression. Arrays are faster by far for many rows, and slower for one."""
    if len(rows) < ARRAYS_FROM:
        row = f"({', '.join(f'CAST(%s AS {type})' for type in types)})"
        return f"(VALUES {', '.join([row] * len(rows))})", flat(rows)
    columns, same = alike(rows)
    names = [f"%s::{type}" if at in same else f"c{at}" for at, type in enumerate(types)]
    varied = [at for at in range(len(columns)) if at not in same]
    given = f"unnest({', '.join(f'%s::{types[at]}[]' for at in varied)}) x ({', '.join(names[at] for at in varied)})"
    arrays = [array_of(columns[at], types[at]) for at in varied]
    return f"(SELECT {', '.join(names)} FROM {given})", [*same.values(), *arrays]


def array_of(values: Sequence, type: str) -> str:
    """An array in the text of PostgreSQL: psycopg would write a list value by value."""
    return ARRAY.get(type, numbers_array)(values)


def named_records(ended: Sequence[tuple]) -> dict[str, object]:
    """The parameters of RECORDING, but for the queue and the number of rows."""
    if not ended:
        return {}
    columns = dict(zip(("count", "first_id", "last_id", "records"), records_of(ended), strict=True))
    return columns | {"recorded": numbers_array([seq for seq, *_ in ended])}


def held_arrays(pairs: Sequence[tuple]) -> list[str]:
    """The parameters of HELD."""
    seqs, tokens = (numbers_array(column) for column in zip(*pairs, strict=True))
    return [seqs, seqs, tokens]


def numbers_array(numbers: Sequence[int | None]) -> str:
    return "{" + ",".join(map(str, numbers)).replace("None", "NULL") + "}"


def texts_array(texts: Sequence[str]) -> str:
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') > 2 * len(texts) - 2:
        joined = '","'.join(text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return '{"' + joined + '"}'


def bytes_array(values: Sequence[bytes]) -> str:
    return '{"\\\\x' + '","\\\\x'.join(value.hex() for value in values) + '"}'


ARRAY: dict[str, Callable] = {"text": texts_array, "bytea": bytes_array}
"""By type; the other types are numbers."""


def change(what: str, which: str) -> str:
    """An update of picked rows by primary key. The array keeps the planner from a join that would lock more."""
    return f"UPDATE djqueue_message SET {what} WHERE seq = ANY(ARRAY({which} {SKIPPING}))"


MOST_PLACED = {"sort_key": "2147483648", "sort_at": str(2**63 - 1)}
"""The largest numbers that the columns of a place can hold."""


ANYWHERE = " AND ".join(f"{column} BETWEEN -{most} AND {most}" for column, most in MOST_PLACED.items())
"""Conditions that are always true, for a query for the first rows in the order of the index.

Of a table that was vacuumed and never analyzed the planner thinks that a few rows fulfil the others, and sorts all that
really do. With these it thinks of one row.
"""


GOT = (
    f"got AS (UPDATE djqueue_message SET {text.LEASE} WHERE seq = ANY(ARRAY(SELECT seq FROM pick)) "
    f"RETURNING {text.ENTRY})"
)


def ready(lifo: bool, condition: str) -> str:
    """A query for the first ready entries, under a condition more ("": none)."""
    return text.first_ready(lifo, f" AND {ANYWHERE} {condition}")


def claiming(first: str, condition: str, lifo: bool, look: bool, completed: str = "NULL") -> str:
    """Always a row; the entries next to it, and what else there is to do only if there were too few of them."""
    few = "CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN"
    of_lanes = ", ".join(f"{few} {one} END" if look else "NULL" for one in text.OF_LANES)
    return (
        f"WITH {first} pick AS MATERIALIZED ({ready(lifo, condition)} {SKIPPING}), {GOT} "
        f"SELECT {completed}, (SELECT count(*) FROM due), {NOW}, {few} ({text.next_of(text.DELAYED)}) END, {of_lanes}, "
        "got.* FROM (SELECT 1) one LEFT JOIN got ON true"
    )


def exchanging(first: str, condition: str, lifo: bool, look: bool, ended: bool) -> str:
    """A claim that completes rows before, in the same statement, which must not change a row twice.

    Therefore it counts what it completed before it picks: a lock passes over rows that the statement has deleted.
    """
    held = held_by("%(seqs)s", "%(tokens)s")
    first = (
        f"d AS (DELETE FROM djqueue_message m WHERE {held} RETURNING m.seq), "
        f"c AS ({counting('%(counter)s')}), {f'h AS ({RECORDING}), ' * ended}{first}"
    )
    completed = "CASE WHEN (SELECT count(*) FROM d) < %(number)s THEN ARRAY(SELECT seq FROM d) END"
    return claiming(first, f"AND (SELECT count(*) FROM d) >= 0 {condition}", lifo, look, completed)


COMPLETED, PROMOTED, GLANCED = 0, 1, 8
"""The seqs that were completed (NULL: all), the number of promoted rows, and the first column of an entry."""
DUE_FIRST = f"due AS ({change(text.PROMOTED, text.first_over(text.DELAYED, text.PROMOTE))} RETURNING 1),"
NONE_DUE = "AND NOT EXISTS (SELECT 1 FROM due)"
WAYS = [(lifo, look) for lifo in (False, True) for look in (False, True)]
"""Whether the queue is ``lifo``, and whether a claim reads the state of lanes."""
PROMOTING = {way: claiming(DUE_FIRST, NONE_DUE, *way) for way in WAYS}
EXCHANGING = {(*way, ended): exchanging(DUE_FIRST, NONE_DUE, *way, ended) for way in WAYS for ended in (False, True)}
CLAIMING = {way: claiming("due AS (SELECT 1 LIMIT 0),", "", *way) for way in WAYS}


def _result_of(rows: Sequence[tuple], ask: ClaimRequest) -> ClaimResult:
    """What a claim brought, from its rows."""
    now, next, *of_lanes = rows[0][PROMOTED + 1 : GLANCED]
    taken = [row[GLANCED:] for row in rows if row[GLANCED] is not None]
    return ClaimResult(taken, now, next, glance=Glance(now, None, None, next, *of_lanes) if ask.look else None)


def paying(lifo: bool) -> str:
    """Writes nothing if the fact changed, if it is late behind the lock of the fact, or if it cannot have them all."""
    none_due = f"AND ({text.first_over(text.DELAYED, 1)}) IS NULL"
    return (
        f"WITH there AS MATERIALIZED ({ready(lifo, none_due)}), "
        "fact AS MATERIALIZED (SELECT name FROM djqueue_fact "
        f"WHERE name = %(key)s AND value = %(was)s AND {text.LIVING} AND {NOW} < {SINCE} + {STALE} "
        "AND (SELECT count(*) FROM there) = %(limit)s FOR UPDATE), "
        "held AS MATERIALIZED (SELECT seq FROM djqueue_message WHERE seq = ANY(ARRAY(SELECT seq FROM there)) "
        f"AND state = 0 AND EXISTS (SELECT 1 FROM fact) AND {INSTANT} < {SINCE} + {LATE} {SKIPPING}), "
        "paid AS (UPDATE djqueue_fact SET value = %(value)s, until = {now} + %(keep)s "
        "WHERE name = %(key)s AND (SELECT count(*) FROM held) = %(limit)s RETURNING 1), "
        f"pick AS MATERIALIZED (SELECT seq FROM held WHERE EXISTS (SELECT 1 FROM paid)), {GOT} "
        "SELECT (SELECT count(*) FROM there), got.* FROM (SELECT 1) one LEFT JOIN got ON true"
    )


STALE, LATE = 10_000, 20_000
"""µs after which what a rate limit was seen to have is not what leaves now, before and behind the lock."""
PAID_FOR = 1
"""The number of columns before the columns of an entry."""
PAID = {lifo: paying(lifo) for lifo in (False, True)}
