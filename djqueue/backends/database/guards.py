"""A put whose guards are ruled on in Python: lock and look, decide, write, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from djqueue.backends.database.rows import due_at, due_of, micros, state_of
from djqueue.backends.database.sql.messages import Arrival, ids_of
from djqueue.backends.database.work import UnitOfWork
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.backends.guards import Decision, DedupMark, rule


def put_guarded(work: UnitOfWork, arrivals: Sequence[Arrival], done: str) -> set[str]:
    """Insert what its guard accepts and what has none; the ids that went in.

    The keys are locked first, in their order: nobody else decides between, and two puts never wait for each other.
    ``done`` is what the keys of remembered ids begin with ("": none are).
    """
    session, sql, queue = work
    ids = ids_of(arrivals)
    with session.atomic():
        held = sql.hold(session, sorted({arrival.key for arrival in arrivals if arrival.key}))
        marks = {key: DedupMark.read(value) for key, value in held.items()}
        now, numbers = sql.look(session, queue, [*ids, *(mark.id for mark in marks.values())])
        known = {*numbers, *sql.marked(session, done, ids)}
        fresh = [arrival for arrival in arrivals if arrival.row[0] not in known]
        states = {id: state_of(number) for id, number in numbers.items()}
        if any(mark.at > now and states.get(mark.id) not in (READY, DELAYED) for mark in marks.values()):
            now = sql.clock(session)  # a statement sees what was done after the moment that it calls now
        decision = PutDecisions(fresh, now, marks, states)
        if taken := _taken(work, decision.awaited):
            decision = PutDecisions(fresh, sql.clock(session), marks, states | dict.fromkeys(taken, LEASED))
        _write(work, decision)
        return sql.insert_unmarked(session, queue, list(decision.accepted.values()), done)


def _taken(work: UnitOfWork, awaited: set[str]) -> set[str]:
    """Those that somebody is about to lease. The others cannot begin before this transaction ends, and so see what its
    caller wrote: only then may others be refused for their sake."""
    return awaited - work.sql.withhold(work.session, work.queue, sorted(awaited)) if awaited else awaited


def _write(work: UnitOfWork, decision: PutDecisions) -> None:
    session, sql, queue = work
    if decision.written:
        sql.put(session, [_fact(key, decision) for key, decision in sorted(decision.written.items())])
    for id, due in sorted(decision.postponed.items()):
        sql.postpone(session, queue, id, due)


def _fact(key: str, decision: Decision) -> tuple[str, bytes, int | None]:
    return key, decision.mark.written(), None if decision.ttl == inf else micros(decision.ttl)


class PutDecisions:
    """What the guards decide about arrivals, in the order of the call; moments are µs."""

    def __init__(
        self, arrivals: Sequence[Arrival], now: int, marks: Mapping[str, DedupMark], states: Mapping[str, str]
    ):
        self.accepted: dict[str, Arrival] = {}
        self.written: dict[str, Decision] = {}
        """Of each key the last decision that has a mark."""
        self.postponed: dict[str, int] = {}
        self.awaited: set[str] = set()
        """What waits in the queue, and for whose sake others are refused."""
        self._now, self._marks, self._states = now, dict(marks), dict(states)
        for arrival in arrivals:
            self._take(arrival) if arrival.guard else self._accept(arrival)

    def _take(self, arrival: Arrival) -> None:
        mark = self._marks.get(arrival.key)
        decision = self._rule(arrival, mark, None if mark is None else self._states.get(mark.id))
        if decision.mark is not None:
            self._marks[arrival.key], self.written[arrival.key] = decision.mark, decision
        if decision.accept:
            self._accept(due_at(arrival, decision.mark.at) if decision.delay else arrival)
        else:
            self._refuse(arrival, mark, decision)

    def _rule(self, arrival: Arrival, mark: DedupMark | None, state: str | None) -> Decision:
        return rule(arrival.guard, arrival.entry, mark, state, self._now / 1e6)

    def _accept(self, arrival: Arrival) -> None:
        id = arrival.row[0]
        due = due_of(arrival, self._now)
        self.accepted[id] = due_at(arrival, due)  # as its mark says: it is inserted a little later
        self._states[id] = DELAYED if due > self._now else READY

    def _refuse(self, arrival: Arrival, mark: DedupMark, decision: Decision) -> None:
        if mark.id in self.accepted:
            if decision.postpone:
                self.accepted[mark.id] = due_at(self.accepted[mark.id], decision.postpone)
            return
        if decision.postpone:
            self.postponed[mark.id] = decision.postpone
        if self._states.get(mark.id) in (READY, DELAYED) and self._rule(arrival, mark, None).accept:
            self.awaited.add(mark.id)
