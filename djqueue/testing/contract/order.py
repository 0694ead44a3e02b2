"""In which order entries come: by priority, then by the moment at which they first fell due, then by arrival."""

from __future__ import annotations

from djqueue.testing.contract.steps import Contract, claim, entry, names, put, until_now_is, with_counts
from djqueue.testing.patience import eventually

HIGHEST, LOWEST = 2**31 - 1, -(2**31)


class OrderContract(Contract):
    """The order of due entries, and the place of an entry that comes back."""

    def test_to15_one_call_or_many_first_in_is_first_out(self):
        queue = self.queue("lease", entries=["a", "b"])
        put(queue, "c")
        put(queue, "d", "e")
        assert names(claim(queue, 2)) + names(claim(queue, 3)) == list("abcde")

    def test_higher_priorities_go_first_and_ties_in_their_order(self):
        queue = self.queue("priority", entries=["x", "y"])
        given = [("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0), ("f", HIGHEST), ("g", LOWEST), ("h", -3)]
        queue.put([entry(name, priority=priority) for name, priority in given])
        leases = claim(queue, 10)
        assert names(leases) == list("fbdxyaechg")
        assert [lease.entry.priority for lease in leases] == [HIGHEST, 5, 5, 0, 0, 0, 0, -3, -3, LOWEST]
        queue.push("low", priority=-1)
        queue.push("high", priority=1)
        assert [queue.pop(), queue.pop()] == ["high", "low"]

    def test_those_that_are_put_singly_have_their_places_among_the_others(self):
        queue = self.queue("lease", "order", "priority")
        given = [("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0)]
        for number, (name, priority) in enumerate(given):
            one = entry(name, priority=priority)
            assert queue.put_new(one) if number % 2 else queue.put([one]) == [True]
        assert names(claim(queue, 5)) == list("bdaec")

    def test_what_fell_due_earlier_goes_first(self):
        queue = self.queue("lease", "order", entries=["arrived now"])
        put(queue, "due a minute ago", run_at=queue.now() - 60)
        put(queue, "due an hour ago", run_at=queue.now() - 3600)
        assert names(claim(queue, 3)) == ["due an hour ago", "due a minute ago", "arrived now"]

    def test_delayed_entries_stand_where_they_fell_due_by_their_priority(self):
        queue = self.queue("lease", "order", "priority")
        delays = {"second": 0.15, "first": 0.05, "at once": 0.0}
        queue.put([entry(name, delay=delay) for name, delay in delays.items()])
        put(queue, "high", delay=0.05, priority=1)
        until_now_is(queue, queue.now() + 0.16)
        put(queue, "last")
        assert names(claim(queue, 5)) == ["high", "at once", "first", "second", "last"]

    def test_a_released_entry_goes_back_to_its_old_place_once_it_is_due(self):
        queue = self.queue("lease", "order", "priority")
        put(queue, "a", "b", "c", priority=1)
        a, b = claim(queue, 2)
        queue.release([b])
        queue.release([a])
        put(queue, "d")
        leases = claim(queue, 4)
        assert names(leases) == list("abcd")
        queue.release([with_counts(leases[0], delay=0.05), *leases[1:]])
        put(queue, "e", priority=1)
        until_now_is(queue, queue.now() + 0.06)
        assert names(claim(queue, 5)) == list("abced")

    def test_to15_a_lost_entry_goes_back_to_its_old_place(self):
        queue = self.queue("lease", "order", "fence", entries=["a", "b"])
        claim(queue, lease=0.01)
        eventually(lambda: queue.reap().count == 1)
        put(queue, "c")
        assert names(claim(queue, 3)) == ["a", "b", "c"]

    def test_many_that_fall_due_at_once_come_in_the_order_of_their_moments(self):
        queue = self.queue("lease", "order")
        due = queue.now() + 0.3
        moments = [due - 0.001 * ((7 * number) % 30) for number in range(30)]
        queue.put([entry(f"{moment:.4f}", run_at=moment) for moment in moments])
        until_now_is(queue, due)
        assert names(claim(queue, 30)) == [f"{moment:.4f}" for moment in sorted(moments)]
