"""Whose turn it is: which entries of the lanes that a claim holds leave, decided before anything is written."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from djqueue.backends.database.rows import chunks
from djqueue.backends.database.sql.fragments import (
    ALL,
    BACKWARDS,
    LEASED,
    MOST,
    NOWHERE,
    OPEN,
    ORDER,
    OUT,
    TIMED,
    gate_of,
    number_of,
    text_of,
)
from djqueue.backends.database.sql.lanes import Glance, one_of, picked
from djqueue.backends.database.sql.messages import Arrival, Ask
from djqueue.backends.database.work import UnitOfWork
from djqueue.backends.entries import Lease
from djqueue.flow import gates
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PARK, LINE, Gate, Head, Lane, Place, deferred
from djqueue.flow.windows import Log

MOST_READ = 1000
"""So many entries of one lane are looked at in one claim at most."""
STANDS = {gates.OPEN: OPEN, gates.NOWHERE: NOWHERE, gates.TIMED: TIMED}


class Waiting(NamedTuple):
    """An entry in its lane."""

    seq: int
    rank: int
    at: int
    lost: int


class Turn(NamedTuple):
    """What leaves a lane together, and when."""

    lane: str
    waiting: Sequence[Waiting]
    number: int
    run: str


@dataclass(slots=True)
class Held:
    """A lane whose row is ours, and what waits in it."""

    seq: int
    number: int
    lane: Lane
    was: tuple
    waiting: list[Waiting] = field(default_factory=list)

    @classmethod
    def read(cls, row: tuple) -> Held:
        seq, name, _, gate, away, turn, open_at, parked, logs, *_ = row
        ours = gate_of(gate, name)
        lane = Lane(name, ours, max(0, away), turn, open_at, parked, _logs_of(logs, len(ours.windows)))
        return cls(seq, number_of(name), lane, (seq, *row[3:]))

    @property
    def stands(self) -> int:
        """Where, when it was locked."""
        return self.was[-3]

    def written(self, place: Place) -> tuple:
        """Its row, standing there."""
        lane = self.lane
        state = number_of(lane.gate.within) if place.where == LINE else STANDS[place.where]
        moment = place.at if place.where == gates.TIMED else lane.turn
        known = (
            min(lane.out, MOST),
            lane.turn,
            lane.open_at,
            lane.parked,
            json.dumps(lane.logs, separators=(",", ":")),
        )
        return self.seq, text_of(lane.gate), *known, state, place.rank, moment

    def most(self, limit: int) -> int:
        """How many may leave in ``limit`` turns, and what stands behind them."""
        gate = self.lane.gate
        most = gate.run * min(limit, 1) if gate.ordered else min(gate.run * limit, MOST_READ)
        room = max(0, gate.most - self.lane.out) if gate.most else most
        slots = min((window.limit for window in gate.windows), default=most)
        return min(most, room, slots) + max(1, gate.least)


def _logs_of(text: str, count: int) -> tuple[Log, ...]:
    """Of so many windows; nothing if it cannot be read, as somebody else wrote it."""
    try:
        logs = tuple(
            Log(tuple((int(at), int(number)) for at, number in grants), int(last), int(warm))
            for grants, last, warm in json.loads(text)
        )
    except (ArithmeticError, TypeError, ValueError, RecursionError):
        return ()
    return logs if len(logs) == count else ()


class Turns:
    """The lanes that a claim holds, as they would stand after each turn."""

    def __init__(self, held: Mapping[str, Held], now: int):
        self._now, self._waiting = now, {name: one.waiting for name, one in held.items()}
        self._lanes = {name: one.lane for name, one in held.items()}
        self._gone = dict.fromkeys(held, 0)
        self._places: dict[str, Place] = {}
        self._open: list[tuple] = []
        self._lines: dict[str, list[tuple]] = {}
        for name in sorted(held, key=lambda name: not self._lanes[name].gate.within):
            self._stand(name)

    def first_rank(self) -> int | None:
        """Minus the priority of what would leave next, as it is kept; None if nothing may."""
        name = self._first(self._open, gates.OPEN)
        return None if name is None else self._places[name].rank

    @property
    def throttled(self) -> bool:
        """Whether the lane whose turn it is, or the one that it is within, has windows."""
        return any(self._lanes[name].gate.windows for name in self._chain(self._next()))

    def take(self, number: int) -> Turn:
        """Let a run leave the lane whose turn it is; the turn has that number."""
        name = self._next()
        chain = self._chain(name)
        most = min(gates.leaving(self._lanes[one], self._now) for one in chain)
        start = self._gone[name]
        leaving = together(self._waiting[name][start : start + most])
        self._gone[name] += len(leaving)
        for one in chain:
            self._lanes[one] = gates.left(self._lanes[one], len(leaving), number, self._now)
            self._stand(one)
        joins = self._lanes[name].gate.joins
        return Turn(name, leaving, number, f"{number}:{name}" if joins else "")

    def _next(self) -> str:
        name = self._first(self._open, gates.OPEN)
        return self._first(self._lines.get(name, []), LINE) or name

    def _chain(self, name: str) -> list[str]:
        within = self._lanes[name].gate.within
        return [name, within] if self._is_outer(within) else [name]

    def _is_outer(self, name: str) -> bool:
        """Whether it can have others within it: what is within another cannot, whatever somebody wrote."""
        return name in self._lanes and not self._lanes[name].gate.within

    def _first(self, heap: list[tuple], where: str) -> str | None:
        """The first of a heap that still stands there so."""
        while heap:
            rank, turn, name = heap[0]
            if self._places[name] == Place(where, rank) and self._lanes[name].turn == turn:
                return name
            heapq.heappop(heap)
        return None

    def _stand(self, name: str) -> None:
        lane = self._lanes[name]
        self._places[name] = place = gates.stand(lane, self._head(name), self._now)
        if place.where in (gates.OPEN, LINE):
            heap = self._open if place.where == gates.OPEN else self._lines.setdefault(lane.gate.within, [])
            heapq.heappush(heap, (place.rank, lane.turn, name))
        if lane.gate.within in self._places and self._is_outer(lane.gate.within):
            self._stand(lane.gate.within)

    def _head(self, name: str) -> Head | None:
        first = self._first(self._lines.get(name, []), LINE)
        return Head(self._places[first].rank, 0) if first else head_of(self._waiting[name][self._gone[name] :])


def together(waiting: Sequence[Waiting]) -> Sequence[Waiting]:
    """How far a run goes: one that was lost once leaves alone."""
    if waiting and waiting[0].lost:
        return waiting[:1]
    return waiting[: next((place for place, one in enumerate(waiting) if one.lost), len(waiting))]


def head_of(waiting: Sequence[Waiting]) -> Head | None:
    if not waiting:
        return None
    return Head(waiting[0].rank, waiting[0].at, len(waiting), waiting[0].lost > 0)


def after(chain: Iterable[Held], turn: Turn, number: int, now: int) -> None:
    """So many of a turn have left, it and the lane that it is within."""
    for one in chain:
        one.lane = gates.left(one.lane, number, turn.number, now)


def back(held: Iterable[Held], number: int) -> None:
    """So many of what had left are settled."""
    for one in held:
        one.lane = replace(one.lane, out=max(0, one.lane.out - number))


class Draw:
    """The order in which units leave: higher priority first; at equal ones entries in no lane and lanes alternate."""

    def __init__(self, turns: Turns, ranks: Sequence[int], limit: int, ahead: int, turn: int, laned_last: bool):
        self.laned_last, self.units = laned_last, []
        """Of each unit its turn, or None: the next entry in no lane."""
        self.held_back = False
        """Whether something throttled would have left if somebody waited for it."""
        own = 0
        while len(self.units) < limit:
            rank = turns.first_rank()
            if rank is not None and len(self.units) >= limit - ahead and turns.throttled:
                rank, self.held_back = None, True
            first = ranks[own] if own < len(ranks) else None
            if rank is None and first is None:
                break
            self.laned_last = first is None or (rank is not None and (rank, self.laned_last) < (first, True))
            self.units.append(turns.take(turn + len(self.units)) if self.laned_last else None)
            own += not self.laned_last

    @property
    def turns(self) -> list[Turn]:
        return [unit for unit in self.units if unit is not None]


# ---- The rows of lanes, as one transaction holds them: read, changed, and put where they belong


class Ticket(NamedTuple):
    """Something came to a lane."""

    seq: int
    name: str
    number: int
    gate: str


class Desk:
    """The lanes whose rows a transaction holds."""

    def __init__(self, work: UnitOfWork):
        self.held: dict[str, Held] = {}
        self.now = 0
        self._session, self._sql, self._queue = self._work = work

    # ---- holding

    def hold(self, rows: Iterable[tuple]) -> list[str]:
        """The names of those that were not held."""
        fresh = [one for one in map(Held.read, rows) if one.lane.name not in self.held]
        self.held |= {one.lane.name: one for one in fresh}
        return [one.lane.name for one in fresh]

    def hold_named(self, names: Iterable[str], wait: bool) -> None:
        for some in chunks(sorted(set(names) - self.held.keys() - {""})):
            self.hold(self._sql.hold_named(self._session, self._queue, some, wait))

    def hold_first(self, state: int, limit: int, due: bool = False) -> list[str]:
        return self.hold(self._sql.hold_first(self._session, self._queue, state, limit, due))

    def hold_outers(self, wait: bool) -> None:
        """Of those that are within another lane that one too, made anew if it was forgotten; else they are let go."""
        inner = [one for one in self.held.values() if one.lane.gate.within]
        self.hold_named({one.lane.gate.within for one in inner}, wait)
        lacking = {one.lane.gate.within: one.lane.gate for one in inner if one.lane.gate.within not in self.held}
        if lacking:
            make_lanes(self._work, outers_of(lacking.values()))
            self.hold_named(lacking, wait)
        for one in inner:
            if one.lane.gate.within not in self.held:
                del self.held[one.lane.name]

    def chain(self, name: str) -> list[Held]:
        """A lane, and the one that it is within."""
        one = self.held.get(name)
        return [] if one is None else [self.held[key] for key in (name, one.lane.gate.within) if key in self.held]

    # ---- tickets

    def take_in(self, tickets: Sequence[Ticket]) -> set[str]:
        """Let lanes be as the last of their tickets say, but for those that somebody has; which.

        Tickets that are gone now that the lanes are ours were taken in by others, and maybe later ones with them.
        """
        self.hold_named({ticket.name for ticket in tickets}, wait=False)
        self.hold_outers(wait=False)
        ours = [ticket for ticket in tickets if ticket.name in self.held]
        there = self._sql.tickets_there(self._session, [ticket.seq for ticket in ours]) if ours else set()
        gates: dict[str, str] = {}
        for ticket in ours:
            if ticket.seq in there:
                gates[ticket.name] = ticket.gate or gates.get(ticket.name, "")
        done = {name for name, gate in gates.items() if self._define(name, gate)}
        if over := [ticket.seq for ticket in ours if ticket.seq in there and ticket.name in done]:
            self._sql.drop_tickets(self._session, over)
        return done

    def _define(self, name: str, gate: str) -> bool:
        """Give a lane its gate; whether that could be done."""
        one, new = self.held[name], gate_of(gate, name) if gate else self.held[name].lane.gate
        old = one.lane.gate.within
        self.hold_named({old, new.within}, wait=False)
        if not {old, new.within} <= {*self.held, ""}:
            return False
        if old != new.within and one.lane.out:
            for key, number in ((old, one.lane.out), (new.within, -one.lane.out)):
                back([self.held[key]] if key else [], number)
        one.lane = one.lane.with_gate(new)
        if new.within:
            outer = self.held[new.within]
            outer.lane = outer.lane.with_gate(new.outer or Gate())
        return True

    # ---- standing

    def read(self, limit: int = 0, names: Iterable[str] | None = None) -> None:
        """What stands first in lanes, as much as may leave in so many turns and what stands behind it."""
        chosen = {self.held[name].number: self.held[name] for name in (self.held if names is None else names)}
        wants = {number: one.most(limit) for number, one in chosen.items()}
        self.now, rows = self._sql.heads(self._session, self._queue, wants)
        for one in chosen.values():
            one.waiting = []
        for state, *what in rows:
            chosen[state].waiting.append(Waiting(*what))
        for one in chosen.values():
            one.waiting.sort(key=lambda waiting: (waiting.rank, waiting.at, waiting.seq))

    def stand(self, names: Iterable[str] | None = None) -> None:
        """Put lanes where they belong, and then those that they are within."""
        chosen = set(self.held if names is None else names)
        chosen |= {one.lane.gate.within for name in chosen for one in self.chain(name)} - {""}
        self.read(names=chosen)
        inner = [name for name in chosen if self.held[name].waiting or self.held[name].lane.gate.within]
        self._write({name: head_of(self.held[name].waiting) for name in inner})
        if rest := chosen - set(inner):
            numbers = {self.held[name].number: name for name in rest}
            ranks = self._sql.line_heads(self._session, self._queue, numbers)
            self._write({name: Head(ranks[n], 0) if n in ranks else None for n, name in numbers.items()})

    def _write(self, heads: dict[str, Head | None]) -> None:
        rows, idle = [], []
        for name, head in heads.items():
            one = self.held[name]
            row = one.written(gates.stand(one.lane, head, self.now))
            if gates.is_idle(one.lane, head, self.now):
                idle.append(one.seq)
            elif row != one.was:
                rows.append(row)
                one.was = row
        if rows:
            self._sql.write_lanes(self._session, rows)
        if idle:
            self._sql.drop_lanes(self._session, idle)


@contextmanager
def at_desk(work: UnitOfWork):
    """A transaction, or the caller's."""
    with work.writing():
        yield Desk(work)


def make_lanes(work: UnitOfWork, wanted: dict[str, str]) -> None:
    """Rows for lanes that have none, each with the gate that is written so, behind those that wait."""
    session, sql, queue = work
    turns = {name: turn for turn, name in enumerate(wanted, sql.turn_at(sql.clock(session)))} if wanted else {}
    for some in chunks(sorted(wanted)):
        there = sql.lanes_there(session, queue, some)
        if missing := [(name, number_of(name), wanted[name], turns[name]) for name in some if name not in there]:
            sql.make_lanes(session, queue, missing)


def outers_of(inner: Iterable[Gate]) -> dict[str, str]:
    return {gate.within: (gate.outer or Gate()).written() for gate in inner if gate.within}


# ---- What happens in lanes: entries come, leave in turns and are settled

TAKEN_IN = 200
"""So many tickets, and so many lanes whose time has come, one claim looks at."""


# ---- putting


def put_in_lanes(
    work: UnitOfWork,
    arrivals: Sequence[Arrival],
    lanes: Mapping[str, tuple],
    insert: Callable[[UnitOfWork, Sequence[Arrival]], set[str]],
) -> set[str]:
    """Insert, and leave a ticket for each lane: no lane is touched, so nobody waits for the caller's transaction.

    ``lanes`` are those that the arrivals enter, by their ids.
    """
    with work.writing():
        accepted = insert(work, arrivals)
        if entered := {lane[0]: lane for id, lane in lanes.items() if id in accepted}:
            work.sql.leave_tickets(work.session, work.queue, list(entered.values()))
    return accepted


# ---- claiming


class Laned(NamedTuple):
    """What a claim brought of lanes: of each unit its run and rows of ENTRY, or None for an entry in no lane."""

    units: list[tuple[str, list[tuple]] | None]
    laned_last: bool
    more: bool = False
    """Whether something was held back that may leave."""


def take_tickets(work: UnitOfWork, glance: Glance) -> list[Ticket]:
    """What came to lanes, when each has a row. Nothing is held meanwhile, as those who make a row may have to wait."""
    session, sql, queue = work
    if glance.falls_due:
        with work.writing():
            if came := {row[1:] for row in sql.come_in(session, queue)}:
                sql.leave_tickets(session, queue, sorted(came))
    tickets = (
        [Ticket(*row) for row in sql.tickets(session, queue, TAKEN_IN)] if glance.ticket or glance.falls_due else []
    )
    wanted = {ticket.name: ticket.gate for ticket in tickets if ticket.gate}
    make_lanes(work, outers_of(gate_of(gate) for gate in wanted.values()) | wanted)
    return tickets


def claim_turns(
    work: UnitOfWork, ask: Ask, glance: Glance, tickets: list[Ticket], ahead: int, laned_last: bool
) -> Laned:
    """Lease what may leave its lane. Lanes that somebody has are passed over, and so nobody waits for another."""
    with at_desk(work) as desk:
        changed = desk.take_in(tickets)
        if glance.rises:
            changed.update(desk.hold_first(TIMED, TAKEN_IN, due=True))
        desk.hold_first(OPEN, ask.limit)
        desk.hold_outers(wait=False)
        desk.read(ask.limit)
        _hold_lines(desk, ask.limit)
        ranks = _ranks(work, ask) if glance.ready is not None or glance.due else []
        draw = Draw(Turns(desk.held, desk.now), ranks, ask.limit, ahead, work.sql.turn_at(desk.now), laned_last)
        taken = iter(_lend(work, ask, desk, draw.turns))
        empty = {name for name, one in desk.held.items() if not one.waiting}
        desk.stand((changed | empty | {turn.lane for turn in draw.turns}) & desk.held.keys())
        _forget_nobodys(work, [ticket for ticket in tickets if ticket.name not in desk.held])
    return Laned([unit and next(taken) for unit in draw.units], draw.laned_last, draw.held_back)


def _hold_lines(desk: Desk, limit: int) -> None:
    """What stands in the lines of lanes that have no entries of their own."""
    outers = [one.number for one in desk.held.values() if not one.waiting and not one.lane.gate.within]
    if inner := [name for number in outers for name in desk.hold_first(number, limit)]:
        desk.read(limit, inner)


def _ranks(work: UnitOfWork, ask: Ask) -> list[int]:
    found = work.sql.ranks(work.session, work.queue, ask.limit, BACKWARDS if ask.lifo else ORDER)
    return [~rank for rank in found] if ask.lifo else found


def _lend(work: UnitOfWork, ask: Ask, desk: Desk, turns: list[Turn]) -> list[tuple[str, list[tuple]]]:
    """Of each turn what is still there, up to the first that is not; the rows of that."""
    rows = (
        _taken(work, ask._replace(leased=OUT, since=str(desk.now)), turns)
        if any(turn.waiting for turn in turns)
        else {}
    )
    units, stray = [], []
    for turn in turns:
        there = [waiting.seq in rows for waiting in turn.waiting]
        number = there.index(False) if False in there else len(there)
        stray += [waiting.seq for waiting in turn.waiting[number:] if waiting.seq in rows]
        if number:
            after(desk.chain(turn.lane), turn, number, desk.now)
        units.append((turn.run, [rows[waiting.seq] for waiting in turn.waiting[:number]]))
    if stray:
        work.sql.put_back(work.session, stray)
    return units


def _taken(work: UnitOfWork, ask: Ask, turns: list[Turn]) -> dict[int, tuple]:
    """The rows of what is still there. Of each turn the first begins, if anything does."""
    if ask.begun == ALL:
        ask = ask._replace(begun=one_of(one.seq for turn in turns for one in turn.waiting[:1]))
    which = picked(one.seq for turn in turns for one in turn.waiting)
    return {row[0]: row for row in work.sql.take(work.session, ask, which)}


def _forget_nobodys(work: UnitOfWork, tickets: list[Ticket]) -> None:
    """Tickets that only ask to look at lanes of which nothing is known."""
    asking = [ticket for ticket in tickets if not ticket.gate]
    if asking:
        session, sql, queue = work
        there = sql.lanes_there(session, queue, [ticket.name for ticket in asking])
        if gone := [ticket.seq for ticket in asking if ticket.name not in there]:
            sql.drop_tickets(session, gone)


# ---- settling

Say = Callable[[UnitOfWork, Sequence[Lease]], Iterable[tuple]]
"""What holders say of their leases; rows that begin with the seqs of those that were still theirs."""


def settle(work: UnitOfWork, leases: Sequence[Lease], say: Say) -> list[tuple]:
    """Say it of leases of lanes, which may open by that."""
    with at_desk(work) as desk:
        desk.hold_named({lease.token.lane for lease in leases}, wait=True)
        desk.hold_outers(wait=True)
        rows = list(say(work, leases))
        seqs = {row[0] for row in rows}
        _bring_back(desk, [lease.token.lane for lease in leases if lease.token.seq in seqs])
        for lease in leases:
            if lease.entry.hold and lease.token.seq in seqs:
                _HOLDS[lease.entry.hold](desk, lease, work.sql.clock(work.session))
        desk.stand()
    return rows


def defer(work: UnitOfWork, leases: Sequence[Lease], span: int) -> int | None:
    """Count what left its lane as if it left in so many µs: when that is; None if one of them counts no more."""
    with at_desk(work) as desk:
        desk.hold_named({lease.token.lane for lease in leases}, wait=True)
        desk.hold_outers(wait=True)
        now = work.sql.clock(work.session)
        for (name, at), number in Counter((one.token.lane, round(one.claimed * 1e6)) for one in leases).items():
            if not _deferred(desk.chain(name), number, at, now + span, now):
                return None
        desk.stand()
    return now + span


def _deferred(chain: Sequence[Held], number: int, at: int, to: int, now: int) -> bool:
    lanes = [deferred(one.lane, number, at, to, now) for one in chain]
    if not lanes or None in lanes:
        return False
    for one, lane in zip(chain, lanes, strict=True):
        one.lane = lane
    return True


def _bring_back(desk: Desk, lanes: Iterable[str]) -> None:
    for name, number in Counter(lanes).items():
        back(desk.chain(name), number)


def _hold_lane(desk: Desk, lease: Lease, now: int) -> None:
    """The lane; for the sake of a rate, that one of the two which has the windows."""
    for one in desk.chain(lease.token.lane)[:1]:
        gate = one.lane.gate
        if lease.entry.hold == HOLD_LANE and gate.outer is not None and gate.outer.windows and not gate.windows:
            one = desk.held[gate.within]
        if lease.entry.delay > 0:
            until = now + round(lease.entry.delay * 1e6)
            one.lane = replace(one.lane, open_at=max(one.lane.open_at, until))


def _hold_park(desk: Desk, lease: Lease, now: int) -> None:
    for one in desk.chain(lease.token.lane)[:1]:
        one.lane = replace(one.lane, parked=f"{lease.entry.id} failed")


_HOLDS = {HOLD_ORDER: _hold_lane, HOLD_LANE: _hold_lane, HOLD_PARK: _hold_park}


def reap(work: UnitOfWork, limit: int, by: int) -> int:
    """Let what is out for too long return to its lane, unless it is later than that; how many."""
    session, sql, queue = work
    late = sql.expired(session, queue, limit)
    with at_desk(work) as desk:
        desk.hold_named({lane for _, lane in late}, wait=False)
        desk.hold_outers(wait=False)
        seqs = sorted(seq for seq, lane in late if lane in desk.held)
        lanes = sql.reap_in_lanes(session, seqs, by) if seqs else []
        _bring_back(desk, lanes)
        desk.stand()
    return len(lanes)


# ---- what an unanswered claim may have leased


def disown(work: UnitOfWork, tokens: Sequence[int]) -> bool:
    """Give back what these tokens hold as if it had never been claimed; whether any of it was of lanes.

    Lanes that somebody has are passed over.
    """
    session, sql, queue = work
    held = sql.leased_by(session, queue, tokens)
    if own := sorted(seq for seq, state, _ in held if state == LEASED):
        sql.disown(session, own, tokens)
    laned = sorted((seq, lane) for seq, state, lane in held if state == OUT)
    if laned:
        with at_desk(work) as desk:
            desk.hold_named({lane for _, lane in laned}, wait=False)
            desk.hold_outers(wait=False)
            if seqs := [seq for seq, lane in laned if lane in desk.held]:
                _bring_back(desk, sql.disown_in_lanes(session, seqs, tokens))
                desk.stand()
    return bool(laned)


def recount(work: UnitOfWork, names: Sequence[str]) -> list[str]:
    """Let lanes count as out what is: somebody may have changed or deleted rows by hand. Those that were wrong."""
    with at_desk(work) as desk:
        desk.hold_named(names, wait=False)
        desk.hold_outers(wait=False)
        out = _out(work)
        wrong = [name for name in names if name in desk.held and desk.held[name].lane.out != out[name]]
        for name in wrong:
            desk.held[name].lane = replace(desk.held[name].lane, out=out[name])
        desk.stand(desk.held.keys() & set(names))
    return wrong


def restore(work: UnitOfWork, after: int, limit: int) -> tuple[int, list[str]]:
    """Make lanes anew of which nothing is known although entries stand in them; where to go on, and which."""
    session, sql, queue = work
    last, lanes = sql.in_no_known_lane(session, queue, after, limit)
    coming = {name for _, name, *_ in sql.tickets(session, queue, limit)}  # the next claim makes those
    gates = {name: gate for name, gate in lanes if name not in coming}
    gates |= {name: gate for name, gate in outers_of(map(gate_of, gates.values())).items() if name not in gates}
    if gates:
        make_lanes(work, gates)
        recount(work, list(gates))
    return last, list(gates)


def _out(work: UnitOfWork) -> Counter[str]:
    """How many have left each lane; they have left the one that it is within, too."""
    out: Counter[str] = Counter()
    for name, gate, number in work.sql.out_of_lanes(work.session, work.queue):
        out[name] += number
        if gate and (within := gate_of(gate, name).within):
            out[within] += number
    return out


# ---- for operators


def change_lane(work: UnitOfWork, name: str, change: Callable[[Lane, int], Lane]) -> bool:
    """Change what is known of a lane, if anything is; whether that was a change."""
    with at_desk(work) as desk:
        desk.hold_named([name], wait=True)
        desk.hold_outers(wait=True)
        if name not in desk.held:
            return False
        was = desk.held[name].lane
        desk.held[name].lane = change(was, work.sql.clock(work.session))
        changed = desk.held[name].lane != was
        desk.stand()
    return changed
