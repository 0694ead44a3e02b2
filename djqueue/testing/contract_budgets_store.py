"""What a store keeps of budgets, the windows that all who name them share."""

from __future__ import annotations

from math import inf

from djqueue.backends.base import Budget
from djqueue.backends.stores import BaseStore, Grant
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing.contract_lanes_windows import gaps
from djqueue.testing.lane_steps import EARLY, LONG
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract

WINDOW = 0.4


def a_budget(limit: int, seconds: float = LONG, spacing: str = "", **ways) -> Budget:
    """A budget that no other test has."""
    return Budget(f"budget {new_id()[-12:]}", Window(limit, seconds, **ways), spacing)


def another(budget: Budget, limit: int, seconds: float = LONG, **ways) -> Budget:
    """The same budget, of which somebody says another window."""
    return Budget(budget.name, Window(limit, seconds, **ways), budget.spacing)


class SpendContract(Contract):
    """What a store keeps of budgets."""

    def shared(self) -> BaseStore:
        return self.guarded().store.shared

    def test_a_store_grants_what_there_is(self):
        store, budget = self.shared(), a_budget(5)
        first = store.take(budget, 3)
        assert (first.count, first.again, first.why) == (3, 0, "")
        assert abs(first.at / 1e6 - store.now()) < 5
        second = store.take(budget, 5)
        assert (second.count, second.why, LONG - 5 < second.again <= LONG) == (2, "limited", True)
        assert store.take(budget, 1)[:1] == (0,)
        assert store.take(a_budget(1), 1).count == 1

    def test_what_is_handed_back_may_be_granted_again(self):
        store, budget = self.shared(), a_budget(5)
        grant = store.take(budget, 5)
        store.give(budget, grant, 0)
        assert store.take(budget, 1).count == 0
        store.give(budget, grant, 2)
        assert store.take(budget, 5).count == 2

    def test_what_is_handed_back_does_not_make_the_grants_of_others_older(self):
        store, budget = self.shared(), a_budget(4, WINDOW)
        mine = store.take(budget, 2)
        eventually(lambda: store.now() * 1e6 > mine.at + 1e6 * WINDOW / 2)
        others = store.take(budget, 2)
        store.give(budget, mine, 2)
        assert store.take(budget, 5).count == 2
        eventually(lambda: store.now() * 1e6 > mine.at + 1e6 * WINDOW)
        later = store.take(budget, 5)
        assert later.count == 0 or later.at >= others.at + 1e6 * (WINDOW - EARLY)

    def test_a_grant_of_a_moderated_budget_that_is_handed_back_leaves_no_gap(self):
        store = self.shared()
        for spacing in ("", f"spacing {new_id()[-12:]}"):
            budget = a_budget(5, LONG, spacing, moderate=True)
            grant = store.take(budget, 1)
            assert (grant.count, store.take(budget, 1).why) == (1, "spaced")
            store.give(budget, grant, 1)
            assert store.take(budget, 1).count == 1

    def test_to_hand_back_to_a_budget_that_nobody_knows_is_nothing(self):
        store, budget = self.shared(), a_budget(5)
        store.give(budget, Grant(3, at=1), 3)
        assert store.take(budget, 9).count == 5

    def test_tq19_a_budget_is_forgotten_two_windows_after_its_last_use(self):
        store, budget = self.shared(), a_budget(5, WINDOW)
        used, laxer = store.take(budget, 5).at / 1e6, another(budget, 100, 2 * WINDOW)
        assert store.take(laxer, 9).count == 0
        eventually(lambda: store.take(laxer, 9).count == 9)
        assert store.now() - used >= WINDOW - EARLY

    def test_of_two_windows_the_stricter_holds_while_both_are_in_use(self):
        store, strict = self.shared(), a_budget(3)
        lax = another(strict, 5)
        assert store.take(lax, 2).count == 2
        assert store.take(strict, 9).count == 1
        assert (store.take(lax, 9).count, store.take(lax, 9).why) == (0, "limited")

    def test_who_says_a_window_that_allows_more_has_it_once_nobody_says_the_other(self):
        store, strict = self.shared(), a_budget(2, WINDOW)
        lax = another(strict, 100, WINDOW)
        last = store.take(strict, 1).at / 1e6
        assert store.take(lax, 9).count == 1
        eventually(lambda: store.take(lax, 9).count == 9)
        assert store.now() - last >= 2 * WINDOW - EARLY

    def test_a_change_holds_at_once_for_all_and_what_was_spent_counts(self):
        for ways in ({}, {"moderate": True}):
            store, budget = self.shared(), a_budget(5)
            assert store.take(budget, 4).count == 4
            store.change_budget(another(budget, 6, **ways))
            if not ways:
                assert [store.take(budget, 9).count for _ in range(2)] == [2, 0]
            else:
                assert store.take(budget, 9).why == "spaced"
            store.change_budget(another(budget, 3))
            assert store.take(another(budget, 50), 9).why == "limited"

    def test_a_change_outlives_what_was_spent(self):
        store, budget = self.shared(), a_budget(5, 0.05)
        store.change_budget(another(budget, 2, 0.05))
        end = store.take(budget, 9).at / 1e6 + 0.2
        eventually(lambda: store.now() > end)
        assert store.take(budget, 9).count == 2

    def test_a_limit_of_nothing_is_a_pause_until_it_is_changed(self):
        store, budget = self.shared(), a_budget(5)
        store.change_budget(another(budget, 0))
        assert store.take(budget, 1)[:3] == (0, inf, "limited")
        store.change_budget(budget)
        assert store.take(budget, 9).count == 5

    def test_what_is_handed_back_keeps_a_change(self):
        store, budget = self.shared(), a_budget(5)
        store.change_budget(another(budget, 3))
        grant = store.take(budget, 3)
        store.give(budget, grant, 2)
        assert store.take(budget, 9).count == 2

    def test_a_budget_that_was_forgotten_may_be_another(self):
        store, budget = self.shared(), a_budget(5)
        store.change_budget(another(budget, 1))
        store.take(budget, 5)
        other = another(budget, 30, 10)
        store.forget_budget(other)
        assert store.take(other, 90).count == 30

    def test_of_many_who_spend_at_once_as_many_are_granted_as_there_are(self):
        queue, budget = self.guarded(), a_budget(30)
        store = queue.store.shared
        grants = together(*[lambda: [store.take(budget, 2).count for _ in range(5)]] * 6, last=queue.close)
        assert sum(map(sum, grants)) == 30

    def test_tq3_tq15_of_many_who_spend_all_slots_are_granted_and_never_more(self):
        queue, budget = self.guarded(), a_budget(10, WINDOW)
        store, grants = queue.store.shared, []

        def spend() -> None:
            while sum(grant.count for grant in grants) < 40:
                grants.append(store.take(budget, 3))

        together(*[spend] * 6, last=queue.close)
        moments = sorted(grant.at / 1e6 for grant in grants for _ in range(grant.count))
        assert min(gaps(moments, apart=10)) >= WINDOW - 1e-5
        assert moments[39] - moments[0] < 3 * WINDOW + 2

    def test_of_many_who_spend_a_spaced_one_each_slot_is_granted_once(self):
        queue, spacing = self.guarded(), f"spacing {new_id()[-12:]}"
        store, budget = queue.store.shared, a_budget(30, LONG, spacing, moderate=True)
        grants = together(*[lambda: store.take(budget, 1).count] * 8, last=queue.close)
        assert sum(grants) == 1

    def test_more_than_a_thousand_slots_are_counted_too(self):
        store, budget = self.shared(), a_budget(2500)
        assert [store.take(budget, 700).count for _ in range(5)] == [700, 700, 700, 400, 0]

    def test_a_budget_and_a_fact_of_one_name_are_two(self):
        store, budget = self.shared(), a_budget(5)
        store.take(budget, 3)
        store.put(budget.name, b"1", 5)
        assert (store.get(budget.name), store.take(budget, 5).count) == (b"1", 2)
