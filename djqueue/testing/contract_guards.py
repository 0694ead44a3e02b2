"""What may stand beside an entry in a put. Mix GuardContract into a test class, as QueueContract."""

from __future__ import annotations

from dataclasses import replace

from djqueue.backends.base import Debounce, Guard, Unique
from djqueue.messages.envelope import new_id
from djqueue.testing.contract_debounce import LONG, DebounceContract
from djqueue.testing.contract_extend import ExtendContract
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, claim, entry, names, nothing_to_claim, send, with_counts


class OnceContract(Contract):
    """One entry per key and time, and what holds for every kind of guard."""

    def test_a_guard_lets_one_entry_per_key_pass(self):
        queue = self.guarded()
        guards = [Guard("a", LONG), Guard("b", LONG), Guard("a", LONG), None]
        assert queue.put([entry() for _ in guards], guards) == [True, True, False, True]
        assert queue.put([entry(), entry()], [Guard("b", LONG), Guard("c", LONG)]) == [False, True]
        assert len(queue) == 4

    def test_a_guard_ends_with_its_time_not_with_its_entry(self):
        queue = self.guarded()
        assert queue.put([entry(), entry()], [Guard("long", LONG), Guard("short", 0.05)]) == [True, True]
        queue.complete(claim(queue, 2))
        assert queue.put([entry()], [Guard("long", LONG)]) == [False]
        eventually(lambda: queue.put([entry()], [Guard("short", LONG)]) == [True])

    def test_dj12_of_twenty_threads_with_one_key_exactly_one_passes(self):
        queue = self.guarded()
        accepted = together(*[lambda: queue.put([entry()], [Guard("tick", LONG)])] * 20, last=queue.close)
        assert sorted(accepted) == [[False]] * 19 + [[True]]
        assert len(queue) == 1

    def test_guards_are_decided_in_the_order_of_the_call(self):
        queue = self.guarded()
        entries = [entry(name, id=id + new_id()[1:]) for name, id in (("first", "z"), ("second", "a"), ("third", "m"))]
        assert queue.put(entries, [Guard("key", LONG)] * 3) == [True, False, False]
        assert names(claim(queue)) == ["first"]

    def test_guards_of_many_keys_race_without_deadlock(self):
        queue = self.guarded()

        def call(turn: int) -> int:
            keys = [f"key {(number * 7 + turn * 3) % 20}" for number in range(20)]
            return sum(queue.put([entry() for _ in keys], [Guard(key, LONG) for key in keys]))

        sent = together(*[lambda turn=turn: call(turn) for turn in range(6)], last=queue.close)
        assert sum(sent) == len(queue) == 20

    def test_guards_of_all_kinds_race_without_deadlock(self):
        queue = self.guarded("inspect")
        kinds = [lambda key: Guard(key, LONG), Unique, lambda key: Debounce(key, LONG)]

        def call(turn: int) -> int:
            numbers = [(number * 7 + turn * 3) % 18 for number in range(18)]
            return sum(queue.put([entry() for _ in numbers], [kinds[n % 3](f"key {n}") for n in numbers]))

        sent = together(*[lambda turn=turn: call(turn) for turn in range(6)], last=queue.close)
        assert sum(sent) == len(queue) == 6 + 6 + 2 * 6

    def test_guards_of_all_kinds_stand_in_one_put(self):
        queue = self.guarded("inspect")
        guards = [Guard("g", LONG), Unique("u"), Debounce("d", LONG), None, Debounce("a", LONG, always_delay=True)]
        entries = [entry(name) for name in ("guard", "unique", "first", "none", "later")]
        again = [replace(one, id=new_id(), data=b"again " + one.data) for one in entries]
        told = queue.put(entries + again, guards + guards)
        assert told == [True] * 5 + [False, False, True, True, False]
        assert names(claim(queue, 5)) == ["guard", "unique", "first", "none", "again none"]
        assert nothing_to_claim(queue)
        assert len(queue) == 2

    def test_an_entry_that_its_guard_refuses_leaves_nothing(self):
        queue = self.guarded("inspect")
        late = {"always_delay": True}
        for guard in (Guard("once", LONG), Unique("unique"), Debounce("key", LONG, **late)):
            refused = entry("refused")
            assert queue.put([entry("first"), refused], [guard] * 2) == [True, False]
            assert queue.find(refused.id) is None
            assert queue.put([refused]) == [True]

    def test_an_id_that_is_known_is_refused_before_its_guard_is_asked(self):
        queue = self.guarded("inspect", "idempotent")
        known = entry()
        queue.put([known])
        guards = [Guard("once", LONG), Unique("unique"), Debounce("key", LONG)]
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
        assert queue.put([done], [Guard("key", LONG)]) == [False]
        assert queue.put([entry()], [Guard("key", LONG)]) == [True]

    def test_two_queues_have_guards_of_their_own(self):
        one, other = self.guarded("inspect"), self.guarded("inspect")
        guards = [Guard("once", LONG), Unique("unique"), Debounce("key", LONG, always_delay=True)]
        for queue in (one, other):
            assert queue.put([entry() for _ in guards], guards) == [True] * 3


class UniqueContract(Contract):
    """One entry per key for as long as it is there."""

    def test_while_one_waits_another_is_refused(self):
        queue = self.guarded("inspect")
        assert list(send(queue, Unique("a"), "first", "second")) == ["first"]
        assert list(send(queue, Unique("b"), "other", delay=LONG)) == ["other"]
        for running in (True, False):
            assert send(queue, Unique("a", running), "third") == send(queue, Unique("b", running), "third") == {}
        assert list(send(queue, Unique("c"), "free")) == ["free"]
        assert len(queue) == 3

    def test_while_one_runs_another_is_refused_or_not_as_the_guard_says(self):
        queue = self.guarded("inspect")
        send(queue, Unique("key"), "first")
        claim(queue)
        assert send(queue, Unique("key"), "refused") == {}
        assert list(send(queue, Unique("key", running=False), "second")) == ["second"]
        assert send(queue, Unique("key", running=False), "third") == {}
        assert names(claim(queue)) == ["second"]

    def test_what_is_completed_buried_removed_or_flushed_lets_the_next_pass(self):
        queue = self.guarded("inspect")
        ends = [
            lambda: queue.complete(claim(queue)),
            lambda: queue.bury(claim(queue)),
            lambda: queue.remove([queue.peek("ready")[0].entry.id]),
            queue.flush,
        ]
        for end in ends:
            assert len(send(queue, Unique("key"), "work")) == 1
            assert send(queue, Unique("key"), "refused") == {}
            end()
        assert len(send(queue, Unique("key"), "work")) == 1

    def test_a_delayed_one_that_is_removed_lets_the_next_pass(self):
        queue = self.guarded("inspect")
        later = send(queue, Unique("key"), "later", delay=LONG)["later"]
        queue.remove([later.id])
        assert len(send(queue, Unique("key"), "next")) == 1

    def test_what_is_released_keeps_others_out_as_before(self):
        for running in (True, False):
            queue = self.guarded("inspect")
            guard = Unique("key", running)
            send(queue, guard, "work")
            queue.release(claim(queue))
            assert send(queue, guard, "refused") == {}
            queue.release([with_counts(lease, delay=LONG, failures=1) for lease in claim(queue)])
            assert send(queue, guard, "refused") == {}

    def test_what_is_lost_keeps_others_out_as_before(self):
        queue = self.guarded("inspect")
        send(queue, Unique("key", running=False), "work")
        claim(queue, lease=0.01)
        eventually(lambda: queue.reap().count == 1)
        assert send(queue, Unique("key", running=False), "refused") == {}

    def test_what_is_revived_keeps_others_out_again(self):
        queue = self.guarded("inspect")
        work = send(queue, Unique("key"), "work")["work"]
        queue.bury(claim(queue))
        queue.revive([work.id])
        assert send(queue, Unique("key"), "refused") == {}

    def test_of_twenty_unique_entries_put_at_once_exactly_one_is_accepted(self):
        queue = self.guarded("inspect")
        sent = together(*[lambda: len(send(queue, Unique("key"), "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 19 + [1]
        assert len(queue) == 1

    def test_unique_entries_never_run_beside_each_other(self):
        queue = self.guarded("inspect")
        sent, running, beside, done = [], [], [], []

        def work() -> None:
            while len(done) < 15:
                sent.append(send(queue, Unique("key"), "work"))
                held = queue.claim(2)
                running.extend(held)
                if held:
                    hold(len(sent))
                    beside.append(len(running))
                for lease in held:
                    running.remove(lease)
                done.extend(queue.complete(held))

        def hold(before: int) -> None:
            """Until the others have tried to send theirs, or run it."""
            eventually(lambda: len(sent) > before + 3 or len(running) > 1 or len(done) >= 15)

        together(*[work] * 4, last=queue.close)
        assert set(beside) == {1}


class GuardContract(OnceContract, UniqueContract, DebounceContract, ExtendContract):
    """All that a queue with a store keeps about what stands beside an entry."""
