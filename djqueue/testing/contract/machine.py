"""Random sequences of verbs on a queue, compared with a model. Only here is hypothesis needed, and imported late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from djqueue.backends.base import BaseQueue, DebounceGuard, Entry, Guard, Lease, OnceGuard, UniqueGuard
from djqueue.backends.entries import DELAYED, FAILED, LEASED, READY
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PAUSE, Gate
from djqueue.flow.windows import Window
from djqueue.testing.contract.model import AGES_AGO, Model
from djqueue.testing.contract.steps import entry, with_counts
from djqueue.testing.patience import eventually

NEVER = 100_000.0
"""Seconds that no test lasts."""
SOON = 0.002
"""Seconds of a window whose end is waited for."""
EVER = 1e8
"""Seconds of a lease that outlasts even what a test moves the clock by."""
PAIR, TRIO = Gate(concurrency=2), Gate(max_run=3, concurrency=3)
HOURLY = Gate(max_run=9, windows=(Window(3, NEVER),))
GATES = {
    "one": Gate(ordered=True),
    "runs": Gate(ordered=True, max_run=3),
    "pair": PAIR,
    "batch": Gate(max_run=2, concurrency=3),
    "batches": Gate(max_run=4),
    "gather": Gate(max_run=4, min_batch=2, batch_timeout=1.5 * NEVER),
    "slow": Gate(windows=(Window(2, NEVER),)),
    "slower": Gate(ordered=True, max_run=2, windows=(Window(2, NEVER), Window(3, 2 * NEVER))),
    "in 1": Gate(ordered=True, parent="outer", parent_gate=PAIR),
    "in 2": Gate(ordered=True, parent="outer", parent_gate=PAIR),
    "in 3": Gate(max_run=2, parent="wide", parent_gate=TRIO),
    "in 4": Gate(ordered=True, max_run=3, parent="wide", parent_gate=TRIO),
    "in 5": Gate(ordered=True, parent="hourly", parent_gate=HOURLY),
    "in 6": Gate(max_run=2, parent="hourly", parent_gate=HOURLY),
}


def queue_machine(make_queue: Callable[[], BaseQueue]) -> type:
    """A hypothesis ``RuleBasedStateMachine`` over new, empty queues with leases; its ``TestCase`` is a test class."""
    from hypothesis import strategies as st
    from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

    kinds = st.sampled_from([{}, {}, {}, {"run_at": AGES_AGO}, {"run_at": AGES_AGO + 1}, {"delay": NEVER}])
    keys, flags = st.sampled_from("ab"), st.booleans()
    debounces = st.builds(DebounceGuard, keys, st.just(NEVER), flags, flags)
    guards = st.none() | st.builds(OnceGuard, keys, st.just(NEVER)) | st.builds(UniqueGuard, keys, flags) | debounces
    numbers = st.integers(0, 20)
    whats = st.lists(st.tuples(st.integers(-1, 1), kinds, guards), min_size=1, max_size=4)

    class QueueMachine(RuleBasedStateMachine):
        leases = Bundle("leases")

        def __init__(self) -> None:
            super().__init__()
            self.queue, self.model = make_queue(), Model()

        @rule(whats=whats)
        def put(self, whats: list[tuple[int, dict, Any]]) -> None:
            self._put([entry(priority=priority, **kind) for priority, kind, _ in whats], [what[2] for what in whats])

        @rule(key=keys, priority=st.integers(-1, 1))
        def put_delayed_until_it_is_due(self, key: str, priority: int) -> None:
            for id in self._put([entry(priority=priority)], [DebounceGuard(key, SOON, always_delay=True)]):
                eventually(lambda id=id: self.queue.find(id).state == READY)
                self.model.fall_due(id)

        @precondition(lambda self: len(self.model.ids(FAILED)) < len(self.model.known))
        @rule(number=numbers, guard=guards)
        def put_again_what_is_there(self, number: int, guard: Guard | None) -> None:
            known = self.model.known[self._one(number, READY, DELAYED, LEASED)]
            assert self.queue.put([known.entry], [guard]) == [False]

        @rule(target=leases, limit=st.integers(1, 5), begin=st.booleans())
        def claim(self, limit: int, begin: bool) -> Any:
            leases = self.queue.claim(limit, EVER, begin=begin)
            assert [lease.entry.id for lease in leases] == self.model.ids(READY)[:limit]
            self.model.claim(leases, limit, begin)
            return multiple(*leases)

        @rule(lease=leases)
        def begin(self, lease: Lease) -> None:
            assert bool(self.queue.begin([lease])) == self.model.begin(lease)

        @rule(lease=leases)
        def complete(self, lease: Lease) -> None:
            if self._agreed(lease, self.queue.complete([lease])):
                self.model.complete(lease)

        @rule(lease=leases, failures=st.integers(0, 2), delay=st.sampled_from([0, 0, NEVER]), untried=st.booleans())
        def release(self, lease: Lease, failures: int, delay: float, untried: bool) -> None:
            lease = with_counts(lease, failures=failures, delay=delay, attempts=lease.entry.attempts - untried)
            if self._agreed(lease, self.queue.release([lease])):
                self.model.give_up(lease, DELAYED if delay else READY)

        @rule(lease=leases)
        def fail(self, lease: Lease) -> None:
            if self._agreed(lease, self.queue.fail([lease])):
                self.model.give_up(lease, FAILED)

        @rule(lease=leases)
        def lose(self, lease: Lease) -> None:
            known = self.model.known.get(lease.entry.id)
            if known is not None and known.state == LEASED and self._agreed(lease, self.queue.touch([lease], 0.001)):
                eventually(lambda: self.queue.reap().count == 1)
                self.model.lose(lease)

        @precondition(lambda self: type(self.queue).reclaim is not BaseQueue.reclaim)
        @rule(sure=st.sampled_from([False, False, False, True]))
        def lose_all(self, sure: bool) -> None:
            held = [self.model.known[id].holder for id in self.model.ids(LEASED)] if sure else []
            assert not sure or self.queue.reclaim("") == len(held)
            for lease in held:
                self.model.lose(lease)

        @precondition(lambda self: self.model.ids(FAILED))
        @rule(number=numbers)
        def requeue(self, number: int) -> None:
            id = self._one(number, FAILED)
            assert self.queue.requeue([id, id]) == self.model.requeue(id)

        @precondition(lambda self: self.model.ids(FAILED))
        @rule(most=st.integers(0, 3))
        def trim(self, most: int) -> None:
            assert self.queue.failed.trim(most=most) == self.model.trim(most)

        @precondition(lambda self: self.model.known)
        @rule(number=numbers, was=st.sampled_from([b"work", b"work", b"new"]), data=st.sampled_from([b"work", b"new"]))
        def amend(self, number: int, was: bytes, data: bytes) -> None:
            id = self._one(number, READY, DELAYED, LEASED, FAILED)
            assert self.queue.amend(id, was, data) == self.model.amend(id, was, data)

        @precondition(lambda self: self.model.ids(DELAYED))
        @rule(number=numbers)
        def promote(self, number: int) -> None:
            id = self._one(number, DELAYED, LEASED)
            assert self.queue.promote([id, id]) == self.model.promote(id)

        @precondition(lambda self: self.model.known)
        @rule(number=numbers)
        def remove(self, number: int) -> None:
            id = self._one(number, READY, DELAYED, LEASED, FAILED)
            assert self.queue.remove([id]) == self.model.drop([id])

        @rule(sure=st.sampled_from([False, False, False, True]))
        def flush(self, sure: bool) -> None:
            if sure:
                self.queue.flush()
                self.model.drop(list(self.model.known))

        @invariant()
        def counts_agree(self) -> None:
            stats = self.queue.stats()
            states = (READY, DELAYED, LEASED, FAILED)
            assert [getattr(stats, state) for state in states] == [len(self.model.ids(state)) for state in states]
            assert stats.done == self.model.done

        @invariant()
        def order_bodies_and_counts_agree(self) -> None:
            for queue, state in ((self.queue, READY), (self.queue.failed, FAILED)):
                shown = [record.entry for record in queue.peek(READY, 1000)]
                assert [one.id for one in shown] == self.model.ids(state)
                told = [(one.body, (one.attempts, one.failures, one.lost)) for one in shown]
                known = [self.model.known[one.id] for one in shown]
                assert told == [(one.entry.body, one.counts) for one in known]

        def _one(self, number: int, *states: str) -> str:
            """The id of one of the entries that are in these states."""
            found = [id for state in states for id in self.model.ids(state)]
            return found[number % len(found)]

        def _put(self, entries: list[Entry], guards: list[Guard | None]) -> list[str]:
            """The ids of the entries that were accepted."""
            now = self.queue.now()
            told = self.queue.put(entries, guards)
            assert told == self.model.put(entries, guards, now)
            return [one.id for one, accepted in zip(entries, told, strict=True) if accepted]

        def _agreed(self, lease: Lease, told: list[Lease]) -> bool:
            assert bool(told) == self.model.ours(lease)
            return bool(told)

    return QueueMachine


def lane_machine(
    make_queue: Callable[[], BaseQueue], move: Callable[[BaseQueue, float], None] | None = None, most_ahead: int = 2
) -> type:
    """A machine over lanes: ordered ones, runs, numbers, batches, windows, lanes within lanes.

    ``move`` moves the clock of a queue by some seconds, if that can be done. ``most_ahead`` bounds what a claim may
    take ahead of a free worker: 0 for a queue that is throttled as a whole.
    """
    from hypothesis import strategies as st
    from hypothesis.stateful import initialize, invariant, multiple, precondition, rule

    machine: Any = queue_machine(make_queue)
    leases, numbers = machine.leases, st.integers(0, 20)
    few = st.lists(st.sampled_from(list(GATES)), min_size=1, max_size=3)
    priorities = st.lists(st.integers(-1, 1), min_size=1, max_size=6)

    class LaneMachine(machine):
        put_delayed_until_it_is_due = put_again_what_is_there = None  # they use guards, which ignore lanes

        @initialize(lanes=few, priorities=priorities)
        def fill_some_lanes(self, lanes: list[str], priorities: list[int]) -> None:
            """Put entries into few lanes, so that much happens in each."""
            self.lanes = ["", *lanes]
            self.gated = list(dict.fromkeys(name for lane in lanes for name in (lane, GATES[lane].parent) if name))
            for lane in self.lanes:
                self._fill(lane, [*priorities, 0, 0])

        @rule(number=numbers, priorities=priorities, is_late=st.booleans())
        def put(self, number: int, priorities: list[int], is_late: bool) -> None:
            delay = NEVER * (is_late and len(priorities) == 1)
            self._fill(self.lanes[number % len(self.lanes)], priorities, delay)

        def _fill(self, lane: str, priorities: list[int], delay: float = 0.0) -> None:
            gate = GATES[lane].written() if lane else ""
            entries = [entry(lane=lane, gate=gate, priority=priority, delay=delay) for priority in priorities]
            self._put(entries, [None] * len(entries))

        @rule(target=leases, limit=st.integers(1, 9), ahead=st.sampled_from([0, 0, 1, 2]), begin=st.booleans())
        def claim(self, limit: int, ahead: int, begin: bool) -> Any:
            ahead = min(ahead, limit - 1, most_ahead)
            claimed = self.queue.claim(limit, EVER, ahead=ahead, begin=begin)
            while not claimed and claimed.retry_after == 0 and self.model.next_units(full=False):
                claimed = self.queue.claim(limit, EVER, ahead=ahead, begin=begin)
            self.model.claim(claimed, limit, begin, ahead)
            return multiple(*claimed)

        @rule(lease=leases, delay=st.sampled_from([0, NEVER]), how=st.sampled_from([HOLD_ORDER, HOLD_LANE, HOLD_PAUSE]))
        def release_and_hold(self, lease: Lease, delay: float, how: str) -> None:
            lane, held = lease.entry.lane, with_counts(lease, delay=delay, hold=how)
            if self._agreed(lease, self.queue.release([held])):
                self.model.give_up(held, DELAYED if delay and not lane else READY)
                if lane:
                    self.model.hold(lane, how, delay)

        @rule(number=numbers)
        def pause(self, number: int) -> None:
            lane = self.gated[number % len(self.gated)]
            self.queue.lanes.pause(lane, "closed")
            self.model.paused_reason.add(lane)

        @rule(number=numbers)
        def open(self, number: int) -> None:
            lane = self.gated[number % len(self.gated)]
            assert self.queue.lanes.resume(lane) == self.model.open(lane)

        @precondition(lambda self: self.model.known)
        @rule(number=numbers, priority=st.integers(-1, 1))
        def reprioritise(self, number: int, priority: int) -> None:
            id = self._one(number, READY, DELAYED, LEASED, FAILED)
            assert self.queue.reprioritise([id], priority) == self.model.reprioritise(id, priority)

        @precondition(lambda self: move is not None)
        @rule(times=st.integers(1, 2))
        def wait(self, times: int) -> None:
            move(self.queue, times * NEVER)
            self.model.wait(times * NEVER)

        @invariant()
        def order_bodies_and_counts_agree(self) -> None:
            shown = {record.entry.id: record.entry for record in self.queue.peek(READY, 1000)}
            assert shown.keys() == set(self.model.ids(READY))
            for id, one in shown.items():
                assert (one.attempts, one.failures, one.lost) == self.model.known[id].counts

        @invariant()
        def records_agree(self) -> None:
            records = {record.name: record for record in self.queue.lanes.page(100)}
            for lane in self.model.gates:
                known = (len(self.model.waiting(lane)), self.model.out(lane), lane in self.model.paused_reason)
                record = records.get(lane)
                assert known == (
                    (record.waiting, record.in_flight, bool(record.paused_reason)) if record else (0, 0, False)
                )
                within = [one for one, gate in self.model.gates.items() if lane in (one, gate.parent)]
                assert record is None or record.state != "ready" or any(map(self.model.run, within))

    return LaneMachine


def run_machine(machine: type, examples: int = 20, steps: int = 30) -> None:
    """Try that many random sequences of a machine's verbs; the shortest that goes wrong is raised."""
    from hypothesis import HealthCheck, settings
    from hypothesis.stateful import run_state_machine_as_test

    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=how)
