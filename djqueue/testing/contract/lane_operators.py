"""What operators read and do in lanes."""

from __future__ import annotations

import threading
from math import inf

from djqueue.backends.base import UniqueGuard, walk
from djqueue.backends.entries import LEASED, READY
from djqueue.flow.gates import HOLD_LANE, Gate
from djqueue.testing.contract.inspection import bodies
from djqueue.testing.contract.lane_steps import (
    LONG,
    ORDERED,
    LaneSuite,
    all_now,
    drained,
    fill,
    nothing_known,
    refused,
    runs_of,
    so_many,
    unit,
)
from djqueue.testing.contract.steps import (
    Contract,
    claim,
    entry,
    names,
    nothing_to_claim,
    put,
    until_now_is,
    with_counts,
)
from djqueue.testing.patience import eventually, together


class LanedEntriesContract(LaneSuite):
    """Entries that wait in lanes count as ready, and every verb reaches them."""

    def test_what_waits_in_lanes_is_counted_as_ready(self):
        queue = self.with_lanes("ab", 3)
        put(queue, "plain")
        fill(queue, "a", "later", delay=LONG)
        unit(queue)
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, len(queue)) == (6, 1, 1, 7)
        assert stats.oldest is not None

    def test_what_waits_in_lanes_is_found_and_put_only_once(self):
        queue = self.queue("lanes")
        made = fill(queue, "a", *"12", command="app.commands.work")
        assert queue.put(list(made.values())) == [False, False]
        unit(queue)
        assert queue.put(list(made.values())) == [False, False]
        assert len(queue) == 1
        held, ready = queue.find(made["1"].id), queue.find(made["2"].id)
        assert (held.state, ready.state, ready.entry.lane) == (LEASED, READY, "a")
        assert (ready.entry.gate, ready.entry.command) == (ORDERED.written(), "app.commands.work")
        assert abs(ready.at - queue.now()) < LONG

    def test_all_that_waits_in_lanes_is_seen_page_by_page(self):
        queue = self.with_lanes("abc", 4)
        put(queue, *"12345")
        seen = bodies(walk(queue, READY))
        assert len(seen) == len(set(seen)) == len(queue) == 17
        found, after = [], None
        while page := queue.peek(READY, 2, after=after):
            found += bodies(page)
            after = page[-1].cursor
        assert found == seen
        for lane in "abc":
            assert [name for name in seen if name[0] == lane] == [f"{lane}{number}" for number in range(4)]

    def test_what_waits_in_one_lane_is_seen_page_by_page_in_its_order(self):
        queue = self.with_lanes("abc", 4)
        put(queue, *"12345")
        fill(queue, "b", "later", delay=LONG)
        fill(queue, "b", "urgent", priority=5)
        first = queue.lanes.peek("b", 2)
        second = queue.lanes.peek("b", 2, after=first[-1].cursor)
        assert (bodies(first), bodies(second)) == (["urgent", "b0"], ["b1", "b2"])
        assert bodies(queue.lanes.peek("b")) == ["urgent", "b0", "b1", "b2", "b3"]
        assert bodies(queue.lanes.peek("b", 3)) == ["urgent", "b0", "b1"]
        assert {(record.state, record.entry.lane) for record in first} == {(READY, "b")}
        assert queue.lanes.peek("nobody's") == queue.lanes.peek("") == queue.lanes.peek("b", 0) == []
        assert queue.failed.lanes.peek("b") == []

    def test_what_waits_in_a_lane_is_amended_or_removed_and_the_lane_goes_on(self):
        queue = self.queue("lanes")
        made = fill(queue, "a", *"1234")
        held = unit(queue)
        assert queue.amend(made["4"].id, b"4", b"new") is True
        assert queue.remove([made[name].id for name in "123"]) == 2
        queue.complete(held)
        assert drained(queue, 1) == ["new"]
        assert nothing_known(queue)
        made = fill(queue, "a", *"56")
        assert queue.remove([one.id for one in made.values()]) == 2
        assert nothing_known(queue)

    def test_a_lane_whose_first_is_removed_has_the_priority_of_the_next(self):
        queue = self.queue("lanes")
        made = fill(queue, "a", "urgent", priority=5) | fill(queue, "a", "rest")
        fill(queue, "b", "other", priority=1)
        assert queue.remove([made["urgent"].id]) == 1
        assert drained(queue, 2) == ["other", "rest"]

    def test_what_waits_in_lanes_is_flushed_and_what_is_out_stays(self):
        queue = self.with_lanes("ab", 3)
        (held,) = unit(queue)
        put(queue, "plain")
        queue.flush()
        assert (len(queue), nothing_to_claim(queue)) == (0, True)
        fill(queue, held.entry.lane, "new")
        assert nothing_to_claim(queue)
        assert queue.complete([held]) == [held]
        assert drained(queue, 1) == ["new"]
        assert nothing_known(queue)

    def test_a_unique_entry_in_a_lane_keeps_others_out(self):
        queue = self.queue("lanes", "inspect")
        if queue.store is None:
            return
        one = entry("1", lane="a", gate=ORDERED.written())
        assert queue.put([one], [UniqueGuard("key")]) == [True]
        assert queue.put([entry("2")], [UniqueGuard("key")]) == [False]
        queue.complete(unit(queue))
        assert queue.put([entry("3")], [UniqueGuard("key")]) == [True]

    def test_the_failed_queue_knows_no_gates_and_keeps_them(self):
        queue = self.with_lane("a", *"123")
        for _ in range(3):
            queue.fail(unit(queue))
        assert (names(claim(queue.failed, 3)), queue.failed.lanes.page()) == (["1", "2", "3"], [])
        assert nothing_known(queue)

    def test_what_is_requeued_enters_its_lane_behind_what_waits(self):
        queue = self.queue("lanes")
        made = fill(queue, "a", *"123")
        queue.fail(unit(queue))
        assert queue.failed.find(made["1"].id).entry.gate == ORDERED.written()
        assert queue.requeue([made["1"].id]) == 1
        held = unit(queue)
        assert (names(held), nothing_to_claim(queue)) == (["2"], True)
        queue.complete(held)
        assert drained(queue, 2) == ["3", "1"]


class ReprioritiseContract(Contract):
    """Entries that wait get another priority."""

    def test_sq3_what_waits_gets_another_priority_in_a_lane_and_out_of_it_and_what_is_leased_keeps_its_own(self):
        queue = self.queue("lanes")
        made = fill(queue, "a", *"123") | put(queue, "x", "y")
        assert queue.reprioritise([made["3"].id, made["y"].id, "nobody"], 5) == 2
        assert queue.reprioritise([made["x"].id], 3) == 1
        assert sorted(drained(queue, 2)) == ["3", "y"]
        (x,) = unit(queue)
        assert (names([x]), x.entry.priority) == (["x"], 3)
        (first,) = unit(queue)
        assert queue.reprioritise([made["x"].id, made["1"].id], 5) == 0
        assert (names([first]), len(queue.complete([x, first]))) == (["1"], 2)
        assert drained(queue, 1) == ["2"]

    def test_what_gets_another_priority_keeps_its_place_among_equals(self):
        queue = self.queue("lanes")
        made = put(queue, *"abc")
        assert queue.reprioritise([made[name].id for name in "cba"], 1) == 3
        assert drained(queue, 3) == ["a", "b", "c"]

    def test_what_is_delayed_is_still_delayed_with_another_priority(self):
        for delay in (LONG, 0.1):
            queue = self.queue("lanes")
            made = put(queue, "retry")
            queue.release([with_counts(lease, delay=delay) for lease in unit(queue)])
            made |= put(queue, "later", delay=delay)
            assert queue.reprioritise([made["retry"].id, made["later"].id], 5) == 2
            assert delay < LONG or (queue.stats().delayed, nothing_to_claim(queue)) == (2, True)
        until_now_is(queue, queue.now() + 0.11)
        put(queue, "new")
        assert sorted(drained(queue, 2)) == ["later", "retry"]


class PromoteContract(Contract):
    """Entries that are delayed enter their lanes at once."""

    def test_what_is_promoted_enters_its_lane_behind_what_waits_in_it(self):
        queue = self.queue("lanes")
        put(queue, *"12", lane="a", gate=ORDERED.written())
        made = put(queue, "3", lane="a", gate=ORDERED.written(), delay=60)
        made |= put(queue, "x", lane="b", gate=ORDERED.written(), delay=60)
        assert queue.promote([made["3"].id]) == 1
        assert queue.lanes.get("a").waiting == 3
        assert (drained(queue, 3), nothing_to_claim(queue)) == (["1", "2", "3"], True)
        assert queue.promote([made["x"].id]) == 1
        assert drained(queue, 1) == ["x"]


class LaneRecordsContract(LaneSuite):
    """The records of lanes, which say why a lane does not run."""

    def test_a_lane_says_what_waits_what_is_out_and_by_which_gate(self):
        queue = self.queue("lanes")
        gate = runs_of(2)
        assert (queue.lanes.get("a"), queue.lanes.page()) == (None, [])
        fill(queue, "a", *"12345", gate=gate)
        unit(queue)
        record = queue.lanes.get("a")
        assert (record.name, record.state, record.waiting, record.in_flight) == ("a", "closed", 3, 2)
        assert (record.opens, record.paused_reason, record.parent, record.gate) == (0, "", "", gate.written())

    def test_a_lane_says_that_it_is_open_or_when_it_opens(self):
        queue = self.with_lane("a", *"12", gate=so_many(1, LONG))
        (lease,) = unit(queue)
        record = queue.lanes.get("a")
        assert (record.state, abs(record.opens - lease.claimed - LONG) < 0.1) == ("scheduled", True)
        fill(queue, "b", *"12", gate=Gate(concurrency=2))
        unit(queue)
        assert (queue.lanes.get("b").state, queue.lanes.get("b").in_flight) == ("ready", 1)

    def test_a_lane_says_in_which_line_it_stands(self):
        queue = self.with_lanes("ab", 2, Gate(concurrency=1, parent="all", parent_gate=Gate(concurrency=1)))
        (lease,) = unit(queue)
        (other,) = {"a", "b"} - {lease.entry.lane}
        record, outer = queue.lanes.get(other), queue.lanes.get("all")
        assert (record.state, record.parent, record.waiting, record.in_flight) == ("queued", "all", 2, 0)
        assert (outer.state, outer.in_flight) == ("closed", 1)

    def test_lanes_are_listed_page_by_page(self):
        queue = self.with_lanes("abcdefg", 2)
        all_now(queue)
        found, after = [], None
        while page := queue.lanes.page(3, after):
            assert len(page) <= 3
            found += page
            after = page[-1].cursor
        assert sorted(record.name for record in found) == list("abcdefg")
        assert {(record.waiting, record.in_flight) for record in found} == {(1, 1)}

    def test_nothing_leaves_a_lane_that_an_operator_has_paused(self):
        queue = self.with_lane("a", *"123")
        held = unit(queue)
        queue.lanes.pause("a", "the bank is closed")
        assert queue.touch(held) != []
        assert len(queue.complete(held)) == 1
        assert (refused(queue).retry_after, queue.lanes.get("a").paused_reason) == (inf, "the bank is closed")
        assert queue.lanes.resume("a") is True
        assert drained(queue, 2) == ["2", "3"]

    def test_a_lane_is_paused_before_anything_is_in_it_and_remembered_though_it_is_empty(self):
        queue = self.queue("lanes")
        queue.lanes.pause("a", "not yet")
        made = fill(queue, "a", *"12")
        assert (nothing_to_claim(queue), queue.lanes.get("a").waiting) == (True, 2)
        assert queue.lanes.resume("a") is True
        assert drained(queue, 1) == ["1"]
        queue.lanes.pause("a", "closed")
        queue.remove([made["2"].id])
        assert (nothing_to_claim(queue), queue.lanes.get("a").paused_reason) == (True, "closed")
        assert queue.lanes.resume("a") is True
        assert nothing_known(queue)

    def test_a_lane_is_paused_whatever_forgets_it_meanwhile(self):
        queue, is_over = self.queue("lanes"), threading.Event()

        def pause() -> None:
            try:
                for number in range(20):
                    queue.lanes.pause("a", str(number))
                    assert queue.lanes.get("a").paused_reason == str(number)
                    assert queue.lanes.resume("a") is True
            finally:
                is_over.set()

        def claim() -> None:
            while not is_over.is_set():
                assert not queue.claim(5)

        together(pause, claim, claim, last=queue.close)
        assert nothing_known(queue)

    def test_an_operator_opens_a_lane_that_is_held_for_a_time_and_is_told_if_it_was_open(self):
        queue = self.with_lane("a", *"12")
        queue.release([with_counts(lease, delay=LONG, hold=HOLD_LANE) for lease in unit(queue)])
        assert nothing_to_claim(queue)
        assert [queue.lanes.resume(lane) for lane in ("a", "a", "nobody")] == [True, False, False]
        assert drained(queue, 2) == ["1", "2"]
        assert nothing_known(queue)

    def test_lanes_that_are_done_leave_no_record(self):
        queue = self.queue("lanes")
        text = ORDERED.written()
        queue.put([entry(lane=f"user {number}", gate=text) for number in range(300)])
        done: list = []
        while len(done) < 300:
            done += queue.complete(eventually(lambda: queue.claim(64)))
        queue.flush()
        assert nothing_known(queue)


class LaneOperatorsContract(LanedEntriesContract, ReprioritiseContract, PromoteContract, LaneRecordsContract):
    """All suites about what operators read and do with lanes."""
