"""Whose turn it is: priorities, fair turns of lanes, and entries in no lane beside them."""

from __future__ import annotations

from djqueue.backends.base import BaseQueue
from djqueue.flow.gates import Gate
from djqueue.testing.lane_steps import LONG, OPEN, all_now, drained, fill, fill_each, lanes_of, runs_of, unit
from djqueue.testing.steps import Contract, names, put, with_counts


def one_by_one(queue: BaseQueue, count: int) -> list[str]:
    """The lanes of what comes, each claimed alone and completed."""
    found: list[str] = []
    for _ in range(count):
        leases = unit(queue)
        found += lanes_of(leases)
        queue.complete(leases)
    return found


class TurnsContract(Contract):
    """Higher priority first; among equals lanes take turns, and what is in no lane has every second one."""

    def test_sq26_lanes_take_turns_however_much_waits_in_them(self):
        queue = self.queue("lanes")
        fill(queue, "a", *map(str, range(9)))
        fill_each(queue, "bc", 2)
        taken = one_by_one(queue, 9)
        assert [sorted(taken[:3]), sorted(taken[3:6]), taken[6:]] == [["a", "b", "c"]] * 2 + [["a"] * 3]

    def test_the_lanes_of_one_claim_take_turns_too(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 4, OPEN)
        assert sorted(lanes_of(all_now(queue, 6))) == ["a", "a", "b", "b", "c", "c"]

    def test_a_new_lane_stands_behind_those_that_wait(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 3)
        assert sorted(one_by_one(queue, 2)) == ["a", "b"]
        for new in "cdef":
            fill(queue, new, "1")
        taken = one_by_one(queue, 6)
        assert (sorted(taken[:2]), sorted(taken[2:])) == (["a", "b"], ["c", "d", "e", "f"])

    def test_what_comes_back_does_not_take_the_turn_of_others(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 2)
        first = unit(queue)
        queue.release([with_counts(lease, failures=1) for lease in first])
        assert lanes_of(unit(queue)) != lanes_of(first)

    def test_higher_priorities_go_first_whether_in_a_lane_or_not(self):
        queue = self.queue("lanes")
        put(queue, "plain low", priority=-1)
        fill(queue, "a", "laned", priority=1)
        put(queue, "plain high", priority=2)
        fill(queue, "b", "laned low", priority=-2)
        assert drained(queue, 4) == ["plain high", "laned", "plain low", "laned low"]

    def test_a_lane_has_the_priority_of_its_first(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 1)
        fill(queue, "d", "urgent", priority=1)
        fill(queue, "d", "after it")
        assert drained(queue, 1) == ["urgent"]
        assert sorted(one_by_one(queue, 4)) == ["a", "b", "c", "d"]

    def test_an_urgent_entry_calls_up_its_lane(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 2)
        fill(queue, "b", "urgent", priority=5)
        assert drained(queue, 1) == ["urgent"]

    def test_lanes_and_what_is_in_none_share_a_claim(self):
        queue = self.queue("lanes")
        put(queue, *map(str, range(10)))
        fill_each(queue, "abcdefghij", 1)
        taken = lanes_of(all_now(queue, 10))
        assert taken.count("") == 5

    def test_lanes_and_what_is_in_none_alternate_over_claims(self):
        queue = self.queue("lanes")
        put(queue, *map(str, range(10)))
        fill(queue, "a", *"0123456789")
        taken = one_by_one(queue, 10)
        assert 4 <= taken.count("") <= 6

    def test_what_is_in_no_lane_goes_on_when_lanes_have_nothing_to_give_and_so_do_they(self):
        queue = self.queue("lanes")
        put(queue, *"1234")
        fill(queue, "a", "x")
        assert sorted(names(all_now(queue, 5))) == ["1", "2", "3", "4", "x"]
        fill_each(queue, "bcdef", 1)
        assert len(all_now(queue, 5)) == 5

    def test_a_run_counts_as_one_turn(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 8, runs_of(4))
        assert [sorted(set(one_by_one(queue, 2))), sorted(set(one_by_one(queue, 2)))] == [["a", "b"]] * 2

    def test_entries_of_one_lane_come_in_order_whoever_else_takes_turns(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 5, Gate(most=2))
        put(queue, *"12345")
        taken: list[str] = []
        while len(taken) < 20:
            leases = queue.claim(3, LONG)
            taken += names(leases)
            queue.complete(leases)
        for lane in "abc":
            assert [name for name in taken if name[0] == lane] == [f"{lane}{number}" for number in range(5)]
