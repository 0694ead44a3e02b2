"""A queue in its simplest form, with which a backend is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from djqueue.backends.base import Entry, Guard, Lease
from djqueue.backends.entries import DELAYED, FAILED, LEASED, READY
from djqueue.backends.guards import DedupMark, decide
from djqueue.flow.gates import HOLD_LANE, HOLD_PAUSE, Gate

AGES_AGO = 1_000_000_000.0
"""A moment in the past: entries that fell due then go before those that fall due on arrival."""
ON_ARRIVAL = 2 * AGES_AGO
"""The place of all entries that fall due, or fail, while the test runs; their numbers decide their order."""


@dataclass
class Known:
    """What the model knows of one entry."""

    entry: Entry
    place: tuple[float, int]
    state: str
    counts: tuple[int, int, int] = (0, 0, 0)
    """Attempts, failures, lost."""
    holder: Lease | None = None
    begun: bool = False
    """Whether it is lost if its lease runs out."""
    due: float = 0.0
    """When it is due, if it is delayed."""

    def turn(self) -> tuple:
        return (0 if self.state == FAILED else -self.entry.priority, *self.place)


def units_of(leases: Sequence[Lease]) -> list[list[Lease]]:
    """The leases of one claim, grouped by run."""
    units: dict[object, list[Lease]] = defaultdict(list)
    for lease in leases:
        units[lease.run or lease.entry.id].append(lease)
    return list(units.values())


class Model:
    """A queue as a plain dictionary, of which every question is answered by a look at all entries.

    Delays end only by :meth:`fall_due` and :meth:`wait`, leases only by :meth:`lose`, marks never.
    """

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.marks: dict[str, DedupMark] = {}
        self.gates: dict[str, Gate] = {}
        """The gate of each lane; every entry of a lane has the same one."""
        self.paused_reason: set[str] = set()
        self.held: dict[str, float] = {}
        """For each lane, until when it does not open by itself."""
        self.left: dict[str, list[float]] = defaultdict(list)
        """For each lane, when entries left it; its windows count them."""
        self.now = 0.0
        """Seconds that were waited."""
        self.arrivals = 0
        self.done = 0

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None], now: float) -> list[bool]:
        return [self._put(one, guard, now) for one, guard in zip(entries, guards, strict=True)]

    def _put(self, one: Entry, guard: Guard | None, now: float) -> bool:
        if one.id in self.known:
            return False
        if guard is not None:
            mark = self.marks.get(guard.key)
            decision = decide(guard, one, mark, mark and self.state(mark.id), now)
            self.marks[guard.key] = decision.mark or mark
            if not decision.accept:
                return False
            one = replace(one, run_at=0.0, delay=decision.delay) if decision.delay else one
        if one.lane:
            self.gates[one.lane] = gate = Gate.read(one.gate)
            self.gates |= {gate.parent: gate.parent_gate} if gate.parent_gate else {}
        due = self.now + one.delay
        place = self._last(one.run_at or ON_ARRIVAL + due)
        self.known[one.id] = Known(one, place, DELAYED if one.delay else READY, due=due)
        return True

    def _last(self, moment: float | None = None) -> tuple[float, int]:
        """The place behind all others of that moment."""
        self.arrivals += 1
        return ON_ARRIVAL + self.now if moment is None else moment, self.arrivals

    def state(self, id: str) -> str | None:
        """The state of an entry in this queue; None if it is gone or failed."""
        known = self.known.get(id)
        return None if known is None or known.state == FAILED else known.state

    def fall_due(self, id: str) -> None:
        self.known[id].state, self.known[id].place = READY, self._last()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for known in self.known.values():
            if known.state == DELAYED and known.due <= self.now:
                known.state = READY

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        same = self.state(id) in (READY, DELAYED) and self.known[id].entry.body == was
        if same:
            self.known[id].entry = replace(self.known[id].entry, body=data)
        return same

    def requeue(self, id: str) -> bool:
        known = self.known.get(id)
        failed = known is not None and known.state == FAILED
        if failed:
            known.state, known.counts, known.place = READY, (0, 0, 0), self._last()
        return failed

    def trim(self, most: int) -> int:
        failed = self.ids(FAILED)
        surplus = failed[: max(0, len(failed) - most)]
        for id in surplus:
            del self.known[id]
        return len(surplus)

    def ids(self, state: str) -> list[str]:
        found = sorted((known for known in self.known.values() if known.state == state), key=Known.turn)
        return [known.entry.id for known in found]

    def claim(self, leases: Sequence[Lease], limit: int, begin: bool = True, ahead: int = 0) -> None:
        """Check that a claim took only entries that may leave, in their order, and as many as may."""
        units = units_of(leases)
        assert len(units) <= limit
        for number, unit in enumerate(units):
            ids = [lease.entry.id for lease in unit]
            is_full = number >= limit - ahead
            beside = [[known.entry.id for known in self.run("")]] if is_full and self._throttled_may_leave() else []
            assert ids in [*self.next_units(is_full), *beside]
            for lane in self._chain(unit[0].entry.lane):
                self.left[lane] += [self.now] * len(unit)
            for lease in unit:
                self._lend(lease, begin and lease is unit[0])
        is_full = len(units) >= limit - ahead
        assert len(units) == limit or not self.next_units(full=is_full) or is_full and self._throttled_may_leave()

    def _lend(self, lease: Lease, begin: bool) -> None:
        known = self.known[lease.entry.id]
        attempts, failures, lost = known.counts
        known.state, known.counts, known.holder = LEASED, (attempts + 1, failures, lost), lease
        known.begun = begin and lost == 0
        assert lease.begun == known.begun

    def ours(self, lease: Lease) -> bool:
        known = self.known.get(lease.entry.id)
        return known is not None and known.holder is not None and known.holder.token == lease.token

    def begin(self, lease: Lease) -> bool:
        is_held = self.ours(lease) and self.known[lease.entry.id].state == LEASED
        if is_held:
            self.known[lease.entry.id].begun = True
        return is_held

    def complete(self, lease: Lease) -> None:
        del self.known[lease.entry.id]
        self.done += 1

    def give_up(self, lease: Lease, state: str) -> None:
        says, known = lease.entry, self.known[lease.entry.id]
        known.state, known.holder = state, None
        known.counts = (says.attempts, says.failures, says.lost)
        known.place, known.due = self._last() if state == FAILED else known.place, self.now + says.delay

    def hold(self, lane: str, how: str, delay: float) -> None:
        """Hold a lane back with an entry that returned."""
        gate = self.gates[lane]
        if how == HOLD_PAUSE:
            self.paused_reason.add(lane)
            return
        if how == HOLD_LANE and gate.parent_gate and gate.parent_gate.windows and not gate.windows:
            lane = gate.parent
        self.held[lane] = max(self.is_held(lane), self.now + delay)

    def is_held(self, lane: str) -> float:
        """Until when it is held back; 0 if it is not."""
        until = self.held.get(lane, 0.0)
        return until if until > self.now else 0.0

    def open(self, lane: str) -> bool:
        was_shut = lane in self.paused_reason or self.is_held(lane) > 0
        self.paused_reason.discard(lane)
        self.held.pop(lane, None)
        return was_shut

    def lose(self, lease: Lease) -> None:
        """End a lease. In a lane its holder loses it at once, as others go on; elsewhere when it is claimed again."""
        known = self.known[lease.entry.id]
        attempts, failures, lost = known.counts
        known.state, known.counts = READY, (attempts, failures, lost + known.begun)
        known.holder = None if known.entry.lane else known.holder

    def reprioritise(self, id: str, priority: int) -> bool:
        waits = self.state(id) in (READY, DELAYED)
        if waits:
            self.known[id].entry = replace(self.known[id].entry, priority=priority)
        return waits

    def promote(self, id: str) -> bool:
        delayed = self.state(id) == DELAYED
        if delayed:
            known = self.known[id]
            known.state = READY
            known.place = self._last() if known.place[0] > ON_ARRIVAL + self.now else known.place
        return delayed

    def drop(self, ids: list[str]) -> int:
        waiting = [id for id in ids if self.state(id) in (READY, DELAYED)]
        for id in waiting:
            del self.known[id]
        return len(waiting)

    # ---- lanes

    def waiting(self, lane: str) -> list[Known]:
        """The due entries of a lane, or of no lane, in their order."""
        mine = (one for one in self.known.values() if one.entry.lane == lane and one.state == READY)
        return sorted(mine, key=Known.turn)

    def out(self, lane: str) -> int:
        """How many entries have left a lane, or lanes within it, and are not settled."""
        held = (one.entry.lane for one in self.known.values() if one.state == LEASED and one.entry.lane)
        return sum(lane in self._chain(one) for one in held)

    def next_units(self, full: bool = False) -> list[list[str]]:
        """The units that may leave next. If ``full``, no throttled ones."""
        lanes = {known.entry.lane for known in self.known.values()}
        runs = [run for lane in lanes if not (full and self._is_throttled(lane)) and (run := self.run(lane))]
        best = max((run[0].entry.priority for run in runs), default=0)
        return [[one.entry.id for one in run] for run in runs if run[0].entry.priority == best]

    def run(self, lane: str) -> list[Known]:
        """The entries that may leave a lane now, together."""
        heads = self.waiting(lane)
        if not lane or not heads:
            return heads[:1]
        gate = self.gates[lane]
        gathers = len(heads) < gate.min_batch and heads[0].place[0] + gate.batch_timeout > ON_ARRIVAL + self.now
        number = 0 if gathers else min(self._room(one) for one in self._chain(lane))
        alone = next((place for place, one in enumerate(heads) if one.counts[2]), len(heads))
        return heads[: min(number, max(1, alone))]

    def _room(self, lane: str) -> int:
        """How many entries the lane's own gate lets leave together."""
        gate, out = self.gates[lane], self.out(lane)
        if lane in self.paused_reason or self.is_held(lane) or (gate.ordered and out):
            return 0
        counts = [sum(at > self.now - window.seconds for at in self.left[lane]) for window in gate.windows]
        free = (window.limit - count for window, count in zip(gate.windows, counts, strict=True))
        return int(max(0, min(gate.max_run, gate.concurrency - out if gate.concurrency else inf, *free)))

    def _chain(self, lane: str) -> list[str]:
        """A lane, and the one that it is within; empty for no lane."""
        return [name for name in (lane, self.gates[lane].parent) if name] if lane else []

    def _throttled_may_leave(self) -> bool:
        """Whether a throttled lane may have its turn: for no free worker a claim takes nothing of lanes behind it."""
        return any(self._is_throttled(lane) and self.run(lane) for lane in self.gates)

    def _is_throttled(self, lane: str) -> bool:
        return any(self.gates[one].windows for one in self._chain(lane))
