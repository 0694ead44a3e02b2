"""The rows of lanes, as one transaction holds them: read, changed, and put where they belong.

What is decided is in :mod:`djqueue.flow.gates`, the same on every database; the statements are in
:mod:`djqueue.backends.sql.lanes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from djqueue.backends.database_rows import chunks
from djqueue.backends.database_turns import Held, Waiting, back, head_of
from djqueue.backends.sql.common import Dialect
from djqueue.backends.sql.gated import gate_of, number_of
from djqueue.backends.sql.session import Session
from djqueue.flow import gates
from djqueue.flow.gates import Gate, Head


class Ticket(NamedTuple):
    """Something came to a lane."""

    seq: int
    name: str
    number: int
    gate: str


class Desk:
    """The lanes whose rows a transaction holds."""

    def __init__(self, run: Session, sql: Dialect, queue: str):
        self.held: dict[str, Held] = {}
        self.now = 0
        self._run, self._sql, self._queue = run, sql, queue

    # ---- holding

    def hold(self, rows: Iterable[tuple]) -> list[str]:
        """The names of those that were not held."""
        fresh = [one for one in map(Held.read, rows) if one.lane.name not in self.held]
        self.held |= {one.lane.name: one for one in fresh}
        return [one.lane.name for one in fresh]

    def hold_named(self, names: Iterable[str], wait: bool) -> None:
        for some in chunks(sorted(set(names) - self.held.keys() - {""})):
            self.hold(self._sql.hold_named(self._run, self._queue, some, wait))

    def hold_first(self, state: int, limit: int, due: bool = False) -> list[str]:
        return self.hold(self._sql.hold_first(self._run, self._queue, state, limit, due))

    def hold_outers(self, wait: bool) -> None:
        """Of those that are within another lane that one too, made anew if it was forgotten; else they are let go."""
        inner = [one for one in self.held.values() if one.lane.gate.within]
        self.hold_named({one.lane.gate.within for one in inner}, wait)
        lacking = {one.lane.gate.within: one.lane.gate for one in inner if one.lane.gate.within not in self.held}
        if lacking:
            make_lanes(self._run, self._sql, self._queue, outers_of(lacking.values()))
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
        there = self._sql.tickets_there(self._run, [ticket.seq for ticket in ours]) if ours else set()
        gates: dict[str, str] = {}
        for ticket in ours:
            if ticket.seq in there:
                gates[ticket.name] = ticket.gate or gates.get(ticket.name, "")
        done = {name for name, gate in gates.items() if self._define(name, gate)}
        if over := [ticket.seq for ticket in ours if ticket.seq in there and ticket.name in done]:
            self._sql.drop_tickets(self._run, over)
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
        self.now, rows = self._sql.heads(self._run, self._queue, wants)
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
            ranks = self._sql.line_heads(self._run, self._queue, numbers)
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
            self._sql.write_lanes(self._run, rows)
        if idle:
            self._sql.drop_lanes(self._run, idle)


@contextmanager
def at_desk(run: Session, sql: Dialect, queue: str):
    """A transaction, or the caller's."""
    with run.atomic():
        sql.begin(run)
        yield Desk(run, sql, queue)


def make_lanes(run: Session, sql: Dialect, queue: str, wanted: dict[str, str]) -> None:
    """Rows for lanes that have none, each with the gate that is written so, behind those that wait."""
    turns = {name: turn for turn, name in enumerate(wanted, sql.turn_at(sql.clock(run)))} if wanted else {}
    for some in chunks(sorted(wanted)):
        there = sql.lanes_there(run, queue, some)
        if missing := [(name, number_of(name), wanted[name], turns[name]) for name in some if name not in there]:
            sql.make_lanes(run, queue, missing)


def outers_of(inner: Iterable[Gate]) -> dict[str, str]:
    return {gate.within: (gate.outer or Gate()).written() for gate in inner if gate.within}
