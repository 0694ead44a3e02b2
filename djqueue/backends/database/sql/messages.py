"""The statements about entries: by which people look into a queue, and by which the verbs move them.

What people see is bounded by its arguments, but for ``length``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from django.db import IntegrityError

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.lanes import LANE, Glance, Lanes, numbers
from djqueue.backends.database.sql.statements import (
    ALL,
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
    OPEN,
    ORDER,
    OUT,
    PROMOTE,
    PROMOTED,
    READY,
    REAPED,
    REQUEUED,
    WAITS,
    absent,
    first_over,
    marks,
    number_of,
    over_by,
    soonest,
)
from djqueue.backends.entries import Entry
from djqueue.backends.guards import AnyGuard

CAP = 100_000
"""Counting stops here."""
CHUNK = 5000
"""So many rows one statement of a flush deletes at most."""
PRIORITIES = 64
"""The oldest ready entry is looked for among so many priorities, the highest."""


class Inspection(Lanes):
    """What does not hold leases."""

    def find(self, run: Session, queue: str, id: str) -> list[tuple]:
        """Rows of RECORD, with now at the end."""
        return run.rows(f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %s AND id = %s", [queue, id])

    def peek(
        self, run: Session, queue: str, state: int, limit: int, after: Sequence[int] | None, backwards: bool = False
    ) -> list[tuple]:
        """The same, of one state, in order or in the opposite one."""
        behind, order = (self.before, BACKWARDS) if backwards else (self.behind, ORDER)
        params = {"queue": queue, "state": state, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        sql = (
            f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %(queue)s AND state = %(state)s "
            f"{f'AND {behind}' if after else ''} {order} LIMIT %(limit)s"
        )
        return placed(run.rows(sql, params))

    def remove(self, run: Session, queue: str, ids: Sequence[str]) -> int:
        return self.delete_ids(run, queue, ids, WAITS)

    def reprioritise(self, run: Session, queue: str, ids: Sequence[str], own: int, laned: int) -> int:
        """Give entries that wait another rank, in a lane that one."""
        neg_priority = "CASE WHEN lane_number = 0 THEN %s ELSE %s END"
        sql = (
            f"UPDATE djqueue_message {self.by_id} SET neg_priority = {neg_priority}, "
            f"sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%%:failed' THEN 0 ELSE {neg_priority} END "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS}"
        )
        return run.count(sql, [own, laned, own, laned, queue, *ids])

    def amend(self, run: Session, queue: str, id: str, was: bytes, body: bytes) -> bool:
        sql = f"UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND {WAITS} AND body = %s"
        return run.count(sql, [body, queue, id, was]) == 1

    def trim_older(self, run: Session, queue: str, age: int, limit: int) -> int:
        """Delete ready entries of an error queue whose moment is more than ``age`` µs ago; how many.

        All of them have one rank, so the first is the oldest: nothing to delete is one read.
        """
        ready = "queue = %s AND state = 0"
        first = f"SELECT sort_key, sort_at FROM djqueue_message WHERE {ready} {ORDER} LIMIT 1"
        for (sort_key,) in run.rows(f"SELECT sort_key FROM ({first}) f WHERE sort_at < NOW - %s", [queue, age]):
            old = f"{ready} AND sort_key = %s AND sort_at < NOW - %s"
            return self._delete_first(run, old, [queue, sort_key, age], limit)
        return 0

    def trim_surplus(self, run: Session, queue: str, most: int, limit: int) -> int:
        """Delete what is ready and stands before the last ``most``; how many. Those who do so at once agree on it."""
        sql = (
            "SELECT sort_key, sort_at, seq FROM djqueue_message WHERE queue = %s AND state = 0 "
            "ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1 OFFSET %s"
        )
        for last in run.rows(sql, [queue, most]):
            surplus = f"queue = %s AND state = 0 AND {self.up_to.format(*last)}"
            return self._delete_first(run, surplus, [queue], limit)
        return 0

    def _delete_first(self, run: Session, condition: str, params: list, limit: int) -> int:
        return self.delete_some(run, "djqueue_message", "seq", condition, "sort_key, sort_at, seq", params, limit)

    def requeue(self, run: Session, dead: str, queue: str, ids: Sequence[str]) -> int:
        sql = (
            f"UPDATE djqueue_message AS m SET queue = %s, {REQUEUED} "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS} "
            f"AND {absent('m.id')}"
        )
        return run.count(sql, [queue, dead, *ids, queue])

    def flush(self, run: Session, queue: str) -> int:
        """Delete a chunk of what is ready in no lane, or else of what is delayed; how many."""
        for state in (READY, DELAYED, LATER):
            if deleted := self._delete_first(run, "queue = %s AND state = %s", [queue, state], CHUNK):
                return deleted
        return 0

    # ---- lanes

    def lane_page(self, run: Session, queue: str, after: str, limit: int) -> list[tuple]:
        """Names and numbers of lanes, in the order of the names."""
        sql = "SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s"
        return [(name, number_of(name)) for (name,) in run.rows(sql, [queue, after, limit])]

    def ticket_page(self, run: Session, queue: str, after: tuple, limit: int) -> list[tuple]:
        """Moments, seqs and numbers of tickets."""
        sql = (
            "SELECT created, seq, name FROM djqueue_ticket WHERE queue = %s AND created >= %s "
            "AND (created > %s OR seq > %s) ORDER BY created, seq LIMIT %s"
        )
        rows = run.rows(sql, [queue, after[0], *after, limit])
        return [(*numbers((made, seq)), number_of(name)) for made, seq, name in rows]

    def peek_in(
        self, run: Session, queue: str, numbers: Sequence[int], limit: int, after: Sequence[int] | None = None
    ) -> list[tuple]:
        """Rows of RECORD with now, up to so many of each of these lanes; behind a place, if one is given."""
        params = {"queue": queue, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        part = (
            f"SELECT {self.record}, NOW AS looked FROM djqueue_message WHERE queue = %(queue)s AND state = {{}} "
            f"{f'AND {self.behind}' if after else ''} {ORDER} LIMIT %(limit)s"
        )
        parts = [f"SELECT * FROM ({part.format(number)}) x" for number in numbers]
        return placed(run.rows(" UNION ALL ".join(parts), params))

    def flush_lanes(self, run: Session, queue: str, numbers: Sequence[int]) -> int:
        """Delete a chunk of what waits in lanes; how many."""
        which = f"queue = %s AND state IN ({', '.join(map(str, numbers))})"
        return self.delete_some(run, "djqueue_message", "seq", which, "state, sort_key, sort_at, seq", [queue], CHUNK)

    def call_lanes(self, run: Session, queue: str) -> None:
        """Leave a ticket for every lane from which something might leave."""
        run.count(
            "INSERT INTO djqueue_ticket (queue, created, name, number, gate) SELECT queue, NOW, name, number, '' "
            f"FROM djqueue_lane WHERE queue = %s AND (state = {OPEN} OR state >= {FIRST_NUMBER})",
            [queue],
        )

    def lane_rows(self, run: Session, queue: str, condition: str, params: list) -> list[tuple]:
        """Lanes: their row of LANE, and how many wait in each."""
        sql = f"SELECT {LANE} FROM djqueue_lane WHERE queue = %s AND {condition}"
        rows = run.rows(sql, [queue, *params])
        counts = {}
        if rows:
            states = ", ".join(str(number_of(row[1])) for row in rows)
            sql = f"SELECT state, count(*) FROM djqueue_message WHERE queue = %s AND state IN ({states}) GROUP BY state"
            counts = dict(run.rows(sql, [queue]))
        return [(row, counts.get(number_of(row[1]), 0)) for row in rows]

    def length(self, run: Session, queue: str) -> int:
        sql = (
            "SELECT (SELECT count(*) FROM djqueue_message WHERE queue = %(queue)s AND state IN (0, 1, 3)) "
            f"+ (SELECT count(*) {self.in_lanes})"
        )
        return run.rows(sql, {"queue": queue})[0][0]

    def stats(self, run: Session, queue: str, dead: str, counters: Sequence[str]) -> tuple:
        """ready, due, delayed, leased, dead (capped), done, now; first moments of what is due and of what is ready.

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
        return run.rows(sql, {"queue": queue, "failed": dead} | {f"k{i}": k for i, k in enumerate(counters)})[0]

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


def placed(rows: list[tuple]) -> list[tuple]:
    """Rows of RECORD with now. Raises TypeError where their places are no numbers."""
    for row in rows:
        numbers((row[-3], row[12]))
    return rows


# ---- The verbs that move entries


class Arrival(NamedTuple):
    """An entry to put: its row of ARRIVING; and of its guard the key, and for how many µs it holds ("" and 0: none)."""

    row: tuple
    key: str = ""
    ttl: int = 0
    entry: Entry | None = None
    guard: AnyGuard | None = None


class Ask(NamedTuple):
    """A claim."""

    queue: str
    limit: int
    lease: int
    token: int
    owner: str
    lifo: bool = False
    leased: int = LEASED
    """The state of what is leased."""
    look: bool = True
    """Whether a claim that is not full tells what lanes have to do; one that will be full need not ask."""
    since: str = "NOW"
    """When it was claimed, µs; the moment for which a throttle was asked, if one was."""
    begun: str = ALL
    """What of it begins with the claim: a condition."""


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


class Dialect(Inspection):
    """The verbs as statements, in rows, integers and microseconds. What no vendor overrides runs on all of them."""

    # ---- put

    def insert(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        """Insert what is not there; the ids that went in."""
        raise NotImplementedError

    def insert_guarded(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        """The same, of each guard's key at most one, in one transaction. The guards are of the kind that holds once."""
        return self.insert_checked(run, queue, arrivals, "")

    def insert_checked(self, run: Session, queue: str, arrivals: Sequence[Arrival], done: str) -> set[str]:
        """The same, and nothing whose id is marked as done (``done`` is what such keys begin with; "": none are)."""
        with run.atomic():
            there = self._present(run, queue, arrivals) | self.marked(run, done, ids_of(arrivals))
            fresh = [arrival for arrival in arrivals if arrival.row[0] not in there]
            return self.insert_unmarked(run, queue, self._pass_guards(run, fresh), done)

    def insert_unmarked(self, run: Session, queue: str, arrivals: Sequence[Arrival], done: str) -> set[str]:
        """Insert what was not marked when we looked, and take back what somebody else completed since."""
        accepted = self.insert(run, queue, arrivals) if arrivals else set()
        if late := self.marked(run, done, accepted):
            self.delete_ids(run, queue, [*late])
        return accepted - late

    def _present(self, run: Session, queue: str, arrivals: Sequence[Arrival]) -> set[str]:
        ids = ids_of(arrivals)
        sql = f"SELECT id FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)})"
        return {row[0] for row in run.rows(sql, [queue, *ids])}

    def marked(self, run: Session, done: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are remembered."""
        keys = {done + id: id for id in ids} if done else {}
        return {keys[key] for key in self.living(run, list(keys))}

    def _pass_guards(self, run: Session, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """In the order of their keys, so that two transactions never wait for each other."""
        refused = set()
        for arrival in sorted(arrivals, key=lambda arrival: arrival.key):
            if arrival.key and not self.add(run, arrival.key, arrival.row[0].encode(), arrival.ttl):
                refused.add(arrival.row[0])
        return [arrival for arrival in arrivals if arrival.row[0] not in refused]

    # ---- claim and reap

    def claim(self, run: Session, ask: Ask) -> Taken:
        """Lease up to ``limit``. One read where there is nothing, so that an idle queue takes no lock."""
        glance = self.glance(run, ask.queue, ask.look)
        promoted = self.promote(run, ask.queue) if glance.due else 0
        there = glance.ready is not None or promoted
        rows = self.take(run, ask, LAST_READY if ask.lifo else FIRST_READY) if there else []
        return Taken(rows, glance.now, glance.delayed, promoted == PROMOTE, glance if ask.look else None)

    def claim_paid(self, run: Session, ask: Ask, payment: Payment) -> tuple[int, Sequence[tuple]]:
        """Lease exactly ``limit`` and pay for them, in one statement; nothing if there are fewer or the fact changed.

        Tells how many there are as well, up to the limit: 0 if there is more to be done first, or no such statement.
        """
        return 0, []

    def take(self, run: Session, ask: Ask, which: str) -> Sequence[tuple]:
        """Lease the rows whose seqs a statement picks, but for those that somebody else is about to change."""
        raise NotImplementedError

    def promote(self, run: Session, queue: str) -> int:
        """Make ready what is due; how many."""
        return self.change_first(run, PROMOTED, first_over(DELAYED), {"queue": queue, "limit": PROMOTE})

    def reap(self, run: Session, queue: str, limit: int, by: int) -> Reaping:
        """Make expired leases ready, but for those of lanes; none if it is later than ``by``, µs."""
        sql = f"SELECT NOW, EXISTS({first_over(LEASED, 1)}), ({soonest(LEASED, OUT)}), EXISTS({first_over(OUT, 1)})"
        now, expired, next, laned = run.rows(sql, {"queue": queue})[0]
        which = {"queue": queue, "limit": limit, "by": by}
        reaped = self.change_first(run, REAPED, over_by(LEASED), which) if expired else 0
        return Reaping(reaped, now, next, bool(laned))

    def change_first(self, run: Session, change: str, which: str, params: Mapping[str, object]) -> int:
        """Change the rows that a query finds; how many."""
        raise NotImplementedError

    def leased_by(self, run: Session, queue: str, tokens: Sequence[int]) -> list[tuple]:
        """What these tokens hold: rows of seq, state and lane."""
        sql = (
            f"SELECT seq, state, lane FROM djqueue_message WHERE queue = %s AND state IN ({LEASED}, "
            f"{OUT}) AND sort_key = 0 "
            f"AND token IN ({marks(tokens)})"
        )
        return run.rows(sql, [queue, *tokens])

    def disown(self, run: Session, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        """Let what is in no lane be as before these tokens had it."""
        ours = f"seq IN ({marks(seqs)}) AND state = {LEASED} AND token IN ({marks(tokens)})"
        run.count(f"UPDATE djqueue_message {self.by_seq} SET {PROMOTED}, {NEVER} WHERE {ours}", [*seqs, *tokens])

    # ---- by those who hold leases: (seq, token) pairs, sorted

    def complete(
        self, run: Session, pairs: Sequence[tuple], finish: Finish, kept: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        """Delete; rows that begin with the seqs that were ours. Of those the facts are ``kept``, rows of KEPT."""
        raise NotImplementedError

    def mark_begun(self, run: Session, pairs: Sequence[tuple]) -> Iterable[tuple]:
        """Note that they run; rows of seq."""
        raise NotImplementedError

    def touch(self, run: Session, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        """Extend, what was reaped and has no new holder as well; rows of seq and until."""
        raise NotImplementedError

    def release(self, run: Session, queue: str, said: Sequence[tuple]) -> Iterable[tuple]:
        return self.give_up(run, queue, GIVE_UP, said)

    def give_up(
        self, run: Session, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        """Let rows stand in ``queue`` as SAID and changed so; as ``complete`` otherwise."""
        raise NotImplementedError

    def fail(self, run: Session, dead: str, said: Sequence[tuple], kept: Sequence[tuple] = ()) -> Iterable[tuple]:
        """``give_up`` into the error queue, where an older entry of the same id gives way."""
        change = FAIL.replace("FAILED_AT", self.died)
        try:
            with run.atomic(savepoint=True) if run.joined else nullcontext():
                return self.give_up(run, dead, change, said, kept)
        except IntegrityError:
            with run.atomic():
                self._give_way(run, dead, {row[:2] for row in said})
                return self.give_up(run, dead, change, said, kept)

    def _give_way(self, run: Session, dead: str, pairs: set[tuple]) -> None:
        sql = f"SELECT seq, token, id FROM djqueue_message WHERE seq IN ({marks(pairs)})"
        ids = [row[2] for row in run.rows(sql, [seq for seq, _ in pairs]) if row[:2] in pairs]
        self.delete_ids(run, dead, ids)


def ids_of(arrivals: Sequence[Arrival]) -> list[str]:
    return [arrival.row[0] for arrival in arrivals]
