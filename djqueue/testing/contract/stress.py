"""Many threads at one queue, with a ledger that knows afterwards whether a promise was broken."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.backends.entries import untried
from djqueue.flow.gates import HOLD_LANE, HOLD_PAUSE, Gate
from djqueue.testing.contract.lane_steps import nothing_known
from djqueue.testing.contract.machine import lane_machine, queue_machine, run_machine
from djqueue.testing.contract.model import units_of
from djqueue.testing.contract.steps import Contract, entry, with_counts
from djqueue.testing.patience import PATIENCE, together

PAUSE = 0.002
"""Seconds between two looks of a thread that found nothing."""
TOLERANCE = 0.002
"""Seconds by which two moments of a store's clock may be rounded apart."""


@dataclass(slots=True)
class Hold:
    """One claim of one entry, as its holder saw it."""

    lease: Lease
    until: float
    seen: float
    """A moment of the store's clock just after the claim: it cannot have happened later."""
    given_up: bool = False
    """The holder settled it, or began to: from here on another claimer may have the entry."""
    done: bool = False
    """The queue accepted its completion."""

    def overlaps(self, other: Hold) -> bool:
        """Whether both were out at some time, unless one of them was given up before.

        ``lease.claimed`` may be earlier than the claim: a statement that waits for a lock has the time of its start.
        """
        return min(self.until, other.until) > max(self.seen, other.seen)


@dataclass
class Ledger:
    """What producers and claimers saw; :meth:`check` finds broken promises."""

    holds: dict[str, list[Hold]] = field(default_factory=lambda: defaultdict(list))
    accepted: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    lanes: dict[str, list[Hold]] = field(default_factory=lambda: defaultdict(list))
    """The entries that left each lane, in the order of the claims."""
    finished: dict[str, list[Hold]] = field(default_factory=lambda: defaultdict(list))
    """The entries that were to be completed in each lane, in that order."""
    wrong: list[str] = field(default_factory=list)
    """Claims that a lane's gate forbids."""
    reaped: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def claimed(self, leases: Sequence[Lease], now: float) -> list[Hold]:
        holds = [Hold(lease, lease.until, now) for lease in leases]
        with self.lock:
            for hold in holds:
                self.holds[hold.lease.entry.id].append(hold)
                self._leaves_its_lane(hold)
        return holds

    def _leaves_its_lane(self, hold: Hold) -> None:
        entry = hold.lease.entry
        gate = Gate.read(entry.gate)
        for lane, its in ((entry.lane, gate), (gate.parent, gate.parent_gate)):
            if lane and its:
                others = [one for one in self.lanes[lane] if not one.given_up and one.overlaps(hold)]
                if its.ordered and any(one.lease.run != hold.lease.run for one in others):
                    self.wrong.append(f"{lane}: two runs at once")
                if its.concurrency and len(others) >= its.concurrency:
                    self.wrong.append(f"{lane}: {len(others) + 1} at once")
                self.lanes[lane].append(hold)

    def complete(self, queue: BaseQueue, hold: Hold) -> None:
        """Complete an entry. It is noted first: once it is completed others may complete the next of its lane."""
        with self.lock:
            hold.given_up = True
            self.finished[hold.lease.entry.lane].append(hold)
        hold.done = bool(queue.complete([hold.lease]))
        if hold.done:
            with self.lock:
                self.completed.append(hold.lease.entry.id)

    def release(self, queue: BaseQueue, hold: Hold, **counts) -> None:
        hold.given_up = True
        queue.release([with_counts(hold.lease, **counts)])

    def touch(self, queue: BaseQueue, hold: Hold, lease: float) -> None:
        for held in queue.touch([hold.lease], lease):
            hold.until = held.until

    def check(self) -> None:
        """Nothing lost, nothing completed twice, no entry claimed again before its lease ends, none run after its end.

        In lanes: no more entries are out than their gate allows, and ordered entries are completed in order.
        """
        assert self.wrong == []
        for lane, finished in self.finished.items():
            arrived = [self.accepted.index(hold.lease.entry.id) for hold in finished if hold.done]
            if lane and Gate.read(finished[0].lease.entry.gate).ordered:
                assert arrived == sorted(arrived), f"{lane} was overtaken"
        assert len(set(self.accepted)) == len(self.accepted), "an id was accepted twice"
        assert sorted(self.completed) == sorted(self.accepted), "an entry was lost, or completed twice"
        for id, holds in self.holds.items():
            holds.sort(key=lambda hold: hold.lease.entry.attempts)
            assert [hold.done for hold in holds] == [False] * (len(holds) - 1) + [True], (
                f"{id} ran after its completion"
            )
            for earlier, later in zip(holds, holds[1:], strict=False):
                free = -inf if earlier.given_up else earlier.until
                assert later.seen >= free - TOLERANCE, f"{id} was taken from a live holder"


@dataclass
class Stress:
    """How hard to try. Claimers complete, release, extend, abandon, and complete too late, by chance."""

    queue: BaseQueue
    entries: int = 240
    producers: int = 2
    claimers: int = 8
    reapers: int = 3
    lease: float = 0.15
    last_attempt: int = 4
    """From this start on an entry is simply completed, so that the run comes to its end."""
    seed: int = 0
    timeout: float = 3 * PATIENCE
    ledger: Ledger = field(default_factory=Ledger)

    def run(self) -> Ledger:
        """Put and run all entries, then check the ledger; returns it. AssertionError for every broken promise."""
        kinds = [(self._produce, self.producers), (self._claim, self.claimers), (self._reap, self.reapers)]
        chances = [random.Random(f"{self.seed} {number}") for number in range(sum(count for _, count in kinds))]
        works = [work for work, count in kinds for _ in range(count)]
        self._end = time.monotonic() + self.timeout
        threads = [lambda work=work, chance=chance: work(chance) for work, chance in zip(works, chances, strict=True)]
        together(*threads, last=self.queue.close)
        self.ledger.check()
        return self.ledger

    def _produce(self, chance: random.Random) -> None:
        left = self.entries // self.producers
        repeats = "idempotent" in self.queue.features
        while left:
            batch = [entry(priority=chance.choice((0, 0, 1))) for _ in range(min(left, chance.randint(1, 10)))]
            self._put(batch * 2 if repeats and chance.random() < 0.3 else batch)
            left -= len(batch)

    def _put(self, batch: list) -> None:
        told = self.queue.put(batch)
        with self.ledger.lock:
            self.ledger.accepted += [one.id for one, accepted in zip(batch, told, strict=True) if accepted]

    def _claim(self, chance: random.Random) -> None:
        late: list[Hold] = []
        while self._going():
            leases = self.queue.claim(chance.randint(1, 4), self.lease)
            now = self.queue.now()
            for hold in self.ledger.claimed(leases, now):
                self._settle(hold, chance.random(), late)
            for hold in [hold for hold in late if hold.until < now]:
                late.remove(hold)
                self.ledger.complete(self.queue, hold)
            if not leases:
                time.sleep(PAUSE)

    def _settle(self, hold: Hold, chance: float, late: list[Hold]) -> None:
        """End a hold in one of several ways, each by its share."""
        ways: list[tuple[float, Callable[[], object]]] = [
            (0.55, lambda: self.ledger.complete(self.queue, hold)),
            (0.65, lambda: None),  # abandoned: its lease runs out
            (0.75, lambda: late.append(hold)),
            (0.83, lambda: self.ledger.release(self.queue, hold, failures=hold.lease.entry.failures + 1)),
            (0.90, lambda: self.ledger.release(self.queue, hold, delay=0.02)),
            (0.95, lambda: self.ledger.touch(self.queue, hold, self.lease)),  # extended, and then abandoned
            (1.00, lambda: (self.ledger.touch(self.queue, hold, 60), self.ledger.complete(self.queue, hold))),
        ]
        last = hold.lease.entry.attempts >= self.last_attempt
        next(way for share, way in ways if last or chance < share)()

    def _reap(self, chance: random.Random) -> None:
        while self._going():
            count = self.queue.reap(limit=20).count
            with self.ledger.lock:
                self.ledger.reaped += count
            time.sleep(5 * PAUSE * chance.random())

    def _going(self) -> bool:
        """Whether entries are left to do; AssertionError when the time is over."""
        assert time.monotonic() < self._end, f"{self.entries - len(self.ledger.completed)} entries are not done in time"
        return len(self.ledger.completed) < self.entries


LANES = {
    "ordered": Gate(ordered=True),
    "runs": Gate(ordered=True, max_run=4),
    "three": Gate(concurrency=3),
    "shared": Gate(ordered=True, max_run=2, parent="outer", parent_gate=Gate(concurrency=6, max_run=2)),
    "": None,
}


@dataclass
class LaneStress(Stress):
    """:class:`Stress` over lanes. Claimers complete a run in order, until one entry is abandoned, fails or is lost."""

    lease: float = 0.4
    producers: int = 1
    kinds: Sequence[str] = tuple(LANES)
    lanes: int = 6
    """How many lanes of each kind."""

    def _produce(self, chance: random.Random) -> None:
        for _ in range(self.entries):
            kind, number = chance.choice(self.kinds), chance.randint(1, self.lanes)
            gate = LANES[kind]
            self._put([entry(lane=f"{kind} {number}", gate=gate.written()) if gate else entry()])

    def _claim(self, chance: random.Random) -> None:
        while self._going():
            leases = self.queue.claim(chance.randint(1, 6), self.lease)
            holds = {hold.lease.entry.id: hold for hold in self.ledger.claimed(leases, self.queue.now())}
            for unit in units_of(leases):
                self._settle_unit([holds[lease.entry.id] for lease in unit], chance)
            if not leases:
                self._open_what_is_parked()
                time.sleep(PAUSE)

    def _settle_unit(self, unit: list[Hold], chance: random.Random) -> None:
        for place, hold in enumerate(unit):
            fate = chance.random()
            if fate < 0.02:
                return  # its lease and the leases of the rest run out
            if fate < 0.08:
                return self._fail(unit[place:], HOLD_LANE if fate < 0.06 else HOLD_PAUSE)
            self.ledger.complete(self.queue, hold)
            if not hold.done:
                return  # its lease ran out: the rest of the run is another's

    def _fail(self, unit: list[Hold], how: str) -> None:
        """Release a failed entry so that its lane waits; the rest of the run goes back untried."""
        for hold in unit:
            hold.given_up = True
        failed, *rest = (hold.lease for hold in unit)
        self.queue.release([with_counts(failed, hold=how, delay=0.005), *map(untried, rest)])

    def _open_what_is_parked(self) -> None:
        for record in self.queue.lanes.page(100):
            if record.paused_reason:
                self.queue.lanes.resume(record.name)


# ---- The promises of leases under many threads, and against a model


class StressContract(Contract):
    """The slower suites: threads that race, and random sequences of verbs compared with a model."""

    examples = 15
    """How many random sequences are tried."""
    most_ahead = 2
    """Entries that a claim may take ahead of a free worker; 0 for a queue that is throttled as a whole."""

    def test_to6_to8_nothing_is_lost_completed_twice_or_taken_from_a_live_holder(self):
        queue = self.queue("lease", "fence", "count")
        ledger = Stress(queue).run()
        assert ledger.reaped > 0
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)
        assert stats.done == len(ledger.accepted)

    def test_no_lane_is_overtaken_and_nothing_is_lost_whatever_happens_to_workers(self):
        queue = self.queue("lease", "fence", "count", "lanes")
        ledger = LaneStress(queue).run()
        assert ledger.reaped > 0
        assert (len(queue), queue.stats().leased, len(queue.failed)) == (0, 0, 0)
        assert nothing_known(queue)

    def test_random_verbs_do_what_they_do_to_the_model(self):
        self.queue("lease", "inspect", "idempotent", "priority", "order", "count", "fence")
        run_machine(queue_machine(self.queue), examples=self.examples)

    def test_random_verbs_on_lanes_do_what_they_do_to_the_model(self):
        self.queue("lease", "inspect", "lanes", "priority", "order", "count", "fence")
        run_machine(lane_machine(self.queue, most_ahead=self.most_ahead), examples=self.examples)
