"""What leaves a queue by a budget. Mix BudgetContract into a test class, as QueueContract."""

from __future__ import annotations

import time
from math import inf
from unittest import mock

from djqueue.backends.base import BaseQueue, Budget, Claimed
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.testing.contract_budgets_store import WINDOW, SpendContract, a_budget, another
from djqueue.testing.contract_lanes_windows import gaps
from djqueue.testing.lane_steps import EARLY, LONG, fill, runs_of
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, names, put, until_now_is


def within(queue: BaseQueue, budget: Budget, limit: int = 10) -> Claimed:
    """What leaves now. A claim may pass over what another one was looking at: it says so, and is repeated."""
    while not (claimed := queue.claim_within(budget, limit)) and claimed.again == 0:
        continue
    return claimed


class ClaimWithinContract(Contract):
    """What leaves a queue is what a budget allows."""

    early = EARLY
    """Seconds by which two may be nearer than a budget says. Set more for a queue whose store is another technology:
    it hands out after the grant, and what counts is the grant."""

    def filled(self, count: int = 20, *abilities: str) -> BaseQueue:
        queue = self.guarded(*abilities)
        put(queue, *map(str, range(count)))
        return queue

    def test_tq1_no_more_leaves_than_the_budget_has_and_the_next_is_told_why(self):
        queue, budget = self.filled(7), a_budget(5)
        assert [names(within(queue, budget, 1)) for _ in range(5)] == [[str(number)] for number in range(5)]
        for _ in range(2):
            claimed = within(queue, budget)
            assert (claimed, claimed.why, 0 < claimed.again <= LONG) == ([], "limited", True)
        assert len(queue) == 2

    def test_what_leaves_at_once_is_cut_to_the_budget(self):
        queue, budget = self.filled(7), a_budget(5)
        claimed = within(queue, budget)
        assert (len(claimed), claimed.why, 0 < claimed.again <= LONG) == (5, "limited", True)
        assert [lease.entry.attempts for lease in claimed] == [1] * 5

    def test_a_claim_that_was_full_may_be_repeated_at_once(self):
        queue, budget = self.filled(), a_budget(5)
        claimed = within(queue, budget, 3)
        assert (len(claimed), claimed.again, claimed.why) == (3, 0, "")

    def test_tq12_what_is_not_there_spends_nothing(self):
        queue, budget = self.guarded(), a_budget(5)
        assert [list(queue.claim_within(budget, 3)) for _ in range(100)] == [[]] * 100
        put(queue, *"12")
        assert len(within(queue, budget)) == 2
        put(queue, *"34567")
        assert len(within(queue, budget)) == 3
        assert within(queue, budget) == []

    def test_tq12_what_is_not_there_spends_nothing_of_a_spacing(self):
        queue, budget = self.guarded(), a_budget(5, spacing=f"spacing {new_id()[-12:]}", moderate=True)
        for _ in range(20):
            queue.claim_within(budget, 1)
        put(queue, *"12")
        assert names(within(queue, budget)) == ["1"]
        assert (within(queue, budget), within(queue, budget).why) == ([], "spaced")

    def test_tq12_what_is_not_there_does_not_warm_up_what_is_elastic(self):
        queue, budget = self.guarded(), a_budget(3, LONG, moderate=True, elastic=True)
        for _ in range(20):
            queue.claim_within(budget, 1)
        put(queue, *"123")
        assert len(within(queue, budget)) == 1
        assert within(queue, budget).why == "spaced"

    def test_an_empty_queue_says_nothing_of_its_budget(self):
        queue, budget = self.guarded(), a_budget(5)
        claimed = within(queue, budget)
        assert (claimed, claimed.why) == ([], "")

    def test_tq2_one_more_leaves_for_each_that_is_too_old_to_count(self):
        queue, budget = self.filled(), a_budget(2, WINDOW)
        (first,) = within(queue, budget, 1)
        until_now_is(queue, first.claimed + WINDOW / 2)
        (second,) = within(queue, budget, 1)
        for earlier in (first, second):
            (lease,) = eventually(lambda: queue.claim_within(budget, 1))
            assert lease.claimed - earlier.claimed >= WINDOW - self.early
            assert within(queue, budget).why in ("limited", "") or queue.now() > second.claimed + WINDOW

    def test_tq3_tq14_in_no_window_do_more_leave_than_its_limit(self):
        queue = self.filled(40)
        for limit, seconds in ((2, 0.1), (5, WINDOW)):
            budget, moments = a_budget(limit, seconds), []
            while len(moments) < 3 * limit + 1:
                moments += [lease.claimed for lease in queue.claim_within(budget, 10)]
            assert min(gaps(moments, apart=limit)) >= seconds - self.early

    def test_tq3_what_leaves_lanes_counts_from_then_on(self):
        queue, budget, moments = self.queue("lanes"), a_budget(3, 0.1), []
        for lane in "abcd":
            fill(queue, lane, *(f"{lane}{number}" for number in range(4)), gate=Gate(ordered=True))
        while len(moments) < 16:
            leases = queue.claim_within(budget, 3)
            moments += [lease.claimed for lease in leases]
            queue.complete(leases)
        assert min(gaps(sorted(moments), apart=3)) >= 0.1 - self.early

    def test_tq3_tq15_eight_who_ask_get_all_slots_and_no_more(self):
        queue, budget, moments = self.filled(60, "lease"), a_budget(10, WINDOW), []

        def work() -> None:
            while len(moments) < 40:
                moments.extend(lease.claimed for lease in queue.claim_within(budget, 3))

        together(*[work] * 8, last=queue.close)
        moments.sort()
        assert min(gaps(moments, apart=10)) >= WINDOW - self.early
        assert moments[39] - moments[0] < 3 * WINDOW + 2

    def test_tq17_who_waits_as_long_as_was_said_is_served(self):
        queue, budget = self.filled(), a_budget(1, 1.0)
        within(queue, budget)
        claimed = within(queue, budget)
        assert (claimed, claimed.why, 0 < claimed.again <= 1.0) == ([], "limited", True)
        until_now_is(queue, queue.now() + claimed.again)
        assert len(within(queue, budget)) == 1

    def test_tq4_what_is_moderated_leaves_evenly_spaced(self):
        queue, budget, moments = self.filled(), a_budget(4, WINDOW, moderate=True), []
        claimed = within(queue, budget)
        assert (len(claimed), claimed.why, 0 < claimed.again <= WINDOW / 4) == (1, "spaced", True)
        while len(moments) < 6:
            moments += [lease.claimed for lease in queue.claim_within(budget, 10)]
        assert min(gaps(moments)) >= WINDOW / 4 - self.early

    def test_tq5_what_is_moderated_is_spaced_whoever_asks(self):
        queue, budget, moments = self.filled(20, "lease"), a_budget(8, WINDOW, moderate=True), []

        def work() -> None:
            while len(moments) < 10:
                moments.extend(lease.claimed for lease in queue.claim_within(budget, 2))

        together(*[work] * 4, last=queue.close)
        assert min(gaps(sorted(moments))) >= WINDOW / 8 - self.early

    def test_tq6_moderation_means_nothing_for_a_limit_of_one(self):
        queue, budget = self.filled(), a_budget(1, WINDOW, moderate=True)
        (first,) = within(queue, budget)
        assert within(queue, budget).why == "limited"
        (second,) = eventually(lambda: queue.claim_within(budget, 5))
        assert second.claimed - first.claimed >= WINDOW - self.early

    def test_tq7_tq8_what_is_elastic_catches_up_once_it_is_warm(self):
        queue, budget = self.filled(40), a_budget(4, WINDOW, moderate=True, elastic=True, buffer=1)
        moments: list[float] = []
        while len(moments) < 4:
            moments += [lease.claimed for lease in queue.claim_within(budget, 10)]
        assert min(gaps(moments)) >= WINDOW / 4 - self.early
        until_now_is(queue, moments[-1] + WINDOW + 0.01)
        assert len(within(queue, budget)) == 3
        assert within(queue, budget).why in ("spaced", "limited", "")

    def test_tq9_two_queues_share_a_budget_by_its_name(self):
        one, other, budget = self.filled(), self.filled(), a_budget(5)
        assert (len(within(one, budget, 3)), len(within(other, budget))) == (3, 2)
        assert within(one, budget) == within(other, budget) == []

    def test_two_names_are_two_budgets(self):
        queue = self.filled()
        assert [len(within(queue, a_budget(3))) for _ in range(2)] == [3, 3]

    def test_two_windows_may_share_their_spacing(self):
        queue, spacing = self.filled(), f"spacing {new_id()[-12:]}"
        one, other = (a_budget(4, LONG, spacing, moderate=True) for _ in range(2))
        assert len(within(queue, one)) == 1
        claimed = within(queue, other)
        assert (claimed, claimed.why, 0 < claimed.again <= LONG / 4) == ([], "spaced", True)

    def test_tq10_puts_are_never_throttled(self):
        queue, budget = self.filled(3), a_budget(1)
        within(queue, budget)
        put(queue, *"abc")
        assert len(queue) == 5

    def test_tq13_a_budget_that_is_forgotten_is_as_new(self):
        queue, budget = self.filled(), a_budget(2, LONG, moderate=True)
        assert len(within(queue, budget)) == 1
        queue.store.shared.forget_budget(budget)
        queue.store.shared.forget_budget(budget)
        assert len(within(queue, budget)) == 1

    def test_tq16_the_clock_of_the_worker_has_no_effect(self):
        queue, budget = self.filled(), a_budget(3)
        assert len(within(queue, budget)) == 3
        for skewed in (time.time() + 5, time.time() - 5):
            with mock.patch("time.time", return_value=skewed):
                assert (within(queue, budget), within(queue, budget).why) == ([], "limited")

    def test_of_two_windows_of_one_name_the_stricter_holds(self):
        queue, budget = self.filled(), a_budget(5)
        within(queue, budget, 1)
        assert len(within(queue, another(budget, 3))) == 2
        assert (within(queue, budget), within(queue, budget).why) == ([], "limited")

    def test_a_change_of_a_budget_holds_at_once_and_no_item_is_lost(self):
        queue, budget = self.filled(9), a_budget(2)
        assert len(within(queue, budget)) == 2
        queue.store.shared.change_budget(another(budget, 5))
        assert len(within(queue, budget)) == 3
        queue.store.shared.change_budget(another(budget, 0))
        claimed = within(queue, budget)
        assert (claimed, claimed.why, claimed.again) == ([], "limited", inf)
        queue.store.shared.change_budget(another(budget, 50))
        assert len(within(queue, budget)) == 4

    def test_a_run_spends_what_it_holds_and_the_surplus_goes_back_untried(self):
        queue, budget = self.guarded("lanes"), a_budget(3)
        fill(queue, "a", *"12345", gate=runs_of(5))
        claimed = within(queue, budget)
        assert (names(claimed), claimed.why, claimed.again > 0) == (["1", "2", "3"], "limited", True)
        assert len({lease.run for lease in claimed} - {""}) == 1
        assert (queue.stats().ready, queue.lane("a").out) == (2, 3)
        queue.complete(claimed)
        queue.store.shared.forget_budget(budget)
        rest = within(queue, budget)
        assert [(name, lease.entry.attempts) for name, lease in zip(names(rest), rest, strict=True)] == [
            ("4", 1),
            ("5", 1),
        ]

    def test_a_run_may_spend_more_than_one_slot_for_one_unit(self):
        queue, budget = self.guarded("lanes"), a_budget(10)
        fill(queue, "a", *"1234567", gate=runs_of(7))
        assert len(within(queue, budget, 1)) == 7
        put(queue, *"abcde")
        assert len(within(queue, budget)) == 3

    def test_lanes_wait_for_their_own_gates_within_a_budget(self):
        queue, budget = self.guarded("lanes"), a_budget(5)
        fill(queue, "a", *"12", gate=Gate(most=1))
        assert names(within(queue, budget)) == ["1"]
        assert within(queue, budget) == []
        put(queue, *"12345678")
        assert len(within(queue, budget)) == 4


class BudgetContract(ClaimWithinContract, SpendContract):
    """All that budgets keep."""
