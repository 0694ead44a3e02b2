"""The lanes of a database: entries arrive in them, leave them in turns, and are settled.

A put touches no lane: it leaves a ticket. A claim locks the rows of lanes that no other transaction has locked, reads
what arrived in them, and leases the entries that their board lets leave. Settling waits for the rows of the lanes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from djqueue.backends.database.rows import ClaimRequest, chunks, gate_of, number_of, token_of
from djqueue.backends.database.sql.dialect import Dialect, Glance, one_of, picked
from djqueue.backends.database.sql.text import ALL, LANE_CLOSED, LANE_READY, LANE_SCHEDULED, LEASED, MOST, OUT
from djqueue.backends.entries import Lease
from djqueue.flow import gates
from djqueue.flow.board import Board, Turn, Waiting
from djqueue.flow.gates import HOLD_PAUSE, LANE_QUEUED, Gate, Head, Lane, Place
from djqueue.flow.rates import Rate

MOST_READ = 1000
"""The most entries of one lane that one claim looks at."""
TAKEN_IN = 200
"""The most tickets, and the most lanes whose time has come, that one claim looks at."""
STATE, OPEN = -3, (LANE_READY, LANE_SCHEDULED)
"""The place of the state in the row of a lane, and the states of lanes that something leaves soon."""
STANDS = {gates.LANE_READY: LANE_READY, gates.LANE_CLOSED: LANE_CLOSED, gates.LANE_SCHEDULED: LANE_SCHEDULED}


# ---- Claiming


class Unit(NamedTuple):
    """What a claim took from a lane."""

    run: str
    is_counted: bool
    """Whether the lane counts it as in flight."""
    rows: list[tuple]
    """Of ENTRY."""


def take_tickets(sql: Dialect, glance: Glance) -> list[Ticket]:
    """The tickets, once each lane has a row. No lock is held meanwhile, because making a row may have to wait."""
    if glance.falls_due:
        with sql.writing():
            if came := {row[1:] for row in sql.come_in()}:
                sql.leave_tickets(sorted(came))
    rows = sql.tickets(TAKEN_IN) if glance.ticket or glance.falls_due else []
    tickets = [Ticket(*row) for row in rows]
    known = {ticket.name for ticket in tickets if ticket.is_known}
    gates_of = {name: gate for name, gate in _last_gates(tickets).items() if gate}
    fresh = {name: gate for name, gate in gates_of.items() if name not in known}
    make_lanes(sql, parents_of(map(gate_of, gates_of.values())) | fresh)
    return tickets


def claim_turns(
    sql: Dialect, ask: ClaimRequest, glance: Glance, tickets: list[Ticket], ahead: int, laned_last: bool
) -> tuple[list[Unit | None], bool, bool]:
    """Lease entries that may leave their lanes. Locked lanes are skipped, so no claim waits for another transaction.

    Returns the units (None: an entry in no lane), whether the last came from a lane, whether more may leave at once.
    """
    with lane_transaction(sql) as lanes:
        changed = lanes.take_in(tickets)
        if glance.rises:
            changed.update(lanes.hold_first(LANE_SCHEDULED, TAKEN_IN, due=True))
        if glance.open:
            lanes.hold_first(LANE_READY, ask.limit)
        lanes.hold_parents(wait=False)
        lanes.read(ask.limit)
        lanes.hold_lines(ask.limit)
        board = lanes.board(laned_last)
        ranks = sql.ranks(ask) if glance.ready is not None or glance.due else []
        units = _units(board, ranks, ask.limit, ahead, lanes.now)
        turns = [unit for unit in units if unit is not None]
        more = len(units) < ask.limit and board.first_rank() is not None
        taken = iter(_lend(sql, ask, lanes, board, turns))
        empty = {name for name, one in lanes.held.items() if not one.waiting}
        lanes.place((changed | empty | {turn.lane for turn in turns}) & lanes.held.keys())
        _forget_nobodys(sql, [ticket for ticket in tickets if ticket.name not in lanes.held])
    return [unit and next(taken) for unit in units], board.laned_last, more


def _units(board: Board, ranks: Iterable[int], limit: int, ahead: int, now: int) -> list[Turn | None]:
    """The units of work that leave, in their order; None for an entry in no lane, which have these ranks."""
    units, rest = [], deque(ranks)
    for unit in board.units(lambda: rest[0] if rest else None, limit, ahead, now):
        units.append(unit)
        if unit is None:
            rest.popleft()
    return units


def _lend(sql: Dialect, ask: ClaimRequest, lanes: LaneTransaction, board: Board, turns: list[Turn]) -> list[Unit]:
    """Lease the entries of each turn, up to the first that is gone; returns the run and rows of each turn."""
    any_there = any(turn.waiting for turn in turns)
    rows = _taken(sql, ask._replace(leased=OUT, since=str(lanes.now)), turns) if any_there else {}
    there = [[one.seq for one in takewhile(lambda one: one.seq in rows, turn.waiting)] for turn in turns]
    lanes.leave(board, turns, [len(seqs) for seqs in there])
    if stray := rows.keys() - {seq for seqs in there for seq in seqs}:
        sql.put_back(sorted(stray))
    return [
        Unit(turn.run, lanes.counts(turn.lane), [rows[seq] for seq in seqs])
        for turn, seqs in zip(turns, there, strict=True)
    ]


def _taken(sql: Dialect, ask: ClaimRequest, turns: list[Turn]) -> dict[int, tuple]:
    """The rows of the entries that are still there. The first entry of each turn begins, if any does."""
    if ask.begun == ALL:
        ask = ask._replace(begun=one_of(one.seq for turn in turns for one in turn.waiting[:1]))
    which = picked(one.seq for turn in turns for one in turn.waiting)
    return {row[0]: row for row in sql.take(ask, which)}


def _forget_nobodys(sql: Dialect, tickets: list[Ticket]) -> None:
    """Delete tickets without a gate for lanes that have no row."""
    asking = [ticket for ticket in tickets if not ticket.gate]
    if asking:
        there = sql.lanes_there([ticket.name for ticket in asking])
        if gone := [ticket.seq for ticket in asking if ticket.name not in there]:
            sql.drop_tickets(gone)


# ---- Settling

Say = Callable[[Dialect, Sequence[Lease]], Iterable[tuple]]
"""Changes leased entries; returns rows that begin with the seqs of the leases that were still held."""


def settle(sql: Dialect, leases: Sequence[Lease], say: Say) -> list[tuple]:
    """Apply ``say`` to leases of lanes, which may open as a result."""
    uncounted = [(token_of(lease).lane, lease.entry.gate) for lease in leases if not token_of(lease).is_counted]
    _make_again(sql, uncounted)
    with lane_transaction(sql, {token_of(lease).lane for lease in leases}, wait=True, wakes=True) as lanes:
        lanes.hold_lost(dict(uncounted))
        rows = list(say(sql, leases))
        seqs = {row[0] for row in rows}
        lanes.came_to(token_of(lease).lane for lease in leases if token_of(lease).seq in seqs)
        counted = [token_of(lease) for lease in leases if token_of(lease).is_counted]
        lanes.settled([token.lane for token in counted if token.seq in seqs])
        now = lanes.look()
        for lease in leases:
            if lease.entry.hold and token_of(lease).seq in seqs:
                _hold(lanes, lease, now)
        lanes.place()
    return rows


def defer(sql: Dialect, leases: Sequence[Lease], span: int) -> int | None:
    """Count entries as leaving their lanes in ``span`` µs; returns that moment, None if one does not count any more."""
    with lane_transaction(sql, {token_of(lease).lane for lease in leases}, wait=True) as lanes:
        now = lanes.look()
        for (name, at), number in Counter((token_of(one).lane, round(one.claimed * 1e6)) for one in leases).items():
            if not lanes.defer(name, number, at, now + span, now):
                return None
        lanes.place()
    return now + span


def _hold(lanes: LaneTransaction, lease: Lease, now: int) -> None:
    """Block a lane when an entry returns to it: until a moment, or until an operator resumes it."""
    name, how = token_of(lease).lane, lease.entry.hold
    if name not in lanes.held:
        return
    if how == HOLD_PAUSE:
        one = lanes.held[name]
        one.lane = replace(one.lane, paused_reason=f"{lease.entry.id} failed")
    elif lease.entry.delay > 0:
        one = lanes.held[gates.held_by(lanes.held[name].lane, how)]
        one.lane = gates.block_until(one.lane, now + round(lease.entry.delay * 1e6))


def reap(sql: Dialect, limit: int, by: int) -> int:
    """Return entries whose leases expired to their lanes, unless it is later than ``by``; how many."""
    return _lose(sql, sql.expired(limit), lambda seqs: sql.reap_in_lanes(seqs, by), wait=False)


def reclaim(sql: Dialect, owner: str, limit: int) -> int:
    """Return entries that an owner holds to their lanes; how many. It comes once, and so waits for locked lanes."""
    return _lose(sql, sql.owned_in_lanes(owner, limit), lambda seqs: sql.reclaim_in_lanes(seqs, owner), wait=True)


def _lose(sql: Dialect, lost: Sequence[tuple], give_back: Callable[[Sequence[int]], list[str]], wait: bool) -> int:
    """Return entries to their lanes; how many. ``lost`` has their seq, lane and gate."""
    if not lost:
        return 0
    _make_again(sql, lost)
    with lane_transaction(sql, {lane for _, lane, _ in lost}, wait=wait, wakes=True) as lanes:
        seqs = sorted(seq for seq, lane, _ in lost if lane in lanes.held)
        names = give_back(seqs) if seqs else []
        lanes.came_to(names)
        lanes.settled(names)
        lanes.place()
    return len(names)


def _make_again(sql: Dialect, out: Iterable[tuple]) -> None:
    """Make the lanes to which entries return, if they were forgotten: a lane need not count what has left it.

    ``out`` has rows that end with the lane and the gate of an entry. That may have ended by now, and others may lock
    the new lane: by its ticket a claim forgets it.
    """
    if wanted := {name: gate for *_, name, gate in out}:
        with sql.writing():
            if made := make_lanes(sql, parents_of(map(gate_of, wanted.values())) | wanted):
                sql.leave_tickets([(name, number_of(name), "") for name in made])


# ---- What an unanswered claim may have leased, and what was changed by hand


def disown(sql: Dialect, tokens: Sequence[int]) -> bool:
    """Give back the entries that these tokens hold, as if never claimed; whether any of them was of a lane.

    Lanes that another transaction has locked are skipped.
    """
    held = sql.leased_by(tokens)
    if own := sorted(seq for seq, state, *_ in held if state == LEASED):
        sql.disown(own, tokens)
    laned = sorted((seq, lane, gate) for seq, state, lane, gate in held if state == OUT)
    if laned:
        _make_again(sql, laned)
        with lane_transaction(sql, {lane for _, lane, _ in laned}, wait=False) as lanes:
            if seqs := [seq for seq, lane, _ in laned if lane in lanes.held]:
                names = sql.disown_in_lanes(seqs, tokens)
                lanes.came_to(names)
                lanes.settled(names)
                lanes.place()
    return bool(laned)


def recount(sql: Dialect, names: Sequence[str]) -> list[str]:
    """Correct the number of entries that lanes count as out, if rows were changed by hand. Returns the wrong lanes."""
    with lane_transaction(sql, names, wait=False) as lanes:
        in_flight, wrong = out(sql.out_of_lanes()), []
        for name in lanes.held.keys() & set(names):
            lane = lanes.held[name].lane
            if lane.in_flight != (number := in_flight[name] if lanes.counts(name) else 0):
                lanes.held[name].lane = replace(lane, in_flight=number)
                wrong.append(name)
        lanes.place(lanes.held.keys() & set(names))
    return wrong


def restore(sql: Dialect, after: int, limit: int) -> tuple[int, list[str]]:
    """Make the records of lanes that have entries and no record; returns where to go on, and which lanes."""
    last, found = sql.in_no_known_lane(after, limit)
    coming = {name for _, name, *_ in sql.tickets(limit)}  # the next claim makes these lanes
    wanted = {name: gate for name, gate in found if name not in coming}
    wanted |= {name: gate for name, gate in parents_of(map(gate_of, wanted.values())).items() if name not in wanted}
    if wanted:
        make_lanes(sql, wanted)
        recount(sql, list(wanted))
    return last, list(wanted)


def out(rows: Iterable[tuple]) -> Counter[str]:
    """How many entries have left each lane and its parent, from rows of lane, gate and number."""
    counts: Counter[str] = Counter()
    for name, gate, number in rows:
        counts[name] += number
        if gate and (parent := gate_of(gate, name).parent):
            counts[parent] += number
    return counts


# ---- For operators


def change_lane(sql: Dialect, name: str, change: Callable[[Lane, int], Lane], make: bool = False) -> bool:
    """Change the record of a lane, if it has one or if one is to be made; whether the record differs now.

    A claim may forget a lane at any moment, but none that this transaction holds.
    """
    with lane_transaction(sql, [name], wait=True, wakes=True) as lanes:
        while make and name not in lanes.held:
            sql.make_lanes([(name, number_of(name), "", sql.turn_at(sql.clock()))])
            lanes.hold_named([name], wait=True)
        if name not in lanes.held:
            return False
        was = lanes.held[name].lane
        lanes.held[name].lane = change(was, lanes.look())
        changed = lanes.held[name].lane != was
        lanes.place()
    return changed


# ---- The rows of lanes, as one transaction holds them: read, changed, and put where they belong


class Ticket(NamedTuple):
    """A note that an entry arrived in a lane, or that a lane is to be looked at."""

    seq: int
    name: str
    number: int
    gate: str
    is_known: bool
    """Whether its lane had a row."""


def _last_gates(tickets: Iterable[Ticket]) -> dict[str, str]:
    """The gate of each lane by its last ticket that has a gate; "" if none of its tickets has one."""
    found: dict[str, str] = {}
    for ticket in tickets:
        found[ticket.name] = ticket.gate or found.get(ticket.name, "")
    return found


class LaneTransaction:
    """The lanes whose rows a transaction holds."""

    def __init__(self, sql: Dialect, wakes: bool = False):
        self.sql, self._wakes = sql, wakes
        self.held: dict[str, LockedLane] = {}
        self._stopped: set[str] = set()
        """Lanes whose rate cannot be read, so that it is unknown what has left them."""
        self.now = 0
        self.is_read = False
        """Whether the first entries of the lanes are known, so that lanes may be placed without another read."""

    # ---- holding

    def hold(self, rows: Iterable[tuple]) -> list[str]:
        """Hold lanes by their rows; returns the names of those that were not held before."""
        fresh = [one for one in map(LockedLane.read, rows) if one.lane.name not in self.held]
        self.held |= {one.lane.name: one for one in fresh}
        self._stopped |= {one.lane.name for one in fresh if one.is_stopped}
        return [one.lane.name for one in fresh]

    def hold_named(self, names: Iterable[str], wait: bool) -> None:
        """Hold these lanes and their parents."""
        self._hold_all(names, wait)
        self.hold_parents(wait)

    def _hold_all(self, names: Iterable[str], wait: bool) -> None:
        for some in chunks(sorted(set(names) - self.held.keys() - {""})):
            self.hold(self.sql.hold_named(some, wait))

    def hold_first(self, state: int, limit: int, due: bool = False) -> list[str]:
        return self.hold(self.sql.hold_first(state, limit, due))

    def hold_parents(self, wait: bool) -> None:
        """Hold the parents of held lanes, made if they were forgotten. A lane whose parent is locked is let go."""
        inner = [one for one in self.held.values() if one.lane.gate.parent]
        self._hold_all({one.lane.gate.parent for one in inner}, wait)
        lacking = {one.lane.gate.parent: one.lane.gate for one in inner if one.lane.gate.parent not in self.held}
        if lacking:
            make_lanes(self.sql, parents_of(lacking.values()))
            self._hold_all(lacking, wait)
        for one in inner:
            if one.lane.gate.parent not in self.held:
                del self.held[one.lane.name]

    def hold_lost(self, wanted: Mapping[str, str]) -> None:
        """Make and hold those of these lanes, by name with their gates, that were forgotten before they were locked."""
        if lost := {name: gate for name, gate in wanted.items() if name not in self.held}:
            make_lanes(self.sql, parents_of(map(gate_of, lost.values())) | lost)
            self.hold_named(lost, wait=True)

    def chain(self, name: str) -> list[LockedLane]:
        """A lane and its parent, if they are held."""
        one = self.held.get(name)
        return [] if one is None else [self.held[key] for key in (name, one.lane.gate.parent) if key in self.held]

    def counts(self, name: str) -> bool:
        """Whether it depends on what is in flight how many may leave a lane: by its gate, or by the gate of its parent.

        Its own gate may be of before the parent's was changed.
        """
        return any(one.lane.gate.counts for one in self.chain(name))

    def hold_lines(self, limit: int) -> None:
        """Lock and read the first lanes that are queued in held lanes without entries of their own."""
        outers = [one.number for one in self.held.values() if not one.waiting and one.line_rank is not None]
        if inner := [name for number in outers for name in self.hold_first(number, limit)]:
            self.read(limit, inner)

    # ---- leaving and coming back

    def board(self, laned_last: bool) -> Board:
        """The board of these lanes, with the entries that were read."""
        board = Board(self.sql.turn_at(self.now), laned_last)
        board.fill(((one.lane, one.waiting) for one in self.held.values()), self.now)
        return board

    def leave(self, board: Board, turns: Sequence[Turn], counts: Sequence[int]) -> None:
        """Let turns leave their lanes: as the board has it, or the first entries of each that were still there.

        If all were there, the entries behind them are known: whatever arrives, goes or changes leaves a ticket.
        """
        whole = all(count == len(turn.waiting) for turn, count in zip(turns, counts, strict=True))
        for turn, count in zip(turns, counts, strict=True):
            is_counted = self.counts(turn.lane)
            for one in self.chain(turn.lane) if count else ():
                left = board.lanes[one.lane.name] if whole else gates.left(one.lane, count, turn.number, self.now)
                one.lane = left if is_counted else replace(left, in_flight=one.lane.in_flight)
            del self.held[turn.lane].waiting[:count]
        self.is_read = whole and all(one.knows_its_head for one in self.held.values())

    def came_to(self, names: Iterable[str]) -> None:
        """Entries came to these lanes. They are written even if their rows stay as they are.

        By that a claim that began before, and does not see these entries, knows that it must let the lanes go.
        """
        for name in self.held.keys() & set(names):
            self.held[name].was = ()

    def settled(self, names: Iterable[str]) -> None:
        """One entry that had left is settled for each of these names of lanes."""
        for name, number in Counter(names).items():
            for one in self.chain(name):
                one.lane = gates.settled(one.lane, number)

    def defer(self, name: str, number: int, at: int, to: int, now: int) -> bool:
        """Count entries that left a lane ``at`` a moment as leaving at ``to``; whether that could be done."""
        chain = self.chain(name)
        moved = [lane for one in chain if (lane := gates.deferred(one.lane, number, at, to, now)) is not None]
        if not moved or len(moved) < len(chain):
            return False
        for one, lane in zip(chain, moved, strict=True):
            one.lane = lane
        return True

    # ---- tickets

    def take_in(self, tickets: Sequence[Ticket]) -> set[str]:
        """Give lanes the gates of their last tickets. Locked lanes are skipped. Returns the lanes that were changed.

        Tickets that are gone once the lanes are locked were taken by other claims, maybe with later tickets.
        """
        self.hold_named({ticket.name for ticket in tickets}, wait=False)
        ours = [ticket for ticket in tickets if ticket.name in self.held]
        ready = {name for name, gate in _last_gates(ours).items() if self._hold_gates(name, gate)}
        seqs = [ticket.seq for ticket in ours if ticket.name in ready]
        there = self.sql.drop_tickets(seqs) if seqs else set()
        wanted = _last_gates(ticket for ticket in ours if ticket.seq in there)
        done = {name for name, gate in wanted.items() if self._define(name, gate)}
        self.came_to(done)
        if undone := [(name, self.held[name].number, wanted[name]) for name in wanted.keys() - done]:
            self.sql.leave_tickets(undone)  # the last was taken, and the parent that this one names is locked
        return done

    def _hold_gates(self, name: str, gate: str) -> bool:
        """Hold the parent that a lane has and the parent by this gate; whether that could be done."""
        outers = {self.held[name].lane.gate.parent, gate_of(gate, name).parent}
        self._hold_all(outers, wait=False)
        return outers <= {*self.held, ""}

    def _define(self, name: str, gate: str) -> bool:
        """Give a lane a gate ("": the gate that it has); whether that could be done."""
        if not self._hold_gates(name, gate):
            return False
        one, new = self.held[name], gate_of(gate, name) if gate else self.held[name].lane.gate
        old = one.lane.gate.parent
        if old != new.parent and one.lane.in_flight:
            for key, number in ((old, one.lane.in_flight), (new.parent, -one.lane.in_flight)):
                if key:
                    self.held[key].lane = gates.settled(self.held[key].lane, number)
        one.lane = one.lane.with_gate(new)
        if new.parent:
            outer = self.held[new.parent]
            outer.lane = outer.lane.with_gate(new.parent_gate or Gate())
        return True

    # ---- places

    def look(self) -> int:
        """Read the first entries of all held lanes, and the time."""
        self.read()
        self.is_read = True
        return self.now

    def read(self, limit: int = 0, names: Iterable[str] | None = None) -> None:
        """Read the first entries of lanes: as many as may leave in ``limit`` turns, and the entries behind them."""
        chosen = {self.held[name].number: self.held[name] for name in (self.held if names is None else names)}
        wants = {number: one.most(limit) for number, one in chosen.items()}
        outers = [number for number, one in chosen.items() if not one.lane.gate.parent]
        self.now, rows, ranks = self.sql.heads(wants, outers)
        for number, one in chosen.items():
            one.waiting, one.line_rank = [], ranks.get(number)
        for state, seq, rank, at, lost in rows:
            chosen[state].waiting.append(Waiting(rank, at, seq, lost))
        for number, one in chosen.items():
            one.waiting.sort()
            one.is_read_whole = len(one.waiting) < wants[number]

    def place(self, names: Iterable[str] | None = None) -> None:
        """Put lanes where they belong, and then their parents."""
        chosen = set(self.held if names is None else names) | (self._stopped & self.held.keys())
        chosen |= {one.lane.gate.parent for name in chosen for one in self.chain(name)} - {""}
        if not self.is_read:
            self.read(names=chosen)
        inner = [name for name in chosen if self.held[name].waiting or self.held[name].lane.gate.parent]
        self._write({name: self.held[name].head for name in inner})
        if rest := chosen - set(inner):
            self._read_lines({self.held[name].lane.gate.parent for name in inner} & rest)
            ranks = {name: self.held[name].line_rank for name in rest}
            self._write({name: None if rank is None else Head(rank, 0) for name, rank in ranks.items()})

    def _read_lines(self, names: set[str]) -> None:
        """Read the first lanes queued in these again: this transaction changed them. No other can: it has the locks."""
        if names:
            numbers = [self.held[name].number for name in names]
            _, _, ranks = self.sql.heads({}, numbers)
            for name in names:
                self.held[name].line_rank = ranks.get(self.held[name].number)

    def _write(self, heads: dict[str, Head | None]) -> None:
        rows, idle = [], []
        for name, head in heads.items():
            one = self.held[name]
            row = one.written(gates.place_of(one.lane, head, self.now))
            if gates.is_idle(one.lane, head, self.now):
                idle.append(one.seq)
            elif row != one.was:
                rows.append(row)
                one.was = row
        if rows:
            self.sql.write_lanes(rows, self._wakes and any(row[STATE] in OPEN for row in rows))
        if idle:
            self.sql.delete_rows("djqueue_lane", sorted(idle))


@contextmanager
def lane_transaction(
    sql: Dialect, names: Iterable[str] = (), wait: bool = False, wakes: bool = False
) -> Iterator[LaneTransaction]:
    """A transaction, or the caller's, that holds these lanes and their parents.

    ``wakes``: whether processes that wait for work are to look at what it opens.
    """
    with sql.writing():
        lanes = LaneTransaction(sql, wakes)
        lanes.hold_named(names, wait)
        yield lanes


@dataclass(slots=True)
class LockedLane:
    """A lane whose row this transaction has locked, and the entries that wait in it."""

    seq: int
    number: int
    lane: Lane
    was: tuple
    waiting: list[Waiting] = field(default_factory=list)
    """The first entries that wait in it, as far as they were read."""
    is_read_whole: bool = False
    """Whether all entries that wait in it were read."""
    line_rank: int | None = None
    """The rank of the first lane that is queued in it, if there is one."""
    is_stopped: bool = False
    """Whether what was spent of its windows cannot be read."""

    @classmethod
    def read(cls, row: tuple) -> LockedLane:
        seq, name, _, gate, in_flight, turn, not_before, paused, rates, *_ = row
        ours = gate_of(gate, name)
        spent = _rates_of(rates, ours)
        lane = Lane(name, ours, max(0, in_flight), turn, not_before, paused, spent or ())
        if spent is None:
            lane = gates.stopped(lane)
        return cls(seq, number_of(name), lane, (seq, *row[3:]), is_stopped=spent is None)

    def written(self, place: Place) -> tuple:
        """The row of the lane at this place."""
        lane = self.lane
        state = number_of(lane.gate.parent) if place.where == LANE_QUEUED else STANDS[place.where]
        moment = place.at if place.where == gates.LANE_SCHEDULED else lane.turn
        known = (
            min(lane.in_flight, MOST),
            lane.turn,
            lane.not_before,
            lane.paused_reason,
            "\n".join(rate.written() for rate in lane.rates),
        )
        return self.seq, text_of(lane.gate), *known, state, place.rank, moment

    @property
    def head(self) -> Head | None:
        """Its first entry, if any was read."""
        first = self.waiting[0] if self.waiting else None
        return first and Head(first.rank, first.at, len(self.waiting), first.lost > 0)

    @property
    def knows_its_head(self) -> bool:
        """Whether enough entries were read to know the place of the lane."""
        return self.is_read_whole or len(self.waiting) >= max(1, self.lane.gate.min_batch)

    def most(self, limit: int) -> int:
        """How many entries may leave in ``limit`` turns, and the entries behind them."""
        gate = self.lane.gate
        most = gate.max_run * min(limit, 1) if gate.ordered else min(gate.max_run * limit, MOST_READ)
        room = max(0, gate.concurrency - self.lane.in_flight) if gate.concurrency else most
        slots = min((window.limit for window in gate.windows), default=most)
        return min(most, room, slots) + max(1, gate.min_batch)


def _rates_of(text: str, gate: Gate) -> tuple[Rate, ...] | None:
    """What was spent of the windows of a gate; None if that cannot be read."""
    try:
        rates = tuple(map(Rate.read, text.splitlines()))
    except (ArithmeticError, TypeError, ValueError):
        return None
    return rates if not rates or tuple(rate.window for rate in rates) == gate.windows else None


def make_lanes(sql: Dialect, wanted: dict[str, str]) -> list[str]:
    """Make rows for lanes that have none, each with its gate as text, and a turn behind the waiting lanes.

    Returns their names.
    """
    there = {name for some in chunks(sorted(wanted)) for name in sql.lanes_there(some)}
    if missing := [name for name in wanted if name not in there]:
        turns = enumerate(missing, sql.turn_at(sql.clock()))
        rows = {name: (name, number_of(name), wanted[name], turn) for turn, name in turns}
        for some in chunks(sorted(missing)):
            sql.make_lanes([rows[name] for name in some])
    return missing


def parents_of(inner: Iterable[Gate]) -> dict[str, str]:
    return {gate.parent: (gate.parent_gate or Gate()).written() for gate in inner if gate.parent}


@lru_cache(maxsize=1024)
def text_of(gate: Gate) -> str:
    return gate.written()
