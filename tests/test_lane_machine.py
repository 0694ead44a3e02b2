"""Random sequences of verbs on the lanes of a queue in memory, compared with a model that looks at everything."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from djqueue.backends.base import Lease
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.flow.gates import HOLD_LANE, HOLD_PARK, Gate
from djqueue.testing.contract.steps import entry, with_counts

PAIR, TRIO = Gate(most=2), Gate(run=3, most=3)
GATES = {
    "": None,
    "one": Gate(ordered=True),
    "runs": Gate(ordered=True, run=3),
    "pair": PAIR,
    "batch": Gate(run=2, most=3),
    "gather": Gate(run=4, least=2, wait=15.0),
    "in 1": Gate(ordered=True, within="outer", outer=PAIR),
    "in 2": Gate(ordered=True, within="outer", outer=PAIR),
    "in 3": Gate(run=2, within="wide", outer=TRIO),
    "in 4": Gate(ordered=True, run=3, within="wide", outer=TRIO),
}
OUTERS = {"outer": PAIR, "wide": TRIO}
TICK = 10.0


@dataclass
class Known:
    """What the model knows of one entry."""

    id: str
    lane: str
    priority: int
    place: tuple[float, int]
    due: float = 0.0
    """When it is due, if it is delayed."""
    lost: int = 0
    out: bool = False

    def turn(self) -> tuple:
        return (-self.priority, *self.place)


@dataclass
class Model:
    """A queue of which every question is answered by a look at all entries."""

    now: float = 1_000_000.0
    known: dict[str, Known] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    arrivals: int = 0

    def put(self, id: str, lane: str, priority: int, delay: float) -> None:
        self.arrivals += 1
        due = self.now + delay
        self.known[id] = Known(id, lane, priority, (due, self.arrivals), due if delay else 0.0)

    def waiting(self, lane: str) -> list[Known]:
        mine = (one for one in self.known.values() if one.lane == lane and not one.out and one.due <= self.now)
        return sorted(mine, key=Known.turn)

    def out(self, lane: str) -> int:
        inside = {name for name, gate in GATES.items() if gate and gate.within == lane} | {lane}
        return sum(one.out and one.lane in inside for one in self.known.values())

    def run(self, lane: str) -> list[Known]:
        """What may leave a lane now, together."""
        gate, heads = GATES[lane], self.waiting(lane)
        if gate is None or not heads:
            return heads[:1]
        gathered = len(heads) >= gate.least or heads[0].place[0] + gate.wait <= self.now
        number = min(self._room(lane, gate), self._room(gate.within, gate.outer)) if gathered else 0
        alone = next((place for place, one in enumerate(heads) if one.lost), len(heads))
        return heads[: min(number, max(1, alone))]

    def _room(self, lane: str, gate: Gate | None) -> float:
        if gate is None:
            return float("inf")
        if lane in self.parked or self.held.get(lane, 0.0) > self.now or (gate.ordered and self.out(lane)):
            return 0
        return min(gate.run if lane not in OUTERS else 9, gate.most - self.out(lane) if gate.most else 9)


class LaneMachine(RuleBasedStateMachine):
    """Ordered lanes, runs, numbers, batches, lanes within lanes."""

    leases = Bundle("leases")
    lanes = st.sampled_from(list(GATES))
    gated = st.sampled_from([name for name in GATES if name] + list(OUTERS))

    def __init__(self) -> None:
        super().__init__()
        self.model, self.queue = Model(), MemoryQueue("memory")
        self.queue.clock = lambda: self.model.now
        self.held: dict[str, Lease] = {}

    @rule(lane=lanes, priorities=st.lists(st.integers(-1, 1), min_size=1, max_size=3), late=st.booleans())
    def put(self, lane: str, priorities: list[int], late: bool) -> None:
        delay, gate = TICK * (late and len(priorities) == 1), GATES[lane]
        text = gate.written() if gate else ""
        entries = [entry(lane=lane, gate=text, priority=priority, delay=delay) for priority in priorities]
        assert self.queue.put(entries) == [True] * len(entries)
        for one in entries:
            self.model.put(one.id, lane, one.priority, delay)

    @rule(target=leases, limit=st.integers(1, 4))
    def claim(self, limit: int):
        leases = self.queue.claim(limit, 1e9)
        units = self._units(leases)
        for unit in units:
            best = min(self._ranks())
            assert -unit[0].entry.priority == best
            expected = self.model.run(unit[0].entry.lane)
            assert [lease.entry.id for lease in unit] == [one.id for one in expected]
            for one in expected:
                one.out = True
        assert len(units) == limit or (len(units) < limit and not self._ranks())
        self.held |= {lease.entry.id: lease for lease in leases}
        return multiple(*leases)

    def _units(self, leases: list[Lease]) -> list[list[Lease]]:
        units: list[list[Lease]] = []
        for lease in leases:
            if units and lease.run and units[-1][0].run == lease.run:
                units[-1].append(lease)
            else:
                units.append([lease])
        assert len({unit[0].run for unit in units} - {""}) == sum(unit[0].run != "" for unit in units)
        return units

    def _ranks(self) -> list[int]:
        return [-run[0].priority for lane in GATES if (run := self.model.run(lane))]

    @rule(lease=leases, bury=st.booleans())
    def settle(self, lease: Lease, bury: bool) -> None:
        if self._agreed(lease, (self.queue.bury if bury else self.queue.complete)([lease])):
            del self.model.known[lease.entry.id]

    @rule(lease=leases, delay=st.sampled_from([0, TICK]), hold=st.sampled_from(["", HOLD_LANE, HOLD_PARK]))
    def release(self, lease: Lease, delay: float, hold: str) -> None:
        if not self._agreed(lease, self.queue.release([with_counts(lease, delay=delay, hold=hold)])):
            return
        known = self.model.known[lease.entry.id]
        known.out = False
        if not (hold and known.lane):
            known.due = self.model.now + delay
        elif hold == HOLD_PARK:
            self.model.parked.add(known.lane)
        else:
            self.model.held[known.lane] = max(self.model.held.get(known.lane, 0.0), self.model.now + delay)

    @rule(lease=leases)
    def lose(self, lease: Lease) -> None:
        if self.held.get(lease.entry.id) is lease and self.queue.touch([lease], 0):
            assert self.queue.reap().count == 1
            known = self.model.known[lease.entry.id]
            known.out, known.lost = False, known.lost + lease.begun  # behind the first of a unit it had not begun
            if known.lane:
                del self.held[lease.entry.id]

    @rule(ticks=st.integers(1, 2))
    def wait(self, ticks: int) -> None:
        self.model.now += ticks * TICK

    @rule(lane=gated)
    def park(self, lane: str) -> None:
        self.queue.park_lane(lane, "closed")
        self.model.parked.add(lane)

    @rule(lane=gated)
    def open(self, lane: str) -> None:
        held = self.model.held.get(lane, 0.0) > self.model.now
        assert self.queue.open_lane(lane) == (lane in self.model.parked or held)
        self.model.parked.discard(lane)
        self.model.held.pop(lane, None)

    @precondition(lambda self: self.model.known)
    @rule(number=st.integers(0, 30), priority=st.none() | st.integers(-1, 1))
    def remove_or_reprioritise(self, number: int, priority: int | None) -> None:
        known = list(self.model.known.values())[number % len(self.model.known)]
        told = self.queue.remove([known.id]) if priority is None else self.queue.reprioritise([known.id], priority)
        assert told == (not known.out)
        if told and priority is None:
            del self.model.known[known.id]
        elif told:
            known.priority = priority

    def _agreed(self, lease: Lease, told: list[Lease]) -> bool:
        ours = self.held.get(lease.entry.id) is lease
        assert bool(told) == ours
        self.held.pop(lease.entry.id, None) if ours else None
        return ours

    @invariant()
    def counts_agree(self) -> None:
        stats, known = self.queue.stats(), self.model.known.values()
        late = sum(not one.out and one.due > self.model.now for one in known)
        out = sum(one.out for one in known)
        assert (stats.ready, stats.delayed, stats.leased) == (len(known) - late - out, late, out)

    @invariant()
    def records_agree(self) -> None:
        records = {record.name: record for record in self.queue.lanes(100)}
        for lane in [*GATES, *OUTERS]:
            waiting, out = len(self.model.waiting(lane)), self.model.out(lane)
            record = records.get(lane)
            if lane and record is not None:
                assert (record.waiting, record.out, bool(record.parked)) == (waiting, out, lane in self.model.parked)
            elif lane:
                assert (waiting, out) == (0, 0)
                assert lane not in self.model.parked

    @invariant()
    def what_says_that_it_is_open_gives_something(self) -> None:
        names = {record.name for record in self.queue.lanes(100) if record.state == "open"}
        for name in names - set(OUTERS):
            assert self.model.run(name)
        for name in names & set(OUTERS):
            assert any(self.model.run(lane) for lane, gate in GATES.items() if gate and gate.within == name)


@pytest.mark.slow
def test_random_verbs_on_lanes_do_what_they_do_to_the_model():
    how = settings(
        max_examples=150, stateful_step_count=40, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(LaneMachine, settings=how)
