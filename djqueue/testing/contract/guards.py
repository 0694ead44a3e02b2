"""Guards of a put: once, unique, debounced. Mix GuardContract into a test class, as QueueContract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from djqueue.backends.base import BaseQueue, DebounceGuard, Entry, Guard, OnceGuard, UniqueGuard
from djqueue.backends.entries import DELAYED, READY
from djqueue.backends.guards import DedupMark
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.steps import (
    Contract,
    claim,
    entry,
    names,
    nothing_to_claim,
    send,
    until_now_is,
    with_counts,
)
from djqueue.testing.patience import eventually, together

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


def raced(queue: BaseQueue, count: int, *kinds: Callable[[str], Guard]) -> int:
    """How many entries are accepted of six puts at once, which name the same keys in different orders."""

    def call(turn: int) -> int:
        numbers = [(number * 7 + turn * 3) % count for number in range(count)]
        return sum(queue.put([entry() for _ in numbers], [kinds[n % len(kinds)](f"key {n}") for n in numbers]))

    return sum(together(*[lambda turn=turn: call(turn) for turn in range(6)], last=queue.close))


class DebounceContract(Contract):
    """Debounce without extending."""

    window = SHORT
    """Seconds within which three calls are made."""

    def with_scheduled(self, window: float) -> tuple[BaseQueue, DebounceGuard, Entry]:
        """A queue with an entry due at once and one due when the window is over; its guard; the latter entry."""
        queue, guard = self.guarded("inspect"), DebounceGuard("key", window)
        sent = send(queue, guard, "first", "scheduled")
        assert list(sent) == ["first", "scheduled"]
        return queue, guard, sent["scheduled"]

    def test_df12_of_three_calls_one_comes_now_and_one_when_the_window_is_over(self):
        queue = self.guarded()
        started = queue.now()
        assert list(send(queue, DebounceGuard("key", self.window), "now", "then", "never")) == ["now", "then"]
        assert names(claim(queue)) == ["now"]
        (then,) = claim(queue)
        assert (names([then]), then.claimed >= started + self.window) == (["then"], True)
        queue.complete([then])
        assert nothing_to_claim(queue)
        assert len(queue) == 0

    def test_df12_df17_calls_one_after_another_disturb_neither_other_keys_nor_other_queues(self):
        for queue in (self.guarded(), self.guarded()):
            sent = [list(send(queue, DebounceGuard("key", LONG), name)) for name in ("now", "then", "never", "never")]
            assert sent == [["now"], ["then"], [], []]
            assert list(send(queue, DebounceGuard("other", LONG), "other")) == ["other"]
            assert sorted(names(claim(queue, 2))) == ["now", "other"]
            assert nothing_to_claim(queue)
            assert send(queue, DebounceGuard("key", LONG), "never") == {}

    def test_df12_the_second_falls_due_a_window_after_the_first_that_still_waits(self):
        queue = self.guarded("inspect")
        guard = DebounceGuard("key", LONG)
        first, second = send(queue, guard, "first")["first"], send(queue, guard, "second")["second"]
        assert [queue.find(one.id).state for one in (first, second)] == [READY, DELAYED]
        assert abs(due(queue, second) - due(queue, first) - LONG) < STEP

    def test_df13_with_always_delay_the_first_is_delayed_and_the_second_refused(self):
        queue = self.guarded()
        guard = DebounceGuard("key", self.window, always_delay=True)
        started = queue.now()
        assert list(send(queue, guard, "first", "second", "third")) == ["first"]
        (lease,) = claim(queue)
        assert (names([lease]), lease.claimed >= started + self.window) == (["first"], True)
        assert nothing_to_claim(queue)

    def test_df13_df17_with_always_delay_each_that_is_accepted_is_delayed_by_exactly_the_whole_window(self):
        queue = self.guarded("inspect")
        for name in ("first", "second"):
            send(queue, DebounceGuard("key", SHORT, always_delay=True), name)
            claim(queue)
        exact, started = DebounceGuard("key", 61.005, always_delay=True), queue.now()
        third = send(queue, exact, "third")["third"]
        assert started + exact.window - ROUNDED <= due(queue, third) <= queue.now() + exact.window
        assert send(queue, exact, "fourth") == {}
        mark = DedupMark.read(queue.store.get("key"))
        assert (mark.id, mark.at - mark.first, mark.scheduled) == (third.id, 61_005_000, True)
        assert abs(due(queue, third) - mark.at / 1e6) < ROUNDED

    def test_once_the_window_is_over_the_next_comes_at_once(self):
        queue = self.guarded("inspect")
        guard = DebounceGuard("key", SHORT)
        first = send(queue, guard, "first")["first"]
        until_now_is(queue, due(queue, first) + SHORT + ROUNDED)
        assert queue.find(send(queue, guard, "next")["next"].id).state == READY

    def test_df14_a_call_after_the_scheduled_one_was_claimed_schedules_a_further_one(self):
        queue = self.guarded()
        guard = DebounceGuard("key", SHORT)
        started = queue.now()
        send(queue, guard, "first", "scheduled")
        second = claim(queue, 2)[1]
        assert list(send(queue, guard, "further")) == ["further"]
        (third,) = claim(queue)
        assert names([third]) == ["further"]
        assert (second.claimed >= started + SHORT, third.claimed >= started + 2 * SHORT) == (True, True)

    def test_df14_what_was_completed_no_longer_stands_for_others(self):
        queue, guard, second = self.with_scheduled(SHORT)
        was = due(queue, second)
        queue.complete(claim(queue, 2))
        called = queue.now()
        further = send(queue, guard, "further")["further"]
        assert max(called, was + SHORT) - ROUNDED <= due(queue, further) <= max(queue.now(), was + SHORT) + ROUNDED

    def test_df14_no_call_is_lost_and_due_moments_keep_apart(self):
        queue = self.guarded("inspect")
        guard, moments = DebounceGuard("key", SHORT), []
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
        guard, called, claimed = DebounceGuard("key", 0.05), [queue.now()], []
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
        # One call of stats(), leased entries counted: a backend may lease an entry that is not due.
        while (left := queue.stats()).ready or left.delayed or left.leased:
            claimed.extend(lease.claimed for lease in queue.complete(claim(queue)))
        assert max(claimed) >= max(called) - ROUNDED

    def test_df12_df15_of_twenty_simultaneous_calls_one_comes_at_once_one_is_delayed_and_others_leave_nothing(self):
        queue = self.guarded()
        sent = together(*[lambda: len(send(queue, DebounceGuard("key", LONG), "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 18 + [1, 1]
        assert len(queue) == 2 or "count" not in queue.features
        claim(queue)
        assert nothing_to_claim(queue)

    def test_a_scheduled_one_that_is_due_and_still_waits_stands_for_others(self):
        queue, guard, second = self.with_scheduled(SHORT)
        was = due(queue, second)
        until_now_is(queue, was)
        assert send(queue, guard, "refused") == {}
        assert (queue.find(second.id).state, abs(due(queue, second) - was) < ROUNDED) == (READY, True)
        assert names(claim(queue, 2)) == ["first", "scheduled"]
        assert due(queue, send(queue, guard, "further")["further"]) >= was + SHORT - ROUNDED

    def test_a_scheduled_one_that_is_tried_again_stands_for_others(self):
        queue, guard, _ = self.with_scheduled(SHORT)
        queue.release([with_counts(lease, delay=LONG, failures=1) for lease in claim(queue, 2)])
        assert send(queue, guard, "refused") == {}

    def test_a_scheduled_one_that_was_removed_or_flushed_gives_its_moment_to_the_next(self):
        for flushed in (False, True):
            queue, guard, second = self.with_scheduled(LONG)
            was = due(queue, second)
            queue.flush() if flushed else queue.remove([second.id])
            until_now_is(queue, queue.now() + 0.01)
            sent = send(queue, guard, "instead", "refused")
            assert list(sent) == ["instead"]
            assert abs(due(queue, sent["instead"]) - was) < ROUNDED


# ---- Calls that postpone the waiting call


class ExtendContract(Contract):
    """Debounce that postpones the waiting call."""

    def test_the_first_is_delayed_and_each_call_postpones_it_to_a_window_from_then(self):
        queue = self.guarded("inspect")
        guard = DebounceGuard("key", LONG, extend=True)
        (first,) = send(queue, guard, "first").values()
        for _ in range(3):
            was = due(queue, first)
            until_now_is(queue, was - LONG + 0.01)
            called = queue.now()
            assert send(queue, guard, "refused") == {}
            assert max(called + LONG, was + 0.01) - ROUNDED <= due(queue, first) <= queue.now() + LONG + ROUNDED
        record = queue.find(first.id)
        assert (record.state, record.entry.body, len(queue)) == (DELAYED, b"first", 1)

    def test_what_is_postponed_comes_at_its_new_moment(self):
        queue = self.guarded("inspect")
        first = send(queue, DebounceGuard("key", 30, extend=True), "first")["first"]
        send(queue, DebounceGuard("key", 0.2, extend=True), "refused")
        second = send(queue, DebounceGuard("other", 40, extend=True), "second")["second"]
        send(queue, DebounceGuard("key", LONG, extend=True), "refused")
        assert [record.entry.id for record in queue.peek(DELAYED)] == [second.id, first.id]
        assert 30 < queue.claim(1).retry_after <= 40
        queue.remove([second.id])
        assert 50 < queue.claim(1).retry_after <= LONG

    def test_what_is_postponed_is_not_claimed_before(self):
        queue = self.guarded("inspect")
        first = send(queue, DebounceGuard("key", 1.0, extend=True), "first")["first"]
        was = due(queue, first)
        send(queue, DebounceGuard("key", 1.5, extend=True), "refused")
        postponed = due(queue, first)
        assert postponed > was + 0.4 or queue.now() > was
        (lease,) = claim(queue)
        assert lease.claimed >= postponed - ROUNDED

    def test_it_is_postponed_no_further_than_its_longest_wait_after_the_first_call(self):
        queue = self.guarded("inspect")
        guard = DebounceGuard("key", LONG, extend=True, max_wait=LONG + 0.05)
        first = send(queue, guard, "first")["first"]
        latest = due(queue, first) + 0.05
        for moment in (0.06, 0.12):
            until_now_is(queue, latest - LONG - 0.05 + moment)
            assert send(queue, guard, "refused") == {}
            assert abs(due(queue, first) - latest) < ROUNDED

    def test_it_is_never_brought_forward(self):
        queue = self.guarded("inspect")
        first = send(queue, DebounceGuard("key", LONG, extend=True), "first")["first"]
        was = due(queue, first)
        for guard in (DebounceGuard("key", 1, extend=True), DebounceGuard("key", LONG, extend=True, max_wait=1)):
            assert send(queue, guard, "refused") == {}
            assert abs(due(queue, first) - was) < ROUNDED

    def test_what_is_due_and_still_waits_or_is_tried_again_is_not_postponed(self):
        queue = self.guarded("inspect")
        first = send(queue, DebounceGuard("key", SHORT, extend=True), "first")["first"]
        was = due(queue, first)
        until_now_is(queue, was)
        assert send(queue, DebounceGuard("key", LONG, extend=True), "refused") == {}
        assert (queue.find(first.id).state, abs(due(queue, first) - was) < ROUNDED) == (READY, True)
        leases = claim(queue)
        assert names(leases) == ["first"]
        queue.release([with_counts(lease, delay=10) for lease in leases])
        was = due(queue, first)
        assert send(queue, DebounceGuard("key", LONG, extend=True), "refused") == {}
        assert abs(due(queue, first) - was) < ROUNDED

    def test_a_call_after_it_was_removed_or_claimed_is_a_first_one(self):
        queue = self.guarded("inspect")
        for window, end in ((LONG, "removed"), (SHORT, "claimed"), (LONG, "")):
            called = queue.now()
            sent = send(queue, DebounceGuard("key", window, extend=True), "work")["work"]
            assert called + window - ROUNDED <= due(queue, sent) <= queue.now() + window
            if end == "removed":
                queue.remove([sent.id])
            elif end == "claimed":
                claim(queue)

    def test_of_twenty_simultaneous_calls_one_is_accepted_and_postponed(self):
        queue = self.guarded("inspect")
        guard = DebounceGuard("key", LONG, extend=True)
        started = queue.now()
        sent = together(*[lambda: len(send(queue, guard, "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 19 + [1]
        (record,) = queue.peek(DELAYED)
        assert started + LONG - ROUNDED <= record.at <= queue.now() + LONG
        assert abs(record.at - DedupMark.read(queue.store.get("key")).at / 1e6) < ROUNDED


# ---- Guards next to an entry in a put. Mix GuardContract into a test class, as QueueContract


class OnceContract(Contract):
    """One entry per key and time, and what holds for every kind of guard."""

    def test_a_guard_lets_one_entry_per_key_pass(self):
        queue = self.guarded()
        guards = [OnceGuard("a", LONG), OnceGuard("b", LONG), OnceGuard("a", LONG), None]
        assert queue.put([entry() for _ in guards], guards) == [True, True, False, True]
        assert queue.put([entry(), entry()], [OnceGuard("b", LONG), OnceGuard("c", LONG)]) == [False, True]
        assert len(queue) == 4

    def test_a_guard_ends_with_its_time_not_with_its_entry(self):
        queue = self.guarded()
        assert queue.put([entry(), entry()], [OnceGuard("long", LONG), OnceGuard("short", 0.05)]) == [True, True]
        queue.complete(claim(queue, 2))
        assert queue.put([entry()], [OnceGuard("long", LONG)]) == [False]
        eventually(lambda: queue.put([entry()], [OnceGuard("short", LONG)]) == [True])

    def test_dj12_of_twenty_threads_with_one_key_exactly_one_passes(self):
        queue = self.guarded()
        accepted = together(*[lambda: queue.put([entry()], [OnceGuard("tick", LONG)])] * 20, last=queue.close)
        assert sorted(accepted) == [[False]] * 19 + [[True]]
        assert len(queue) == 1

    def test_guards_are_decided_in_the_order_of_the_call(self):
        queue = self.guarded()
        entries = [entry(name, id=id + new_id()[1:]) for name, id in (("first", "z"), ("second", "a"), ("third", "m"))]
        assert queue.put(entries, [OnceGuard("key", LONG)] * 3) == [True, False, False]
        assert names(claim(queue)) == ["first"]

    def test_guards_of_many_keys_race_without_deadlock(self):
        queue = self.guarded()
        assert raced(queue, 20, lambda key: OnceGuard(key, LONG)) == len(queue) == 20

    def test_guards_of_all_kinds_race_without_deadlock(self):
        queue = self.guarded("inspect")
        kinds = [lambda key: OnceGuard(key, LONG), UniqueGuard, lambda key: DebounceGuard(key, LONG)]
        assert raced(queue, 18, *kinds) == len(queue) == 6 + 6 + 2 * 6

    def test_guards_of_all_kinds_stand_in_one_put(self):
        queue = self.guarded("inspect")
        guards = [
            OnceGuard("g", LONG),
            UniqueGuard("u"),
            DebounceGuard("d", LONG),
            None,
            DebounceGuard("a", LONG, always_delay=True),
        ]
        entries = [entry(name) for name in ("guard", "unique", "first", "none", "later")]
        again = [replace(one, id=new_id(), body=b"again " + one.body) for one in entries]
        told = queue.put(entries + again, guards + guards)
        assert told == [True] * 5 + [False, False, True, True, False]
        assert names(claim(queue, 5)) == ["guard", "unique", "first", "none", "again none"]
        assert nothing_to_claim(queue)
        assert len(queue) == 2

    def test_an_entry_that_its_guard_refuses_leaves_nothing(self):
        queue = self.guarded("inspect")
        late = {"always_delay": True}
        for guard in (OnceGuard("once", LONG), UniqueGuard("unique"), DebounceGuard("key", LONG, **late)):
            refused = entry("refused")
            assert queue.put([entry("first"), refused], [guard] * 2) == [True, False]
            assert queue.find(refused.id) is None
            assert queue.put([refused]) == [True]

    def test_an_id_that_is_known_is_refused_before_its_guard_is_asked(self):
        queue = self.guarded("inspect", "idempotent")
        known = entry()
        queue.put([known])
        guards = [OnceGuard("once", LONG), UniqueGuard("unique"), DebounceGuard("key", LONG)]
        assert queue.put([known] * 3, guards) == [False] * 3
        queue.claim(1)
        assert queue.put([known] * 3, guards) == [False] * 3
        fresh = [entry() for _ in guards]
        assert queue.put(fresh, guards) == [True] * 3
        assert [queue.find(one.id).state for one in fresh] == ["ready"] * 3

    def test_an_id_that_is_remembered_is_refused_before_its_guard_is_asked(self):
        queue = self.queue_with("remember_done", LONG, "lease")
        done = entry()
        queue.put([done])
        queue.complete(claim(queue))
        for guard in (OnceGuard("once", LONG), DebounceGuard("key", LONG)):
            assert (queue.put([done], [guard]), queue.store.get(guard.key)) == ([False], None)
            assert queue.put([entry()], [guard]) == [True]

    def test_two_queues_have_guards_of_their_own(self):
        one, other = self.guarded("inspect"), self.guarded("inspect")
        guards = [OnceGuard("once", LONG), UniqueGuard("unique"), DebounceGuard("key", LONG, always_delay=True)]
        for queue in (one, other):
            assert queue.put([entry() for _ in guards], guards) == [True] * 3


class UniqueContract(Contract):
    """One entry per key for as long as it is there."""

    def test_while_one_waits_another_is_refused(self):
        queue = self.guarded("inspect")
        assert list(send(queue, UniqueGuard("a"), "first", "second")) == ["first"]
        assert list(send(queue, UniqueGuard("b"), "other", delay=LONG)) == ["other"]
        for running in (True, False):
            assert (
                send(queue, UniqueGuard("a", running), "third") == send(queue, UniqueGuard("b", running), "third") == {}
            )
        assert list(send(queue, UniqueGuard("c"), "free")) == ["free"]
        assert len(queue) == 3

    def test_while_one_runs_another_is_refused_or_not_as_the_guard_says(self):
        queue = self.guarded("inspect")
        send(queue, UniqueGuard("key"), "first")
        claim(queue)
        assert send(queue, UniqueGuard("key"), "refused") == {}
        assert list(send(queue, UniqueGuard("key", running=False), "second")) == ["second"]
        assert send(queue, UniqueGuard("key", running=False), "third") == {}
        assert names(claim(queue)) == ["second"]

    def test_what_is_completed_failed_removed_or_flushed_lets_the_next_pass(self):
        queue = self.guarded("inspect")
        ends = [
            lambda: queue.complete(claim(queue)),
            lambda: queue.fail(claim(queue)),
            lambda: queue.remove([queue.peek("ready")[0].entry.id]),
            queue.flush,
        ]
        for end in ends:
            assert len(send(queue, UniqueGuard("key"), "work")) == 1
            assert send(queue, UniqueGuard("key"), "refused") == {}
            end()
        later = send(queue, UniqueGuard("key"), "later", delay=LONG)["later"]
        queue.remove([later.id])
        assert len(send(queue, UniqueGuard("key"), "work")) == 1

    def test_what_is_lost_released_or_requeued_keeps_others_out_as_before(self):
        for running in (True, False):
            queue = self.guarded("inspect")
            guard = UniqueGuard("key", running)
            work = send(queue, guard, "work")["work"]
            claim(queue, lease=0.01)
            eventually(lambda queue=queue: queue.reap().count == 1)
            assert send(queue, guard, "refused") == {}
            queue.fail(claim(queue))
            queue.requeue([work.id])
            assert send(queue, guard, "refused") == {}
            queue.release(claim(queue))
            assert send(queue, guard, "refused") == {}
            queue.release([with_counts(lease, delay=LONG, failures=1) for lease in claim(queue)])
            assert send(queue, guard, "refused") == {}

    def test_of_twenty_unique_entries_put_at_once_exactly_one_is_accepted(self):
        queue = self.guarded("inspect")
        sent = together(*[lambda: len(send(queue, UniqueGuard("key"), "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 19 + [1]
        assert len(queue) == 1

    def test_unique_entries_never_run_beside_each_other(self):
        queue = self.guarded("inspect")
        sent, running, beside, done = [], [], [], []

        def work() -> None:
            while len(done) < 15:
                sent.append(send(queue, UniqueGuard("key"), "work"))
                held = queue.claim(2)
                running.extend(held)
                if held:
                    hold(len(sent))
                    beside.append(len(running))
                for lease in held:
                    running.remove(lease)
                done.extend(queue.complete(held))

        def hold(before: int) -> None:
            """Wait until the others have tried to send theirs, or run it."""
            eventually(lambda: len(sent) > before + 3 or len(running) > 1 or len(done) >= 15)

        together(*[work] * 4, last=queue.close)
        assert set(beside) == {1}


class GuardContract(OnceContract, UniqueContract, DebounceContract, ExtendContract):
    """All suites about guards, for a queue with a store."""
