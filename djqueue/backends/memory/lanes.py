"""What a queue in memory is built of: entries with their state, and lanes."""

from __future__ import annotations

from dataclasses import replace

from djqueue.backends.entries import READY, Entry, LaneRecord
from djqueue.flow import gates
from djqueue.flow.board import Board, Turn, Waiting
from djqueue.flow.gates import HOLD_PAUSE, LANE_SCHEDULED, Gate, Lane


class Item:
    """An entry and where it waits. Its place is the moment at which it first fell due."""

    __slots__ = ("at", "begun", "entry", "left", "owner", "place", "rank", "seq", "state", "token")

    def __init__(self, entry: Entry, seq: int, now: float):
        self.entry, self.rank, self.place, self.seq = entry, 0, entry.run_at or now, seq
        self.state, self.at, self.owner, self.begun = "", 0.0, "", True
        self.token: int | None = None
        self.left: list[str] = []  # the lanes that count it as out

    def key(self) -> tuple:
        return (self.rank, self.place, self.seq) if self.state == READY else (self.at, self.seq)

    def requeued(self, seq: int, now: float) -> Item:
        """A copy of the item, placed behind all others."""
        self.place, self.seq = now, seq
        return self


class MemoryLanes(Board):
    """All lanes of one queue. Called under the lock of the queue, with the time in µs."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, Item] = {}
        self._defined: dict[str, int] = {}

    def __len__(self) -> int:
        """How many entries wait in lanes."""
        return len(self._items)

    def items(self) -> list[Item]:
        """What waits in lanes."""
        return list(self._items.values())

    # ---- entries come and go

    def come(self, item: Item, now: int) -> None:
        """Let an entry wait in its lane, at its place. Of all in a lane the gate of the one put last counts."""
        name = item.entry.lane
        self._define(item, now)
        self._items[item.seq] = item
        self.enter(name, Waiting(item.rank, us(item.place), item.seq, item.entry.lost))
        self.place(name, now)

    def go(self, item: Item, now: int) -> None:
        """An entry that waited in its lane is gone."""
        del self._items[item.seq]
        self.remove(item.entry.lane, item.seq)
        self.place(item.entry.lane, now)

    def taken(self, turn: Turn) -> list[Item]:
        """The entries that left in a turn."""
        items = [self._items.pop(one.seq) for one in turn.waiting]
        for item in items:
            item.state, item.left = "", turn.chain
        return items

    def back(self, item: Item, now: int) -> None:
        """An entry that had left its lane is settled."""
        for name in item.left:
            self.lanes[name] = gates.settled(self.lanes[name], 1)
            self.place(name, now)
        item.left = []

    def defer(self, item: Item, at: int, to: int, now: int) -> bool:
        """Count an entry that left at a moment from another one on; whether that could be done."""
        lanes: dict[str, Lane] = {}
        for name in item.left:
            lane = gates.deferred(self.lanes[name], 1, at, to, now)
            if lane is None:
                return False
            lanes[name] = lane
        self.lanes |= lanes
        for name in lanes:
            self.place(name, now)
        return bool(lanes)

    def hold(self, item: Item, how: str, until: int, now: int) -> None:
        """Hold its lane back with an entry that returns: until a moment, or until an operator resumes it."""
        self._define(item, now)
        lane = self.lanes[item.entry.lane]
        if how == HOLD_PAUSE:
            self.pause(lane.name, f"{item.entry.id} failed", now)
        else:
            self.want_parent(lane)
            name = gates.held_by(lane, how)
            self.lanes[name] = gates.block_until(self.lanes[name], until)
            self.place(name, now)

    # ---- operators

    def records(self, limit: int, after: str | None) -> list[LaneRecord]:
        names = sorted(name for name in self.lanes if after is None or name > after)[:limit]
        return [record for name in names if (record := self.record(name))]

    def record(self, name: str) -> LaneRecord | None:
        if name not in self.lanes:
            return None
        lane, place, waiting = self.lanes[name], self.places[name], self.waiting(name)
        opens, gate = place.at / 1e6 if place.where == LANE_SCHEDULED else 0.0, lane.gate
        words = (lane.paused_reason, gate.parent, gate.written(), name)
        return LaneRecord(name, place.where, waiting, lane.in_flight, opens, *words)

    def pause(self, name: str, why: str, now: int) -> None:
        self.lanes[name] = replace(self.known(name), paused_reason=why or "paused")
        self.place(name, now)

    def resume(self, name: str, now: int) -> bool:
        was = self.lanes.get(name)
        if was is None or not gates.is_blocked(was, now):
            return False
        self.lanes[name] = gates.resumed(was)
        self.place(name, now)
        return True

    # ---- inside

    def _define(self, item: Item, now: int) -> None:
        gate = Gate.read(item.entry.gate)
        if self._define_one(item.entry.lane, gate, item.seq, now) and gate.parent:
            self._define_one(gate.parent, gate.parent_gate or Gate(), item.seq, now)

    def _define_one(self, name: str, gate: Gate, seq: int, now: int) -> bool:
        """Give a lane its gate, unless an entry that was put later has given it one; whether it has it."""
        if seq < self._defined.get(name, 0):
            return False
        was, self._defined[name] = self.known(name), seq
        self.lanes[name] = was.with_gate(gate)
        if was.gate.parent not in ("", gate.parent):
            self.step_out(name, was.gate.parent)
            self.place(was.gate.parent, now)
        return True

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._defined.pop(name, None)


def us(seconds: float) -> int:
    return round(seconds * 1e6)
