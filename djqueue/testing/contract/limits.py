"""Rate limits: of lanes, and of whole queues. Mix RateLimitContract into a test class, as QueueContract."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple
from unittest import mock

from djqueue.backends.base import BaseQueue, Claimed, RateLimit
from djqueue.backends.stores import SPACING_KEY, BaseStore, Grant
from djqueue.exceptions import RateUnreadable
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.lane_steps import (
    EARLY,
    LONG,
    OPEN,
    LaneSuite,
    all_now,
    fill,
    nothing_known,
    refused,
    runs,
    runs_of,
    so_many,
    unit,
)
from djqueue.testing.contract.steps import Contract, asked, names, put, until_now_is
from djqueue.testing.patience import PATIENCE, eventually, together

LANE_WINDOW = 0.3
"""Seconds of a window whose end is waited for."""
LANE_SLOW = 2.5
"""Seconds of a window before whose end a step of the test has to happen, also on a slow machine."""


def moments(queue: BaseQueue, count: int, limit: int = 10) -> list[float]:
    """When each of ``count`` entries left; each is claimed as soon as it may leave."""
    found: list[float] = []
    while len(found) < count:
        leases = eventually(lambda: queue.claim(limit))
        found += [lease.claimed for lease in leases]
        queue.complete(leases)
    return found


def gaps(moments: list[float], apart: int = 1) -> list[float]:
    """Seconds between each moment and the one ``apart`` places behind it."""
    return [later - earlier for earlier, later in zip(moments, moments[apart:], strict=False)]


class WindowsContract(LaneSuite):
    """Lanes with a limit of entries that leave in an interval."""

    def test_what_begins_later_than_it_left_is_counted_from_then_on(self):
        queue = self.with_lane("a", *"123456", gate=so_many(2, LANE_SLOW))
        first, second = queue.claim(2)
        [counted] = queue.defer([first], LANE_WINDOW)
        assert counted.claimed >= first.claimed + LANE_WINDOW
        (third,), (fourth,) = unit(queue), unit(queue)
        assert third.claimed - second.claimed >= LANE_SLOW - EARLY
        assert fourth.claimed - counted.claimed >= LANE_SLOW - EARLY

    def test_what_is_counted_later_is_so_in_the_lane_that_it_is_within_too(self):
        queue = self.queue("lanes")
        outer = Gate(max_run=1000, windows=(Window(1, LANE_SLOW),))
        for lane in "ab":
            fill(queue, lane, lane, gate=Gate(ordered=True, parent="both", parent_gate=outer))
        [first] = queue.claim(5)
        [counted] = queue.defer([first], LANE_WINDOW)
        [counted] = queue.defer([counted], LANE_WINDOW)
        [second] = eventually(lambda: queue.claim(5))
        assert second.claimed - counted.claimed >= LANE_SLOW - EARLY

    def test_what_left_too_long_ago_to_be_counted_may_not_begin(self):
        queue = self.with_lane("a", "1", gate=so_many(1, LANE_WINDOW))
        put(queue, "free")
        claimed = queue.claim(2)
        leases = dict(zip(names(claimed), claimed, strict=True))
        until_now_is(queue, leases["1"].claimed + LANE_WINDOW)
        assert queue.defer([leases["1"]], LANE_WINDOW) == queue.defer([leases["free"]], LANE_WINDOW) == []

    def test_several_windows_hold_at_once(self):
        queue = self.with_lane("a", *"12345", gate=Gate(windows=(Window(2, LANE_WINDOW), Window(3, LONG))))
        assert min(gaps(moments(queue, 3), apart=2)) >= LANE_WINDOW - EARLY
        assert refused(queue).retry_after > LONG - 20

    def test_what_has_left_counts_for_a_window_that_producers_of_two_versions_change_to_and_fro(self):
        queue, left = self.queue("lanes"), []
        for number in range(12):
            fill(queue, "a", str(number), gate=so_many(2 + number % 2, LONG))
            left += all_now(queue)
        assert len(left) <= 3

    def test_what_a_shorter_window_has_no_use_for_counts_again_for_a_longer_one(self):
        queue = self.with_lane("a", *"12345", gate=so_many(2, LONG))
        assert len(all_now(queue)) == 2
        until_now_is(queue, queue.now() + 0.02)
        for name, seconds in (("6", 0.01), ("7", LONG)):
            fill(queue, "a", name, gate=so_many(2, seconds))
        assert all_now(queue) == []

    def test_what_has_left_counts_though_it_is_done_and_the_lane_empty(self):
        queue = self.queue("lanes")
        gate = so_many(1, LANE_WINDOW)
        fill(queue, "a", "1", gate=gate)
        (first,) = unit(queue)
        queue.complete([first])
        fill(queue, "a", "2", gate=gate)
        (second,) = unit(queue)
        assert second.claimed - first.claimed >= LANE_WINDOW - EARLY

    def test_tq19_a_lane_is_forgotten_two_windows_after_the_last_has_left_it(self):
        queue = self.with_lane("a", "1", gate=so_many(1, 0.1))
        (lease,) = unit(queue)
        queue.complete([lease])
        assert nothing_known(queue)
        assert queue.now() - lease.claimed >= 0.1

    def test_what_is_throttled_waits_without_an_attempt_and_holds_up_nobody(self):
        for seconds in (LONG, LANE_WINDOW):
            queue = self.with_lane("a", *"12", gate=so_many(1, seconds))
            fill(queue, "b", *"34", gate=so_many(1, LONG))
            put(queue, *"xyz")
            assert seconds < LONG or sorted(names(all_now(queue))) == ["1", "3", "x", "y", "z"]
        attempts = {lease.entry.body: lease.entry.attempts for lease in (unit(queue)[0] for _ in range(6))}
        assert attempts == dict.fromkeys([b"1", b"2", b"3", b"x", b"y", b"z"], 1)

    def test_a_run_is_as_long_as_the_window_allows(self):
        queue = self.with_lane("a", *"123456", gate=replace(so_many(4, LONG), max_run=3))
        assert runs(all_now(queue)) == [["1", "2", "3"], ["4"]]

    def test_what_would_wait_for_a_worker_is_nothing_that_is_throttled(self):
        queue = self.with_lane("a", *"123456", gate=so_many(5, LONG))
        assert names(queue.claim(4, ahead=3)) == ["1"]
        assert queue.claim(2, ahead=2) == []
        put(queue, "plain")
        assert names(queue.claim(2, ahead=2)) == ["plain"]
        assert names(queue.claim(3, ahead=1)) == ["2", "3"]

    def test_what_would_wait_for_a_worker_is_nothing_whose_lane_or_outer_lane_has_windows(self):
        for gate, count in ((OPEN, 3), (Gate(concurrency=5, parent="all", parent_gate=so_many(5, LONG)), 1)):
            assert len(self.with_lanes("abc", 2, gate).claim(3, ahead=2)) == count


# ---- Rate limits in a store: windows that are shared by name

WINDOW = 0.4
PAUSE = 0.002


def a_rate_limit(limit: int, seconds: float = LONG, spacing: str = "", **ways) -> RateLimit:
    """A rate limit that no other test has."""
    return RateLimit(f"rate_limit {new_id()[-12:]}", Window(limit, seconds, **ways), spacing)


def another(rate_limit: RateLimit, limit: int, seconds: float = LONG, **ways) -> RateLimit:
    """The same rate limit by name, but with another window."""
    return RateLimit(rate_limit.name, Window(limit, seconds, **ways), rate_limit.spacing)


class SpendContract(Contract):
    """Rate limits in a store."""

    def shared(self) -> BaseStore:
        return self.guarded().store.shared

    def test_a_store_grants_what_there_is(self):
        store, rate_limit = self.shared(), a_rate_limit(5)
        first = store.acquire(rate_limit, 3)
        assert (first.count, first.retry_after, first.reason) == (3, 0, "")
        assert abs(first.at / 1e6 - store.now()) < 5
        second = store.acquire(rate_limit, 5)
        assert (second.count, second.reason, LONG - 5 < second.retry_after <= LONG) == (2, "limited", True)
        assert store.acquire(rate_limit, 1)[:1] == (0,)
        assert store.acquire(a_rate_limit(1), 1).count == 1

    def test_what_is_handed_back_may_be_granted_again_and_is_nothing_to_a_rate_limit_that_nobody_knows(self):
        store, rate_limit = self.shared(), a_rate_limit(5)
        store.release(rate_limit, Grant(3, at=1), 3)
        grant = store.acquire(rate_limit, 9)
        store.release(rate_limit, grant, 0)
        assert (grant.count, store.acquire(rate_limit, 1).count) == (5, 0)
        store.release(rate_limit, grant, 2)
        assert store.acquire(rate_limit, 5).count == 2

    def test_what_is_handed_back_does_not_make_the_grants_of_others_older(self):
        store, rate_limit = self.shared(), a_rate_limit(4, LANE_SLOW)
        mine = store.acquire(rate_limit, 2)
        eventually(lambda: store.now() * 1e6 > mine.at + 1e6 * WINDOW / 2)
        others = store.acquire(rate_limit, 2)
        store.release(rate_limit, mine, 2)
        assert store.acquire(rate_limit, 5).count == 2
        eventually(lambda: store.now() * 1e6 > mine.at + 1e6 * LANE_SLOW)
        later = store.acquire(rate_limit, 5)
        assert later.count == 0 or later.at >= others.at + 1e6 * (LANE_SLOW - EARLY)

    def test_a_grant_of_a_moderated_rate_limit_that_is_handed_back_leaves_no_gap(self):
        store = self.shared()
        for spacing in ("", f"spacing {new_id()[-12:]}"):
            rate_limit = a_rate_limit(5, LONG, spacing, moderate=True)
            grant = store.acquire(rate_limit, 1)
            assert (grant.count, store.acquire(rate_limit, 1).reason) == (1, "spaced")
            store.release(rate_limit, grant, 1)
            assert store.acquire(rate_limit, 1).count == 1

    def test_tq19_a_rate_limit_is_forgotten_two_windows_after_its_last_use(self):
        for seconds in (LONG, WINDOW):
            store, rate_limit = self.shared(), a_rate_limit(5, seconds)
            used, laxer = store.acquire(rate_limit, 5).at / 1e6, another(rate_limit, 100, 2 * seconds)
            assert seconds < LONG or store.acquire(laxer, 9).count == 0
        eventually(lambda: store.acquire(laxer, 9).count == 9)
        assert store.now() - used >= WINDOW - EARLY

    def test_of_two_windows_the_stricter_holds_while_both_are_in_use(self):
        store, strict = self.shared(), a_rate_limit(3)
        lax = another(strict, 5)
        assert store.acquire(lax, 2).count == 2
        assert store.acquire(strict, 9).count == 1
        assert (store.acquire(lax, 9).count, store.acquire(lax, 9).reason) == (0, "limited")

    def test_who_says_a_window_that_allows_more_has_it_once_nobody_says_the_other(self):
        for seconds in (LONG, WINDOW):
            store, strict = self.shared(), a_rate_limit(2, seconds)
            lax = another(strict, 100, seconds)
            last = store.acquire(strict, 1).at / 1e6
            assert seconds < LONG or store.acquire(lax, 9).count == 1
        eventually(lambda: store.acquire(lax, 9).count == 9)
        assert store.now() - last >= 2 * WINDOW - EARLY

    def test_a_change_holds_at_once_for_all_and_what_was_spent_counts(self):
        for ways in ({}, {"moderate": True}):
            store, rate_limit = self.shared(), a_rate_limit(5)
            assert store.acquire(rate_limit, 4).count == 4
            store.change_rate_limit(another(rate_limit, 6, **ways))
            if not ways:
                assert [store.acquire(rate_limit, 9).count for _ in range(2)] == [2, 0]
            else:
                assert store.acquire(rate_limit, 9).reason == "spaced"
            store.change_rate_limit(another(rate_limit, 3))
            assert store.acquire(another(rate_limit, 50), 9).reason == "limited"

    def test_a_change_outlives_what_was_spent(self):
        store, rate_limit = self.shared(), a_rate_limit(5, 0.05)
        store.change_rate_limit(another(rate_limit, 2, 0.05))
        end = store.acquire(rate_limit, 9).at / 1e6 + 0.2
        eventually(lambda: store.now() > end)
        assert store.acquire(rate_limit, 9).count == 2

    def test_a_limit_of_nothing_is_a_pause_until_it_is_changed_and_what_is_handed_back_keeps_a_change(self):
        store, rate_limit = self.shared(), a_rate_limit(5)
        store.change_rate_limit(another(rate_limit, 0))
        assert store.acquire(rate_limit, 1)[:3] == (0, inf, "limited")
        store.change_rate_limit(another(rate_limit, 3))
        grant = store.acquire(rate_limit, 3)
        store.release(rate_limit, grant, 2)
        assert (grant.count, store.acquire(rate_limit, 9).count) == (3, 2)

    def test_a_rate_limit_that_was_forgotten_may_be_another(self):
        store, rate_limit = self.shared(), a_rate_limit(5)
        store.change_rate_limit(another(rate_limit, 1))
        store.acquire(rate_limit, 5)
        other = another(rate_limit, 30, 10)
        store.forget_rate_limit(other)
        assert store.acquire(other, 90).count == 30

    def test_of_many_who_spend_at_once_as_many_are_granted_as_there_are(self):
        queue, rate_limit = self.guarded(), a_rate_limit(30)
        store = queue.store.shared
        grants = together(*[lambda: [store.acquire(rate_limit, 2).count for _ in range(5)]] * 6, last=queue.close)
        assert sum(map(sum, grants)) == 30

    def test_tq3_tq15_of_many_who_spend_all_slots_are_granted_and_never_more(self):
        queue, rate_limit = self.guarded(), a_rate_limit(10, WINDOW)
        store, grants = queue.store.shared, []

        def spend() -> None:
            while sum(grant.count for grant in grants) < 40:
                grants.append(store.acquire(rate_limit, 3))

        together(*[spend] * 6, last=queue.close)
        moments = sorted(grant.at / 1e6 for grant in grants for _ in range(grant.count))
        assert min(gaps(moments, apart=10)) >= WINDOW - 1e-5
        assert moments[39] - moments[0] < 3 * WINDOW + PATIENCE

    def test_of_many_who_spend_a_spaced_one_each_slot_is_granted_once(self):
        queue, spacing = self.guarded(), f"spacing {new_id()[-12:]}"
        store, rate_limit = queue.store.shared, a_rate_limit(30, LONG, spacing, moderate=True)
        grants = together(*[lambda: store.acquire(rate_limit, 1).count] * 8, last=queue.close)
        assert sum(grants) == 1

    def test_more_than_a_thousand_slots_are_counted_too(self):
        store, rate_limit = self.shared(), a_rate_limit(2500)
        assert [store.acquire(rate_limit, 700).count for _ in range(5)] == [700, 700, 700, 400, 0]

    def test_a_rate_limit_and_a_fact_of_one_name_are_two(self):
        store, rate_limit = self.shared(), a_rate_limit(5)
        store.acquire(rate_limit, 3)
        store.put(rate_limit.name, b"1", 5)
        assert (store.get(rate_limit.name), store.acquire(rate_limit, 5).count) == (b"1", 2)


# ---- Entries leave a queue within a rate limit. Mix RateLimitContract into a test class, as QueueContract


def within(queue: BaseQueue, rate_limit: RateLimit, limit: int = 10) -> Claimed:
    """What leaves now."""
    return asked(lambda: queue.claim_within(rate_limit, limit))


class Rate(NamedTuple):
    """A full queue with a limit of entries that leave in an interval."""

    queue: BaseQueue
    claim: Callable[[int], Claimed]
    """Claims at most that many."""
    why: Sequence[str]
    """The reasons that a claim gives if it is refused because of the limit, and because of the spacing."""

    def now(self, limit: int = 10) -> Claimed:
        """What leaves now."""
        return asked(lambda: self.claim(limit))

    def moments(self, count: int, limit: int = 10) -> list[float]:
        """When each of ``count`` entries left; each is claimed as soon as it may leave."""
        found: list[float] = []
        while len(found) < count:
            found += self.claimed(limit)
        return found

    def moments_of_many(self, threads: int, count: int, limit: int) -> list[float]:
        """When each of ``count`` entries left, claimed by many threads."""
        found: list[float] = []

        def work() -> None:
            while len(found) < count:
                found.extend(self.claimed(limit))

        together(*[work] * threads, last=self.queue.close)
        return sorted(found)

    def claimed(self, limit: int) -> list[float]:
        """When each left of those that leave now; a pause if none does, so that who asks is not all that runs."""
        moments = [lease.claimed for lease in self.claim(limit)]
        if not moments:
            time.sleep(PAUSE)
        return moments


class RateContract(Contract):
    """A limit of entries that leave in an interval, by a rate limit or by the window of a lane."""

    early = EARLY
    """Seconds by which two entries may leave nearer than the rate allows. Set more for a queue whose store is another
    technology: it claims after the grant, and the grant counts."""

    def filled(self, count: int = 20, *features: str) -> BaseQueue:
        queue = self.guarded(*features)
        put(queue, *map(str, range(count)))
        return queue

    def rates(self, count: int, limit: int, seconds: float, *features: str, **ways) -> Iterator[Rate]:
        """A queue with a rate limit, and one whose entries are in a lane, if it has lanes."""
        queue = self.filled(count, *features)
        yield Rate(queue, partial(queue.claim_within, a_rate_limit(limit, seconds, **ways)), ("limited", "spaced"))
        if "lanes" in queue.features:
            queue = self.queue()
            fill(queue, "a", *map(str, range(count)), gate=so_many(limit, seconds, **ways))
            yield Rate(queue, queue.claim, ("", ""))

    def test_tq2_one_more_leaves_for_each_that_is_too_old_to_count(self):
        for rate in self.rates(20, 2, WINDOW):
            (first,) = rate.now(1)
            until_now_is(rate.queue, first.claimed + WINDOW / 2)
            (second,) = rate.now(1)
            for earlier in (first, second):
                (lease,) = eventually(lambda: rate.claim(1))  # noqa: B023
                assert lease.claimed - earlier.claimed >= WINDOW - self.early
                assert rate.now().reason in (rate.why[0], "") or rate.queue.now() > second.claimed + WINDOW

    def test_tq3_tq14_in_no_window_do_more_leave_than_its_limit(self):
        for limit, seconds in ((2, 0.1), (5, WINDOW)):
            for rate in self.rates(40, limit, seconds):
                assert min(gaps(rate.moments(3 * limit + 1), apart=limit)) >= seconds - self.early

    def test_tq3_tq15_eight_who_ask_get_all_slots_and_no_more(self):
        for rate in self.rates(60, 10, WINDOW, "lease"):
            moments = rate.moments_of_many(8, 40, limit=3)
            assert min(gaps(moments, apart=10)) >= WINDOW - self.early
            assert moments[39] - moments[0] < 3 * WINDOW + PATIENCE

    def test_tq17_who_waits_as_long_as_was_said_is_served(self):
        for rate in self.rates(20, 1, 1.0):
            while claimed := rate.now():
                continue
            assert (claimed, claimed.reason, 0 < claimed.retry_after <= 1.0) == ([], rate.why[0], True)
            until_now_is(rate.queue, rate.queue.now() + claimed.retry_after)
            assert len(rate.now()) == 1

    def test_tq4_what_is_moderated_leaves_evenly_spaced(self):
        for rate in self.rates(20, 4, LONG, moderate=True):
            claimed = rate.now()
            assert (len(claimed), claimed.reason, 0 < claimed.retry_after <= LONG / 4) == (1, rate.why[1], True)
        for rate in self.rates(20, 4, WINDOW, moderate=True):
            assert min(gaps(rate.moments(7))) >= WINDOW / 4 - self.early

    def test_tq5_what_is_moderated_is_spaced_whoever_asks(self):
        for rate in self.rates(20, 8, WINDOW, "lease", moderate=True):
            assert min(gaps(rate.moments_of_many(4, 10, limit=2))) >= WINDOW / 8 - self.early

    def test_tq6_moderation_means_nothing_for_a_limit_of_one(self):
        for rate in self.rates(20, 1, WINDOW, moderate=True):
            (first,) = rate.now()
            assert rate.now().reason == rate.why[0]
            (second,) = eventually(lambda: rate.claim(5))  # noqa: B023
            assert second.claimed - first.claimed >= WINDOW - self.early

    def test_tq7_tq8_what_is_elastic_catches_up_once_it_is_warm(self):
        for rate in self.rates(40, 4, WINDOW, moderate=True, elastic=True, buffer=1):
            moments = rate.moments(4)
            assert min(gaps(moments[:4])) >= WINDOW / 4 - self.early  # on a slow machine the fifth may come with it
            until_now_is(rate.queue, moments[-1] + WINDOW + 0.01)
            assert len(rate.now()) == 3 or max(gaps([*moments, rate.queue.now()])) > 2 * WINDOW
            assert rate.now().reason in (*rate.why, "")


class ClaimWithinContract(RateContract):
    """As much leaves a queue as a rate limit allows."""

    def test_tq1_tq10_tq16_no_more_leaves_than_the_rate_limit_has_whatever_is_put_and_the_clock_of_the_worker_says(
        self,
    ):
        queue, rate_limit = self.filled(7), a_rate_limit(5)
        assert [names(within(queue, rate_limit, 1)) for _ in range(5)] == [[str(number)] for number in range(5)]
        for skewed in (0, 5, -5):
            with mock.patch("time.time", return_value=time.time() + skewed):
                claimed = within(queue, rate_limit)
                assert (claimed, claimed.reason, 0 < claimed.retry_after <= LONG) == ([], "limited", True)
        put(queue, *"abc")
        assert len(queue) == 5

    def test_what_leaves_at_once_is_cut_to_the_rate_limit_and_a_claim_that_was_full_may_be_repeated_at_once(self):
        queue, rate_limit = self.filled(), a_rate_limit(8)
        claimed = within(queue, rate_limit, 3)
        assert (len(claimed), claimed.retry_after, claimed.reason) == (3, 0, "")
        claimed = within(queue, rate_limit)
        assert (len(claimed), claimed.reason, 0 < claimed.retry_after <= LONG) == (5, "limited", True)
        assert [lease.entry.attempts for lease in claimed] == [1] * 5

    def test_what_is_spent_is_known_until_it_counts_no_more(self):
        for seconds in (LONG, LANE_WINDOW):
            queue, rate_limit = self.filled(), a_rate_limit(5, seconds)
            known = queue.store.shared
            assert known.used(rate_limit) == 0
            claimed = within(queue, rate_limit, 3)
            assert seconds < LONG or known.used(rate_limit) == known.used(another(rate_limit, 50)) == 3
        until_now_is(queue, claimed[0].claimed + LANE_WINDOW + 0.01)
        assert known.used(rate_limit) == 0

    def test_tq12_what_is_not_there_spends_nothing(self):
        queue, rate_limit = self.guarded(), a_rate_limit(5)
        assert [list(queue.claim_within(rate_limit, 3)) for _ in range(100)] == [[]] * 100
        assert within(queue, rate_limit).reason == ""
        put(queue, *"12")
        assert len(within(queue, rate_limit)) == 2
        put(queue, *"34567")
        assert len(within(queue, rate_limit)) == 3
        assert within(queue, rate_limit) == []

    def test_tq12_what_is_not_there_spends_nothing_of_a_spacing_and_does_not_warm_up_what_is_elastic(self):
        for ways in ({"spacing": f"spacing {new_id()[-12:]}"}, {"elastic": True}):
            queue, rate_limit = self.guarded(), a_rate_limit(3, moderate=True, **ways)
            for _ in range(20):
                queue.claim_within(rate_limit, 1)
            put(queue, *"123")
            assert names(within(queue, rate_limit)) == ["1"]
            assert (within(queue, rate_limit), within(queue, rate_limit).reason) == ([], "spaced")

    def test_tq3_what_leaves_lanes_counts_from_then_on(self):
        queue, rate_limit, moments = self.queue("lanes"), a_rate_limit(3, 0.1), []
        for lane in "abcd":
            fill(queue, lane, *(f"{lane}{number}" for number in range(4)), gate=Gate(ordered=True))
        while len(moments) < 16:
            leases = queue.claim_within(rate_limit, 3)
            moments += [lease.claimed for lease in leases]
            queue.complete(leases)
        assert min(gaps(sorted(moments), apart=3)) >= 0.1 - self.early

    def test_tq9_two_queues_share_a_rate_limit_by_its_name_and_two_names_are_two_rate_limits(self):
        one, other, rate_limit = self.filled(), self.filled(), a_rate_limit(5)
        assert (len(within(one, rate_limit, 3)), len(within(other, rate_limit))) == (3, 2)
        assert within(one, rate_limit) == within(other, rate_limit) == []
        assert [len(within(one, a_rate_limit(3))) for _ in range(2)] == [3, 3]

    def test_a_shared_spacing_that_cannot_be_read_stops_what_it_bounds_by_name_until_it_is_forgotten(self):
        queue, spacing = self.filled(), f"spacing {new_id()[-12:]}"
        store, limit = queue.store.shared, a_rate_limit(4, LONG, spacing, moderate=True)
        store.put(f"{SPACING_KEY}{spacing}", b"x", LONG)
        for ask in (queue.claim_within, lambda limit: store.acquire(limit, 1)):
            try:
                ask(limit)
                said = ""
            except RateUnreadable as error:
                said = str(error)
            assert limit.name in said
        store.forget_rate_limit(limit)
        assert len(queue.claim_within(limit)) == 1

    def test_two_windows_may_share_their_spacing(self):
        queue, spacing = self.filled(), f"spacing {new_id()[-12:]}"
        one, other = (a_rate_limit(4, LONG, spacing, moderate=True) for _ in range(2))
        assert len(within(queue, one)) == 1
        claimed = within(queue, other)
        assert (claimed, claimed.reason, 0 < claimed.retry_after <= LONG / 4) == ([], "spaced", True)

    def test_tq13_a_rate_limit_that_is_forgotten_is_as_new(self):
        queue, rate_limit = self.filled(), a_rate_limit(2, LONG, moderate=True)
        assert len(within(queue, rate_limit)) == 1
        queue.store.shared.forget_rate_limit(rate_limit)
        queue.store.shared.forget_rate_limit(rate_limit)
        assert len(within(queue, rate_limit)) == 1

    def test_of_two_windows_of_one_name_the_stricter_holds(self):
        queue, rate_limit = self.filled(), a_rate_limit(5)
        within(queue, rate_limit, 1)
        assert len(within(queue, another(rate_limit, 3))) == 2
        assert (within(queue, rate_limit), within(queue, rate_limit).reason) == ([], "limited")

    def test_a_change_of_a_rate_limit_holds_at_once_and_no_item_is_lost(self):
        queue, rate_limit = self.filled(9), a_rate_limit(2)
        assert len(within(queue, rate_limit)) == 2
        queue.store.shared.change_rate_limit(another(rate_limit, 5))
        assert len(within(queue, rate_limit)) == 3
        queue.store.shared.change_rate_limit(another(rate_limit, 0))
        claimed = within(queue, rate_limit)
        assert (claimed, claimed.reason, claimed.retry_after) == ([], "limited", inf)
        queue.store.shared.change_rate_limit(another(rate_limit, 50))
        assert len(within(queue, rate_limit)) == 4

    def test_a_run_spends_what_it_holds_and_the_surplus_goes_back_untried(self):
        queue, rate_limit = self.guarded("lanes"), a_rate_limit(3)
        fill(queue, "a", *"12345", gate=runs_of(5))
        claimed = within(queue, rate_limit)
        assert (names(claimed), claimed.reason, claimed.retry_after > 0) == (["1", "2", "3"], "limited", True)
        assert len({lease.run for lease in claimed} - {""}) == 1
        assert (queue.stats().ready, queue.lanes.get("a").in_flight) == (2, 3)
        queue.complete(claimed)
        queue.store.shared.forget_rate_limit(rate_limit)
        rest = within(queue, rate_limit)
        assert (names(rest), [lease.entry.attempts for lease in rest]) == (["4", "5"], [1, 1])

    def test_a_run_may_spend_more_than_one_slot_for_one_unit(self):
        queue, rate_limit = self.guarded("lanes"), a_rate_limit(10)
        fill(queue, "a", *"1234567", gate=runs_of(7))
        assert len(within(queue, rate_limit, 1)) == 7
        put(queue, *"abcde")
        assert len(within(queue, rate_limit)) == 3

    def test_lanes_wait_for_their_own_gates_within_a_rate_limit(self):
        queue, rate_limit = self.guarded("lanes"), a_rate_limit(5)
        fill(queue, "a", *"12", gate=Gate(concurrency=1))
        assert names(within(queue, rate_limit)) == ["1"]
        assert within(queue, rate_limit) == []
        put(queue, *"12345678")
        assert len(within(queue, rate_limit)) == 4


class RateLimitContract(ClaimWithinContract, SpendContract):
    """All suites about rate limits."""
