"""The statements of all verbs, in SQL that SQLite and PostgreSQL share; a vendor overrides what differs.

A statement is a format string: see ``text.py``. Verbs for operators read no more than their arguments allow, except
``length``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction

from djqueue.backends.database.rows import ClaimRequest, NewRow, number_of, records_of
from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.text import NOW
from djqueue.utils import slices

TOGETHER = 100
"""The most parts of one compound statement."""


NAMED = re.compile(r"%\((\w+)\)s")
"""A named parameter."""
CAP = 100_000
"""Counting stops here."""
LANE_CAP = 10_000
"""Counting what waits in a lane stops here."""
CHUNK = 5000
"""The most rows that one statement of a flush deletes."""
FLUSHED = (text.DELAYED, text.LATER, text.READY)
"""The states that a flush empties, in this order: what falls due meanwhile is found where it is then."""
LONGEST_KEPT = 16_384
"""A longer statement is filled each time: it has many rows, and hardly comes again."""
PAGE = 1000
"""The most rows of the history that one statement deletes, or reads to look for ids."""


class Glance(NamedTuple):
    """What there is to do in a queue that has lanes."""

    now: int
    ready: int | None
    """The rank of an entry in no lane, if one is ready."""
    due: int | None
    """The seq of a delayed entry in no lane that is due, if there is one."""
    delayed: int | None
    """When the next delayed entry in no lane is due."""
    ticket: bool | None
    open: bool | None
    timed: int | None
    """When the first timed lane is to be looked at."""
    later: int | None
    """When the first delayed entry of a lane is due."""

    @property
    def stirs(self) -> bool:
        """Whether a claim should look at the lanes."""
        return bool(self.ticket or self.open or self.rises or self.falls_due)

    @property
    def rises(self) -> bool:
        return self.timed is not None and self.timed <= self.now

    @property
    def falls_due(self) -> bool:
        return self.later is not None and self.later < self.now

    @property
    def is_any(self) -> bool:
        """Whether a claim may find something, in lanes or not."""
        return self.stirs or self.ready is not None or self.due is not None

    @property
    def soonest(self) -> int | None:
        """When there will be something, in lanes or not."""
        return min((moment for moment in (self.next, self.delayed) if moment is not None), default=None)

    @property
    def next(self) -> int | None:
        """When there will be something to do."""
        return min((moment for moment in (self.timed, self.later) if moment is not None), default=None)


class Heads(NamedTuple):
    """The first entries of lanes, and the first lanes that are queued in their parents."""

    now: int
    entries: list[tuple]
    """Rows of state, seq, sort_key, sort_at, lost."""
    lines: dict[int, int]
    """By the number of a parent lane: the rank of the first lane that is queued in it, if there is one."""


class Payment(NamedTuple):
    """What a claim by a rate limit changes next to the entries: one fact, if it is still as it was at a moment."""

    key: str
    was: bytes
    value: bytes
    keep: int
    """µs."""
    since: int


class ClaimResult(NamedTuple):
    """What a claim brought: rows of ENTRY in any order; when the next falls due; whether more may be due already."""

    rows: Sequence[tuple]
    now: int
    next: int | None = None
    more: bool = False
    glance: Glance | None = None
    """What there is to do; None if it was not read."""


class Spent(NamedTuple):
    """What a claim brought that spends rates."""

    rows: Sequence[tuple]
    """Of ENTRY, in the order of their units."""
    now: int
    is_any: bool
    """Whether any lane was to be looked at."""
    stirs: bool
    """Whether more may leave lanes now."""
    made: bool
    """Whether rows of new lanes were made, and nothing else was done: run it again."""
    delayed: int | None
    """When the next delayed entry in no lane is due."""
    next: int | None
    """When something may leave a lane."""


class Completion(NamedTuple):
    """What completing writes: the number, into a counter; and for remembered ids a mark each, for ``remember`` µs."""

    counter: str
    marks: str = ""
    remember: int = 0


class Dialect:
    """A session: the statements of one verb, or of several in one transaction, for one queue."""

    name: str = ""
    now: str = ""
    """Microseconds since 1970, by the clock of the database."""

    by_seq: str = ""
    """Makes a vendor find rows by their primary key, though the table is small: only what is looked for is locked."""
    by_id: str = ""
    """Makes a vendor find rows by the index of the ids."""
    by_place: str = ""
    """Makes a vendor find rows by the index of the places of lanes."""
    by_history: str = ""
    """Makes a vendor find rows by the index of the history."""
    has: str = "position(%s IN records) > 0"
    """The condition that the records of a row contain a text."""
    locking: str = "FOR UPDATE"
    skipping: str = "FOR UPDATE SKIP LOCKED"

    fact_replaces: str = "ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until"
    fact_stays: str = "ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter"
    """Nothing changes, but the row is locked."""
    fact_counts: str = "ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter"
    mark_replaces: str = "ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter"
    lane_stays: str = "ON CONFLICT (queue, name) DO NOTHING"

    in_lanes: str = f"{text.NUMBERS} CROSS JOIN {text.OF_LANE}"
    """The entries that wait in the lanes of a queue, lane by lane."""
    behind: str = "(sort_key, sort_at, seq) > (%(sort_key)s, %(sort_at)s, %(seq)s)"
    before: str = "(sort_key, sort_at, seq) < (%(sort_key)s, %(sort_at)s, %(seq)s)"
    up_to: str = "(sort_key, sort_at, seq) <= ({0}, {1}, {2})"

    def __init__(self, connection: Any, queue: str, notifies: bool = False):
        self.connection, self.queue, self.notifies = connection, queue, notifies

    # ---- running statements

    @cached_property
    def cursor(self) -> Any:
        """Opened for the first statement that needs one."""
        return self.connection.cursor()

    def close(self) -> None:
        """Close the cursor, if one was opened. An error of that is ignored."""
        if "cursor" in vars(self):
            self.cursor.__exit__(None, None, None)

    def filled(self, sql: str, **fields: object) -> str:
        """The text of a statement, with its fields: NOW, and others of ``text.py`` if it has them."""
        return (_filled if len(sql) <= LONGEST_KEPT else str.format)(sql, now=self.now, **fields)

    def rows(self, sql: str, params: Any = (), **fields: object) -> list[tuple]:
        """Every row of a statement that returns rows."""
        return self.fetch(self.filled(sql, **fields), params)

    def fetch(self, sql: str, params: Any) -> list[tuple]:
        """Every row of a statement that is filled."""
        self.cursor.execute(sql, params)
        return self.cursor.fetchall()

    def rows_of_often(
        self, sql: str, params: dict[str, object], is_text: bool = False, **fields: object
    ) -> list[tuple]:
        """The rows of a statement that is run often, with named parameters; a vendor may prepare it.

        ``is_text``: all of its columns are texts.
        """
        return self.rows(sql, params, **fields)

    def count(self, sql: str, params: Any = ()) -> int:
        """How many rows a statement changed."""
        self.cursor.execute(self.filled(sql), params)
        return self.cursor.rowcount

    def keep_deadline(self, seconds: float) -> None:
        """Have the server cut each statement of this connection after some seconds, also one that waits for a lock."""
        raise NotImplementedError

    @property
    def joined(self) -> bool:
        return joined(self.connection)

    def atomic(self, savepoint: bool = False) -> AbstractContextManager:
        """A transaction, or the caller's."""
        return transaction.atomic(using=self.connection.alias, savepoint=savepoint)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that will write, or the caller's."""
        with self.atomic():
            self.begin()
            yield

    def begin(self) -> None:
        """Run first in a transaction that will write."""

    @property
    def failed_at(self) -> str:
        """The moment of a failure, different from the moment of the failure before."""
        return NOW

    def clock(self) -> int:
        return self.rows("SELECT {now}")[0][0]

    def delete_some(self, table: str, key: str, condition: str, order: str, params: list, limit: int) -> int:
        """Delete the first ``limit`` rows under a condition; how many."""
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s"
        return self.count(f"DELETE FROM {table} WHERE {key} IN ({picked})", [*params, limit])

    def these(self, count: int, table: str = "djqueue_message") -> str:
        """``count`` rows of a table by their seqs, as ``m``: the text after FROM, up to a further condition."""
        return f"{table} m WHERE m.seq IN ({marks(range(count))})"

    def delete_rows(self, table: str, seqs: Sequence[int]) -> int:
        """Delete the rows of a table with these seqs; how many."""
        return self.count(f"DELETE FROM {table} WHERE seq IN ({marks(seqs)})", seqs)

    def delete_ids(self, queue: str, ids: Sequence[str], condition: str = "true") -> int:
        """Delete the entries of a queue with these ids, if they fulfil a condition; how many."""
        sql = f"DELETE FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)}) AND {condition}"
        return self.count(sql, [queue, *ids])

    def notify(self) -> None:
        """Wake the processes that listen for the queue, when this transaction commits; a vendor may be able to."""

    # ---- facts: keys are whole, values are bytes, times are µs, and None is for ever

    def get(self, key: str) -> bytes | None:
        found = self.rows(f"SELECT value FROM djqueue_fact WHERE name = %s AND {text.LIVING}", [key])
        return bytes(found[0][0]) if found else None

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of the keys that exist."""
        found = self.rows(f"SELECT name, value FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {text.LIVING}", keys)
        return {key: bytes(value) for key, value in found}

    def get_as_of(self, key: str) -> tuple[int, bytes | None]:
        """The moment, and the value of a key if there is one."""
        sql = f"SELECT {NOW}, (SELECT value FROM djqueue_fact WHERE name = %s AND {text.LIVING})"
        now, value = self.rows(sql, [key])[0]
        return now, None if value is None else bytes(value)

    def put(self, facts: Sequence[tuple]) -> None:
        """Set whole facts: keys that differ, in their order, each with its value and its time."""
        rows = ", ".join([text.FACT] * len(facts))
        self.count(f"{text.INSERT_FACT} VALUES {rows} {self.fact_replaces}", flat(facts))

    def add(self, key: str, value: bytes, ttl: int | None) -> bool:
        """Set a fact unless it exists. One statement decides, so of concurrent calls one succeeds."""
        sql = f"{text.INSERT_FACT} VALUES {text.FACT} {self.fact_replaces} WHERE djqueue_fact.until <= {NOW}"
        return self.count(sql, [key, value, ttl]) == 1

    def swap(self, key: str, was: bytes, value: bytes, ttl: int | None) -> bool:
        sql = f"UPDATE djqueue_fact SET value = %s, until = {NOW} + %s WHERE name = %s AND value = %s AND {text.LIVING}"
        return self.count(sql, [value, ttl, key, was]) == 1

    def drop(self, key: str, value: bytes | None) -> bool:
        same, params = ("", [key]) if value is None else (" AND value = %s", [key, value])
        return self.count(f"DELETE FROM djqueue_fact WHERE name = %s AND {text.LIVING}{same}", params) == 1

    def prune(self, limit: int) -> int:
        """Delete facts that are over, the oldest first; how many."""
        return self.delete_some("djqueue_fact", "name", "until <= {now}", "until", [], limit)

    def surplus(self, prefix: str, keep: int, limit: int) -> int:
        """Delete the keys with a prefix that expire first, until ``keep`` are left; how many.

        In the order of ``until`` and then of ``counter``, as many keys may have the same moment.
        """
        within = [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
        sql = (
            "SELECT until, counter FROM djqueue_fact WHERE name >= %s AND name < %s "
            "ORDER BY until DESC, counter DESC LIMIT 1 OFFSET %s"
        )
        condition = "name >= %s AND name < %s AND (until < %s OR (until = %s AND counter <= %s))"
        for until, counter in self.rows(sql, [*within, keep]):
            params = [*within, until, until, counter]
            return self.delete_some("djqueue_fact", "name", condition, "until, counter", params, limit)
        return 0

    # ---- what must be known and locked for a guard that Python decides on: until the end of one transaction

    def hold(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Lock facts in the order of the keys, made if missing; may wait. Returns those that have a value."""
        # Not LIVING: of a row that was there SQLite 3.40 says here that a null is none.
        sql = f"{self._holding(keys)} RETURNING name, value, COALESCE(until > {NOW}, true)"
        rows = self.rows(sql, flat([(key, b"", 0) for key in keys]))
        return {key: bytes(value) for key, value, lives in rows if lives}

    def hold_as_of(self, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """Lock facts as ``hold`` does; also returns a moment after the last lock was taken."""
        return self.hold(keys), self.clock()

    def _holding(self, keys: Sequence[str]) -> str:
        rows = ", ".join([text.FACT] * len(keys))
        return f"{text.INSERT_FACT} VALUES {rows} {self.fact_stays}"

    def look(self, ids: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Now, and the states of the entries that exist."""
        sql = (
            "SELECT {now}, m.id, m.state FROM (SELECT 1 AS one) x "
            f"LEFT JOIN djqueue_message m ON m.queue = %s AND m.id IN ({marks(ids)})"
        )
        rows = self.rows(sql, [self.queue, *ids])
        return rows[0][0], {id: state for _, id, state in rows if id is not None}

    def withhold(self, ids: Sequence[str]) -> set[str]:
        """Lock waiting entries, so that no claim takes them before the transaction ends; those that could be locked.

        Never waits: another transaction that has one locked is about to lease or to delete it.
        """
        sql = (
            f"SELECT id FROM djqueue_message {self.by_id} WHERE queue = %s AND id IN ({marks(ids)}) AND {text.WAITS} "
            "FOR UPDATE SKIP LOCKED"
        )
        return {row[0] for row in self.rows(sql, [self.queue, *ids])}

    def postpone(self, id: str, due: int) -> None:
        sql = "UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3)"
        self.count(sql, [due, due, self.queue, id])

    def dead_rows(self) -> tuple[int, int]:
        """Of the table of messages, what a vacuum would be for: about how many rows are dead, and how many are not.

        0 if this vendor leaves none, or the user of the connection may not vacuum.
        """
        return 0, 0

    def vacuum(self) -> None:
        """Free the dead rows, and the entries of indexes that lead to them; nothing if another process does so."""

    def turn_at(self, now: int) -> int:
        """A number for the turns of a claim, higher than earlier numbers."""
        return now

    # ---- looking at lanes

    def glance(self, lanes: bool = True) -> Glance:
        of_lanes = ", ".join(text.OF_LANES) if lanes else "NULL, NULL, NULL, NULL"
        return Glance(*self.rows(f"{text.GLANCE}, {of_lanes}", {"queue": self.queue})[0])

    def glance_beside(self, key: str) -> tuple[Glance, bytes | None]:
        """A glance with lanes, and the value of a fact."""
        fact = f"(SELECT value FROM djqueue_fact WHERE name = %(key)s AND {text.LIVING})"
        sql = f"{text.GLANCE}, {', '.join(text.OF_LANES)}, {fact}"
        *row, value = self.rows(sql, {"queue": self.queue, "key": key})[0]
        return Glance(*row), None if value is None else bytes(value)

    def ranks(self, ask: ClaimRequest) -> list[int]:
        """The ranks of the first entries in no lane."""
        order = text.BACKWARDS if ask.lifo else text.ORDER
        sql = f"SELECT sort_key FROM djqueue_message WHERE queue = %s AND state = 0 {order} LIMIT %s"
        return [~rank if ask.lifo else rank for (rank,) in self.rows(sql, [self.queue, ask.limit])]

    def heads(self, wants: Mapping[int, int], outers: Collection[int]) -> Heads:
        """By the numbers of lanes: as many first entries as wanted of each, and the first lane that is queued in it."""
        parts: list[tuple[str, tuple]] = [(text.first_entries(), (self.queue, *want)) for want in wants.items()]
        parts += [(text.first_in_line(), (self.queue, number)) for number in outers]
        found = []
        for some in slices(parts, TOGETHER):
            sql = " UNION ALL ".join(["SELECT 0, 0, {now}, 0, 0", *(f"SELECT * FROM ({part}) x" for part, _ in some)])
            found += self.rows(sql, [value for _, values in some for value in values])
        moments = [row[2] for row in found if not row[0]]
        return heads_of(moments[0] if moments else self.clock(), [row for row in found if row[0]])

    # ---- tickets

    def leave_tickets(self, tickets: Sequence[tuple]) -> None:
        """Leave tickets for lanes: name, number, and the gate from now on ("": unchanged)."""
        rows = ", ".join(["(%s, {now}, %s, %s, %s)"] * len(tickets))
        sql = f"{text.INSERT_TICKET} VALUES {rows}"
        self.count(sql, [value for ticket in tickets for value in (self.queue, *ticket)])

    def tickets(self, limit: int) -> list[tuple]:
        """The first tickets: seq, name, number, gate, and whether the lane has a row."""
        known = "(SELECT l.seq FROM djqueue_lane l WHERE l.queue = t.queue AND l.name = t.name) IS NOT NULL"
        columns = f"created, seq, name, number, gate, {known}"
        sql = f"SELECT {columns} FROM djqueue_ticket t WHERE queue = %s ORDER BY created LIMIT %s"
        return [row[1:] for row in sorted(self.rows(sql, [self.queue, limit]))]

    def drop_tickets(self, seqs: Sequence[int]) -> set[int]:
        """Delete tickets; the seqs of those that existed."""
        sql = f"DELETE FROM djqueue_ticket WHERE seq IN ({marks(seqs)}) RETURNING seq"
        return {row[0] for row in self.rows(sql, sorted(seqs))}

    # ---- the rows of lanes

    def lanes_there(self, names: Sequence[str]) -> set[str]:
        sql = f"SELECT name FROM djqueue_lane WHERE queue = %s AND name IN ({marks(names)})"
        return {row[0] for row in self.rows(sql, [self.queue, *names])}

    def lanes_out(self, after: str, limit: int) -> list[str]:
        """Names of lanes that count entries as out, in their order."""
        sql = "SELECT name FROM djqueue_lane WHERE queue = %s AND in_flight > 0 AND name > %s ORDER BY name LIMIT %s"
        return [row[0] for row in self.rows(sql, [self.queue, after, limit])]

    def in_flight(self) -> list[tuple]:
        """Lane, the gate that the entries came with, and the number of entries that left it and are not settled."""
        out = f"FROM djqueue_message WHERE queue = %s AND state = {text.OUT}"
        return self.rows(f"SELECT lane, gate, count(*) {out} GROUP BY lane, gate", [self.queue])

    def out_of_lanes(self) -> list[tuple]:
        """Lane, its gate (None if it is not known) and the number of entries that left it and are not settled."""
        sql = (
            "SELECT m.lane, l.gate, count(*) FROM djqueue_message m LEFT JOIN djqueue_lane l ON l.queue = m.queue "
            f"AND l.name = m.lane WHERE m.queue = %s AND m.state = {text.OUT} GROUP BY m.lane, l.gate"
        )
        return self.rows(sql, [self.queue])

    def in_no_known_lane(self, after: int, limit: int) -> tuple[int, list[tuple]]:
        """The last state that was looked at, 0 if it was the last of all; and lane and gate of entries that wait in a
        lane without a row."""
        some = (
            f"SELECT state, lane, gate FROM djqueue_message WHERE queue = %s AND state > %s AND state > {text.OUT} "
            "AND gate <> '' ORDER BY state LIMIT %s"
        )
        sql = (
            f"SELECT m.state, m.lane, m.gate, l.seq FROM ({some}) m "
            "LEFT JOIN djqueue_lane l ON l.queue = %s AND l.name = m.lane"
        )
        rows = self.rows(sql, [self.queue, after, limit, self.queue])
        last = max((row[0] for row in rows), default=0) if len(rows) == limit else 0
        return last, sorted({row[1:3] for row in rows if row[3] is None})

    def make_lanes(self, lanes: Sequence[tuple]) -> None:
        """Insert missing lanes by name, number, gate and turn; they have no place yet."""
        rows = ", ".join(["(%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)"] * len(lanes))
        sql = f"INSERT INTO djqueue_lane (queue, {text.LANE.removeprefix('seq, ')}) VALUES {rows} {self.lane_stays}"
        self.count(sql, [value for lane in sorted(lanes) for value in (self.queue, *lane)])

    def hold_named(self, names: Sequence[str], wait: bool) -> list[tuple]:
        """Lock lanes in the order of their names. Without ``wait`` lanes that are locked already are skipped."""
        columns = ", ".join(f"l.{column}" for column in text.LANE.split(", "))
        sql = f"SELECT {columns} FROM {self.named_lanes(len(names))} {self.locking if wait else self.skipping}"
        return self.rows(sql, [*sorted(names), self.queue])

    def named_lanes(self, count: int) -> str:
        """``count`` lanes by their names as ``l``, in that order: the text after FROM."""
        return f"djqueue_lane l WHERE name IN ({marks(range(count))}) AND queue = %s ORDER BY name"

    def hold_first(self, state: int, limit: int, due: bool = False) -> list[tuple]:
        """Lock the first lanes of a state that are not locked; with ``due`` only timed lanes whose time has come."""
        come = "AND sort_key = 0 AND sort_at <= {now}" if due else ""
        which = f"queue = %s AND state = %s {come}"
        order = f"ORDER BY sort_key, sort_at LIMIT %s {self.skipping}"
        sql = f"SELECT {text.LANE} FROM djqueue_lane {self.by_place} WHERE {which} {order}"
        return self.rows(sql, [self.queue, state, limit])

    def write_lanes(self, rows: Sequence[tuple], opened: bool = False) -> None:
        """Rows of WRITTEN. ``opened``: whether to wake who listens for the queue, as something may leave a lane."""
        table = f"WITH u ({text.WRITTEN}) AS (VALUES {rows_of_marks(rows)})"
        self.count(f"{table} UPDATE djqueue_lane AS l SET {text.ASSIGNED} FROM u WHERE l.seq = u.seq", flat(rows))

    # ---- the entries of lanes

    def come_in(self) -> list[tuple]:
        """Let delayed entries that are due wait in their lanes; rows of seq, lane, lane number and gate."""
        sql = (
            f"SELECT seq, lane, lane_number, gate FROM djqueue_message WHERE queue = %s AND state = {text.LATER} "
            f"AND sort_key = 0 AND sort_at < {NOW} ORDER BY sort_at LIMIT {text.PROMOTE} {self.skipping}"
        )
        rows = self.rows(sql, [self.queue])
        if rows:
            seqs = [row[0] for row in rows]
            self.count(f"UPDATE djqueue_message {self.by_seq} SET {text.RETURNED} WHERE seq IN ({marks(seqs)})", seqs)
        return rows

    def expired(self, limit: int) -> list[tuple]:
        """Seq, lane and gate of leases of lanes that have run out."""
        sql = text.first_over(text.OUT, columns="seq, lane, gate")
        return self.rows(sql, {"queue": self.queue, "limit": limit})

    def owned_in_lanes(self, owner: str, limit: int) -> list[tuple]:
        """Seq, lane and gate of leases of lanes that an owner has."""
        sql = text.owned(text.OUT, columns="seq, lane, gate")
        return self.rows(sql, {"queue": self.queue, "owner": owner, "limit": limit})

    def reap_in_lanes(self, seqs: Sequence[int], by: int) -> list[str]:
        """Return entries to their lanes if they are out and their leases expired; the lane of each."""
        return self._return(seqs, "sort_at < {now} AND {now} <= %s", (by,), text.REAPED_IN_LANE)

    def reclaim_in_lanes(self, seqs: Sequence[int], owner: str) -> list[str]:
        """Return entries that an owner holds to their lanes; the lane of each."""
        return self._return(seqs, "owner = %s", (owner,), text.REAPED_IN_LANE)

    def disown_in_lanes(self, seqs: Sequence[int], tokens: Sequence[int]) -> list[str]:
        """Return entries that these tokens hold to their lanes, as if they had never left; the lane of each."""
        return self._return(seqs, f"token IN ({marks(tokens)})", tokens, f"{text.RETURNED}, {text.NEVER}")

    def _return(self, seqs: Sequence[int], which: str, params: Sequence, change: str) -> list[str]:
        sql = f"SELECT m.seq, lane FROM {self.these(len(seqs))} AND state = {text.OUT} AND {which} {self.locking}"
        rows = self.rows(sql, [*seqs, *params])
        if rows:
            back = [row[0] for row in rows]
            self.count(f"UPDATE djqueue_message {self.by_seq} SET {change} WHERE seq IN ({marks(back)})", back)
        return [row[1] for row in rows]

    def put_back(self, seqs: Sequence[int]) -> None:
        """Undo the leases of entries that this transaction leased."""
        sql = f"UPDATE djqueue_message {self.by_seq} SET {text.RETURNED}, {text.NEVER} WHERE seq IN ({marks(seqs)})"
        self.count(sql, seqs)

    def lanes_of(self, queue: str, ids: Sequence[str]) -> list[tuple]:
        """Name, number and gate of the lanes of entries."""
        sql = (
            "SELECT DISTINCT lane, ABS(lane_number), gate FROM djqueue_message "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND lane_number <> 0"
        )
        return self.rows(sql, [queue, *ids])

    # ---- put

    def insert(self, arrivals: Sequence[NewRow]) -> set[str]:
        """Insert entries whose ids are not there; the ids that were inserted."""
        raise NotImplementedError

    def _insert_one(self, arrival: NewRow, beside: str = "") -> set[str]:
        """``beside``: what the statement returns behind the id."""
        named = dict(zip(text.ARRIVING.split(", "), arrival.row, strict=True))
        sql = text.INSERT_PLAIN if arrival.is_plain else text.INSERT_ONE
        return {row[0] for row in self.rows_of_often(f"{sql}{beside}", named | {"queue": self.queue}, is_text=True)}

    def insert_in_lanes(self, arrivals: Sequence[NewRow], insert: Callable, lanes: Mapping[str, tuple]) -> set[str]:
        """``insert``, and leave a ticket for each lane: ``lanes`` has name, number and gate by the id of an arrival."""
        with self.writing():
            accepted = insert(self, arrivals)
            if entered := {lane[0]: lane for id, lane in lanes.items() if id in accepted}:
                self.leave_tickets(list(entered.values()))
        return accepted

    def insert_guarded(self, arrivals: Sequence[NewRow]) -> set[str]:
        """Insert at most one entry for each guard's key, in one transaction. Every guard is an ``OnceGuard``."""
        return self.insert_checked(arrivals, "")

    def insert_checked(self, arrivals: Sequence[NewRow], done: str) -> set[str]:
        """As ``insert_guarded``, but no id that is marked as done (``done`` is the prefix of such keys; "": none)."""
        with self.atomic():
            there = self._present(arrivals) | self.marked(done, [arrival.id for arrival in arrivals])
            fresh = [arrival for arrival in arrivals if arrival.id not in there]
            return self.insert_unmarked(self._pass_guards(fresh), done)

    def insert_unmarked(self, arrivals: Sequence[NewRow], done: str) -> set[str]:
        """Insert entries that were not marked when last read, and delete those that another process completed since."""
        accepted = self.insert(arrivals) if arrivals else set()
        if late := self.marked(done, accepted):
            self.delete_ids(self.queue, [*late])
        return accepted - late

    def _present(self, arrivals: Sequence[NewRow]) -> set[str]:
        ids = [arrival.id for arrival in arrivals]
        sql = f"SELECT id FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)})"
        return {row[0] for row in self.rows(sql, [self.queue, *ids])}

    def marked(self, done: str, ids: Iterable[str]) -> set[str]:
        """The ids that are remembered as done."""
        keys = {done + id: id for id in ids} if done else {}
        sql = f"SELECT name FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {text.LIVING}"
        return {keys[name] for (name,) in self.rows(sql, [*keys])} if keys else set()

    def _pass_guards(self, arrivals: Sequence[NewRow]) -> list[NewRow]:
        """Arrivals that their guards accept. Keys are added in order, so that two transactions never deadlock."""
        refused = set()
        for arrival in sorted(arrivals, key=lambda arrival: arrival.key):
            if arrival.key and not self.add(arrival.key, arrival.id.encode(), arrival.ttl):
                refused.add(arrival.id)
        return [arrival for arrival in arrivals if arrival.id not in refused]

    # ---- claim and reap

    def claim(self, ask: ClaimRequest) -> ClaimResult:
        """Lease up to ``limit`` entries. An empty queue costs one read and no lock."""
        glance, promoted = self.promoted(ask)
        rows = self.take(ask, text.first_ready(ask.lifo)) if is_ready(glance, promoted) else []
        return claimed(ask, rows, glance, promoted)

    def promoted(self, ask: ClaimRequest) -> tuple[Glance, int]:
        """A glance before a claim, and how many entries it made ready."""
        glance = self.glance(ask.look)
        return glance, self.promote() if glance.due else 0

    def claim_paid(self, ask: ClaimRequest, payment: Payment) -> tuple[int, Sequence[tuple]]:
        """Lease exactly ``limit`` and pay for them, in one statement; nothing if there are fewer or the fact changed.

        Also returns how many there are, up to the limit: 0 if other work comes first, or without such a statement.
        """
        return 0, []

    def spend(self, ask: ClaimRequest, ahead: int, laned_last: bool) -> Spent | None:
        """Lease what may leave lanes that only rates hold up, and what is in none, in one statement.

        None if other lanes have to be checked too, if other work comes first, or without such a statement.
        """
        return None

    def take(self, ask: ClaimRequest, which: str) -> Sequence[tuple]:
        """Lease the rows whose seqs a statement picks, except rows that another transaction is about to change."""
        raise NotImplementedError

    def promote(self) -> int:
        """Make ready what is due; how many."""
        return self.change_first(
            text.PROMOTED, text.first_over(text.DELAYED), {"queue": self.queue, "limit": text.PROMOTE}
        )

    def reap(self, limit: int, by: int) -> tuple[int, int, int | None, bool]:
        """Make entries in no lane ready whose leases expired; none if it is later than ``by``, µs.

        Returns how many, now, when the next lease expires, and whether leases of lanes have expired.
        """
        own, of_lanes = (f"EXISTS({text.first_over(state, 1)})" for state in (text.LEASED, text.OUT))
        sql = f"SELECT {NOW}, {own}, ({text.NEXT_EXPIRY}), {of_lanes}"
        now, expired, next, laned = self.rows(sql, {"queue": self.queue})[0]
        which = {"queue": self.queue, "limit": limit, "by": by}
        reaped = self.change_first(text.REAPED, text.EXPIRED, which) if expired else 0
        return reaped, now, next, bool(laned)

    def reclaim(self, owner: str, limit: int) -> int:
        """Make entries in no lane ready that an owner has leased; how many."""
        which = {"queue": self.queue, "owner": owner, "limit": limit}
        return self.change_first(text.REAPED, text.owned(text.LEASED), which)

    def change_first(self, change: str, which: str, params: Mapping[str, object]) -> int:
        """Change the rows that a query finds; how many."""
        raise NotImplementedError

    def leased_by(self, tokens: Sequence[int]) -> list[tuple]:
        """What these tokens hold: rows of seq, state, lane and gate."""
        which = f"queue = %s AND state IN ({text.LEASED}, {text.OUT}) AND sort_key = 0 AND token IN ({marks(tokens)})"
        return self.rows(f"SELECT seq, state, lane, gate FROM djqueue_message WHERE {which}", [self.queue, *tokens])

    def disown(self, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        """Make entries in no lane ready again, as before these tokens leased them."""
        ours = f"seq IN ({marks(seqs)}) AND state = {text.LEASED} AND token IN ({marks(tokens)})"
        self.count(
            f"UPDATE djqueue_message {self.by_seq} SET {text.PROMOTED}, {text.NEVER} WHERE {ours}", [*seqs, *tokens]
        )

    # ---- for holders of leases: (seq, token) pairs, sorted; and rows of ENDED, whose records are kept of held rows

    def exchange(
        self, pairs: Sequence[tuple], counter: str, ask: ClaimRequest, ended: Sequence[tuple] = ()
    ) -> tuple[Collection[int] | None, ClaimResult]:
        """Complete held rows and claim, in one transaction; the seqs of what was completed (None: all), and the claim.

        An entry that was reaped and not leased again is completed, and not claimed. A claim may bring nothing though
        there is more: then ``claim`` is to follow.
        """
        with self.atomic():
            rows = self.complete(pairs, Completion(counter), ended=ended)
            return {row[0] for row in rows}, self.claim(ask)

    def complete(
        self, pairs: Sequence[tuple], finish: Completion, kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        """Delete held rows; rows that begin with their seqs. Facts for them are written from ``kept``, rows of KEPT."""
        raise NotImplementedError

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        """Note that held entries run; rows of seq."""
        raise NotImplementedError

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        """Extend leases, also of reaped entries without a new holder; rows of seq and until."""
        raise NotImplementedError

    def release(self, said: Sequence[tuple]) -> Iterable[tuple]:
        return self.give_up(self.queue, text.GIVE_UP, said)

    def give_up(
        self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        """Move held rows to ``queue`` with the values of SAID and this change; returns and keeps as ``complete``."""
        raise NotImplementedError

    def fail(
        self, failed: str, said: Sequence[tuple], kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        """``give_up`` into the failed queue, where an older entry of the same id gives way."""
        change = text.failed(self.failed_at)
        try:
            with self.atomic(savepoint=True) if self.joined else nullcontext():
                return self.give_up(failed, change, said, kept, ended)
        except IntegrityError:
            with self.atomic():
                self._give_way(failed, {row[:2] for row in said})
                return self.give_up(failed, change, said, kept, ended)

    def _give_way(self, failed: str, pairs: set[tuple]) -> None:
        sql = f"SELECT seq, token, id FROM djqueue_message WHERE seq IN ({marks(pairs)})"
        ids = [row[2] for row in self.rows(sql, [seq for seq, _ in pairs]) if row[:2] in pairs]
        self.delete_ids(failed, ids)

    # ---- history: many records in one row

    def keep_records(self, ended: Sequence[tuple]) -> None:
        self.count(*self.recording(ended))

    def recording(self, ended: Sequence[tuple]) -> tuple[str, list]:
        """A statement that keeps these records, and its parameters."""
        return f"{text.INSERT_RECORDS} VALUES (%s, {NOW}, %s, %s, %s, %s)", [self.queue, *records_of(ended)]

    def records_with(self, id: str, line: str) -> list[tuple]:
        """The newest records that have this beginning of a line, of rows among whose ids this one can be."""
        sql = (
            f"SELECT records FROM djqueue_history {self.by_history} WHERE queue = %s "
            f"AND first_id <= %s AND last_id >= %s AND {self.has} ORDER BY seq DESC LIMIT 1"
        )
        return self.rows(sql, [self.queue, id, id, line])

    def newest_records(self, last: int, limit: int) -> list[tuple]:
        """Seq and records of as many rows as have ``limit`` records, the newest first, from this seq down."""
        some = (
            f"SELECT seq, count FROM djqueue_history {self.by_history} WHERE queue = %s AND seq <= %s "
            "ORDER BY seq DESC LIMIT %s"
        )
        sql = (
            f"SELECT h.seq, h.records FROM (SELECT seq, {text.NEWER} AS newer FROM ({some}) s) n "
            "JOIN djqueue_history h ON h.seq = n.seq WHERE n.newer < %s ORDER BY h.seq DESC"
        )
        return self.rows(sql, [self.queue, last, limit, limit])

    def records_within(self, after: int, least: str, greatest: str) -> list[tuple]:
        """Seq and records of rows newer than this seq that may have ids in a range, the next PAGE of them."""
        sql = (
            f"SELECT seq, records FROM djqueue_history {self.by_history} WHERE queue = %s AND seq > %s "
            "AND first_id <= %s AND last_id >= %s ORDER BY seq LIMIT %s"
        )
        return self.rows(sql, [self.queue, after, greatest, least, PAGE])

    def last_record(self) -> int:
        """The seq of the newest row, 0 without any."""
        return self.rows("SELECT COALESCE(max(seq), 0) FROM djqueue_history WHERE queue = %s", [self.queue])[0][0]

    def beyond(self, most: int) -> list[tuple]:
        """The newest row that has more than the ``most`` newest records: its seq, how many are newer, its records."""
        sql = (
            f"SELECT h.seq, n.newer, h.records FROM (SELECT seq, count AS here, {text.NEWER} AS newer "
            "FROM djqueue_history WHERE queue = %s) n JOIN djqueue_history h ON h.seq = n.seq "
            "WHERE n.newer + n.here > %s "
            "ORDER BY h.seq DESC LIMIT 1"
        )
        return self.rows(sql, [self.queue, most])

    def cut_records(self, seq: int, count: int, records: str) -> None:
        self.count("UPDATE djqueue_history SET count = %s, records = %s WHERE seq = %s", [count, records, seq])

    def oldest_records(self, which: str, params: Sequence) -> list[tuple]:
        """Seq and count of rows that fulfil a condition, of the oldest of all."""
        some = "SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s"
        return self.rows(f"SELECT seq, count FROM ({some}) o WHERE {which}", [self.queue, PAGE, *params])

    # ---- for operators

    def find(self, id: str) -> list[tuple]:
        """Rows of RECORD, and the time."""
        sql = f"SELECT {text.RECORD}, {NOW} FROM djqueue_message WHERE queue = %s AND id = %s"
        return self.rows(sql, [self.queue, id])

    def queues_of(self, id: str, queues: Sequence[str]) -> list[str]:
        """Those of some queues that have an entry of an id."""
        sql = f"SELECT queue FROM djqueue_message WHERE id = %s AND queue IN ({marks(queues)})"
        return [name for (name,) in self.rows(sql, [id, *queues])]

    def peek(
        self, states: Sequence[int], limit: int, after: Sequence[int] = (), backwards: bool = False
    ) -> list[tuple]:
        """Rows of RECORD, and the time: up to ``limit`` of each state or lane; behind the place ``after``, if given."""
        behind, order = (self.before, text.BACKWARDS) if backwards else (self.behind, text.ORDER)
        place = dict(zip(("sort_key", "sort_at", "seq"), after, strict=True)) if after else {}
        of_queue = f"SELECT {text.RECORD}, {NOW} AS looked FROM djqueue_message WHERE queue = %(queue)s"
        placed = f"{f'AND {behind}' if after else ''} {order} LIMIT %(limit)s"
        parts = [f"{of_queue} AND state = {state} {placed}" for state in states]
        sql = parts[0] if len(parts) == 1 else " UNION ALL ".join(f"SELECT * FROM ({part}) x" for part in parts)
        return self.rows(sql, {"queue": self.queue, "limit": limit, **place})

    def remove(self, ids: Sequence[str]) -> int:
        return self.delete_ids(self.queue, ids, text.WAITS)

    def reprioritise(self, ids: Sequence[str], own: int, laned: int) -> int:
        """Give waiting entries the rank ``own``, or ``laned`` in a lane."""
        neg_priority = "CASE WHEN lane_number = 0 THEN %s ELSE %s END"
        sql = (
            f"UPDATE djqueue_message {self.by_id} SET neg_priority = {neg_priority}, "
            f"sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%%:failed' THEN 0 ELSE {neg_priority} END "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {text.WAITS}"
        )
        return self.count(sql, [own, laned, own, laned, self.queue, *ids])

    def make_due(self, ids: Sequence[str]) -> int:
        """Let delayed entries be due now; how many these were."""
        which = f"WHERE queue = %s AND id IN ({marks(ids)}) AND state IN (1, 3)"
        return self.count(f"UPDATE djqueue_message {self.by_id} SET {text.MADE_DUE} {which}", [self.queue, *ids])

    def amend(self, id: str, was: bytes, body: bytes) -> bool:
        sql = f"UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND {text.WAITS} AND body = %s"
        return self.count(sql, [body, self.queue, id, was]) == 1

    def trim_older(self, age: int, limit: int) -> int:
        """Delete ready entries of a failed queue whose moment is more than ``age`` µs ago; how many.

        All of them have one rank, so the first is the oldest: nothing to delete is one read.
        """
        ready = "queue = %s AND state = 0"
        first = f"SELECT sort_key, sort_at FROM djqueue_message WHERE {ready} {text.ORDER} LIMIT 1"
        for (sort_key,) in self.rows(f"SELECT sort_key FROM ({first}) f WHERE sort_at < {NOW} - %s", [self.queue, age]):
            old = f"{ready} AND sort_key = %s AND sort_at < {NOW} - %s"
            return self._delete_first(old, [self.queue, sort_key, age], limit)
        return 0

    def trim_surplus(self, most: int, limit: int) -> int:
        """Delete ready entries before the last ``most``; how many. Concurrent calls delete the same entries."""
        sql = (
            "SELECT sort_key, sort_at, seq FROM djqueue_message WHERE queue = %s AND state = 0 "
            "ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1 OFFSET %s"
        )
        for last in self.rows(sql, [self.queue, most]):
            surplus = f"queue = %s AND state = 0 AND {self.up_to.format(*last)}"
            return self._delete_first(surplus, [self.queue], limit)
        return 0

    def _delete_first(self, condition: str, params: list, limit: int) -> int:
        return self.delete_some("djqueue_message", "seq", condition, "sort_key, sort_at, seq", params, limit)

    def requeue(self, failed: str, ids: Sequence[str]) -> int:
        which = f"queue = %s AND id IN ({marks(ids)}) AND {text.WAITS} AND {text.absent('m.id')}"
        sql = f"UPDATE djqueue_message AS m SET queue = %s, {text.REQUEUED} WHERE {which}"
        return self.count(sql, [self.queue, failed, *ids, self.queue])

    def flush(self, state: int, after: tuple = ()) -> tuple | None:
        """Delete a chunk of what is in a state, behind the place ``after``; None if nothing is left.

        Else the place from which to go on: an empty one, if the vendor does not pass deleted rows once more.
        """
        deleted = self._delete_first("queue = %s AND state = %s", [self.queue, state], CHUNK)
        return () if deleted else None

    # ---- the lanes, for operators

    def lane_page(self, after: str, limit: int) -> list[tuple]:
        """Names and numbers of lanes, in the order of the names."""
        sql = "SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s"
        return [(name, number_of(name)) for (name,) in self.rows(sql, [self.queue, after, limit])]

    def ticket_page(self, after: tuple, limit: int) -> list[tuple]:
        """Moments, seqs and numbers of tickets."""
        sql = (
            "SELECT created, seq, name FROM djqueue_ticket WHERE queue = %s AND created >= %s "
            "AND (created > %s OR seq > %s) ORDER BY created, seq LIMIT %s"
        )
        rows = self.rows(sql, [self.queue, after[0], *after, limit])
        return [(made, seq, number_of(name)) for made, seq, name in rows]

    def flush_lanes(self, numbers: Sequence[int]) -> int | None:
        """Delete a chunk of what waits in lanes; a number below which they are empty, None if all are."""
        which = f"queue = %s AND state IN ({', '.join(map(str, numbers))})"
        order = "state, sort_key, sort_at, seq"
        deleted = self.delete_some("djqueue_message", "seq", which, order, [self.queue], CHUNK)
        return min(numbers) if deleted else None

    def call_lanes(self) -> None:
        """Leave a ticket for every lane from which something might leave."""
        self.count(
            f"{text.INSERT_TICKET} SELECT queue, {NOW}, name, number, '' "
            f"FROM djqueue_lane WHERE queue = %s AND (state = {text.LANE_READY} OR state >= {text.FIRST_NUMBER})",
            [self.queue],
        )

    def lane_rows(self, condition: str, params: list) -> list[tuple]:
        """Lanes: their row of LANE, and how many wait in each."""
        sql = f"SELECT {text.LANE} FROM djqueue_lane WHERE queue = %s AND {condition}"
        rows = self.rows(sql, [self.queue, *params])
        counts = self.waiting_in([number_of(row[1]) for row in rows])
        return [(row, counts[number_of(row[1])]) for row in rows]

    def waiting_in(self, numbers: Sequence[int]) -> dict[int, int]:
        """How many wait in each of these lanes, up to LANE_CAP: a count for each, as one for all may read the table."""
        mine, most = "SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state =", f"LIMIT {LANE_CAP}"
        counts: dict[int, int] = {}
        for some in slices(numbers, TOGETHER):
            parts = [
                f"SELECT {one} AS state, (SELECT count(*) FROM ({mine} {one} {most}) x) AS waiting" for one in some
            ]
            counts |= dict(self.rows(" UNION ALL ".join(parts), {"queue": self.queue}))
        return counts

    def length(self) -> int:
        sql = (
            "SELECT (SELECT count(*) FROM djqueue_message WHERE queue = %(queue)s AND state IN (0, 1, 3)) "
            f"+ (SELECT count(*) {self.in_lanes})"
        )
        return self.rows(sql, {"queue": self.queue})[0][0]

    def stats(self, failed: str, counters: Sequence[str]) -> tuple:
        """ready, due, delayed, leased, failed (capped), done, now; first moments of what is due and of what is ready.

        The first three and the moments: in no lane, and then in lanes.
        """
        due, later = (f"state = {state} AND sort_key = 0 AND sort_at" for state in (text.DELAYED, text.LATER))
        mine = "FROM djqueue_message WHERE queue = %(queue)s AND"
        ready, *counts = (
            f"(SELECT count(*) FROM (SELECT 1 {which} LIMIT {CAP}) x)"
            for which in (
                f"{mine} state = 0",
                f"{mine} {due} < {NOW}",
                f"{mine} {later} < {NOW}",
                f"{mine} {due} >= {NOW}",
                f"{mine} {later} >= {NOW}",
                f"{mine} state = 2",
                f"{mine} state = 4",
                "FROM djqueue_message WHERE queue = %(failed)s AND state = 0",
            )
        )
        names = ", ".join(f"%(k{number})s" for number in range(len(counters)))
        sql = (
            f"SELECT {ready}, laned.many, {', '.join(counts)}, "
            f"(SELECT sum(counter) FROM djqueue_fact WHERE name IN ({names})), {NOW}, "
            f"(SELECT min(sort_at) {mine} {due} < {NOW}), (SELECT min(sort_at) {mine} {later} < {NOW}), "
            f"({text.OLDEST}), laned.oldest FROM (SELECT count(*) AS many, min(sort_at) AS oldest "
            f"FROM (SELECT m.sort_at {self.in_lanes} LIMIT {CAP}) x) laned"
        )
        return self.rows(sql, {"queue": self.queue, "failed": failed} | {f"k{i}": k for i, k in enumerate(counters)})[0]


@lru_cache(maxsize=256)
def _filled(sql: str, **fields: object) -> str:
    return sql.format(**fields)


def joined(connection: Any) -> bool:
    """Whether a transaction of the caller is open on a connection, or any statement would open one."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def codes(error: Exception) -> tuple:
    """What a driver calls an error: its code of SQL, its own code or text."""
    cause = error.__cause__ or error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return (code, *cause.args[:1])


def is_ready(glance: Glance, promoted: int) -> bool:
    """Whether there is something to claim."""
    return glance.ready is not None or promoted > 0


def claimed(ask: ClaimRequest, rows: Sequence[tuple], glance: Glance, promoted: int) -> ClaimResult:
    """The rows of a claim, and what it saw."""
    return ClaimResult(rows, glance.now, glance.delayed, promoted == text.PROMOTE, glance if ask.look else None)


def marks(values: Collection) -> str:
    """Placeholders for that many values."""
    return ", ".join(["%s"] * len(values))


def rows_of_marks(rows: Sequence[tuple]) -> str:
    """Placeholders for the values of rows."""
    return ", ".join([f"({marks(rows[0])})"] * len(rows))


def alike(rows: Sequence[tuple]) -> tuple[list[tuple], dict[int, object]]:
    """The columns of rows, and by their places the values of columns that have but one, which need be sent only once.

    The first column is none of these: it tells the rows apart.
    """
    columns = list(zip(*rows, strict=True))
    return columns, {
        at: column[0] for at, column in enumerate(columns) if at and column.count(column[0]) == len(column)
    }


def in_order(sql: str, named: Mapping[str, object]) -> tuple[str, list]:
    """A statement with named parameters as one with positional parameters."""
    return NAMED.sub("%s", sql), [named[name] for name in NAMED.findall(sql)]


def flat(rows: Collection[tuple]) -> list:
    """The values of all rows, one after the other."""
    return [value for row in rows for value in row]


def picked(seqs: Iterable[int]) -> str:
    """A query for the entries of these seqs that still wait in their lanes."""
    return f"SELECT seq FROM djqueue_message WHERE {one_of(seqs)} AND state >= {text.FIRST_NUMBER}"


def one_of(seqs: Iterable[int]) -> str:
    """The condition that a row is one of these."""
    return f"djqueue_message.seq IN ({', '.join(map(str, seqs))})"


def heads_of(now: int, rows: Iterable[tuple]) -> Heads:
    """From rows: of entries they begin with the number of the lane, of queued lanes with minus the parent's number."""
    lines = {-row[0]: row[2] for row in rows if row[0] < 0}
    return Heads(now, [row for row in rows if row[0] > 0], lines)
