"""The lanes of a queue in memory: what stands in them, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import NamedTuple

from djqueue.backends.entries import LaneRecord
from djqueue.backends.memory.structures import Item, Line
from djqueue.flow import gates
from djqueue.flow.gates import HOLD_LANE, HOLD_PARK, LINE, OPEN, TIMED, Gate, Head, Lane, Place


class Turn(NamedTuple):
    """What leaves a lane together."""

    items: list[Item]
    run: str
    """What their leases say as ``run``."""


class MemoryLanes:
    """All lanes of one queue. Called under the lock of the queue, with the time in seconds."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._entries: dict[str, Line] = {}
        self._items: dict[str, dict[str, Item]] = {}
        self._places: dict[str, Place] = {}
        self._open, self._timed, self._lines = Line(), Line(), {}
        self._turns = 0
        self._defined: dict[str, int] = {}

    def __len__(self) -> int:
        """How many entries wait in lanes."""
        return sum(map(len, self._items.values()))

    def items(self) -> Iterator[Item]:
        """What waits in lanes."""
        return (item for items in list(self._items.values()) for item in list(items.values()))

    # ---- entries come and go

    def enter(self, item: Item, now: float) -> None:
        """Let an entry wait in its lane, at its place. Of all in a lane the gate of the one put last counts."""
        name = item.entry.lane
        self._define(item, now)
        self._items.setdefault(name, {})[item.entry.id] = item
        self._entries.setdefault(name, Line()).add(item.entry.id, item.key())
        self._stand(name, now)

    def leave(self, item: Item, now: float) -> None:
        """An entry that waited in its lane is gone."""
        self._take_off(item)
        self._stand(item.entry.lane, now)

    def back(self, item: Item, now: float) -> None:
        """An entry that had left its lane is settled."""
        for name in item.left:
            self._lanes[name] = replace(self._lanes[name], out=self._lanes[name].out - 1)
            self._stand(name, now)
        item.left = []

    def defer(self, item: Item, at: float, to: float, now: float) -> bool:
        """Count an entry that left at a moment from another one on; whether that could be done."""
        lanes = {name: gates.deferred(self._lanes[name], 1, _us(at), _us(to), _us(now)) for name in item.left}
        if not lanes or None in lanes.values():
            return False
        self._lanes |= lanes
        for name in lanes:
            self._stand(name, now)
        return True

    def hold(self, item: Item, how: str, until: float, now: float) -> None:
        """Hold its lane back with an entry that returns: until a moment, or until somebody opens it."""
        name = item.entry.lane
        self._define(item, now)
        if how == HOLD_PARK:
            self.park(name, f"{item.entry.id} failed", now)
        else:
            self._want_outer(self._lanes[name])
            name = self._held_by(name) if how == HOLD_LANE else name
            self._lanes[name] = replace(self._lanes[name], open_at=max(self._lanes[name].open_at, _us(until)))
            self._stand(name, now)

    def _held_by(self, name: str) -> str:
        """The lane that a server's refusal is about: the one with the windows."""
        gate = self._lanes[name].gate
        outer = gate.outer is not None and gate.outer.windows and not gate.windows
        return gate.within if outer else name

    # ---- turns

    def wake(self, now: float) -> None:
        """What stood timed and is due stands anew."""
        while (name := self._timed.first()) is not None and self._places[name].at <= _us(now):
            self._stand(name, now)

    def until_next(self, now: float) -> float:
        """Seconds until a lane opens by itself."""
        name = self._timed.first()
        return inf if name is None else max(0.0, (self._places[name].at - _us(now)) / 1e6)

    def first_rank(self) -> int | None:
        """Minus the priority of what would leave next; None if nothing may."""
        name = self._open.first()
        return None if name is None else self._places[name].rank

    @property
    def throttled(self) -> bool:
        """Whether the lane whose turn it is, or the one that it is within, has windows."""
        return any(self._lanes[name].gate.windows for name in self._chain(self._next()))

    def turn(self, now: float) -> Turn:
        """Let a run leave the lane whose turn it is."""
        name = self._next()
        chain, at = self._chain(name), _us(now)
        number = min(gates.leaving(self._lanes[one], at) for one in chain)
        items, turn = self._take_first(name, number), self._new_turn()
        for item in items:
            item.left = chain
        for one in chain:
            self._lanes[one] = gates.left(self._lanes[one], len(items), turn, at)
        joins = self._lanes[name].gate.joins
        for one in chain:
            self._stand(one, now)
        return Turn(items, f"{turn}:{name}" if joins else "")

    def _next(self) -> str:
        """The lane whose turn it is; of a lane with a line, the first that stands in it."""
        name = self._open.first()
        return self._lines[name].first() if name in self._lines else name

    def _take_first(self, name: str, number: int) -> list[Item]:
        """So many from the head; one that was lost once leaves alone."""
        taken: list[Item] = []
        while len(taken) < number and name in self._items:
            item = self._items[name][self._entries[name].first()]
            if taken and (item.entry.lost or taken[0].entry.lost):
                break
            self._take_off(item)
            item.state = ""
            taken.append(item)
        return taken

    # ---- operators

    def records(self) -> list[LaneRecord]:
        return [self.record(name) for name in sorted(self._lanes)]

    def record(self, name: str) -> LaneRecord | None:
        if name not in self._lanes:
            return None
        lane, place, waiting = self._lanes[name], self._places[name], len(self._items.get(name, ()))
        opens = place.at / 1e6 if place.where == TIMED else 0.0
        gate = lane.gate.written()
        return LaneRecord(name, place.where, waiting, lane.out, opens, lane.parked, lane.gate.within, gate, name)

    def park(self, name: str, why: str, now: float) -> None:
        self._lanes[name] = replace(self._known(name), parked=why or "parked")
        self._stand(name, now)

    def open(self, name: str, now: float) -> bool:
        lane = self._lanes.get(name)
        shut = lane is not None and (bool(lane.parked) or lane.open_at > _us(now))
        if shut:
            self._lanes[name] = replace(lane, parked="", open_at=0)
            self._stand(name, now)
        return shut

    # ---- inside

    def _define(self, item: Item, now: float) -> None:
        gate = Gate.read(item.entry.gate)
        if self._define_one(item.entry.lane, gate, item.seq, now) and gate.within:
            self._define_one(gate.within, gate.outer or Gate(), item.seq, now)

    def _define_one(self, name: str, gate: Gate, seq: int, now: float) -> bool:
        """Give a lane its gate, unless something that was put later has said what that is; whether it has it."""
        if seq < self._defined.get(name, 0):
            return False
        was, self._defined[name] = self._known(name), seq
        self._lanes[name] = was.with_gate(gate)
        if was.gate.within not in ("", gate.within):
            self._step_out(name, was.gate.within)
            self._stand(was.gate.within, now)
        return True

    def _want_outer(self, lane: Lane) -> None:
        """The record of what a lane is within may have been forgotten while nothing of it was out or in line."""
        within = lane.gate.within
        if within and within not in self._lanes:
            self._lanes[within] = self._known(within).with_gate(lane.gate.outer or Gate())

    def _known(self, name: str) -> Lane:
        """A lane as it is; a new one stands behind those that wait, so that new ones cannot hold them up for ever."""
        return self._lanes.get(name) or Lane(name, turn=self._new_turn())

    def _new_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _chain(self, name: str) -> list[str]:
        """A lane, and the one that it is within."""
        within = self._lanes[name].gate.within if name in self._lanes else ""
        return [name, within] if within in self._lanes else [name]

    def _take_off(self, item: Item) -> None:
        name = item.entry.lane
        self._entries[name].drop(item.entry.id)
        del self._items[name][item.entry.id]
        if not self._items[name]:
            del self._items[name], self._entries[name]

    def _stand(self, name: str, now: float) -> None:
        """Put a lane where it belongs: the only place that does. What it is within follows."""
        lane = self._lanes.get(name)
        if lane is None:
            return
        head, within = self._head(name), lane.gate.within
        self._places[name] = place = gates.stand(lane, head, _us(now))
        self._step_out(name, within)
        if place.where == OPEN:
            self._open.add(name, (place.rank, lane.turn))
        elif place.where == TIMED:
            self._timed.add(name, (place.at,))
        elif place.where == LINE:
            self._lines.setdefault(within, Line()).add(name, (place.rank, lane.turn))
            self._want_outer(lane)
        elif gates.is_idle(lane, head, _us(now)):
            del self._lanes[name], self._places[name]
            self._defined.pop(name, None)
        if within:
            self._stand(within, now)

    def _step_out(self, name: str, within: str) -> None:
        self._open.drop(name)
        self._timed.drop(name)
        if within in self._lines:
            self._lines[within].drop(name)
            if not self._lines[within]:
                del self._lines[within]

    def _head(self, name: str) -> Head | None:
        """What would leave first: an entry, or of a lane with a line the first lane there."""
        if name in self._lines:
            place = self._places[self._lines[name].first()]
            return Head(place.rank, 0)
        entries = self._entries.get(name)
        if entries is None:
            return None
        item = self._items[name][entries.first()]
        return Head(item.rank, _us(item.place), len(entries))


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
