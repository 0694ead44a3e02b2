"""The contract of a queue with lanes. Mix LaneContract into a test class, as QueueContract."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PAUSE, Gate
from djqueue.flow.windows import Window
from djqueue.testing.contract.exchange import LaneExchangeContract
from djqueue.testing.contract.lane_operators import LaneOperatorsContract
from djqueue.testing.contract.lane_steps import (
    EARLY,
    LONG,
    OPEN,
    ORDERED,
    LaneSuite,
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
from djqueue.testing.contract.limits import WindowsContract
from djqueue.testing.contract.steps import entry, names, nothing_to_claim, put, run_out, until_now_is, with_counts
from djqueue.testing.contract.stress import LaneStress
from djqueue.testing.patience import eventually

SHORT = 0.05
"""Seconds of a lease that is meant to run out."""


def lost(queue: BaseQueue) -> list[Lease]:
    """The leases of a unit that ran out and were reaped."""
    return run_out(queue, unit(queue, SHORT))


class OrderedContract(LaneSuite):
    """Lanes that keep their order."""

    def test_sq1_an_ordered_lane_gives_one_entry_at_a_time_in_order(self):
        queue = self.with_lane("a", *"123")
        for name in "123":
            leases = unit(queue)
            assert (names(leases), nothing_to_claim(queue)) == ([name], True)
            queue.complete(leases)
        assert nothing_known(queue)

    def test_sq2_different_lanes_are_out_beside_each_other_and_keep_back_no_others(self):
        queue = self.with_lanes("abc", 2)
        leases = all_now(queue)
        assert sorted(names(leases)) == ["a0", "b0", "c0"]
        assert (all(lease.run for lease in leases), len(runs(leases))) == (True, 3)
        assert refused(queue).retry_after == inf
        put(queue, "plain")
        fill(queue, "d", "other")
        assert sorted(names(all_now(queue))) == ["other", "plain"]

    def test_an_entry_whose_lane_has_no_gate_waits_for_nobody(self):
        queue = self.queue("lanes")
        put(queue, *"123", lane="a")
        leases = queue.claim(3)
        assert (names(leases), [lease.run for lease in leases]) == ([*"123"], ["", "", ""])
        assert queue.lanes.page() == []

    def test_whatever_becomes_of_its_first_the_lane_goes_on(self):
        queue = self.queue("lanes")
        settle = [
            queue.complete,
            queue.fail,
            lambda leases: queue.release([with_counts(lease, delay=LONG) for lease in leases]),
            lambda leases: queue.touch(leases, SHORT) and eventually(lambda: queue.reap().count == 1) and leases,
        ]
        fill(queue, "a", *"0123")
        for number, end in enumerate(settle):
            leases = unit(queue)
            assert (names(leases), nothing_to_claim(queue)) == ([str(number)], True)
            assert len(end(leases)) == 1
        assert names(unit(queue)) == ["3"]

    def test_one_that_is_new_enters_its_lane(self):
        queue = self.queue("lanes")
        fill(queue, "a", "1")
        gate = unit(queue)[0].entry.gate
        assert queue.put_new(entry("2", lane="a", gate=gate))
        assert nothing_to_claim(queue)

    def test_what_comes_back_has_its_old_place(self):
        queue = self.with_lane("a", *"12")
        queue.release([with_counts(lease, failures=1) for lease in unit(queue)])
        fill(queue, "a", "3")
        assert drained(queue, 3) == list("123")

    def test_sq9_what_a_dead_worker_held_comes_before_anything_newer(self):
        queue = self.with_lane("a", *"123", gate=runs_of(2))
        assert names(lost(queue)) == ["1", "2"]
        fill(queue, "a", "4", gate=runs_of(2))
        assert drained(queue, 4) == list("1234")

    def test_sq12_a_late_worker_of_a_lane_may_finish_before_the_reaping_and_is_refused_after_it(self):
        queue = self.with_lane("a", *"123")
        leases = unit(queue, SHORT)
        eventually(lambda: queue.now() > leases[0].until)
        assert len(queue.complete(leases)) == 1
        old = lost(queue)
        late = [with_counts(lease, failures=1) for lease in old]
        assert queue.touch(old) == queue.complete(old) == queue.release(late) == queue.fail(old) == []
        new = unit(queue)
        assert (names(new), new[0].entry.failures, new[0].entry.lost) == (["2"], 0, 1)
        assert queue.touch(old) == queue.complete(old) == queue.release(late) == queue.fail(old) == []
        assert (nothing_to_claim(queue), len(queue.complete(new))) == (True, 1)
        assert drained(queue, 1) == ["3"]

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
        queue = self.with_lane("a", "now")
        fill(queue, "a", "a minute ago", run_at=queue.now() - 60)
        fill(queue, "a", "an hour ago", run_at=queue.now() - 3600)
        assert drained(queue, 3) == ["an hour ago", "a minute ago", "now"]

    def test_names_of_lanes_are_any_text(self):
        queue, outer = self.queue("lanes"), Gate(concurrency=2)
        lanes = 'a,A,a:,a:b,a b, ,0,x\ny,ä,é,e\u0301,%s,*,{x},\',",|,"by":{,žluť 🐎,a\'); --'.split(",") + ["k" * 255]
        for name in lanes:
            fill(queue, name, f"1 {name}", f"2 {name}", gate=within(outer, name=f"in {name}"[:255]))
        assert sorted(names(all_now(queue))) == sorted(f"1 {name}" for name in lanes)
        found = [record.name for record in queue.lanes.page()]
        assert sorted(found) == sorted(lanes + [f"in {name}"[:255] for name in lanes])
        assert [queue.lanes.get(name).parent for name in lanes] == [f"in {name}"[:255] for name in lanes]
        assert queue.lanes.get("in a").gate == outer.written()

    def test_two_queues_have_lanes_of_their_own(self):
        one, other = self.queue("lanes"), self.queue("lanes")
        for queue in (one, other):
            fill(queue, "a", *"12")
            assert names(unit(queue)) == ["1"]
        other.flush()
        assert (one.lanes.get("a").waiting, other.lanes.get("a").waiting, len(one)) == (1, 0, 1)


# ---- Whose turn it is: priorities, fair turns of lanes, and entries in no lane next to them


def one_by_one(queue: BaseQueue, count: int) -> list[str]:
    """The lanes of the next entries, each claimed alone and completed."""
    found: list[str] = []
    for _ in range(count):
        leases = unit(queue)
        found += lanes_of(leases)
        queue.complete(leases)
    return found


class TurnsContract(LaneSuite):
    """Higher priority first; among equals lanes take turns, and entries in no lane have every second turn."""

    def test_sq26_lanes_take_turns_however_much_waits_in_them_in_a_line_too(self):
        for gate in (ORDERED, within(Gate(concurrency=1))):
            queue = self.with_lane("a", *map(str, range(9)), gate=gate)
            fill_each(queue, "bc", 2, gate)
            taken = one_by_one(queue, 9)
            assert [sorted(taken[:3]), sorted(taken[3:6]), taken[6:]] == [["a", "b", "c"]] * 2 + [["a"] * 3]

    def test_the_lanes_of_one_claim_take_turns_too(self):
        queue = self.with_lanes("abc", 4, OPEN)
        assert sorted(lanes_of(all_now(queue, 6))) == ["a", "a", "b", "b", "c", "c"]

    def test_a_new_lane_stands_behind_those_that_wait(self):
        queue = self.with_lanes("ab", 3)
        assert sorted(one_by_one(queue, 2)) == ["a", "b"]
        for new in "cdef":
            fill(queue, new, "1")
        taken = one_by_one(queue, 6)
        assert (sorted(taken[:2]), sorted(taken[2:])) == (["a", "b"], ["c", "d", "e", "f"])

    def test_what_comes_back_does_not_take_the_turn_of_others(self):
        queue = self.with_lanes("ab", 2)
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
        queue = self.with_lanes("abc", 1)
        fill(queue, "d", "urgent", priority=1)
        fill(queue, "d", "after it")
        fill(queue, "b", "most urgent", priority=5)
        assert drained(queue, 2) == ["most urgent", "urgent"]
        assert sorted(one_by_one(queue, 4)) == ["a", "b", "c", "d"]

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
        queue = self.queue("lanes", entries="1234")
        fill(queue, "a", "x")
        assert sorted(names(all_now(queue, 5))) == ["1", "2", "3", "4", "x"]
        fill_each(queue, "bcdef", 1)
        assert len(all_now(queue, 5)) == 5

    def test_a_run_counts_as_one_turn(self):
        queue = self.with_lanes("ab", 8, runs_of(4))
        assert [sorted(set(one_by_one(queue, 2))), sorted(set(one_by_one(queue, 2)))] == [["a", "b"]] * 2

    def test_entries_of_one_lane_come_in_order_whoever_else_takes_turns(self):
        queue = self.with_lanes("abc", 5, Gate(concurrency=2))
        put(queue, *"12345")
        taken: list[str] = []
        while len(taken) < 20:
            leases = queue.claim(3, LONG)
            taken += names(leases)
            queue.complete(leases)
        for lane in "abc":
            assert [name for name in taken if name[0] == lane] == [f"{lane}{number}" for number in range(5)]


# ---- Lanes within a lane: an entry that leaves counts on both. And lanes whose gate changes with a deploy


def within(outer: Gate, inner: Gate = ORDERED, name: str = "all") -> Gate:
    """A gate of a lane within another lane."""
    return replace(inner, parent=name, parent_gate=outer)


class WithinContract(LaneSuite):
    """Lanes within another lane."""

    def test_both_gates_count(self):
        queue = self.with_lanes("abc", 2, within(Gate(concurrency=2)))
        leases = all_now(queue)
        assert (len(set(lanes_of(leases))), len(leases), refused(queue).retry_after) == (2, 2, inf)
        assert queue.lanes.get("all").in_flight == 2
        queue.complete(leases[:1])
        assert len(all_now(queue)) == 1
        assert (queue.lanes.get("all").in_flight, queue.lanes.get("a").parent) == (2, "all")

    def test_whoever_settles_or_loses_what_counted_on_both_frees_both(self):
        queue = self.with_lanes("ab", 2, within(Gate(concurrency=1)))
        lost(queue)
        for _ in range(4):
            leases = unit(queue)
            assert nothing_to_claim(queue)
            queue.complete(leases)
        assert nothing_known(queue)

    def test_tq9_lanes_within_one_share_its_window(self):
        queue = self.with_lanes("abc", 3, within(so_many(4, LONG), Gate(concurrency=3)))
        assert (len(all_now(queue)), 0 < refused(queue).retry_after <= LONG) == (4, True)
        queue = self.with_lanes("abc", 3, within(so_many(4, 0.5), Gate(concurrency=3)))
        first, *_, fifth = [unit(queue)[0] for _ in range(5)]
        assert fifth.claimed - first.claimed >= 0.5 - EARLY

    def test_a_window_for_each_and_one_for_all(self):
        queue = self.with_lanes("abc", 5, within(so_many(5, LONG), so_many(2, LONG)))
        taken = lanes_of(all_now(queue))
        assert sorted(map(taken.count, "abc")) == [1, 2, 2]

    def test_higher_priorities_go_first_in_a_line_which_takes_one_turn_among_lanes(self):
        gate = within(Gate(concurrency=1))
        queue = self.with_lanes("abcd", 3, gate)
        fill(queue, "c", "urgent", gate=gate, priority=5)
        assert drained(queue, 1) == ["urgent"]
        fill_each(queue, "x", 3)
        assert one_by_one(queue, 6).count("x") == 3

    def test_runs_of_lanes_within_one_are_runs(self):
        queue = self.with_lanes("ab", 4, within(Gate(max_run=3, concurrency=4), runs_of(3)))
        leases = all_now(queue)
        assert [len(run) for run in runs(leases)] == [3, 1]
        queue.complete(leases)
        assert len(drained(queue, 4)) == 4

    def test_what_the_outer_lane_lets_pass_waits_for_its_own_gate(self):
        queue = self.with_lanes("a", 3, within(Gate(concurrency=3)))
        assert names(all_now(queue)) == ["a0"]
        fill_each(queue, "b", 1, within(Gate(concurrency=3)))
        assert names(all_now(queue)) == ["b0"]

    def test_an_outer_lane_that_was_forgotten_is_there_when_a_lane_in_its_line_opens(self):
        queue = self.with_lane("a", *"12", gate=within(Gate(concurrency=1), so_many(1, 0.1)))
        (first,) = unit(queue)
        queue.complete([first])
        assert drained(queue, 1) == ["2"]

    def test_a_paused_lane_does_not_hold_up_its_line(self):
        queue = self.with_lanes("ab", 2, within(Gate(concurrency=1)))
        paused = unit(queue)
        queue.release([with_counts(lease, hold=HOLD_PAUSE) for lease in paused])
        (other,) = {"a", "b"} - set(lanes_of(paused))
        assert drained(queue, 2) == [f"{other}0", f"{other}1"]
        assert nothing_to_claim(queue)
        assert queue.lanes.resume(paused[0].entry.lane)
        assert drained(queue, 2) == [f"{paused[0].entry.lane}{number}" for number in range(2)]

    def test_a_paused_outer_lane_holds_up_its_line(self):
        queue = self.with_lanes("ab", 2, within(Gate(concurrency=2)))
        queue.lanes.pause("all", "maintenance")
        assert refused(queue).retry_after == inf
        assert queue.lanes.resume("all") is True
        assert sorted(names(all_now(queue))) == ["a0", "b0"]


class DeployContract(LaneSuite):
    """The gate of the entry that was put last counts for its lane."""

    def test_a_wider_gate_opens_a_lane_that_was_closed_and_a_narrower_one_closes_it(self):
        queue = self.with_lane("a", *"1234", gate=Gate(concurrency=1))
        leases = all_now(queue)
        assert names(leases) == ["1"]
        fill(queue, "a", "5", gate=Gate(concurrency=4))
        leases += all_now(queue, 2)
        assert names(leases) == ["1", "2", "3"]
        fill(queue, "a", "6", gate=Gate(concurrency=1))
        assert nothing_to_claim(queue)
        queue.complete(leases[:2])
        assert nothing_to_claim(queue)
        queue.complete(leases[2:])
        assert names(all_now(queue)) == ["4"]

    def test_what_comes_back_does_not_bring_its_old_gate_with_it(self):
        queue = self.with_lane("a", *"1234", gate=Gate(concurrency=1))
        leases = unit(queue)
        fill(queue, "a", "5", gate=Gate(concurrency=2))
        queue.release(leases)
        assert names(all_now(queue)) == ["1", "2"]

    def test_a_window_that_stays_remembers_what_has_left(self):
        queue = self.queue("lanes")
        hourly = Window(3, LONG)
        fill(queue, "a", *"12345", gate=Gate(windows=(hourly, Window(2, LONG))))
        assert len(all_now(queue)) == 2
        fill(queue, "a", "6", gate=Gate(concurrency=9, windows=(hourly,)))
        assert names(all_now(queue)) == ["3"]

    def test_a_lane_leaves_the_line_in_which_it_stood(self):
        queue = self.with_lane("b", "x", gate=within(Gate(concurrency=1)))
        leases = unit(queue)
        fill(queue, "a", *"12", gate=within(Gate(concurrency=1)))
        assert nothing_to_claim(queue)
        fill(queue, "a", "3", gate=Gate(concurrency=5))
        assert names(all_now(queue)) == ["1", "2", "3"]
        queue.complete(leases)
        assert queue.lanes.get("all") is None or queue.lanes.get("all").in_flight == 0

    def test_a_lane_that_moves_to_another_line_leaves_nothing_behind(self):
        queue = self.with_lane("a", *"12", gate=within(Gate(concurrency=1), name="old"))
        leases = unit(queue)
        fill(queue, "a", "3", gate=within(Gate(concurrency=1), name="new"))
        queue.complete(leases)
        assert drained(queue, 2) == ["2", "3"]
        assert nothing_known(queue)


class SharedGateContract(WithinContract, DeployContract):
    """Gates that several lanes share, and gates that change."""


# ---- Lanes that time opens: gathering, delays, entries behind a released one; and windows


class GatherContract(LaneSuite):
    """Batches that wait for more."""

    def test_sq4_a_run_of_too_few_waits_for_more_and_not_for_ever(self):
        gate = Gate(max_run=5, min_batch=3, batch_timeout=LONG)
        assert 0 < refused(self.with_lane("a", *"12", gate=gate)).retry_after <= LONG
        queue = self.queue("lanes")
        started = queue.now()
        fill(queue, "a", *"12", gate=replace(gate, batch_timeout=0.5))
        leases = unit(queue)
        assert (runs(leases), leases[0].claimed - started >= 0.5 - EARLY) == ([["1", "2"]], True)

    def test_as_soon_as_there_are_enough_they_leave_and_what_is_left_over_waits_for_more_again(self):
        for ordered in (False, True):
            gate = Gate(ordered, max_run=3, min_batch=3, batch_timeout=LONG)
            queue = self.with_lane("a", *"12", gate=gate)
            assert refused(queue).retry_after > 1
            fill(queue, "a", *"34", gate=gate)
            assert runs(all_now(queue)) == [["1", "2", "3"]]
            assert refused(queue).retry_after > 1


class HoldContract(LaneSuite):
    """Entries that are not due, and entries held back by a released one."""

    def test_sq15_what_is_delayed_enters_its_lane_when_it_is_due(self):
        queue = self.with_lane("a", "later", delay=LONG)
        fill(queue, "a", *"12")
        assert drained(queue, 2) == ["1", "2"]
        started = queue.now()
        fill(queue, "a", "soon", delay=0.1)
        (lease,) = unit(queue)
        assert (names([lease]), lease.claimed - started >= 0.1 - EARLY) == (["soon"], True)

    def test_what_falls_due_while_its_lane_is_closed_waits_where_it_fell_due(self):
        queue = self.with_lane("a", "1")
        (lease,) = unit(queue)
        soon = queue.now() + 0.1
        fill(queue, "a", "second", run_at=soon)
        fill(queue, "a", "first", run_at=soon - 0.05)
        until_now_is(queue, soon + 0.01)
        assert nothing_to_claim(queue)
        fill(queue, "a", "third")
        queue.complete([lease])
        assert drained(queue, 3) == ["first", "second", "third"]

    def test_an_entry_that_waits_alone_lets_its_lane_go_on_and_has_its_old_place(self):
        for delay in (LONG, 0.3):
            queue = self.with_lane("a", *"123")
            self._release(queue, unit(queue), delay=delay)
            next = unit(queue)
            assert delay < LONG or (queue.stats().delayed, names(next)) == (1, ["2"])
        until_now_is(queue, queue.now() + 0.31)
        assert nothing_to_claim(queue)
        queue.complete(next)
        assert names(next) + drained(queue, 2) in (["2", "1", "3"], ["1", "2", "3"])

    def test_a_lane_may_wait_with_its_first(self):
        queue = self.with_lane("a", *"12")
        released = queue.now()
        self._release(queue, unit(queue), delay=LONG, hold=HOLD_LANE)
        assert 0 < refused(queue).retry_after <= LONG
        stats, record = queue.stats(), queue.lanes.get("a")
        assert (stats.ready, stats.delayed, record.waiting, record.in_flight) == (2, 0, 2, 0)
        assert released < record.opens <= queue.now() + LONG + 1

    def test_a_lane_that_waited_goes_on_with_its_first(self):
        queue = self.with_lane("a", *"12")
        released = queue.now()
        self._release(queue, unit(queue), delay=0.5, hold=HOLD_LANE)
        (lease,) = unit(queue)
        assert (names([lease]), lease.claimed - released >= 0.5 - EARLY) == (["1"], True)
        assert (lease.entry.failures, lease.entry.attempts, lease.entry.delay, lease.entry.hold) == (1, 2, 0, "")
        queue.complete([lease])
        assert names(unit(queue)) == ["2"]

    def test_a_lane_that_waits_does_not_hold_up_others_and_what_is_put_into_it_does_not_open_it(self):
        queue = self.with_lanes("ab", 1)
        (held,) = unit(queue)
        self._release(queue, [held], delay=LONG, hold=HOLD_LANE)
        put(queue, "plain")
        assert sorted(lanes_of(all_now(queue))) == ["", *({"a", "b"} - {held.entry.lane})]
        fill(queue, held.entry.lane, "3", priority=5)
        assert refused(queue).retry_after > 1

    def test_of_two_who_hold_a_lane_the_longer_counts(self):
        queue = self.with_lane("a", *"123", gate=Gate(concurrency=2))
        one, two = all_now(queue)
        self._release(queue, [one], delay=LONG, hold=HOLD_LANE)
        self._release(queue, [two], delay=0.01, hold=HOLD_LANE)
        assert refused(queue).retry_after > 1

    def test_who_slows_down_a_shared_throttle_slows_down_all_that_share_it(self):
        gate = Gate(concurrency=1, parent="all", parent_gate=so_many(100, LONG))
        queue = self.with_lanes("ab", 3, gate)
        self._release(queue, unit(queue), delay=LONG, hold=HOLD_LANE)
        assert 0 < refused(queue).retry_after <= LONG
        queue = self.with_lanes("ab", 3, gate)
        released = queue.now()
        self._release(queue, unit(queue), delay=0.5, hold=HOLD_LANE)
        leases = eventually(lambda: queue.claim(10))
        assert (sorted(lanes_of(leases)), leases[0].claimed - released >= 0.5 - EARLY) == (["a", "b"], True)

    def test_who_slows_down_a_throttle_of_its_own_or_waits_for_the_sake_of_order_holds_up_none_of_its_line(self):
        for gate, hold in ((so_many(100, LONG), HOLD_LANE), (ORDERED, HOLD_ORDER)):
            queue = self.with_lanes("ab", 2, within(so_many(100, LONG), gate))
            held = unit(queue)
            self._release(queue, held, delay=LONG, hold=hold)
            assert set(lanes_of(all_now(queue))) == {"a", "b"} - set(lanes_of(held))

    def test_a_hold_means_nothing_for_what_is_in_no_lane(self):
        for hold in (HOLD_LANE, HOLD_PAUSE):
            for delay in (0.05, LONG):
                queue = self.queue("lanes", entries=["work"])
                self._release(queue, unit(queue), delay=delay, hold=hold)
                assert delay == LONG or names(unit(queue)) == ["work"]
            assert queue.stats().delayed == 1

    def test_sq8_a_paused_lane_waits_until_somebody_opens_it(self):
        queue = self.with_lane("a", *"12")
        self._release(queue, unit(queue), hold=HOLD_PAUSE)
        assert refused(queue).retry_after == inf
        record = queue.lanes.get("a")
        assert (record.paused_reason != "", record.state, record.waiting, record.in_flight) == (True, "closed", 2, 0)
        fill(queue, "b", "other")
        assert drained(queue, 1) == ["other"]
        assert (queue.lanes.resume("a"), queue.lanes.resume("a")) == (True, False)
        assert drained(queue, 2) == ["1", "2"]

    def _release(self, queue: BaseQueue, leases: list[Lease], **fields) -> None:
        assert len(queue.release([with_counts(lease, failures=1, **fields) for lease in leases])) == len(leases)


class LaneTimeContract(WindowsContract, GatherContract, HoldContract):
    """All suites about lanes and time."""


# ---- How much leaves a lane at once. LaneContract is all suites about lanes


class RunsContract(LaneSuite):
    """Runs: entries that leave an ordered lane together are one unit of work."""

    def test_who_reserves_gets_no_more_of_a_run_than_asked_for(self):
        queue = self.with_lane("a", *"12345", gate=runs_of(3))
        (first,) = eventually(lambda: queue.reserve(1))
        assert (names([first]), first.entry.attempts) == (["1"], 1)
        queue.complete(first)
        again = unit(queue)
        assert (names(again), {lease.entry.attempts for lease in again}) == (["2", "3", "4"], {1})

    def test_a_run_is_one_unit_and_closes_the_lane_until_its_last_is_settled(self):
        queue = self.with_lane("a", *"12345", gate=runs_of(3))
        leases = unit(queue)
        assert (runs(leases), leases[0].run != "") == ([["1", "2", "3"]], True)
        queue.complete(leases[1:])
        assert nothing_to_claim(queue)
        queue.complete(leases[:1])
        rest = unit(queue)
        assert (runs(rest), rest[0].run != "") == ([["4", "5"]], True)

    def test_a_limit_counts_runs_and_not_entries(self):
        queue = self.with_lanes("abc", 3, runs_of(3))
        claimed = eventually(lambda: queue.claim(2))
        assert [len(run) for run in runs(claimed)] == [3, 3]
        assert (claimed.retry_after, len({lease.run for lease in claimed})) == (0, 2)
        assert runs(claimed) == [names(claimed)[:3], names(claimed)[3:]]
        assert [len(run) for run in runs(all_now(queue))] == [3]

    def test_a_run_is_in_the_order_of_its_lane(self):
        queue = self.queue("lanes")
        text = runs_of(10).written()
        given = [("a", 0), ("b", 2), ("c", 1), ("d", 2), ("e", 0)]
        queue.put([entry(name, priority=priority, lane="lane", gate=text) for name, priority in given])
        assert names(unit(queue)) == list("bdcae")

    def test_the_rest_of_a_run_that_was_not_tried_comes_again_behind_its_first(self):
        queue = self.with_lane("a", *"1234", gate=runs_of(3))
        one, two, three = unit(queue)
        queue.release([with_counts(three, attempts=0), with_counts(one, failures=1), with_counts(two, attempts=0)])
        again = unit(queue)
        assert names(again) == ["1", "2", "3"]
        assert [lease.entry.attempts for lease in again] == [2, 1, 1]

    def test_unordered_batches_leave_beside_each_other_and_count_each_entry(self):
        for most, left in ((0, [["1", "2"], ["3", "4"], ["5"]]), (3, [["1", "2"], ["3"]])):
            assert runs(all_now(self.with_lane("a", *"12345", gate=Gate(max_run=2, concurrency=most)))) == left

    def test_an_entry_that_was_lost_leaves_alone_and_a_run_ends_before_it(self):
        queue = self.with_lane("a", *"12", gate=runs_of(10))
        lost(queue)
        fill(queue, "a", *"34", gate=runs_of(10))
        fill(queue, "a", "first", "second", gate=runs_of(10), priority=1)
        left = [names(queue.complete(unit(queue))) for _ in range(3)]
        assert left == [["first", "second"], ["1"], ["2", "3", "4"]]  # the second had not begun


class ConcurrencyContract(LaneSuite):
    """Lanes with a limit of entries that may be out at once."""

    def test_no_more_are_out_than_may_be_each_alone(self):
        queue = self.with_lane("a", *"12345", gate=Gate(concurrency=2))
        leases = all_now(queue)
        assert (names(leases), [lease.run for lease in leases]) == (["1", "2"], ["", ""])
        assert refused(queue).retry_after == inf
        queue.complete(leases[1:])
        assert names(all_now(queue)) == ["3"]
        queue.release([with_counts(leases[0], delay=LONG)])
        assert names(all_now(queue)) == ["4"]

    def test_what_was_lost_is_out_no_longer(self):
        queue = self.with_lane("a", *"12", gate=Gate(concurrency=1))
        lost(queue)
        assert drained(queue, 2) == ["1", "2"]

    def test_eight_claimers_never_run_more_than_may_be_out_and_keep_the_order_of_every_lane(self):
        for kind, lanes in (("three", 1), ("runs", 6)):
            queue = self.queue("lanes")
            LaneStress(queue, entries=60, lease=0.2, kinds=[kind], lanes=lanes).run()
            assert nothing_known(queue)


class LaneContract(
    OrderedContract,
    RunsContract,
    ConcurrencyContract,
    TurnsContract,
    LaneTimeContract,
    SharedGateContract,
    LaneExchangeContract,
    LaneOperatorsContract,
):
    """All suites for a queue with lanes."""
