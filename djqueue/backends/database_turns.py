"""Whose turn it is: which entries of the lanes that a claim holds leave, decided before anything is written."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from djqueue.backends.sql.gated import gate_of, number_of, text_of
from djqueue.backends.sql.text import MOST, NOWHERE, OPEN, TIMED
from djqueue.flow import gates
from djqueue.flow.gates import LINE, Head, Lane, Place
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
