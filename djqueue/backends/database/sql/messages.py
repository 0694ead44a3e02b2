"""What the vendors have in common of the verbs that move entries.

In every statement NOW stands for the vendor's clock (see :mod:`djqueue.backends.database.session`). Three rules hold
throughout: ownership is seq *and* token; rows are picked by the hot index and found by their primary key, each by
itself, as a statement that reads a small table whole waits for all who have a row of it; locks are taken in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from django.db import IntegrityError

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.fragments import (
    ALL,
    DELAYED,
    FAIL,
    FIRST_READY,
    GIVE_UP,
    LAST_READY,
    LEASED,
    NEVER,
    OUT,
    PROMOTE,
    PROMOTED,
    REAPED,
    first_over,
    marks,
    over_by,
    soonest,
)
from djqueue.backends.database.sql.inspection import Inspection
from djqueue.backends.database.sql.lanes import Glance
from djqueue.backends.entries import Entry
from djqueue.backends.guards import AnyGuard


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
