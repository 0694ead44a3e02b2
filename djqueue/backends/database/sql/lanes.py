"""The statements of lanes: what stands in them, where they stand themselves, and the tickets of what came to them.

Whoever changes a lane, or what has left it, holds its row. A claim takes rows that nobody has and never waits; those
who settle wait, in the order of the names, so nobody waits for one who waits. Whoever puts leaves a ticket.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.statements import (
    DELAYED,
    FIRST_NUMBER,
    LATER,
    LIVING,
    NEVER,
    OPEN,
    OUT,
    PROMOTE,
    REAPED_IN_LANE,
    RETURNED,
    TIMED,
    Facts,
    first_over,
    flat,
    marks,
    next_of,
    rows_of_marks,
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


class Lanes(Facts):
    """All of it within one transaction, but for the glance and the tickets."""

    def turn_at(self, now: int) -> int:
        """A number for the turns of a claim, higher than those before."""
        return now

    def begin(self, run: Session) -> None:
        """At the head of a transaction that will write."""

    # ---- looking

    def glance(self, run: Session, queue: str, lanes: bool = True) -> Glance:
        of_lanes = ", ".join(OF_LANES) if lanes else "NULL, NULL, NULL, NULL"
        return Glance(*numbers(run.rows(f"{GLANCE}, {of_lanes}", {"queue": queue})[0]))

    def glance_beside(self, run: Session, queue: str, key: str) -> tuple[Glance, bytes | None]:
        """The same, and a fact."""
        sql = f"{GLANCE}, {', '.join(OF_LANES)}, (SELECT value FROM djqueue_fact WHERE name = %(key)s AND {LIVING})"
        *row, value = run.rows(sql, {"queue": queue, "key": key})[0]
        return Glance(*numbers(row)), None if value is None else bytes(value)

    def ranks(self, run: Session, queue: str, limit: int, order: str) -> list[int]:
        """Of the first entries in no lane."""
        sql = f"SELECT sort_key FROM djqueue_message WHERE queue = %s AND state = 0 {order} LIMIT %s"
        return [row[0] for row in run.rows(sql, [queue, limit])]

    def heads(self, run: Session, queue: str, wants: Mapping[int, int], outers: Collection[int]) -> Heads:
        """What stands first in lanes, by their numbers: of each as many entries as wanted, and the head of its line."""
        parts: list[tuple[str, tuple]] = [(FIRST_ENTRIES, (queue, *want)) for want in wants.items()]
        parts += [(FIRST_IN_LINE, (queue, number)) for number in outers]
        found = []
        for some in slices(parts, TOGETHER):
            sql = " UNION ALL ".join(["SELECT 0, 0, NOW, 0, 0", *(f"SELECT * FROM ({part}) x" for part, _ in some)])
            found += run.rows(sql, [value for _, values in some for value in values])
        moments = [row[2] for row in found if not row[0]]
        return heads_of(moments[0] if moments else self.clock(run), [row for row in found if row[0]])

    # ---- tickets

    def leave_tickets(self, run: Session, queue: str, tickets: Sequence[tuple]) -> None:
        """For lanes: name, number, and the gate that it has from now on ("": as it is)."""
        rows = ", ".join(["(%s, NOW, %s, %s, %s)"] * len(tickets))
        sql = f"INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES {rows}"
        run.count(sql, [value for ticket in tickets for value in (queue, *ticket)])

    def tickets(self, run: Session, queue: str, limit: int) -> list[tuple]:
        """The first: seq, name, number, gate, and whether the lane has a row."""
        known = "(SELECT l.seq FROM djqueue_lane l WHERE l.queue = t.queue AND l.name = t.name) IS NOT NULL"
        columns = f"created, seq, name, number, gate, {known}"
        sql = f"SELECT {columns} FROM djqueue_ticket t WHERE queue = %s ORDER BY created LIMIT %s"
        return [row[1:] for row in sorted(run.rows(sql, [queue, limit]))]

    def tickets_there(self, run: Session, seqs: Sequence[int]) -> set[int]:
        return {row[0] for row in run.rows(f"SELECT seq FROM djqueue_ticket WHERE seq IN ({marks(seqs)})", seqs)}

    def drop_tickets(self, run: Session, seqs: Sequence[int]) -> None:
        self.delete_rows(run, "djqueue_ticket", sorted(seqs))

    # ---- the rows of lanes

    def lanes_there(self, run: Session, queue: str, names: Sequence[str]) -> set[str]:
        sql = f"SELECT name FROM djqueue_lane WHERE queue = %s AND name IN ({marks(names)})"
        return {row[0] for row in run.rows(sql, [queue, *names])}

    def lanes_out(self, run: Session, queue: str, after: str, limit: int) -> list[str]:
        """Names of lanes that count entries as out, in their order."""
        sql = "SELECT name FROM djqueue_lane WHERE queue = %s AND in_flight > 0 AND name > %s ORDER BY name LIMIT %s"
        return [row[0] for row in run.rows(sql, [queue, after, limit])]

    def out_of_lanes(self, run: Session, queue: str) -> list[tuple]:
        """Lane, its gate (None if it is not known) and how many have left it and are not settled."""
        sql = (
            "SELECT m.lane, l.gate, count(*) FROM djqueue_message m LEFT JOIN djqueue_lane l "
            f"ON l.queue = m.queue AND l.name = m.lane WHERE m.queue = %s AND m.state = {OUT} GROUP BY m.lane, l.gate"
        )
        return run.rows(sql, [queue])

    def in_no_known_lane(self, run: Session, queue: str, after: int, limit: int) -> tuple[int, list[tuple]]:
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
        rows = run.rows(sql, [queue, after, limit, queue])
        last = max((row[0] for row in rows), default=0) if len(rows) == limit else 0
        return last, sorted({row[1:3] for row in rows if row[3] is None})

    def make_lanes(self, run: Session, queue: str, lanes: Sequence[tuple]) -> None:
        """Rows of name, number, gate and turn that are not there; they stand nowhere yet."""
        rows = ", ".join(["(%s, %s, %s, %s, 0, %s, 0, '', '[]', 1, 0, 0)"] * len(lanes))
        sql = f"INSERT INTO djqueue_lane (queue, {LANE.removeprefix('seq, ')}) VALUES {rows} {self.lane_stays}"
        run.count(sql, [value for lane in sorted(lanes) for value in (queue, *lane)])

    def hold_named(self, run: Session, queue: str, names: Sequence[str], wait: bool) -> list[tuple]:
        """Lock lanes, in the order of their names; of those that somebody has, none unless we wait."""
        columns = ", ".join(f"l.{column}" for column in LANE.split(", "))
        sql = f"SELECT {columns} FROM {self.named_lanes(len(names))} {self.locking if wait else self.skipping}"
        return run.rows(sql, [*sorted(names), queue])

    def named_lanes(self, count: int) -> str:
        """So many rows ``l`` by their names, in that order: what stands behind FROM."""
        return f"djqueue_lane l WHERE name IN ({marks(range(count))}) AND queue = %s ORDER BY name"

    def hold_first(self, run: Session, queue: str, state: int, limit: int, due: bool = False) -> list[tuple]:
        """Lock the first that stand somewhere and that nobody has; of timed ones those that are ``due``."""
        sql = (
            f"SELECT {LANE} FROM djqueue_lane {self.by_place} WHERE queue = %s AND state = %s "
            f"{'AND sort_key = 0 AND sort_at <= NOW' if due else ''} ORDER BY sort_key, sort_at LIMIT "
            f"%s {self.skipping}"
        )
        return run.rows(sql, [queue, state, limit])

    def write_lanes(self, run: Session, rows: Sequence[tuple]) -> None:
        """Rows of WRITTEN."""
        table = f"WITH u ({WRITTEN}) AS (VALUES {rows_of_marks(len(rows[0]), len(rows))})"
        run.count(f"{table} UPDATE djqueue_lane AS l SET {ASSIGNED} FROM u WHERE l.seq = u.seq", flat(rows))

    def drop_lanes(self, run: Session, seqs: Sequence[int]) -> None:
        self.delete_rows(run, "djqueue_lane", sorted(seqs))

    # ---- the entries of lanes

    def come_in(self, run: Session, queue: str) -> list[tuple]:
        """Let delayed entries that are due wait in their lanes; of each lane and gate."""
        sql = (
            "SELECT seq, lane, lane_number, gate FROM djqueue_message WHERE queue = %s AND state = "
            f"{LATER} AND sort_key = 0 "
            f"AND sort_at < NOW ORDER BY sort_at LIMIT {PROMOTE} {self.skipping}"
        )
        rows = run.rows(sql, [queue])
        if rows:
            seqs = [row[0] for row in rows]
            run.count(f"UPDATE djqueue_message {self.by_seq} SET {RETURNED} WHERE seq IN ({marks(seqs)})", seqs)
        return rows

    def expired(self, run: Session, queue: str, limit: int) -> list[tuple]:
        """Seq and lane of leases of lanes that have run out."""
        sql = first_over(OUT).replace("SELECT seq", "SELECT seq, lane")
        return run.rows(sql, {"queue": queue, "limit": limit})

    def reap_in_lanes(self, run: Session, seqs: Sequence[int], by: int) -> list[str]:
        """Let them return to their lanes if they are out and their leases over; the lanes, one for each."""
        return self._return(run, seqs, "sort_at < NOW AND NOW <= %s", (by,), REAPED_IN_LANE)

    def disown_in_lanes(self, run: Session, seqs: Sequence[int], tokens: Sequence[int]) -> list[str]:
        """The same of those that these tokens hold, as if they had never left."""
        return self._return(run, seqs, f"token IN ({marks(tokens)})", tokens, f"{RETURNED}, {NEVER}")

    def _return(self, run: Session, seqs: Sequence[int], which: str, params: Sequence, change: str) -> list[str]:
        sql = f"SELECT m.seq, lane FROM {self.these(len(seqs))} AND state = {OUT} AND {which} {self.locking}"
        rows = run.rows(sql, [*seqs, *params])
        if rows:
            back = [row[0] for row in rows]
            run.count(f"UPDATE djqueue_message {self.by_seq} SET {change} WHERE seq IN ({marks(back)})", back)
        return [row[1] for row in rows]

    def put_back(self, run: Session, seqs: Sequence[int]) -> None:
        """What was leased by this transaction was not."""
        sql = f"UPDATE djqueue_message {self.by_seq} SET {RETURNED}, {NEVER} WHERE seq IN ({marks(seqs)})"
        run.count(sql, seqs)

    def lanes_of(self, run: Session, queue: str, ids: Sequence[str]) -> list[tuple]:
        """Name, number and gate of the lanes of entries."""
        sql = (
            "SELECT DISTINCT lane, ABS(lane_number), gate FROM djqueue_message "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND lane_number <> 0"
        )
        return run.rows(sql, [queue, *ids])


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
