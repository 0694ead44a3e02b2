"""Lanes that time opens: gathering, delays, and what a released entry holds back; and windows."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PARK, Gate
from djqueue.testing.contract_lanes_windows import WindowsContract
from djqueue.testing.lane_steps import (
    EARLY,
    LONG,
    all_now,
    drained,
    fill,
    fill_each,
    lanes_of,
    refused,
    runs,
    runs_of,
    so_many,
    unit,
)
from djqueue.testing.patience import eventually
from djqueue.testing.steps import Contract, names, nothing_to_claim, put, until_now_is, with_counts


class GatherContract(Contract):
    """Batches that wait for more."""

    def test_sq4_a_run_of_too_few_waits_for_more_and_not_for_ever(self):
        queue = self.queue("lanes")
        started = queue.now()
        fill(queue, "a", *"12", gate=Gate(run=5, least=3, wait=0.5))
        assert 0 < refused(queue).again <= 0.5
        leases = unit(queue)
        assert (runs(leases), leases[0].claimed - started >= 0.5 - EARLY) == ([["1", "2"]], True)

    def test_as_soon_as_there_are_enough_they_leave(self):
        queue = self.queue("lanes")
        gate = Gate(run=5, least=3, wait=LONG)
        fill(queue, "a", *"12", gate=gate)
        assert refused(queue).again > 1
        fill(queue, "a", "3", gate=gate)
        assert runs(unit(queue)) == [["1", "2", "3"]]

    def test_what_is_left_over_waits_for_more_again(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234", gate=Gate(run=3, least=3, wait=LONG))
        assert runs(all_now(queue)) == [["1", "2", "3"]]
        assert refused(queue).again > 1

    def test_a_batch_of_an_ordered_lane_gathers_too(self):
        queue = self.queue("lanes")
        gate = replace(runs_of(3), least=2, wait=LONG)
        fill(queue, "a", "1", gate=gate)
        assert nothing_to_claim(queue)
        fill(queue, "a", "2", gate=gate)
        assert names(unit(queue)) == ["1", "2"]


class HoldContract(Contract):
    """What is not due, and what a released entry holds back."""

    def test_sq15_what_is_delayed_enters_its_lane_when_it_is_due(self):
        queue = self.queue("lanes")
        started = queue.now()
        fill(queue, "a", "later", delay=0.1)
        fill(queue, "a", *"12")
        assert drained(queue, 2) == ["1", "2"]
        (lease,) = unit(queue)
        assert (names([lease]), lease.claimed - started >= 0.1 - EARLY) == (["later"], True)

    def test_what_was_delayed_stands_where_it_fell_due(self):
        queue = self.queue("lanes")
        fill(queue, "a", "1")
        (lease,) = unit(queue)
        fill(queue, "a", "second", delay=0.1)
        fill(queue, "a", "first", delay=0.05)
        until_now_is(queue, queue.now() + 0.11)
        fill(queue, "a", "third")
        queue.complete([lease])
        assert drained(queue, 3) == ["first", "second", "third"]

    def test_what_falls_due_while_its_lane_is_closed_waits(self):
        queue = self.queue("lanes")
        fill(queue, "a", "1")
        leases = unit(queue)
        fill(queue, "a", "2", delay=0.05)
        until_now_is(queue, queue.now() + 0.06)
        assert nothing_to_claim(queue)
        queue.complete(leases)
        assert names(unit(queue)) == ["2"]

    def test_an_entry_that_waits_alone_lets_its_lane_go_on(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123")
        self._release(queue, unit(queue), delay=0.5)
        assert (queue.stats().delayed, names(unit(queue))) == (1, ["2"])
        until_now_is(queue, queue.now() + 0.51)
        assert nothing_to_claim(queue)

    def test_an_entry_that_waited_alone_has_its_old_place(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123")
        self._release(queue, unit(queue), delay=0.05)
        until_now_is(queue, queue.now() + 0.06)
        assert drained(queue, 3) == list("123")

    def test_a_lane_may_wait_with_its_first(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        released = queue.now()
        self._release(queue, unit(queue), delay=0.5, hold=HOLD_LANE)
        assert 0 < refused(queue).again <= 0.5
        stats, record = queue.stats(), queue.lane("a")
        assert (stats.ready, stats.delayed, record.waiting, record.out) == (2, 0, 2, 0)
        assert released < record.opens <= released + 0.5 + 1
        (lease,) = unit(queue)
        assert (names([lease]), lease.claimed - released >= 0.5 - EARLY) == (["1"], True)
        assert (lease.entry.failures, lease.entry.attempts, lease.entry.delay, lease.entry.hold) == (1, 2, 0, "")
        queue.complete([lease])
        assert names(unit(queue)) == ["2"]

    def test_a_lane_that_waits_does_not_hold_up_others(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 1)
        held = unit(queue)
        self._release(queue, held, delay=LONG, hold=HOLD_LANE)
        put(queue, "plain")
        assert sorted(lanes_of(all_now(queue))) == ["", *({"a", "b"} - set(lanes_of(held)))]

    def test_what_is_put_into_a_lane_that_waits_does_not_open_it(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        self._release(queue, unit(queue), delay=LONG, hold=HOLD_LANE)
        fill(queue, "a", "3", priority=5)
        assert refused(queue).again > 1

    def test_of_two_who_hold_a_lane_the_longer_counts(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123", gate=Gate(most=2))
        one, two = all_now(queue)
        self._release(queue, [one], delay=LONG, hold=HOLD_LANE)
        self._release(queue, [two], delay=0.01, hold=HOLD_LANE)
        assert refused(queue).again > 1

    def test_who_slows_down_a_shared_throttle_slows_down_all_that_share_it(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 3, Gate(most=1, within="all", outer=so_many(100, LONG)))
        held = unit(queue)
        self._release(queue, held, delay=0.5, hold=HOLD_LANE)
        assert 0 < refused(queue).again <= 0.5
        assert len(all_now(queue)) == 0 or queue.now() > held[0].claimed + 0.5
        assert sorted(lanes_of(eventually(lambda: queue.claim(10)))) == ["a", "b"]

    def test_a_lane_that_waits_with_its_first_for_the_sake_of_order_holds_up_none_of_its_line(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 2, Gate(ordered=True, within="all", outer=so_many(100, LONG)))
        held = unit(queue)
        self._release(queue, held, delay=LONG, hold=HOLD_ORDER)
        assert set(lanes_of(all_now(queue))) == {"a", "b"} - set(lanes_of(held))

    def test_who_slows_down_a_throttle_of_its_own_slows_down_nobody_else(self):
        queue = self.queue("lanes")
        inner = replace(so_many(100, LONG), within="all", outer=so_many(100, LONG))
        fill_each(queue, "ab", 2, inner)
        held = unit(queue)
        self._release(queue, held, delay=LONG, hold=HOLD_LANE)
        assert set(lanes_of(all_now(queue))) == {"a", "b"} - set(lanes_of(held))

    def test_a_hold_means_nothing_for_what_is_in_no_lane(self):
        queue = self.queue("lanes")
        put(queue, "work")
        for hold in (HOLD_LANE, HOLD_PARK):
            (lease,) = unit(queue)
            released = queue.now()
            self._release(queue, [lease], delay=0.05, hold=hold)
            assert queue.stats().delayed == 1
            until_now_is(queue, released + 0.06)
        assert names(unit(queue)) == ["work"]

    def test_sq8_a_parked_lane_waits_until_somebody_opens_it(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        self._release(queue, unit(queue), hold=HOLD_PARK)
        assert refused(queue).again == inf
        record = queue.lane("a")
        assert (record.parked != "", record.state, record.waiting, record.out) == (True, "nowhere", 2, 0)
        fill(queue, "b", "other")
        assert drained(queue, 1) == ["other"]
        assert (queue.open_lane("a"), queue.open_lane("a")) == (True, False)
        assert drained(queue, 2) == ["1", "2"]

    def _release(self, queue: BaseQueue, leases: list[Lease], **fields) -> None:
        assert len(queue.release([with_counts(lease, failures=1, **fields) for lease in leases])) == len(leases)


class LaneTimeContract(WindowsContract, GatherContract, HoldContract):
    """All of lanes that has to do with time."""
