"""The turn of a pump against the table of states: calls fail, answers are lost, leases end, clocks jump, pumps die.

A machine of hypothesis does what workers, other consumers and the store do, in any order. However it goes, no message
is lost or completed twice, none runs beside itself in one process, and nothing stays in flight.
"""

import logging
import threading

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from djqueue.backends.base import Entry
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing.contract.machine import run_machine
from tests.support.backends import FULL
from tests.support.clock import Clock
from tests.support.pump import PumpHarness, set_clock

LEASE = 10.0
VERBS = ("claim", "exchange", "complete", "release", "fail", "touch", "begin")


class FaultyQueue(MemoryQueue):
    """Of the calls of a pump some raise: before the store has done what they ask for, or after that."""

    def __init__(self, name):
        super().__init__(name)
        self.faults, self.completed = [], []


def _faulty(verb):
    def call(self, *args, **how):
        fault = self.faults.pop() if self.faults else ""
        if fault == "refused":
            raise ConnectionError("refused")
        rest, self.faults = self.faults, []  # none for the calls within
        answer = getattr(MemoryQueue, verb)(self, *args, **how)
        self.faults = rest
        if verb == "complete":
            self.completed += [lease.entry.id for lease in answer]
        if fault == "lost":
            raise ConnectionError("the answer is lost")
        return answer

    return call


for name in VERBS:
    setattr(FaultyQueue, name, _faulty(name))


class PumpMachine(RuleBasedStateMachine):
    patch = None  # given by the test

    def __init__(self):
        super().__init__()
        self.clock, self.ahead = Clock(), 0.0
        self.queue = FaultyQueue("model")
        self.queue.clock = lambda: self.clock.now + self.ahead
        set_clock(self.patch, self.clock)
        self.harness = PumpHarness(self.queue, threads=2, lease=LEASE)
        self.harness.pump.claiming.prefetch.measure = lambda now: 2
        self.harness.announcer._subscribers.append(self.note_settled)
        self.accepted, self.announced, self.running, self.left_behind = 0, [], [], []
        self.put(6)

    def note_settled(self, event):
        held = {message for message in event.messages if not message.lost}
        self.announced += [one.lease.entry.id for one in held if one.final.verdict.outcome is Outcome.DONE]

    # ---- producers, other consumers, the store

    @rule(count=st.integers(2, 6))
    def put(self, count):
        for _ in range(count):
            self.accepted += 1
            assert self.queue.put([Entry(b"", f"message {self.accepted}")]) == [True]

    @rule(seconds=st.sampled_from([0.1, 1.5, 4.0, 12.0]))
    def time_passes(self, seconds):
        self.clock.now += seconds

    @rule(seconds=st.sampled_from([-20.0, -3.0, 3.0, 20.0]))
    def the_clock_of_the_store_is_set(self, seconds):
        self.ahead += seconds

    @rule()
    def leases_are_reaped(self):
        self.queue.reap()

    @precondition(lambda self: self.queue.stats().ready > 2)
    @rule()
    def another_consumer_takes_and_completes_one(self):
        self.queue.complete(self.queue.claim(1, LEASE, "another"))

    # ---- the pump

    @rule(faults=st.lists(st.sampled_from(["", "refused", "lost", "lost"]), min_size=1, max_size=2))
    def turn(self, faults):
        self.queue.faults = faults
        self.harness.turn()
        self.queue.faults = []

    @rule()
    def turn_without_a_fault(self):
        self.turn([])

    @precondition(lambda self: not self.harness.pump.mail.is_stopping and len(self.queue.completed) > 4)
    @rule()
    def it_dies_and_the_main_thread_takes_its_place(self):
        self.harness.pump.mail.is_stopping = True

    # ---- workers

    @rule()
    def a_worker_takes_one(self):
        if not self.harness.pool.waiting or len(self.running) == 2:
            return
        [message] = self.harness.pool.next()
        message.worker, message.began = threading.current_thread(), self.clock.now
        if message.lapsed(self.clock.now):
            self.harness.end(message, Verdict(Outcome.RETURNED, "its lease ran out"))
            return
        id = message.lease.entry.id
        assert id not in [one.lease.entry.id for one in self.running], "it runs beside itself"
        self.running.append(message)

    @rule()
    def all_that_run_are_done_and_the_pump_turns(self):
        while self.running:
            self.a_worker_ends_one(0, Outcome.DONE)
        self.turn(["lost"] if len(self.queue.completed) % 3 else [])
        self.a_worker_takes_one()
        self.a_worker_takes_one()

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 1), outcome=st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.RETRY]))
    def a_worker_ends_one(self, place, outcome):
        self.harness.end(self.running.pop(place % len(self.running)), Verdict(outcome, "as it came"))

    @precondition(lambda self: self.running)
    @rule()
    def one_is_given_up(self):
        message = self.running.pop()
        self.left_behind.append(message)
        self.harness.crew.give_up(message, Verdict(Outcome.INTERRUPTED, "the consumer stopped while it ran"))

    @precondition(lambda self: self.left_behind)
    @rule()
    def what_was_given_up_ends_after_all(self):
        self.harness.end(self.left_behind.pop(), Verdict(Outcome.DONE))

    # ---- what holds

    @invariant()
    def none_is_completed_twice(self):
        assert len(self.queue.completed) == len(set(self.queue.completed))
        assert len(self.announced) == len(set(self.announced))
        assert {*self.announced} <= {*self.queue.completed}

    def teardown(self):
        """Let all that is begun end, and the store answer; then another consumer runs the rest."""
        mail, self.queue.faults, self.ahead = self.harness.pump.mail, [], 0.0
        mail.is_stopping = True
        while self.running:
            self.a_worker_ends_one(0, Outcome.DONE)
        while self.left_behind:
            self.what_was_given_up_ends_after_all()
        for unit in self.harness.pool.take_back():
            mail.take_back(unit, "the consumer stops")
        for _ in range(100):
            self.harness.turn()
            self.clock.now += 10.0  # longer than any pause after a failure
        assert (mail.table, len(self.harness.pump.settling)) == ({}, 0)
        self.clock.now += 1000
        while self.queue.reap().count:
            pass
        while leases := self.queue.claim(10, LEASE, "another"):
            self.queue.complete(leases)
        mail.close()
        assert sorted(self.queue.completed) == sorted(f"message {number + 1}" for number in range(self.accepted))


@pytest.mark.slow
def test_whatever_happens_nothing_is_lost_or_done_twice_and_nothing_stays_in_flight(monkeypatch):
    PumpMachine.patch = monkeypatch
    monkeypatch.setattr("djqueue.consumer.loop.pause_after", lambda failures: 0.0)  # which is by no clock of the test
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("djqueue")]:
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    run_machine(PumpMachine, 3000 if FULL else 300, steps=40)
