"""Lanes within a lane: what leaves counts on both. And lanes whose gate is another after a deploy."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from djqueue.flow.gates import HOLD_PARK, Gate
from djqueue.flow.windows import Window
from djqueue.testing.lane_steps import (
    EARLY,
    LONG,
    ORDERED,
    all_now,
    drained,
    fill,
    fill_each,
    lanes_of,
    nothing_known,
    refused,
    runs,
    runs_of,
    so_many,
    unit,
)
from djqueue.testing.patience import eventually
from djqueue.testing.steps import Contract, names, nothing_to_claim, with_counts


def within(outer: Gate, inner: Gate = ORDERED, name: str = "all") -> Gate:
    """A gate in the line of another lane."""
    return replace(inner, within=name, outer=outer)


class WithinContract(Contract):
    """Lanes that stand in the line of another lane."""

    def test_both_gates_count(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 2, within(Gate(most=2)))
        leases = all_now(queue)
        assert (len(set(lanes_of(leases))), len(leases), refused(queue).again) == (2, 2, inf)
        assert queue.lane("all").out == 2
        queue.complete(leases[:1])
        assert len(all_now(queue)) == 1
        assert (queue.lane("all").out, queue.lane("a").within) == (2, "all")

    def test_whoever_settles_what_counted_on_both_frees_both(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 2, within(Gate(most=1)))
        for _ in range(4):
            leases = unit(queue)
            assert nothing_to_claim(queue)
            queue.complete(leases)
        assert nothing_known(queue)

    def test_tq9_lanes_within_one_share_its_window(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 3, within(so_many(4, 1.0), Gate(most=3)))
        leases = all_now(queue)
        assert (len(leases), 0 < refused(queue).again <= 1.0) == (4, True)
        later = eventually(lambda: queue.claim(10))
        assert later[0].claimed - leases[0].claimed >= 1.0 - EARLY

    def test_a_window_for_each_and_one_for_all(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 5, within(so_many(5, LONG), so_many(2, LONG)))
        taken = lanes_of(all_now(queue))
        assert sorted(map(taken.count, "abc")) == [1, 2, 2]

    def test_sq26_lanes_in_a_line_take_turns(self):
        queue = self.queue("lanes")
        fill_each(queue, "a", 8, within(Gate(most=1)))
        fill_each(queue, "bc", 2, within(Gate(most=1)))
        taken: list[str] = []
        for _ in range(9):
            leases = unit(queue)
            taken += lanes_of(leases)
            queue.complete(leases)
        assert [sorted(taken[:3]), sorted(taken[3:6]), taken[6:]] == [["a", "b", "c"]] * 2 + [["a"] * 3]

    def test_a_line_takes_one_turn_among_lanes(self):
        queue = self.queue("lanes")
        fill_each(queue, "abcd", 3, within(Gate(most=1)))
        fill_each(queue, "x", 3)
        taken: list[str] = []
        for _ in range(6):
            leases = unit(queue)
            taken += lanes_of(leases)
            queue.complete(leases)
        assert taken.count("x") == 3

    def test_higher_priorities_go_first_in_a_line(self):
        queue = self.queue("lanes")
        gate = within(Gate(most=1))
        fill_each(queue, "ab", 1, gate)
        fill(queue, "c", "urgent", gate=gate, priority=5)
        assert drained(queue, 1) == ["urgent"]

    def test_runs_of_lanes_within_one_are_runs(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 4, within(Gate(run=3, most=4), runs_of(3)))
        leases = all_now(queue)
        assert [len(run) for run in runs(leases)] == [3, 1]
        queue.complete(leases)
        assert len(drained(queue, 4)) == 4

    def test_what_the_outer_lane_lets_pass_waits_for_its_own_gate(self):
        queue = self.queue("lanes")
        fill_each(queue, "a", 3, within(Gate(most=3)))
        assert names(all_now(queue)) == ["a0"]
        fill_each(queue, "b", 1, within(Gate(most=3)))
        assert names(all_now(queue)) == ["b0"]

    def test_an_outer_lane_that_was_forgotten_is_there_when_a_lane_in_its_line_opens(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=within(Gate(most=1), so_many(1, 0.1)))
        (first,) = unit(queue)
        queue.complete([first])
        assert drained(queue, 1) == ["2"]

    def test_a_parked_lane_does_not_hold_up_its_line(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 2, within(Gate(most=1)))
        parked = unit(queue)
        queue.release([with_counts(lease, hold=HOLD_PARK) for lease in parked])
        (other,) = {"a", "b"} - set(lanes_of(parked))
        assert drained(queue, 2) == [f"{other}0", f"{other}1"]
        assert nothing_to_claim(queue)
        assert queue.open_lane(parked[0].entry.lane)
        assert drained(queue, 2) == [f"{parked[0].entry.lane}{number}" for number in range(2)]

    def test_a_parked_outer_lane_holds_up_its_line(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 2, within(Gate(most=2)))
        queue.park_lane("all", "maintenance")
        assert refused(queue).again == inf
        assert queue.open_lane("all") is True
        assert sorted(names(all_now(queue))) == ["a0", "b0"]

    def test_what_is_lost_counts_on_neither_any_more(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab", 1, within(Gate(most=1)))
        unit(queue, 0.05)
        eventually(lambda: queue.reap().count == 1)
        assert sorted(drained(queue, 2)) == ["a0", "b0"]
        assert nothing_known(queue)


class DeployContract(Contract):
    """The gate of what was put last is that of its lane."""

    def test_a_wider_gate_opens_a_lane_that_was_closed(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123", gate=Gate(most=1))
        assert names(all_now(queue)) == ["1"]
        fill(queue, "a", "4", gate=Gate(most=3))
        assert names(all_now(queue)) == ["2", "3"]

    def test_a_narrower_gate_closes_a_lane_that_was_open(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234", gate=Gate(most=3))
        leases = all_now(queue, 2)
        fill(queue, "a", "5", gate=Gate(most=1))
        assert nothing_to_claim(queue)
        queue.complete(leases[:1])
        assert nothing_to_claim(queue)
        queue.complete(leases[1:])
        assert names(all_now(queue)) == ["3"]

    def test_what_comes_back_does_not_bring_its_old_gate_with_it(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234", gate=Gate(most=1))
        leases = unit(queue)
        fill(queue, "a", "5", gate=Gate(most=2))
        queue.release(leases)
        assert names(all_now(queue)) == ["1", "2"]

    def test_a_window_that_stays_remembers_what_has_left(self):
        queue = self.queue("lanes")
        hourly = Window(3, LONG)
        fill(queue, "a", *"12345", gate=Gate(windows=(hourly, Window(2, LONG))))
        assert len(all_now(queue)) == 2
        fill(queue, "a", "6", gate=Gate(most=9, windows=(hourly,)))
        assert names(all_now(queue)) == ["3"]

    def test_a_lane_leaves_the_line_in_which_it_stood(self):
        queue = self.queue("lanes")
        fill(queue, "b", "x", gate=within(Gate(most=1)))
        leases = unit(queue)
        fill(queue, "a", *"12", gate=within(Gate(most=1)))
        assert nothing_to_claim(queue)
        fill(queue, "a", "3", gate=Gate(most=5))
        assert names(all_now(queue)) == ["1", "2", "3"]
        queue.complete(leases)
        assert queue.lane("all") is None or queue.lane("all").out == 0

    def test_a_lane_that_moves_to_another_line_leaves_nothing_behind(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=within(Gate(most=1), name="old"))
        leases = unit(queue)
        fill(queue, "a", "3", gate=within(Gate(most=1), name="new"))
        queue.complete(leases)
        assert drained(queue, 2) == ["2", "3"]
        assert nothing_known(queue)


class SharedGateContract(WithinContract, DeployContract):
    """Gates that several lanes share, and gates that change."""
