"""Calls that come too often: one at once, one when the window is over, and none lost."""

from __future__ import annotations

from djqueue.backends.base import BaseQueue, Debounce, Entry
from djqueue.backends.entries import DELAYED, READY
from djqueue.backends.guards import Mark
from djqueue.testing.patience import together
from djqueue.testing.steps import Contract, claim, names, nothing_to_claim, send, until_now_is, with_counts

LONG = 60.0
"""Seconds of a window that no test outlasts."""
SHORT = 0.15
"""Seconds of a window that is meant to end."""
ROUNDED = 0.001
"""Seconds by which a moment may be rounded."""
STEP = 0.05
"""Seconds that one step of a store may last."""


def due(queue: BaseQueue, entry: Entry) -> float:
    """When an entry fell or falls due."""
    return queue.find(entry.id).at


def scheduled(queue: BaseQueue, guard: Debounce, *others: str) -> Entry:
    """Put an entry that comes at once and one that comes when the window is over; the latter."""
    sent = send(queue, guard, "first", "scheduled")
    assert list(sent) == ["first", "scheduled"]
    return sent["scheduled"]


class DebounceContract(Contract):
    """Debounce without extending."""

    def test_df12_of_three_calls_one_comes_now_and_one_when_the_window_is_over(self):
        queue = self.guarded()
        started = queue.now()
        assert list(send(queue, Debounce("key", SHORT), "now", "then", "never")) == ["now", "then"]
        assert names(claim(queue)) == ["now"]
        (then,) = claim(queue)
        assert (names([then]), then.claimed >= started + SHORT) == (["then"], True)
        queue.complete([then])
        assert nothing_to_claim(queue)
        assert len(queue) == 0

    def test_df12_calls_one_after_another(self):
        queue = self.guarded()
        sent = [list(send(queue, Debounce("key", LONG), name)) for name in ("now", "then", "never", "never")]
        assert sent == [["now"], ["then"], [], []]
        assert names(claim(queue)) == ["now"]
        assert nothing_to_claim(queue)
        assert send(queue, Debounce("key", LONG), "never") == {}

    def test_df12_what_is_refused_leaves_nothing(self):
        queue = self.guarded("count")
        sent = together(*[lambda: len(send(queue, Debounce("key", LONG), "work"))] * 20, last=queue.close)
        assert (sum(sent), len(queue)) == (2, 2)

    def test_df12_the_second_falls_due_a_window_after_the_first(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG)
        first, second = send(queue, guard, "first")["first"], send(queue, guard, "second")["second"]
        assert [queue.find(one.id).state for one in (first, second)] == [READY, DELAYED]
        assert abs(due(queue, second) - due(queue, first) - LONG) < STEP

    def test_df12_other_keys_are_not_disturbed(self):
        queue = self.guarded()
        send(queue, Debounce("key", LONG), "first", "scheduled", "refused")
        assert list(send(queue, Debounce("other", LONG), "other")) == ["other"]
        assert sorted(names(claim(queue, 2))) == ["first", "other"]
        assert nothing_to_claim(queue)

    def test_df13_with_always_delay_the_first_is_delayed_and_the_second_refused(self):
        queue = self.guarded()
        guard = Debounce("key", SHORT, always_delay=True)
        started = queue.now()
        assert list(send(queue, guard, "first", "second", "third")) == ["first"]
        (lease,) = claim(queue)
        assert (names([lease]), lease.claimed >= started + SHORT) == (["first"], True)
        assert nothing_to_claim(queue)

    def test_df13_with_always_delay_each_that_is_accepted_is_delayed_by_the_whole_window(self):
        queue = self.guarded("inspect")
        for name in ("first", "second"):
            send(queue, Debounce("key", SHORT, always_delay=True), name)
            claim(queue)
        started = queue.now()
        sent = send(queue, Debounce("key", LONG, always_delay=True), "third")
        assert started + LONG - ROUNDED <= due(queue, sent["third"]) <= queue.now() + LONG
        assert send(queue, Debounce("key", LONG, always_delay=True), "fourth") == {}

    def test_once_the_window_is_over_the_next_comes_at_once(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", SHORT)
        first = send(queue, guard, "first")["first"]
        until_now_is(queue, due(queue, first) + SHORT + ROUNDED)
        assert queue.find(send(queue, guard, "next")["next"].id).state == READY

    def test_df14_a_call_after_the_scheduled_one_was_claimed_schedules_a_further_one(self):
        queue = self.guarded()
        guard = Debounce("key", SHORT)
        started = queue.now()
        scheduled(queue, guard)
        second = claim(queue, 2)[1]
        assert list(send(queue, guard, "further")) == ["further"]
        (third,) = claim(queue)
        assert names([third]) == ["further"]
        assert (second.claimed >= started + SHORT, third.claimed >= started + 2 * SHORT) == (True, True)

    def test_df14_what_was_completed_no_longer_stands_for_others(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", SHORT)
        second = scheduled(queue, guard)
        was = due(queue, second)
        queue.complete(claim(queue, 2))
        called = queue.now()
        further = send(queue, guard, "further")["further"]
        assert max(called, was + SHORT) - ROUNDED <= due(queue, further) <= max(queue.now(), was + SHORT) + ROUNDED

    def test_df14_no_call_is_lost_and_due_moments_keep_apart(self):
        queue = self.guarded("inspect")
        guard, moments = Debounce("key", SHORT), []
        for turn in range(40):
            called = queue.now()
            sent = send(queue, guard, str(turn))
            moments += [due(queue, one) for one in sent.values()]
            assert max(moments) >= called - ROUNDED or len(queue) > 0
            until_now_is(queue, called + 0.02)
            if turn % 3 == 0:
                queue.complete(queue.claim(5))
        apart = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
        assert len(moments) > 3
        assert min(apart) >= SHORT - 0.02

    def test_df14_after_the_last_of_many_simultaneous_calls_one_comes(self):
        queue = self.guarded()
        guard, called, claimed = Debounce("key", 0.05), [queue.now()], []
        send(queue, guard, "first")
        end = queue.now() + 0.3

        def produce() -> None:
            while (now := queue.now()) < end:
                called.append(now)
                send(queue, guard, "work")

        def consume() -> None:
            while queue.now() < end:
                leases = queue.claim(2)
                claimed.extend(lease.claimed for lease in leases)
                queue.complete(leases)

        together(*[produce] * 3, consume, consume, last=queue.close)
        # In one look, and with what is leased: a queue may hold what is not due.
        while (left := queue.stats()).ready or left.delayed or left.leased:
            claimed.extend(lease.claimed for lease in queue.complete(claim(queue)))
        assert max(claimed) >= max(called) - ROUNDED

    def test_df15_of_twenty_simultaneous_calls_one_comes_at_once_and_one_is_delayed(self):
        queue = self.guarded()
        sent = together(*[lambda: len(send(queue, Debounce("key", LONG), "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 18 + [1, 1]
        claim(queue)
        assert nothing_to_claim(queue)

    def test_df17_a_window_is_exact_to_the_millisecond(self):
        queue = self.guarded("inspect")
        sent = send(queue, Debounce("key", 1.005, always_delay=True), "work")["work"]
        mark = Mark.read(queue.store.get("key"))
        assert (mark.id, mark.at - mark.first, mark.scheduled) == (sent.id, 1_005_000, True)
        assert abs(due(queue, sent) - mark.at / 1e6) < ROUNDED

    def test_df17_two_queues_do_not_disturb_each_other(self):
        one, other = self.guarded(), self.guarded()
        for queue in (one, other):
            assert list(send(queue, Debounce("key", LONG), "first", "scheduled", "no")) == ["first", "scheduled"]
            assert names(claim(queue)) == ["first"]
            assert nothing_to_claim(queue)

    def test_a_first_one_that_still_waits_does_not_stand_for_others(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG)
        send(queue, guard, "first")
        assert queue.find(send(queue, guard, "second")["second"].id).state == DELAYED

    def test_a_scheduled_one_that_is_due_and_still_waits_stands_for_others(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", SHORT)
        second = scheduled(queue, guard)
        was = due(queue, second)
        until_now_is(queue, was)
        assert send(queue, guard, "refused") == {}
        assert (queue.find(second.id).state, abs(due(queue, second) - was) < ROUNDED) == (READY, True)
        assert names(claim(queue, 2)) == ["first", "scheduled"]
        assert due(queue, send(queue, guard, "further")["further"]) >= was + SHORT - ROUNDED

    def test_a_scheduled_one_that_is_tried_again_stands_for_others(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", SHORT)
        scheduled(queue, guard)
        queue.release([with_counts(lease, delay=LONG, failures=1) for lease in claim(queue, 2)])
        assert send(queue, guard, "refused") == {}

    def test_a_scheduled_one_that_was_removed_gives_its_moment_to_the_next(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG)
        second = scheduled(queue, guard)
        was = due(queue, second)
        queue.remove([second.id])
        until_now_is(queue, queue.now() + 0.01)
        sent = send(queue, guard, "instead", "refused")
        assert list(sent) == ["instead"]
        assert abs(due(queue, sent["instead"]) - was) < ROUNDED

    def test_a_scheduled_one_that_was_flushed_gives_its_moment_to_the_next(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG)
        was = due(queue, scheduled(queue, guard))
        queue.flush()
        until_now_is(queue, queue.now() + 0.01)
        sent = send(queue, guard, "instead", "refused")
        assert list(sent) == ["instead"]
        assert abs(due(queue, sent["instead"]) - was) < ROUNDED
