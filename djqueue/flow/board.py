"""Many lanes together: where each is, which of them is next, and what leaves it. No I/O; the time comes in.

A queue in memory keeps one board for life. A database fills one in each claim, and writes the lanes that changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from djqueue.flow import gates
from djqueue.flow.gates import LANE_QUEUED, LANE_READY, LANE_SCHEDULED, Gate, Head, Lane, Place


class Line:
    """Names in the order of a key, both unique. What left is skipped, and swept once it is the larger part."""

    def __init__(self) -> None:
        self.keys: dict[Hashable, Any] = {}
        self._heap: list[tuple[tuple[Any, ...], Hashable]] = []

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, name: Hashable, key: tuple[Any, ...]) -> None:
        self.keys[name] = key
        heapq.heappush(self._heap, (key, name))
        self._sweep()

    def drop(self, name: Hashable) -> None:
        if self.keys.pop(name, None) is not None:
            self._sweep()

    def first(self) -> Any:
        while self._heap and self.keys.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def after(self, key: tuple[Any, ...] | None, limit: int) -> list[Any]:
        """Up to ``limit`` names behind a key, in order; looks at every name."""
        behind = ((own, name) for name, own in self.keys.items() if key is None or own > key)
        return [name for _, name in heapq.nsmallest(limit, behind)]

    def last(self, limit: int) -> list[Any]:
        """Up to ``limit`` names from the end, the last first; looks at every name."""
        return [name for _, name in heapq.nlargest(limit, ((own, name) for name, own in self.keys.items()))]

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self.keys):
            self._heap = [(key, name) for name, key in self.keys.items()]
            heapq.heapify(self._heap)


class Waiting(NamedTuple):
    """An entry in its lane; they leave in this order."""

    rank: int
    """Minus its priority."""
    at: int
    """When it fell due, µs."""
    seq: int
    """Which it is: a number that rises with each arrival."""
    lost: int = 0
    """How often its worker was lost. If it was, it leaves alone."""


class Turn(NamedTuple):
    """The entries that leave a lane together."""

    lane: str
    waiting: Sequence[Waiting]
    number: int
    """The number of the turn, which rises."""
    run: str
    """The ``run`` of the leases; "" if the entries are no unit of work."""
    chain: list[str]
    """The lanes that count it as out."""


class Board:
    """The lanes of one queue, and what waits in them. :meth:`place` follows each change of a lane or its entries."""

    def __init__(self, turn: int = 0, laned_last: bool = False):
        self.lanes: dict[str, Lane] = {}
        self.places: dict[str, Place] = {}
        self.laned_last = laned_last
        """Whether the last unit of work came from a lane."""
        self._turn = turn
        self._entries: dict[str, Line] = {}
        self._ready = Line()
        self._scheduled = Line()
        self._queued: dict[str, Line] = {}

    # ---- units of work

    def units(self, own: Callable[[], int | None], limit: int, ahead: int, now: int) -> Iterator[Turn | None]:
        """Up to ``limit`` units of work: a turn of a lane, or None for the first entry in no lane.

        Higher priority first; at equal ones entries in no lane and lanes alternate. ``own`` is the rank of the first
        entry in no lane, None if there is none. The last ``ahead`` units wait for a worker, and so are not throttled.
        """
        for count in range(limit):
            rank, first = self.first_rank(), own()
            if rank is not None and count >= limit - ahead and self._is_throttled():
                rank = None
            if rank is None and first is None:
                return
            self.laned_last = first is None or (rank is not None and (rank, self.laned_last) < (first, True))
            yield self._take(now) if self.laned_last else None

    def first_rank(self) -> int | None:
        """Minus the priority of the entry that would leave a lane next; None if none may."""
        name = self._ready.first()
        return None if name is None else self.places[name].rank

    def _is_throttled(self) -> bool:
        """Whether the lane whose turn it is, or its parent, has windows."""
        return any(self.lanes[name].gate.windows for name in self.chain(self._next()))

    def _take(self, now: int) -> Turn:
        name = self._next()
        chain, number = self.chain(name), self._next_turn()
        waiting = self._run_of(name, min(gates.leaving(self.lanes[one], now) for one in chain))
        for one in chain:
            self.lanes[one] = gates.left(self.lanes[one], len(waiting), number, now)
        run = f"{number}:{name}" if self.lanes[name].gate.is_unit else ""
        for one in chain:
            self.place(one, now)
        return Turn(name, waiting, number, run, chain)

    def _next(self) -> str:
        """The lane whose turn it is; of a parent, the first lane that is queued in it."""
        name: str = self._ready.first()
        if name in self._queued:
            name = self._queued[name].first()
        return name

    def _run_of(self, name: str, most: int) -> list[Waiting]:
        """Take up to ``most`` entries from the head of a lane; one that was lost before leaves alone."""
        taken: list[Waiting] = []
        while len(taken) < most and (first := self._first_of(name)) is not None:
            if taken and (first.lost or taken[0].lost):
                break
            self.remove(name, first.seq)
            taken.append(first)
        return taken

    # ---- lanes

    def chain(self, name: str) -> list[str]:
        parent = self.lanes[name].gate.parent if name in self.lanes else ""
        return [name, parent] if parent in self.lanes else [name]

    def known(self, name: str) -> Lane:
        """A lane as it is. A new lane is placed behind waiting lanes, so that new lanes cannot delay them for ever."""
        return self.lanes.get(name) or Lane(name, turn=self._next_turn())

    def want_parent(self, lane: Lane) -> None:
        """Make the parent of a lane, if it was forgotten while nothing of it was in flight or queued."""
        parent = lane.gate.parent
        if parent and parent not in self.lanes:
            self.lanes[parent] = self.known(parent).with_gate(lane.gate.parent_gate or Gate())

    def fill(self, lanes: Iterable[tuple[Lane, Iterable[Waiting]]], now: int) -> None:
        """Add lanes with the entries that wait in them, and place them once all are there: none is forgotten."""
        for lane, entries in lanes:
            self.lanes[lane.name] = lane
            for one in entries:
                self.enter(lane.name, one)
        for name in sorted(self.lanes, key=lambda name: not self.lanes[name].gate.parent):
            self._place(name, now)

    def place(self, name: str, now: int) -> None:
        """Put a lane where it belongs, and then its parent; forget a lane that remembers nothing."""
        if name not in self.lanes:
            return
        lane, place = self.lanes[name], self._place(name, now)
        if place.where == LANE_QUEUED:
            self.want_parent(lane)
        elif place.where == gates.LANE_CLOSED and gates.is_idle(lane, self._head(name), now):
            self._forget(name)
        if self._is_parent(lane.gate.parent):
            self.place(lane.gate.parent, now)

    def wake(self, now: int) -> None:
        """Place scheduled lanes again when their moment has come."""
        while (at := self.next_moment()) is not None and at <= now:
            self.place(self._scheduled.first(), now)

    def next_moment(self) -> int | None:
        """When the first scheduled lane becomes ready, µs."""
        name = self._scheduled.first()
        return None if name is None else self.places[name].at

    def step_out(self, name: str, parent: str) -> None:
        """Take a lane out of its place."""
        self._ready.drop(name)
        self._scheduled.drop(name)
        if parent in self._queued:
            self._queued[parent].drop(name)
            if not self._queued[parent]:
                del self._queued[parent]

    def _place(self, name: str, now: int) -> Place:
        lane = self.lanes[name]
        parent = lane.gate.parent
        self.places[name] = place = gates.place_of(lane, self._head(name), now)
        self.step_out(name, parent)
        if place.where == LANE_READY:
            self._ready.add(name, (place.rank, lane.turn))
        elif place.where == LANE_SCHEDULED:
            self._scheduled.add(name, (place.at,))
        elif place.where == LANE_QUEUED:
            self._queued.setdefault(parent, Line()).add(name, (place.rank, lane.turn))
        return place

    def _forget(self, name: str) -> None:
        """The memory queue forgets more with it."""
        del self.lanes[name], self.places[name]

    def _is_parent(self, name: str) -> bool:
        """Whether a lane can be a parent: one that has a parent cannot, whatever is written in its gate."""
        return name in self.lanes and not self.lanes[name].gate.parent

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn

    # ---- entries

    def enter(self, name: str, waiting: Waiting) -> None:
        self._entries.setdefault(name, Line()).add(waiting.seq, waiting)

    def remove(self, name: str, seq: int) -> None:
        self._entries[name].drop(seq)
        if not self._entries[name]:
            del self._entries[name]

    def waiting(self, name: str) -> int:
        """How many entries wait in a lane."""
        return len(self._entries.get(name, ()))

    def _first_of(self, name: str) -> Waiting | None:
        line = self._entries.get(name)
        return None if line is None else line.keys[line.first()]

    def _head(self, name: str) -> Head | None:
        """What would leave first: an entry, or of a parent the first lane that is queued in it."""
        if name in self._queued and self._is_parent(name):
            return Head(self.places[self._queued[name].first()].rank, 0)
        first = self._first_of(name)
        return None if first is None else Head(first.rank, first.at, self.waiting(name), first.lost > 0)
