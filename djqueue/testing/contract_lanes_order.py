"""What an ordered lane gives, and when."""

from __future__ import annotations

from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.testing.lane_steps import (
    LONG,
    all_now,
    drained,
    fill,
    fill_each,
    nothing_known,
    refused,
    runs_of,
    unit,
)
from djqueue.testing.patience import eventually
from djqueue.testing.steps import Contract, names, nothing_to_claim, put, with_counts

SHORT = 0.05
"""Seconds of a lease that is meant to run out."""


def lost(queue: BaseQueue) -> list[Lease]:
    """The leases of a unit that ran out and were reaped."""
    leases, reaped = unit(queue, SHORT), []
    eventually(lambda: reaped.append(queue.reap().count) or sum(reaped) == len(leases))
    return leases


class OrderedContract(Contract):
    """Lanes that keep their order."""

    def test_sq1_an_ordered_lane_gives_one_entry_at_a_time_in_order(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123")
        for name in "123":
            leases = unit(queue)
            assert (names(leases), nothing_to_claim(queue)) == ([name], True)
            queue.complete(leases)
        assert nothing_known(queue)

    def test_sq2_different_lanes_are_out_beside_each_other(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 2)
        assert sorted(names(all_now(queue))) == ["a0", "b0", "c0"]
        assert refused(queue).again == inf

    def test_an_entry_whose_lane_has_no_gate_waits_for_nobody(self):
        queue = self.queue("lanes")
        put(queue, *"123", lane="a")
        leases = queue.claim(3)
        assert [(name, lease.run) for name, lease in zip(names(leases), leases, strict=True)] == [
            (name, "") for name in "123"
        ]
        assert queue.lanes() == []

    def test_a_closed_lane_does_not_keep_back_others(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123")
        unit(queue)
        put(queue, "plain")
        fill(queue, "b", "other")
        assert sorted(names(all_now(queue))) == ["other", "plain"]

    def test_whatever_becomes_of_its_first_the_lane_goes_on(self):
        queue = self.queue("lanes")
        settle = [
            queue.complete,
            queue.bury,
            lambda leases: queue.release([with_counts(lease, delay=LONG) for lease in leases]),
            lambda leases: queue.touch(leases, SHORT) and eventually(lambda: queue.reap().count == 1) and leases,
        ]
        fill(queue, "a", *"0123")
        for number, end in enumerate(settle):
            leases = unit(queue)
            assert (names(leases), nothing_to_claim(queue)) == ([str(number)], True)
            assert len(end(leases)) == 1
        assert names(unit(queue)) == ["3"]

    def test_what_comes_back_has_its_old_place(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        queue.release([with_counts(lease, failures=1) for lease in unit(queue)])
        fill(queue, "a", "3")
        assert drained(queue, 3) == list("123")

    def test_sq9_what_a_dead_worker_held_comes_before_anything_newer(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"123", gate=runs_of(2))
        assert names(lost(queue)) == ["1", "2"]
        fill(queue, "a", "4", gate=runs_of(2))
        assert drained(queue, 4) == list("1234")

    def test_sq12_after_the_reaping_a_late_worker_of_a_lane_is_refused(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        old = lost(queue)
        late = [with_counts(lease, failures=1) for lease in old]
        assert queue.touch(old) == queue.complete(old) == queue.release(late) == queue.bury(old) == []
        new = unit(queue)
        assert (names(new), new[0].entry.failures, new[0].entry.lost) == (["1"], 0, 1)
        assert queue.touch(old) == queue.complete(old) == queue.release(late) == queue.bury(old) == []
        assert (nothing_to_claim(queue), len(queue.complete(new))) == (True, 1)
        assert drained(queue, 1) == ["2"]

    def test_before_the_reaping_a_late_worker_of_a_lane_may_finish(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12")
        leases = unit(queue, SHORT)
        eventually(lambda: queue.now() > leases[0].until)
        assert len(queue.complete(leases)) == 1
        assert drained(queue, 1) == ["2"]

    def test_sq3_higher_priorities_go_first_inside_a_lane(self):
        queue = self.queue("lanes")
        for name, priority in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
            fill(queue, "lane", name, priority=priority)
        leases = unit(queue)
        fill(queue, "lane", "urgent", priority=4)
        assert nothing_to_claim(queue)
        queue.complete(leases)
        assert names(leases) + drained(queue, 4) == ["b", "urgent", "d", "c", "a"]

    def test_what_fell_due_earlier_goes_first_inside_a_lane(self):
        queue = self.queue("lanes")
        fill(queue, "a", "now")
        fill(queue, "a", "a minute ago", run_at=queue.now() - 60)
        fill(queue, "a", "an hour ago", run_at=queue.now() - 3600)
        assert drained(queue, 3) == ["an hour ago", "a minute ago", "now"]

    def test_names_of_lanes_are_any_text(self):
        queue = self.queue("lanes")
        lanes = ["a", "A", "a:b", "a b", "ä", "é", "e\u0301", "%s", "*", "{x}", "'", "|", "k" * 255]
        for name in lanes:
            fill(queue, name, f"1 {name}", f"2 {name}")
        assert sorted(names(all_now(queue))) == sorted(f"1 {name}" for name in lanes)
        assert sorted(record.name for record in queue.lanes()) == sorted(lanes)

    def test_two_queues_have_lanes_of_their_own(self):
        one, other = self.queue("lanes"), self.queue("lanes")
        for queue in (one, other):
            fill(queue, "a", *"12")
            assert names(unit(queue)) == ["1"]
        other.flush()
        assert (one.lane("a").waiting, other.lane("a").waiting, len(one)) == (1, 0, 1)
