"""The statements of all verbs, in words that SQLite and PostgreSQL share; a vendor overrides what it says otherwise.

In a statement NOW stands for the clock of the database, in µs since 1970. Operators see no more than the arguments
allow, but for ``length``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction

from djqueue.backends.database.rows import Arrival, Ask, number_of
from djqueue.backends.database.sql.statements import (
    BACKWARDS,
    COUNTED,
    DELAYED,
    FAIL,
    FIRST_NUMBER,
    FIRST_READY,
    GIVE_UP,
    LAST_READY,
    LATER,
    LEASED,
    NEVER,
    NUMBERS,
    OF_LANE,
    OPEN,
    ORDER,
    OUT,
    PROMOTE,
    PROMOTED,
    READY,
    REAPED,
    REAPED_IN_LANE,
    RECORD,
    REQUEUED,
    RETURNED,
    TIMED,
    WAITS,
    absent,
    first_over,
    next_of,
    over_by,
    soonest,
)
from djqueue.utils import slices

LANE = "seq, name, number, gate, in_flight, turn, not_before, paused_reason, logs, state, sort_key, sort_at"
WRITTEN = "seq, gate, in_flight, turn, not_before, paused_reason, logs, state, sort_key, sort_at"
"""What is written of a lane that there is."""
ASSIGNED = ", ".join(f"{name} = u.{name}" for name in WRITTEN.split(", ")[1:])
LANE_THAT, MESSAGE = (f"FROM djqueue_{table} WHERE queue = %(queue)s AND state" for table in ("lane", "message"))
OF_LANES = (
    "(SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1)",
    f"(SELECT 1 {LANE_THAT} = {OPEN} ORDER BY sort_key, sort_at LIMIT 1)",
    f"(SELECT sort_at {LANE_THAT} = {TIMED} AND sort_key = 0 ORDER BY sort_at LIMIT 1)",
    f"(SELECT sort_at {MESSAGE} = {LATER} AND sort_key = 0 ORDER BY sort_at LIMIT 1)",
)
"""The last four columns of a glance, by a step in an index each."""
GLANCE = (
    f"SELECT NOW, (SELECT sort_key {MESSAGE} = 0 ORDER BY sort_key LIMIT 1), ({first_over(DELAYED, 1)}), "
    f"({next_of(DELAYED)})"
)
"""Its other columns."""
FIRST_ENTRIES = (
    "SELECT state, seq, sort_key, sort_at, lost FROM djqueue_message WHERE queue = %s AND state = %s "
    "ORDER BY sort_key, sort_at, seq LIMIT %s"
)
FIRST_IN_LINE = (
    "SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost FROM djqueue_lane WHERE queue = %s AND state = %s "
    "ORDER BY sort_key, sort_at LIMIT 1"
)
TOGETHER = 100
"""So many parts one compound statement has at most."""


LIVING = "(until IS NULL OR until > NOW)"
INSERT_FACT = "INSERT INTO djqueue_fact (name, value, until, counter)"
FACT = "(%s, %s, NOW + %s, 0)"


CAP = 100_000
"""Counting stops here."""
CHUNK = 5000
"""So many rows one statement of a flush deletes at most."""
PRIORITIES = 64
"""The oldest ready entry is looked for among so many priorities, the highest."""


class Glance(NamedTuple):
    """What there is to do in a queue that has lanes."""

    now: int
    ready: int | None
    """The rank of an entry in no lane, if one is ready."""
    due: int | None
    """A delayed one in no lane that is due, if there is."""
    delayed: int | None
    """When the next of these is."""
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
    """What stands first in lanes."""

    now: int
    entries: list[tuple]
    """Rows of state, seq, sort_key, sort_at, lost."""
    lines: dict[int, int]
    """The rank of the first lane in the line of each of these, where there is one."""


class Payment(NamedTuple):
    """What a claim by a budget changes beside the entries: one fact, if it is still as it was at a moment."""

    key: str
    was: bytes
    value: bytes
    keep: int
    """µs."""
    since: int


class Taken(NamedTuple):
    """What a claim brought: rows of ENTRY in any order; when the next falls due; whether more may be due already."""

    rows: Sequence[tuple]
    now: int
    next: int | None = None
    more: bool = False
    glance: Glance | None = None
    """At what there is to do; None if nobody looked."""


class Reaping(NamedTuple):
    """How many expired leases became ready, when the next expires, and whether some of lanes have."""

    reaped: int
    now: int
    next: int | None
    laned: bool


class Finish(NamedTuple):
    """What completing writes: into a counter how many, and if ids are remembered, a mark for each, for so many µs."""

    counter: str
    marks: str = ""
    remember: int = 0


class Dialect:
    """A session: the statements of one verb, or of several in one transaction, on a cursor for one queue."""

    name: str = ""
    now: str = ""
    """Microseconds since 1970, by the clock of the database."""

    by_seq: str = ""
    """Makes a vendor find rows by their primary key, though the table is small: only what is looked for is locked."""
    by_id: str = ""
    """The same by the index of the ids."""
    by_place: str = ""
    """The same by the index of the places of lanes."""
    locking: str = "FOR UPDATE"
    skipping: str = "FOR UPDATE SKIP LOCKED"

    fact_replaces: str = "ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until"
    fact_stays: str = "ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter"
    """Nothing changes, but the row is locked."""
    lane_stays: str = "ON CONFLICT (queue, name) DO NOTHING"

    record: str = RECORD
    """How these columns are read."""
    in_lanes: str = f"{NUMBERS} CROSS JOIN {OF_LANE}"
    """What waits in the lanes of a queue, lane by lane."""
    behind: str = "(sort_key, sort_at, seq) > (%(sort_key)s, %(sort_at)s, %(seq)s)"
    before: str = "(sort_key, sort_at, seq) < (%(sort_key)s, %(sort_at)s, %(seq)s)"
    up_to: str = "(sort_key, sort_at, seq) <= ({0}, {1}, {2})"

    def __init__(self, connection: Any, cursor: Any, queue: str):
        self.connection, self.cursor, self.queue = connection, cursor, queue

    # ---- running statements

    def rows(self, sql: str, params: Any = ()) -> list[tuple]:
        """Every row of a statement that returns rows."""
        self.cursor.execute(sql.replace("NOW", self.now), params)
        return self.cursor.fetchall()

    def count(self, sql: str, params: Any = ()) -> int:
        """How many rows a statement changed."""
        self.cursor.execute(sql.replace("NOW", self.now), params)
        return self.cursor.rowcount

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
        """At the head of a transaction that will write."""

    @property
    def died(self) -> str:
        """The moment of a failure, which tells it from the one before."""
        return "NOW"

    def clock(self) -> int:
        return self.rows("SELECT NOW")[0][0]

    def delete_some(self, table: str, key: str, condition: str, order: str, params: list, limit: int) -> int:
        """Delete the first ``limit`` rows under a condition; how many."""
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s"
        return self.count(f"DELETE FROM {table} WHERE {key} IN ({picked})", [*params, limit])

    def these(self, count: int, table: str = "djqueue_message") -> str:
        """``count`` rows of a table by their seqs, as ``m``: what stands behind FROM, up to a further condition."""
        return f"{table} m WHERE m.seq IN ({marks(range(count))})"

    def delete_rows(self, table: str, seqs: Sequence[int]) -> int:
        """Delete the rows of a table with these seqs; how many."""
        return self.count(f"DELETE FROM {table} WHERE seq IN ({marks(seqs)})", seqs)

    def delete_ids(self, queue: str, ids: Sequence[str], condition: str = "true") -> int:
        """Delete the entries of a queue with these ids, if they fulfil a condition; how many."""
        sql = f"DELETE FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)}) AND {condition}"
        return self.count(sql, [queue, *ids])

    # ---- facts: keys are whole, values are bytes, times are µs, and None is for ever

    def get(self, key: str) -> bytes | None:
        found = self.rows(f"SELECT value FROM djqueue_fact WHERE name = %s AND {LIVING}", [key])
        return bytes(found[0][0]) if found else None

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of those keys that there are."""
        found = self.rows(f"SELECT name, value FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {LIVING}", keys)
        return {key: bytes(value) for key, value in found}

    def get_as_of(self, key: str) -> tuple[int, bytes | None]:
        """The same, and the moment."""
        sql = f"SELECT NOW, (SELECT value FROM djqueue_fact WHERE name = %s AND {LIVING})"
        now, value = self.rows(sql, [key])[0]
        return now, None if value is None else bytes(value)

    def put(self, facts: Sequence[tuple]) -> None:
        """Set whole facts: keys that differ, in their order, each with its value and its time."""
        rows = ", ".join([FACT] * len(facts))
        self.count(f"{INSERT_FACT} VALUES {rows} {self.fact_replaces}", flat(facts))

    def add(self, key: str, value: bytes, ttl: int | None) -> bool:
        """Set unless it is there; one statement decides, whoever else is about to."""
        sql = f"{INSERT_FACT} VALUES {FACT} {self.fact_replaces} WHERE djqueue_fact.until <= NOW"
        return self.count(sql, [key, value, ttl]) == 1

    def swap(self, key: str, was: bytes, value: bytes, ttl: int | None) -> bool:
        sql = f"UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND value = %s AND {LIVING}"
        return self.count(sql, [value, ttl, key, was]) == 1

    def keep(self, key: str, value: bytes, ttl: int) -> bool:
        sql = f"UPDATE djqueue_fact SET until = NOW + %s WHERE name = %s AND value = %s AND {LIVING}"
        return self.count(sql, [ttl, key, value]) == 1

    def drop(self, key: str, value: bytes | None) -> bool:
        same, params = ("", [key]) if value is None else (" AND value = %s", [key, value])
        return self.count(f"DELETE FROM djqueue_fact WHERE name = %s AND {LIVING}{same}", params) == 1

    def prune(self, limit: int) -> int:
        """Delete facts that are over, the oldest first; how many."""
        return self.delete_some("djqueue_fact", "name", "until <= NOW", "until", [], limit)

    def surplus(self, prefix: str, keep: int, limit: int) -> int:
        """Of the keys that begin so, delete those that would be over first, until ``keep`` are left; how many.

        In order of ``until`` and then of ``counter``: many may have the same moment.
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
        """Lock facts, made if need be, in the order of the keys, waiting for whoever has them; those that there are."""
        rows = self.rows(
            f"{self._holding(keys)} RETURNING name, value, {LIVING}", flat([(key, b"", 0) for key in keys])
        )
        return {key: bytes(value) for key, value, lives in rows if lives}

    def hold_as_of(self, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """The same, and a moment since which they are ours."""
        return self.hold(keys), self.clock()

    def _holding(self, keys: Sequence[str]) -> str:
        rows = ", ".join([FACT] * len(keys))
        return f"{INSERT_FACT} VALUES {rows} {self.fact_stays}"

    def look(self, ids: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Now, and the states of those of the entries that there are."""
        sql = (
            "SELECT NOW, m.id, m.state FROM (SELECT 1 AS one) x "
            f"LEFT JOIN djqueue_message m ON m.queue = %s AND m.id IN ({marks(ids)})"
        )
        rows = self.rows(sql, [self.queue, *ids])
        return rows[0][0], {id: state for _, id, state in rows if id is not None}

    def withhold(self, ids: Sequence[str]) -> set[str]:
        """Lock entries that wait, so that no claim has them before the transaction ends; those that could be locked.

        Never waits: who has one locked is about to lease or to delete it.
        """
        sql = (
            f"SELECT id FROM djqueue_message {self.by_id} WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS} "
            "FOR UPDATE SKIP LOCKED"
        )
        return {row[0] for row in self.rows(sql, [self.queue, *ids])}

    def postpone(self, id: str, due: int) -> None:
        sql = "UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3)"
        self.count(sql, [due, due, self.queue, id])

    def turn_at(self, now: int) -> int:
        """A number for the turns of a claim, higher than those before."""
        return now

    # ---- looking at lanes

    def glance(self, lanes: bool = True) -> Glance:
        of_lanes = ", ".join(OF_LANES) if lanes else "NULL, NULL, NULL, NULL"
        return Glance(*numbers(self.rows(f"{GLANCE}, {of_lanes}", {"queue": self.queue})[0]))

    def glance_beside(self, key: str) -> tuple[Glance, bytes | None]:
        """The same, and a fact."""
        sql = f"{GLANCE}, {', '.join(OF_LANES)}, (SELECT value FROM djqueue_fact WHERE name = %(key)s AND {LIVING})"
        *row, value = self.rows(sql, {"queue": self.queue, "key": key})[0]
        return Glance(*numbers(row)), None if value is None else bytes(value)

    def ranks(self, limit: int, order: str) -> list[int]:
        """Of the first entries in no lane."""
        sql = f"SELECT sort_key FROM djqueue_message WHERE queue = %s AND state = 0 {order} LIMIT %s"
        return [row[0] for row in self.rows(sql, [self.queue, limit])]

    def heads(self, wants: Mapping[int, int], outers: Collection[int]) -> Heads:
        """What stands first in lanes, by their numbers: of each as many entries as wanted, and the head of its line."""
        parts: list[tuple[str, tuple]] = [(FIRST_ENTRIES, (self.queue, *want)) for want in wants.items()]
        parts += [(FIRST_IN_LINE, (self.queue, number)) for number in outers]
        found = []
        for some in slices(parts, TOGETHER):
            sql = " UNION ALL ".join(["SELECT 0, 0, NOW, 0, 0", *(f"SELECT * FROM ({part}) x" for part, _ in some)])
            found += self.rows(sql, [value for _, values in some for value in values])
        moments = [row[2] for row in found if not row[0]]
        return heads_of(moments[0] if moments else self.clock(), [row for row in found if row[0]])

    # ---- tickets

    def leave_tickets(self, tickets: Sequence[tuple]) -> None:
        """For lanes: name, number, and the gate that it has from now on ("": as it is)."""
        rows = ", ".join(["(%s, NOW, %s, %s, %s)"] * len(tickets))
        sql = f"INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES {rows}"
        self.count(sql, [value for ticket in tickets for value in (self.queue, *ticket)])

    def tickets(self, limit: int) -> list[tuple]:
        """The first: seq, name, number, gate, and whether the lane has a row."""
        known = "(SELECT l.seq FROM djqueue_lane l WHERE l.queue = t.queue AND l.name = t.name) IS NOT NULL"
        columns = f"created, seq, name, number, gate, {known}"
        sql = f"SELECT {columns} FROM djqueue_ticket t WHERE queue = %s ORDER BY created LIMIT %s"
        return [row[1:] for row in sorted(self.rows(sql, [self.queue, limit]))]

    def drop_tickets(self, seqs: Sequence[int]) -> set[int]:
        """Delete them; those that were there."""
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

    def out_of_lanes(self) -> list[tuple]:
        """Lane, its gate (None if it is not known) and how many have left it and are not settled."""
        sql = (
            "SELECT m.lane, l.gate, count(*) FROM djqueue_message m LEFT JOIN djqueue_lane l "
            f"ON l.queue = m.queue AND l.name = m.lane WHERE m.queue = %s AND m.state = {OUT} GROUP BY m.lane, l.gate"
        )
        return self.rows(sql, [self.queue])

    def in_no_known_lane(self, after: int, limit: int) -> tuple[int, list[tuple]]:
        """Lane and gate of entries of lanes of which nothing is known, though they are not delayed; and the last state
        that was looked at, 0 if it was the last of all."""
        some = (
            f"SELECT state, lane, gate FROM djqueue_message WHERE queue = %s AND state > %s AND state > {LATER} "
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
        """Rows of name, number, gate and turn that are not there; they stand nowhere yet."""
        rows = ", ".join(["(%s, %s, %s, %s, 0, %s, 0, '', '[]', 1, 0, 0)"] * len(lanes))
        sql = f"INSERT INTO djqueue_lane (queue, {LANE.removeprefix('seq, ')}) VALUES {rows} {self.lane_stays}"
        self.count(sql, [value for lane in sorted(lanes) for value in (self.queue, *lane)])

    def hold_named(self, names: Sequence[str], wait: bool) -> list[tuple]:
        """Lock lanes, in the order of their names; of those that somebody has, none unless we wait."""
        columns = ", ".join(f"l.{column}" for column in LANE.split(", "))
        sql = f"SELECT {columns} FROM {self.named_lanes(len(names))} {self.locking if wait else self.skipping}"
        return self.rows(sql, [*sorted(names), self.queue])

    def named_lanes(self, count: int) -> str:
        """So many rows ``l`` by their names, in that order: what stands behind FROM."""
        return f"djqueue_lane l WHERE name IN ({marks(range(count))}) AND queue = %s ORDER BY name"

    def hold_first(self, state: int, limit: int, due: bool = False) -> list[tuple]:
        """Lock the first that stand somewhere and that nobody has; of timed ones those that are ``due``."""
        sql = (
            f"SELECT {LANE} FROM djqueue_lane {self.by_place} WHERE queue = %s AND state = %s "
            f"{'AND sort_key = 0 AND sort_at <= NOW' if due else ''} ORDER BY sort_key, sort_at LIMIT "
            f"%s {self.skipping}"
        )
        return self.rows(sql, [self.queue, state, limit])

    def write_lanes(self, rows: Sequence[tuple]) -> None:
        """Rows of WRITTEN."""
        table = f"WITH u ({WRITTEN}) AS (VALUES {rows_of_marks(len(rows[0]), len(rows))})"
        self.count(f"{table} UPDATE djqueue_lane AS l SET {ASSIGNED} FROM u WHERE l.seq = u.seq", flat(rows))

    def drop_lanes(self, seqs: Sequence[int]) -> None:
        self.delete_rows("djqueue_lane", sorted(seqs))

    # ---- the entries of lanes

    def come_in(self) -> list[tuple]:
        """Let delayed entries that are due wait in their lanes; of each lane and gate."""
        sql = (
            "SELECT seq, lane, lane_number, gate FROM djqueue_message WHERE queue = %s AND state = "
            f"{LATER} AND sort_key = 0 "
            f"AND sort_at < NOW ORDER BY sort_at LIMIT {PROMOTE} {self.skipping}"
        )
        rows = self.rows(sql, [self.queue])
        if rows:
            seqs = [row[0] for row in rows]
            self.count(f"UPDATE djqueue_message {self.by_seq} SET {RETURNED} WHERE seq IN ({marks(seqs)})", seqs)
        return rows

    def expired(self, limit: int) -> list[tuple]:
        """Seq and lane of leases of lanes that have run out."""
        sql = first_over(OUT).replace("SELECT seq", "SELECT seq, lane")
        return self.rows(sql, {"queue": self.queue, "limit": limit})

    def reap_in_lanes(self, seqs: Sequence[int], by: int) -> list[str]:
        """Let them return to their lanes if they are out and their leases over; the lanes, one for each."""
        return self._return(seqs, "sort_at < NOW AND NOW <= %s", (by,), REAPED_IN_LANE)

    def disown_in_lanes(self, seqs: Sequence[int], tokens: Sequence[int]) -> list[str]:
        """The same of those that these tokens hold, as if they had never left."""
        return self._return(seqs, f"token IN ({marks(tokens)})", tokens, f"{RETURNED}, {NEVER}")

    def _return(self, seqs: Sequence[int], which: str, params: Sequence, change: str) -> list[str]:
        sql = f"SELECT m.seq, lane FROM {self.these(len(seqs))} AND state = {OUT} AND {which} {self.locking}"
        rows = self.rows(sql, [*seqs, *params])
        if rows:
            back = [row[0] for row in rows]
            self.count(f"UPDATE djqueue_message {self.by_seq} SET {change} WHERE seq IN ({marks(back)})", back)
        return [row[1] for row in rows]

    def put_back(self, seqs: Sequence[int]) -> None:
        """What was leased by this transaction was not."""
        sql = f"UPDATE djqueue_message {self.by_seq} SET {RETURNED}, {NEVER} WHERE seq IN ({marks(seqs)})"
        self.count(sql, seqs)

    def lanes_of(self, queue: str, ids: Sequence[str]) -> list[tuple]:
        """Name, number and gate of the lanes of entries."""
        sql = (
            "SELECT DISTINCT lane, ABS(lane_number), gate FROM djqueue_message "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND lane_number <> 0"
        )
        return self.rows(sql, [queue, *ids])

    # ---- put

    def insert(self, arrivals: Sequence[Arrival]) -> set[str]:
        """Insert what is not there; the ids that went in."""
        raise NotImplementedError

    def insert_guarded(self, arrivals: Sequence[Arrival]) -> set[str]:
        """The same, of each guard's key at most one, in one transaction. The guards are of the kind that holds once."""
        return self.insert_checked(arrivals, "")

    def insert_checked(self, arrivals: Sequence[Arrival], done: str) -> set[str]:
        """The same, and nothing whose id is marked as done (``done`` is what such keys begin with; "": none are)."""
        with self.atomic():
            there = self._present(arrivals) | self.marked(done, ids_of(arrivals))
            fresh = [arrival for arrival in arrivals if arrival.id not in there]
            return self.insert_unmarked(self._pass_guards(fresh), done)

    def insert_unmarked(self, arrivals: Sequence[Arrival], done: str) -> set[str]:
        """Insert what was not marked when we looked, and take back what somebody else completed since."""
        accepted = self.insert(arrivals) if arrivals else set()
        if late := self.marked(done, accepted):
            self.delete_ids(self.queue, [*late])
        return accepted - late

    def _present(self, arrivals: Sequence[Arrival]) -> set[str]:
        ids = ids_of(arrivals)
        sql = f"SELECT id FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)})"
        return {row[0] for row in self.rows(sql, [self.queue, *ids])}

    def marked(self, done: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are remembered."""
        keys = {done + id: id for id in ids} if done else {}
        sql = f"SELECT name FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {LIVING}"
        return {keys[name] for (name,) in self.rows(sql, [*keys])} if keys else set()

    def _pass_guards(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """In the order of their keys, so that two transactions never wait for each other."""
        refused = set()
        for arrival in sorted(arrivals, key=lambda arrival: arrival.key):
            if arrival.key and not self.add(arrival.key, arrival.id.encode(), arrival.ttl):
                refused.add(arrival.id)
        return [arrival for arrival in arrivals if arrival.id not in refused]

    # ---- claim and reap

    def claim(self, ask: Ask) -> Taken:
        """Lease up to ``limit``. One read where there is nothing, so that an idle queue takes no lock."""
        glance = self.glance(ask.look)
        promoted = self.promote() if glance.due else 0
        there = glance.ready is not None or promoted
        rows = self.take(ask, LAST_READY if ask.lifo else FIRST_READY) if there else []
        return Taken(rows, glance.now, glance.delayed, promoted == PROMOTE, glance if ask.look else None)

    def claim_paid(self, ask: Ask, payment: Payment) -> tuple[int, Sequence[tuple]]:
        """Lease exactly ``limit`` and pay for them, in one statement; nothing if there are fewer or the fact changed.

        Tells how many there are as well, up to the limit: 0 if there is more to be done first, or no such statement.
        """
        return 0, []

    def take(self, ask: Ask, which: str) -> Sequence[tuple]:
        """Lease the rows whose seqs a statement picks, but for those that somebody else is about to change."""
        raise NotImplementedError

    def promote(self) -> int:
        """Make ready what is due; how many."""
        return self.change_first(PROMOTED, first_over(DELAYED), {"queue": self.queue, "limit": PROMOTE})

    def reap(self, limit: int, by: int) -> Reaping:
        """Make expired leases ready, but for those of lanes; none if it is later than ``by``, µs."""
        sql = f"SELECT NOW, EXISTS({first_over(LEASED, 1)}), ({soonest(LEASED, OUT)}), EXISTS({first_over(OUT, 1)})"
        now, expired, next, laned = self.rows(sql, {"queue": self.queue})[0]
        which = {"queue": self.queue, "limit": limit, "by": by}
        reaped = self.change_first(REAPED, over_by(LEASED), which) if expired else 0
        return Reaping(reaped, now, next, bool(laned))

    def change_first(self, change: str, which: str, params: Mapping[str, object]) -> int:
        """Change the rows that a query finds; how many."""
        raise NotImplementedError

    def leased_by(self, tokens: Sequence[int]) -> list[tuple]:
        """What these tokens hold: rows of seq, state and lane."""
        sql = (
            f"SELECT seq, state, lane FROM djqueue_message WHERE queue = %s AND state IN ({LEASED}, "
            f"{OUT}) AND sort_key = 0 "
            f"AND token IN ({marks(tokens)})"
        )
        return self.rows(sql, [self.queue, *tokens])

    def disown(self, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        """Let what is in no lane be as before these tokens had it."""
        ours = f"seq IN ({marks(seqs)}) AND state = {LEASED} AND token IN ({marks(tokens)})"
        self.count(f"UPDATE djqueue_message {self.by_seq} SET {PROMOTED}, {NEVER} WHERE {ours}", [*seqs, *tokens])

    # ---- by those who hold leases: (seq, token) pairs, sorted

    def complete(self, pairs: Sequence[tuple], finish: Finish, kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        """Delete; rows that begin with the seqs that were ours. Of those the facts are ``kept``, rows of KEPT."""
        raise NotImplementedError

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        """Note that they run; rows of seq."""
        raise NotImplementedError

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        """Extend, what was reaped and has no new holder as well; rows of seq and until."""
        raise NotImplementedError

    def release(self, said: Sequence[tuple]) -> Iterable[tuple]:
        return self.give_up(self.queue, GIVE_UP, said)

    def give_up(self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        """Let rows stand in ``queue`` as SAID and changed so; as ``complete`` otherwise."""
        raise NotImplementedError

    def fail(self, failed: str, said: Sequence[tuple], kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        """``give_up`` into the error queue, where an older entry of the same id gives way."""
        change = FAIL.replace("FAILED_AT", self.died)
        try:
            with self.atomic(savepoint=True) if self.joined else nullcontext():
                return self.give_up(failed, change, said, kept)
        except IntegrityError:
            with self.atomic():
                self._give_way(failed, {row[:2] for row in said})
                return self.give_up(failed, change, said, kept)

    def _give_way(self, failed: str, pairs: set[tuple]) -> None:
        sql = f"SELECT seq, token, id FROM djqueue_message WHERE seq IN ({marks(pairs)})"
        ids = [row[2] for row in self.rows(sql, [seq for seq, _ in pairs]) if row[:2] in pairs]
        self.delete_ids(failed, ids)

    # ---- for operators

    def find(self, id: str) -> list[tuple]:
        """Rows of RECORD, and the time."""
        return self.rows(
            f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %s AND id = %s", [self.queue, id]
        )

    def peek(self, state: int, limit: int, after: Sequence[int] | None, backwards: bool = False) -> list[tuple]:
        """The same, of one state, in order or in the opposite one."""
        behind, order = (self.before, BACKWARDS) if backwards else (self.behind, ORDER)
        params = {"queue": self.queue, "state": state, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        sql = (
            f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %(queue)s AND state = %(state)s "
            f"{f'AND {behind}' if after else ''} {order} LIMIT %(limit)s"
        )
        return placed(self.rows(sql, params))

    def remove(self, ids: Sequence[str]) -> int:
        return self.delete_ids(self.queue, ids, WAITS)

    def reprioritise(self, ids: Sequence[str], own: int, laned: int) -> int:
        """Give entries that wait another rank, in a lane that one."""
        neg_priority = "CASE WHEN lane_number = 0 THEN %s ELSE %s END"
        sql = (
            f"UPDATE djqueue_message {self.by_id} SET neg_priority = {neg_priority}, "
            f"sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%%:failed' THEN 0 ELSE {neg_priority} END "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS}"
        )
        return self.count(sql, [own, laned, own, laned, self.queue, *ids])

    def amend(self, id: str, was: bytes, body: bytes) -> bool:
        sql = f"UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND {WAITS} AND body = %s"
        return self.count(sql, [body, self.queue, id, was]) == 1

    def trim_older(self, age: int, limit: int) -> int:
        """Delete ready entries of an error queue whose moment is more than ``age`` µs ago; how many.

        All of them have one rank, so the first is the oldest: nothing to delete is one read.
        """
        ready = "queue = %s AND state = 0"
        first = f"SELECT sort_key, sort_at FROM djqueue_message WHERE {ready} {ORDER} LIMIT 1"
        for (sort_key,) in self.rows(f"SELECT sort_key FROM ({first}) f WHERE sort_at < NOW - %s", [self.queue, age]):
            old = f"{ready} AND sort_key = %s AND sort_at < NOW - %s"
            return self._delete_first(old, [self.queue, sort_key, age], limit)
        return 0

    def trim_surplus(self, most: int, limit: int) -> int:
        """Delete what is ready and stands before the last ``most``; how many. Those who do so at once agree on it."""
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
        which = f"queue = %s AND id IN ({marks(ids)}) AND {WAITS} AND {absent('m.id')}"
        sql = f"UPDATE djqueue_message AS m SET queue = %s, {REQUEUED} WHERE {which}"
        return self.count(sql, [self.queue, failed, *ids, self.queue])

    def flush(self) -> int:
        """Delete a chunk of what is ready in no lane, or else of what is delayed; how many."""
        for state in (READY, DELAYED, LATER):
            if deleted := self._delete_first("queue = %s AND state = %s", [self.queue, state], CHUNK):
                return deleted
        return 0

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
        return [(*numbers((made, seq)), number_of(name)) for made, seq, name in rows]

    def peek_in(self, numbers: Sequence[int], limit: int, after: Sequence[int] | None = None) -> list[tuple]:
        """Rows of RECORD with now, up to so many of each of these lanes; behind a place, if one is given."""
        params = {"queue": self.queue, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        part = (
            f"SELECT {self.record}, NOW AS looked FROM djqueue_message WHERE queue = %(queue)s AND state = {{}} "
            f"{f'AND {self.behind}' if after else ''} {ORDER} LIMIT %(limit)s"
        )
        parts = [f"SELECT * FROM ({part.format(number)}) x" for number in numbers]
        return placed(self.rows(" UNION ALL ".join(parts), params))

    def flush_lanes(self, numbers: Sequence[int]) -> int:
        """Delete a chunk of what waits in lanes; how many."""
        which = f"queue = %s AND state IN ({', '.join(map(str, numbers))})"
        return self.delete_some("djqueue_message", "seq", which, "state, sort_key, sort_at, seq", [self.queue], CHUNK)

    def call_lanes(self) -> None:
        """Leave a ticket for every lane from which something might leave."""
        self.count(
            "INSERT INTO djqueue_ticket (queue, created, name, number, gate) SELECT queue, NOW, name, number, '' "
            f"FROM djqueue_lane WHERE queue = %s AND (state = {OPEN} OR state >= {FIRST_NUMBER})",
            [self.queue],
        )

    def lane_rows(self, condition: str, params: list) -> list[tuple]:
        """Lanes: their row of LANE, and how many wait in each."""
        sql = f"SELECT {LANE} FROM djqueue_lane WHERE queue = %s AND {condition}"
        rows = self.rows(sql, [self.queue, *params])
        counts = {}
        if rows:
            states = ", ".join(str(number_of(row[1])) for row in rows)
            sql = f"SELECT state, count(*) FROM djqueue_message WHERE queue = %s AND state IN ({states}) GROUP BY state"
            counts = dict(self.rows(sql, [self.queue]))
        return [(row, counts.get(number_of(row[1]), 0)) for row in rows]

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
        due, later = (f"state = {state} AND sort_key = 0 AND sort_at" for state in (DELAYED, LATER))
        mine = "FROM djqueue_message WHERE queue = %(queue)s AND"
        counts = ", ".join(
            f"(SELECT count(*) FROM (SELECT 1 {which} LIMIT {CAP}) x)"
            for which in (
                f"{mine} state = 0",
                self.in_lanes,
                f"{mine} {due} < NOW",
                f"{mine} {later} < NOW",
                f"{mine} {due} >= NOW",
                f"{mine} {later} >= NOW",
                f"{mine} state = 2",
                f"{mine} state = 4",
                "FROM djqueue_message WHERE queue = %(failed)s AND state = 0",
            )
        )
        sql = (
            f"SELECT {counts}, (SELECT sum({COUNTED}) FROM djqueue_fact WHERE name IN ({self._named(counters)})), NOW, "
            f"(SELECT min(sort_at) {mine} {due} < NOW), (SELECT min(sort_at) {mine} {later} < NOW), "
            f"({self._oldest()}), (SELECT min(sort_at) FROM (SELECT m.sort_at {self.in_lanes} LIMIT {CAP}) x)"
        )
        return self.rows(sql, {"queue": self.queue, "failed": failed} | {f"k{i}": k for i, k in enumerate(counters)})[0]

    def _named(self, values: Sequence) -> str:
        return ", ".join(f"%(k{i})s" for i in range(len(values)))

    def _oldest(self) -> str:
        """The heads of the priorities, a step in the index each; ``min(sort_at)`` would read all that is ready."""
        ready = "FROM djqueue_message r WHERE r.queue = %(queue)s AND r.state = 0"
        return (
            f"WITH RECURSIVE p (sort_key, n) AS (SELECT (SELECT r.sort_key {ready} ORDER BY r.sort_key LIMIT 1), 1 "
            f"UNION ALL SELECT (SELECT r.sort_key {ready} AND r.sort_key > p.sort_key ORDER BY "
            "r.sort_key LIMIT 1), n + 1 "
            f"FROM p WHERE p.sort_key IS NOT NULL AND n < {PRIORITIES}) "
            f"SELECT min((SELECT r.sort_at {ready} AND r.sort_key = p.sort_key ORDER BY r.sort_at LIMIT 1)) FROM p"
        )


def joined(connection: Any) -> bool:
    """Whether a transaction of the caller is open on a connection, or any statement would open one."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def marks(values: Collection) -> str:
    """Placeholders for that many values."""
    return ", ".join(["%s"] * len(values))


def rows_of_marks(width: int, count: int, mark: str = "%s") -> str:
    """Placeholders for ``count`` rows of ``width`` values."""
    return ", ".join([f"({', '.join([mark] * width)})"] * count)


def flat(rows: Collection[tuple]) -> list:
    """The values of all rows, one after the other."""
    return [value for row in rows for value in row]


def numbers(row: Sequence) -> Sequence:
    """The row. Raises TypeError for anything else in it, as SQLite keeps what somebody wrote: here it is put right."""
    for value in row:
        if not isinstance(value, int | None):
            raise TypeError(f"{value!r} stands where a number belongs")
    return row


def picked(seqs: Iterable[int]) -> str:
    """Those of the entries that wait in their lanes."""
    return f"SELECT seq FROM djqueue_message WHERE {one_of(seqs)} AND state >= {FIRST_NUMBER}"


def one_of(seqs: Iterable[int]) -> str:
    """The condition that a row is one of these."""
    return f"djqueue_message.seq IN ({', '.join(map(str, seqs))})"


def heads_of(now: int, rows: Iterable[tuple]) -> Heads:
    """Of entries the rows begin with the number of their lane, of lanes in a line with minus that of the outer one."""
    lines = {-row[0]: row[2] for row in rows if row[0] < 0}
    return Heads(now, [row for row in rows if row[0] > 0], lines)


def placed(rows: list[tuple]) -> list[tuple]:
    """Rows of RECORD with now. Raises TypeError where their places are no numbers."""
    for row in rows:
        numbers((row[-3], row[12]))
    return rows


def ids_of(arrivals: Sequence[Arrival]) -> list[str]:
    return [arrival.id for arrival in arrivals]
