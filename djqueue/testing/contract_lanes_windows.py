"""Lanes of which so many leave in an interval."""

from __future__ import annotations

from dataclasses import replace

from djqueue.backends.base import BaseQueue
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.testing.lane_steps import (
    EARLY,
    LONG,
    OPEN,
    all_now,
    fill,
    fill_each,
    nothing_known,
    refused,
    runs,
    so_many,
    unit,
)
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, names, put, until_now_is

WINDOW = 0.3
"""Seconds of a window whose end is waited for."""
SLOW = 1.0
"""The same, where something has to happen before its end, however slow the machine."""


def moments(queue: BaseQueue, count: int, limit: int = 10) -> list[float]:
    """When each of so many entries left, as soon as they did."""
    found: list[float] = []
    while len(found) < count:
        leases = eventually(lambda: queue.claim(limit))
        found += [lease.claimed for lease in leases]
        queue.complete(leases)
    return found


def gaps(moments: list[float], apart: int = 1) -> list[float]:
    """Seconds between each and the one so many places behind it."""
    return [later - earlier for earlier, later in zip(moments, moments[apart:], strict=False)]


class WindowsContract(Contract):
    """Lanes of which so many leave in an interval."""

    def test_tq3_in_no_window_do_more_leave_than_its_limit(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234567", gate=so_many(2, WINDOW))
        assert min(gaps(moments(queue, 7), apart=2)) >= WINDOW - EARLY

    def test_what_begins_later_than_it_left_is_counted_from_then_on(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123456", gate=so_many(2, SLOW))
        first, second = queue.claim(2)
        [counted] = queue.defer([first], SLOW / 2)
        assert counted.claimed >= first.claimed + SLOW / 2
        (third,) = eventually(lambda: queue.claim(5))
        assert SLOW - EARLY <= third.claimed - second.claimed
        (fourth,) = eventually(lambda: queue.claim(5))
        assert fourth.claimed - counted.claimed >= SLOW - EARLY

    def test_what_is_counted_later_is_so_in_the_lane_that_it_is_within_too(self):
        queue = self.queue("lanes")
        outer = Gate(run=1000, windows=(Window(1, SLOW),))
        for lane in "ab":
            fill(queue, lane, lane, gate=Gate(ordered=True, within="both", outer=outer))
        [first] = queue.claim(5)
        [counted] = queue.defer([first], SLOW)
        [counted] = queue.defer([counted], SLOW)
        [second] = eventually(lambda: queue.claim(5))
        assert second.claimed - counted.claimed >= SLOW - EARLY

    def test_what_left_too_long_ago_to_be_counted_may_not_begin(self):
        queue = self.queue("lanes")
        fill(queue, "a", "1", gate=so_many(1, WINDOW))
        put(queue, "free")
        claimed = queue.claim(2)
        leases = dict(zip(names(claimed), claimed, strict=True))
        until_now_is(queue, leases["1"].claimed + WINDOW)
        assert queue.defer([leases["1"]], WINDOW) == queue.defer([leases["free"]], WINDOW) == []

    def test_tq3_in_no_window_do_more_leave_whoever_asks(self):
        queue = self.queue("lanes")
        fill(queue, "a", *map(str, range(25)), gate=so_many(5, WINDOW))
        found: list[float] = []

        def work() -> None:
            while len(found) < 25:
                leases = queue.claim(3)
                found.extend(lease.claimed for lease in leases)
                queue.complete(leases)

        together(*[work] * 8, last=queue.close)
        assert min(gaps(sorted(found), apart=5)) >= WINDOW - EARLY

    def test_tq2_one_more_leaves_for_each_that_is_too_old_to_count(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234", gate=so_many(2, WINDOW))
        (first,) = unit(queue)
        until_now_is(queue, first.claimed + WINDOW / 2)
        (second,) = unit(queue)
        (third,) = unit(queue)
        (fourth,) = unit(queue)
        assert third.claimed - first.claimed >= WINDOW - EARLY
        assert fourth.claimed - second.claimed >= WINDOW - EARLY

    def test_tq17_a_refusal_says_when_to_come_again_and_then_one_leaves(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=so_many(1, SLOW))
        unit(queue)
        claimed = refused(queue)
        assert 0 < claimed.again <= SLOW
        until_now_is(queue, queue.now() + claimed.again)
        assert names(all_now(queue)) == ["2"]

    def test_tq4_what_is_moderated_leaves_evenly_spaced(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=so_many(4, 0.4, moderate=True))
        assert min(gaps(moments(queue, 5))) >= 0.1 - EARLY

    def test_several_windows_hold_at_once(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=Gate(windows=(Window(2, WINDOW), Window(3, LONG))))
        assert min(gaps(moments(queue, 3), apart=2)) >= WINDOW - EARLY
        assert refused(queue).again > LONG - 20

    def test_what_has_left_counts_for_a_window_that_producers_of_two_versions_change_to_and_fro(self):
        queue, left = self.queue("lanes"), []
        for number in range(12):
            fill(queue, "a", str(number), gate=so_many(2 + number % 2, LONG))
            left += all_now(queue)
        assert len(left) <= 3

    def test_what_a_shorter_window_has_no_use_for_counts_again_for_a_longer_one(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=so_many(2, LONG))
        assert len(all_now(queue)) == 2
        until_now_is(queue, queue.now() + 0.02)
        for name, seconds in (("6", 0.01), ("7", LONG)):
            fill(queue, "a", name, gate=so_many(2, seconds))
        assert all_now(queue) == []

    def test_what_has_left_counts_though_it_is_done_and_the_lane_empty(self):
        queue = self.queue("lanes")
        gate = so_many(1, WINDOW)
        fill(queue, "a", "1", gate=gate)
        (first,) = unit(queue)
        queue.complete([first])
        fill(queue, "a", "2", gate=gate)
        (second,) = unit(queue)
        assert second.claimed - first.claimed >= WINDOW - EARLY

    def test_tq19_a_lane_is_forgotten_two_windows_after_the_last_has_left_it(self):
        queue = self.queue("lanes")
        fill(queue, "a", "1", gate=so_many(1, 0.1))
        (lease,) = unit(queue)
        queue.complete([lease])
        assert nothing_known(queue)
        assert queue.now() - lease.claimed >= 0.1

    def test_what_is_throttled_waits_without_an_attempt_and_holds_up_nobody(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=so_many(1, SLOW))
        fill(queue, "b", *"34", gate=so_many(1, LONG))
        put(queue, *"xyz")
        assert sorted(names(all_now(queue))) == ["1", "3", "x", "y", "z"]
        (lease,) = unit(queue)
        assert (names([lease]), lease.entry.attempts) == (["2"], 1)

    def test_a_run_is_as_long_as_the_window_allows(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123456", gate=replace(so_many(4, LONG), run=3))
        assert runs(all_now(queue)) == [["1", "2", "3"], ["4"]]

    def test_what_would_wait_for_a_worker_is_nothing_that_is_throttled(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123456", gate=so_many(5, LONG))
        assert names(queue.claim(4, ahead=3)) == ["1"]
        assert queue.claim(2, ahead=2) == []
        put(queue, "plain")
        assert names(queue.claim(2, ahead=2)) == ["plain"]
        assert names(queue.claim(3, ahead=1)) == ["2", "3"]

    def test_what_would_wait_for_a_worker_may_be_of_a_lane_without_windows(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123", gate=OPEN)
        assert names(queue.claim(3, ahead=2)) == ["1", "2", "3"]

    def test_what_would_wait_for_a_worker_is_nothing_whose_outer_lane_is_throttled(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 2, Gate(most=5, within="all", outer=so_many(5, LONG)))
        assert len(queue.claim(3, ahead=2)) == 1
