"""What happens in the lanes of a queue in a database: entries come, leave in turns and are settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from djqueue.backends.database_desk import Desk, Ticket, at_desk, make_lanes, outers_of
from djqueue.backends.database_turns import Draw, Held, Turn, Turns, after, back
from djqueue.backends.entries import Lease
from djqueue.backends.sql.common import Arrival, Ask, Dialect
from djqueue.backends.sql.gated import gate_of
from djqueue.backends.sql.lanes import Glance, one_of, picked
from djqueue.backends.sql.session import Session
from djqueue.backends.sql.text import ALL, BACKWARDS, LEASED, OPEN, ORDER, OUT, TIMED
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PARK, Lane, deferred

TAKEN_IN = 200
"""So many tickets, and so many lanes whose time has come, one claim looks at."""


# ---- putting


def put_in_lanes(
    run: Session,
    sql: Dialect,
    queue: str,
    arrivals: Sequence[Arrival],
    lanes: Mapping[str, tuple],
    insert: Callable[[Session, Sequence[Arrival]], set[str]],
) -> set[str]:
    """Insert, and leave a ticket for each lane: no lane is touched, so nobody waits for the caller's transaction.

    ``lanes`` are those that the arrivals enter, by their ids.
    """
    with run.atomic():
        sql.begin(run)
        accepted = insert(run, arrivals)
        if entered := {lane[0]: lane for id, lane in lanes.items() if id in accepted}:
            sql.leave_tickets(run, queue, list(entered.values()))
    return accepted


# ---- claiming


class Laned(NamedTuple):
    """What a claim brought of lanes: of each unit its run and rows of ENTRY, or None for an entry in no lane."""

    units: list[tuple[str, list[tuple]] | None]
    laned_last: bool
    more: bool = False
    """Whether something was held back that may leave."""


def take_tickets(run: Session, sql: Dialect, queue: str, glance: Glance) -> list[Ticket]:
    """What came to lanes, when each has a row. Nothing is held meanwhile, as those who make a row may have to wait."""
    if glance.falls_due:
        with run.atomic():
            sql.begin(run)
            if came := {row[1:] for row in sql.come_in(run, queue)}:
                sql.leave_tickets(run, queue, sorted(came))
    tickets = [Ticket(*row) for row in sql.tickets(run, queue, TAKEN_IN)] if glance.ticket or glance.falls_due else []
    wanted = {ticket.name: ticket.gate for ticket in tickets if ticket.gate}
    make_lanes(run, sql, queue, outers_of(gate_of(gate) for gate in wanted.values()) | wanted)
    return tickets


def claim_turns(
    run: Session, sql: Dialect, ask: Ask, glance: Glance, tickets: list[Ticket], ahead: int, laned_last: bool
) -> Laned:
    """Lease what may leave its lane. Lanes that somebody has are passed over, and so nobody waits for another."""
    with at_desk(run, sql, ask.queue) as desk:
        changed = desk.take_in(tickets)
        if glance.rises:
            changed.update(desk.hold_first(TIMED, TAKEN_IN, due=True))
        desk.hold_first(OPEN, ask.limit)
        desk.hold_outers(wait=False)
        desk.read(ask.limit)
        _hold_lines(desk, ask.limit)
        ranks = _ranks(run, sql, ask) if glance.ready is not None or glance.due else []
        draw = Draw(Turns(desk.held, desk.now), ranks, ask.limit, ahead, sql.turn_at(desk.now), laned_last)
        taken = iter(_lend(run, sql, ask, desk, draw.turns))
        empty = {name for name, one in desk.held.items() if not one.waiting}
        desk.stand((changed | empty | {turn.lane for turn in draw.turns}) & desk.held.keys())
        _forget_nobodys(run, sql, ask.queue, [ticket for ticket in tickets if ticket.name not in desk.held])
    return Laned([unit and next(taken) for unit in draw.units], draw.laned_last, draw.held_back)


def _hold_lines(desk: Desk, limit: int) -> None:
    """What stands in the lines of lanes that have no entries of their own."""
    outers = [one.number for one in desk.held.values() if not one.waiting and not one.lane.gate.within]
    if inner := [name for number in outers for name in desk.hold_first(number, limit)]:
        desk.read(limit, inner)


def _ranks(run: Session, sql: Dialect, ask: Ask) -> list[int]:
    found = sql.ranks(run, ask.queue, ask.limit, BACKWARDS if ask.lifo else ORDER)
    return [~rank for rank in found] if ask.lifo else found


def _lend(run: Session, sql: Dialect, ask: Ask, desk: Desk, turns: list[Turn]) -> list[tuple[str, list[tuple]]]:
    """Of each turn what is still there, up to the first that is not; the rows of that."""
    rows = (
        _taken(run, sql, ask._replace(leased=OUT, since=str(desk.now)), turns)
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
        sql.put_back(run, stray)
    return units


def _taken(run: Session, sql: Dialect, ask: Ask, turns: list[Turn]) -> dict[int, tuple]:
    """The rows of what is still there. Of each turn the first begins, if anything does."""
    if ask.begun == ALL:
        ask = ask._replace(begun=one_of(one.seq for turn in turns for one in turn.waiting[:1]))
    return {row[0]: row for row in sql.take(run, ask, picked(one.seq for turn in turns for one in turn.waiting))}


def _forget_nobodys(run: Session, sql: Dialect, queue: str, tickets: list[Ticket]) -> None:
    """Tickets that only ask to look at lanes of which nothing is known."""
    asking = [ticket for ticket in tickets if not ticket.gate]
    if asking:
        there = sql.lanes_there(run, queue, [ticket.name for ticket in asking])
        if gone := [ticket.seq for ticket in asking if ticket.name not in there]:
            sql.drop_tickets(run, gone)


# ---- settling

Say = Callable[[Session, Sequence[Lease]], Iterable[tuple]]
"""What holders say of their leases; rows that begin with the seqs of those that were still theirs."""


def settle(run: Session, sql: Dialect, queue: str, leases: Sequence[Lease], say: Say) -> list[tuple]:
    """Say it of leases of lanes, which may open by that."""
    with at_desk(run, sql, queue) as desk:
        desk.hold_named({lease.token.lane for lease in leases}, wait=True)
        desk.hold_outers(wait=True)
        rows = list(say(run, leases))
        seqs = {row[0] for row in rows}
        _bring_back(desk, [lease.token.lane for lease in leases if lease.token.seq in seqs])
        for lease in leases:
            if lease.entry.hold and lease.token.seq in seqs:
                _HOLDS[lease.entry.hold](desk, lease, sql.clock(run))
        desk.stand()
    return rows


def defer(run: Session, sql: Dialect, queue: str, leases: Sequence[Lease], span: int) -> int | None:
    """Count what left its lane as if it left in so many µs: when that is; None if one of them counts no more."""
    with at_desk(run, sql, queue) as desk:
        desk.hold_named({lease.token.lane for lease in leases}, wait=True)
        desk.hold_outers(wait=True)
        now = sql.clock(run)
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


def reap(run: Session, sql: Dialect, queue: str, limit: int, by: int) -> int:
    """Let what is out for too long return to its lane, unless it is later than that; how many."""
    late = sql.expired(run, queue, limit)
    with at_desk(run, sql, queue) as desk:
        desk.hold_named({lane for _, lane in late}, wait=False)
        desk.hold_outers(wait=False)
        seqs = sorted(seq for seq, lane in late if lane in desk.held)
        lanes = sql.reap_in_lanes(run, seqs, by) if seqs else []
        _bring_back(desk, lanes)
        desk.stand()
    return len(lanes)


# ---- what an unanswered claim may have leased


def disown(run: Session, sql: Dialect, queue: str, tokens: Sequence[int]) -> bool:
    """Give back what these tokens hold as if it had never been claimed; whether any of it was of lanes.

    Lanes that somebody has are passed over.
    """
    held = sql.leased_by(run, queue, tokens)
    if own := sorted(seq for seq, state, _ in held if state == LEASED):
        sql.disown(run, own, tokens)
    laned = sorted((seq, lane) for seq, state, lane in held if state == OUT)
    if laned:
        with at_desk(run, sql, queue) as desk:
            desk.hold_named({lane for _, lane in laned}, wait=False)
            desk.hold_outers(wait=False)
            if seqs := [seq for seq, lane in laned if lane in desk.held]:
                _bring_back(desk, sql.disown_in_lanes(run, seqs, tokens))
                desk.stand()
    return bool(laned)


def recount(run: Session, sql: Dialect, queue: str, names: Sequence[str]) -> list[str]:
    """Let lanes count as out what is: somebody may have changed or deleted rows by hand. Those that were wrong."""
    with at_desk(run, sql, queue) as desk:
        desk.hold_named(names, wait=False)
        desk.hold_outers(wait=False)
        out = _out(run, sql, queue)
        wrong = [name for name in names if name in desk.held and desk.held[name].lane.out != out[name]]
        for name in wrong:
            desk.held[name].lane = replace(desk.held[name].lane, out=out[name])
        desk.stand(desk.held.keys() & set(names))
    return wrong


def restore(run: Session, sql: Dialect, queue: str, after: int, limit: int) -> tuple[int, list[str]]:
    """Make lanes anew of which nothing is known although entries stand in them; where to go on, and which."""
    last, lanes = sql.in_no_known_lane(run, queue, after, limit)
    coming = {name for _, name, *_ in sql.tickets(run, queue, limit)}  # the next claim makes those
    gates = {name: gate for name, gate in lanes if name not in coming}
    gates |= {name: gate for name, gate in outers_of(map(gate_of, gates.values())).items() if name not in gates}
    if gates:
        make_lanes(run, sql, queue, gates)
        recount(run, sql, queue, list(gates))
    return last, list(gates)


def _out(run: Session, sql: Dialect, queue: str) -> Counter[str]:
    """How many have left each lane; they have left the one that it is within, too."""
    out: Counter[str] = Counter()
    for name, gate, number in sql.out_of_lanes(run, queue):
        out[name] += number
        if gate and (within := gate_of(gate, name).within):
            out[within] += number
    return out


# ---- for operators


def change_lane(run: Session, sql: Dialect, queue: str, name: str, change: Callable[[Lane, int], Lane]) -> bool:
    """Change what is known of a lane, if anything is; whether that was a change."""
    with at_desk(run, sql, queue) as desk:
        desk.hold_named([name], wait=True)
        desk.hold_outers(wait=True)
        if name not in desk.held:
            return False
        was = desk.held[name].lane
        desk.held[name].lane = change(was, sql.clock(run))
        changed = desk.held[name].lane != was
        desk.stand()
    return changed
