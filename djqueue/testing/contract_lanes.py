"""How much leaves a lane at once. LaneContract is all of what lanes keep."""

from __future__ import annotations

import threading
from math import inf

from djqueue.flow.gates import Gate
from djqueue.testing.contract_lanes_operators import LaneOperatorsContract
from djqueue.testing.contract_lanes_order import OrderedContract, lost
from djqueue.testing.contract_lanes_shared import SharedGateContract
from djqueue.testing.contract_lanes_time import LaneTimeContract
from djqueue.testing.contract_lanes_turns import TurnsContract
from djqueue.testing.lane_steps import (
    LONG,
    all_now,
    drained,
    fill,
    fill_each,
    lanes_of,
    nothing_known,
    refused,
    runs,
    runs_of,
    unit,
)
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, entry, names, nothing_to_claim, with_counts


class RunsContract(Contract):
    """Runs: what leaves an ordered lane together is one unit of work."""

    def test_a_run_is_one_unit_and_closes_the_lane_until_its_last_is_settled(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=runs_of(3))
        leases = unit(queue)
        assert (runs(leases), leases[0].run != "") == ([["1", "2", "3"]], True)
        queue.complete(leases[1:])
        assert nothing_to_claim(queue)
        queue.complete(leases[:1])
        rest = unit(queue)
        assert (runs(rest), rest[0].run != "") == ([["4", "5"]], True)

    def test_a_limit_counts_runs_and_not_entries(self):
        queue = self.queue("lanes")
        fill_each(queue, "abc", 3, runs_of(3))
        claimed = eventually(lambda: queue.claim(2))
        assert [len(run) for run in runs(claimed)] == [3, 3]
        assert (claimed.again, len({lease.run for lease in claimed})) == (0, 2)
        assert runs(claimed) == [names(claimed)[:3], names(claimed)[3:]]
        assert [len(run) for run in runs(all_now(queue))] == [3]

    def test_an_entry_alone_in_an_ordered_lane_is_a_run_too(self):
        queue = self.queue("lanes")
        fill_each(queue, "ab")
        leases = all_now(queue)
        assert (len(leases), all(lease.run for lease in leases)) == (2, True)
        assert len(runs(leases)) == 2

    def test_a_run_is_in_the_order_of_its_lane(self):
        queue = self.queue("lanes")
        text = runs_of(10).written()
        given = [("a", 0), ("b", 2), ("c", 1), ("d", 2), ("e", 0)]
        queue.put([entry(name, priority=priority, lane="lane", gate=text) for name, priority in given])
        assert names(unit(queue)) == list("bdcae")

    def test_the_rest_of_a_run_that_was_not_tried_comes_again_behind_its_first(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"1234", gate=runs_of(3))
        one, two, three = unit(queue)
        queue.release([with_counts(three, attempts=0), with_counts(one, failures=1), with_counts(two, attempts=0)])
        again = unit(queue)
        assert names(again) == ["1", "2", "3"]
        assert [lease.entry.attempts for lease in again] == [2, 1, 1]

    def test_unordered_batches_leave_beside_each_other(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=Gate(run=2))
        assert runs(all_now(queue)) == [["1", "2"], ["3", "4"], ["5"]]

    def test_an_entry_that_was_lost_leaves_alone(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=runs_of(10))
        lost(queue)
        fill(queue, "a", *"34", gate=runs_of(10))
        left = []
        for _ in range(2):
            leases = unit(queue)
            left.append(names(leases))
            queue.complete(leases)
        assert left == [["1"], ["2", "3", "4"]]  # the second had not begun

    def test_a_run_ends_before_an_entry_that_was_lost(self):
        queue = self.queue("lanes")
        fill(queue, "a", "lost", gate=runs_of(10))
        lost(queue)
        fill(queue, "a", "first", "second", gate=runs_of(10), priority=1)
        assert names(unit(queue)) == ["first", "second"]


class ConcurrencyContract(Contract):
    """Lanes of which so many may be out at once."""

    def test_no_more_are_out_than_may_be(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=Gate(most=2))
        leases = all_now(queue)
        assert (runs(leases), refused(queue).again) == ([["1"], ["2"]], inf)
        queue.complete(leases[1:])
        assert names(all_now(queue)) == ["3"]
        queue.release([with_counts(leases[0], delay=LONG)])
        assert names(all_now(queue)) == ["4"]

    def test_what_was_lost_is_out_no_longer(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=Gate(most=1))
        lost(queue)
        assert drained(queue, 2) == ["1", "2"]

    def test_what_waits_for_its_number_is_given_alone(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12", gate=Gate(most=2))
        assert [lease.run for lease in all_now(queue)] == ["", ""]

    def test_batches_count_each_entry(self):
        queue = self.queue("lanes")
        fill(queue, "a", *"12345", gate=Gate(run=2, most=3))
        assert runs(all_now(queue)) == [["1", "2"], ["3"]]

    def test_eight_claimers_never_run_more_than_may_be_out(self):
        queue = self.queue("lanes")
        fill(queue, "a", *map(str, range(60)), gate=Gate(most=3))
        lock, running, most, done = threading.Lock(), [], [], []

        def work() -> None:
            while len(done) < 60:
                leases = queue.claim(2)
                with lock:
                    running.extend(leases)
                    most.append(len(running))
                queue.now()
                with lock:
                    for lease in leases:
                        running.remove(lease)
                done.extend(queue.complete(leases))

        together(*[work] * 8, last=queue.close)
        assert (len(done), max(most) <= 3, nothing_known(queue)) == (60, True, True)

    def test_eight_claimers_keep_the_order_of_every_lane(self):
        queue = self.queue("lanes")
        fill_each(queue, "abcdef", 12, runs_of(4))
        lock, running, done, breaches = threading.Lock(), set(), [], []

        def work() -> None:
            while len(done) < 72:
                leases = queue.claim(2)
                lanes = set(lanes_of(leases))
                with lock:
                    breaches.extend(lanes & running)
                    running.update(lanes)
                queue.now()
                with lock:
                    running.difference_update(lanes)
                    done.extend(names(leases))
                queue.complete(leases)

        together(*[work] * 8, last=queue.close)
        of_each = [[name for name in done if name[0] == lane] for lane in "abcdef"]
        assert of_each == [[f"{lane}{number}" for number in range(12)] for lane in "abcdef"]
        assert (breaches, nothing_known(queue)) == ([], True)


class LaneContract(
    OrderedContract,
    RunsContract,
    ConcurrencyContract,
    TurnsContract,
    LaneTimeContract,
    SharedGateContract,
    LaneOperatorsContract,
):
    """All that a queue with lanes keeps."""
