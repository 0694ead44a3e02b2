"""What a queue with leases keeps: LeaseContract is fences, order, acceptance, inspection and errors in one."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf
from unittest import mock

from djqueue.backends.base import BaseQueue, Fact, Lease
from djqueue.testing.contract_errors import ErrorsContract
from djqueue.testing.contract_inspect import InspectContract
from djqueue.testing.contract_loops import LoopContract
from djqueue.testing.contract_order import OrderContract
from djqueue.testing.contract_puts import AcceptContract
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, claim, names, nothing_to_claim, put, until_now_is, with_counts

SHORT = 0.05
"""Seconds of a lease that is meant to run out."""


def lost(queue: BaseQueue, *new: str) -> list[Lease]:
    """Leases (on new entries, or on the first) that ran out and were reaped: nobody has taken the entries yet."""
    if new:
        put(queue, *new)
    return run_out(queue, queue.touch(queue.begin(claim(queue, len(new) or 1)), SHORT))


def run_out(queue: BaseQueue, leases: list[Lease]) -> list[Lease]:
    """Short leases, once they ran out and were reaped."""
    reaped = []
    eventually(lambda: reaped.append(queue.reap().count) or sum(reaped) == len(leases))
    return leases


def one_waiting(queue: BaseQueue, lease: float = SHORT) -> Lease:
    """A new entry, claimed for a short time, that has not begun."""
    put(queue, "waiting")
    found: list[Lease] = []
    eventually(lambda: found.extend(queue.claim(1, lease, begin=False)) or found)
    return found[0]


class FenceContract(Contract):
    """Ownership: leases, their end, and what a holder may do before and after it."""

    def test_to1_what_is_held_is_not_given_to_others(self):
        queue = self.queue("lease")
        put(queue, "a", "b")
        assert names(claim(queue)) == ["a"]
        assert names(claim(queue)) == ["b"]
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)

    def test_to2_what_was_not_completed_in_time_comes_again(self):
        queue = self.queue("lease", "fence")
        (first,) = lost(queue, "work")
        assert len(queue) == 1
        (second,) = claim(queue)
        assert (second.entry.id, second.entry.data) == (first.entry.id, b"work")
        assert second.token != first.token

    def test_a_lease_lasts_as_long_as_was_asked_for(self):
        queue = self.queue("lease")
        put(queue, "work")
        before = queue.now()
        (lease,) = claim(queue, lease=30)
        assert before - 0.01 <= lease.claimed <= queue.now() + 0.01
        assert abs(lease.until - lease.claimed - 30) < 0.01

    def test_to3_to7_what_is_completed_never_comes_again_and_only_the_first_word_counts(self):
        queue = self.queue("lease")
        put(queue, "work")
        (lease,) = claim(queue)
        assert queue.complete([lease]) == [lease]
        assert queue.complete([lease]) == queue.touch([lease]) == queue.release([lease]) == queue.bury([lease]) == []
        assert nothing_to_claim(queue)
        assert len(queue) == len(queue.dead) == 0

    def test_leases_are_completed_in_any_order(self):
        queue = self.queue("lease", "count")
        put(queue, "a", "b", "c")
        a, b, c = claim(queue, 3)
        assert queue.complete([c]) == [c]
        assert queue.complete([b, a]) == [b, a]
        assert queue.stats().done == 3

    def test_to4_a_holder_who_was_replaced_can_do_nothing(self):
        queue = self.queue("lease", "fence", "count")
        (old,) = lost(queue, "work")
        (new,) = claim(queue)
        assert queue.complete([old]) == queue.touch([old]) == queue.release([old]) == queue.bury([old]) == []
        assert queue.complete([new]) == [new]
        assert (len(queue), len(queue.dead), queue.stats().done) == (0, 0, 1)

    def test_to4_a_replaced_holder_is_told_among_others_who_were_not(self):
        queue = self.queue("lease", "fence")
        (old,) = lost(queue, "lost")
        (new,) = claim(queue)
        put(queue, "kept")
        (kept,) = claim(queue)
        assert queue.complete([old, kept, new]) == [kept, new]

    def test_a_token_opens_only_its_own_entry(self):
        queue = self.queue("lease")
        put(queue, "a", "b")
        (a,), (b,) = claim(queue), claim(queue)
        assert queue.complete([replace(a, token=b.token)]) == []
        assert queue.touch([replace(b, token=a.token)], 1) == []
        assert queue.complete([a, b]) == [a, b]

    def test_who_gave_an_entry_back_holds_it_no_longer(self):
        queue = self.queue("lease")
        put(queue, "work")
        (lease,) = claim(queue)
        assert queue.release([lease]) == [lease]
        assert queue.release([lease]) == queue.complete([lease]) == queue.touch([lease]) == queue.bury([lease]) == []
        assert names(claim(queue)) == ["work"]

    def test_to5_a_late_holder_may_complete_before_anybody_reaped(self):
        queue = self.queue("lease", "fence")
        put(queue, "work")
        (lease,) = claim(queue, lease=SHORT)
        until_now_is(queue, lease.until)
        assert queue.complete([lease]) == [lease]
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)

    def test_to5_a_late_holder_whom_nobody_replaced_may_complete(self):
        queue = self.queue("lease", "fence", "count")
        (lease,) = lost(queue, "work")
        assert queue.complete([lease]) == [lease]
        assert queue.complete([lease]) == []
        assert nothing_to_claim(queue)
        assert (len(queue), queue.stats().done) == (0, 1)

    def test_to5_a_late_holder_whom_nobody_replaced_may_hold_on(self):
        queue = self.queue("lease", "fence")
        (lease,) = lost(queue, "work")
        (held,) = queue.touch([lease], 60)
        assert held.until > queue.now() + 50
        assert nothing_to_claim(queue)
        assert len(queue.complete([held])) == 1

    def test_a_start_whose_late_holder_holds_on_was_not_lost(self):
        queue = self.queue("lease", "fence", "inspect")
        (lease,) = lost(queue, "work")
        assert queue.find(lease.entry.id).entry.lost == 1
        queue.touch([lease], 60)
        assert queue.find(lease.entry.id).entry.lost == 0

    def test_to5_a_late_holder_whom_nobody_replaced_may_release(self):
        queue = self.queue("lease", "fence")
        (lease,) = lost(queue, "work")
        assert queue.release([with_counts(lease, failures=1)]) != []
        (again,) = claim(queue, 1)
        assert (again.entry.failures, again.entry.attempts) == (1, 2)
        assert nothing_to_claim(queue)

    def test_to5_a_late_holder_whom_nobody_replaced_may_bury(self):
        queue = self.queue("lease", "fence")
        (lease,) = lost(queue, "work")
        assert queue.bury([lease]) != []
        assert (len(queue), len(queue.dead)) == (0, 1)
        assert nothing_to_claim(queue)

    def test_to9_a_holder_extends_its_lease(self):
        queue = self.queue("lease")
        put(queue, "work")
        (lease,) = claim(queue, lease=0.3)
        (held,) = queue.touch([lease], 60)
        assert (held.entry, held.token) == (lease.entry, lease.token)
        assert 50 < held.until - queue.now() <= 60
        until_now_is(queue, lease.until)
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)
        assert queue.complete([lease]) == [lease]  # the token did not change

    def test_touch_counts_from_now_and_may_shorten(self):
        queue = self.queue("lease", "fence")
        put(queue, "work")
        (held,) = queue.touch(claim(queue, lease=60), SHORT)
        assert held.until < queue.now() + 1
        eventually(lambda: queue.reap().count == 1)

    def test_to10_starts_are_counted_at_the_claim_and_lost_ones_at_the_reaping(self):
        queue = self.queue("lease", "fence")
        put(queue, "work")
        for number in range(3):
            (lease,) = lost(queue)
            assert (lease.entry.attempts, lease.entry.lost, lease.entry.failures) == (number + 1, number, 0)
        found = queue.find(lease.entry.id).entry
        assert (found.attempts, found.lost) == (3, 3)

    def test_what_is_claimed_begins_with_the_claim_or_when_its_holder_says_so(self):
        queue = self.queue("lease", "fence", "begin")
        put(queue, "work")
        assert claim(queue)[0].begun is True
        assert one_waiting(queue).begun is False

    def test_what_had_not_begun_is_not_lost_when_its_lease_runs_out(self):
        queue = self.queue("lease", "fence", "begin")
        (lease,) = run_out(queue, [one_waiting(queue)])
        (again,) = claim(queue)
        assert (again.entry.id, again.entry.attempts, again.entry.lost) == (lease.entry.id, 2, 0)

    def test_what_has_begun_since_its_claim_is_lost_when_its_lease_runs_out(self):
        queue = self.queue("lease", "fence", "begin")
        lease = one_waiting(queue, 60.0)
        (begun,) = queue.begin([lease])
        assert (begun.entry, begun.token, begun.begun) == (lease.entry, lease.token, True)
        run_out(queue, queue.touch([begun], SHORT))
        assert claim(queue)[0].entry.lost == 1

    def test_what_was_lost_before_begins_when_its_holder_says_so(self):
        queue = self.queue("lease", "fence", "begin")
        lost(queue, "work")
        (lease,) = claim(queue, lease=SHORT)
        assert (lease.entry.lost, lease.begun) == (1, False)
        run_out(queue, [lease])
        (again,) = queue.reserve()
        assert (again.entry.lost, again.begun) == (1, True)
        run_out(queue, queue.touch([again], SHORT))
        assert claim(queue)[0].entry.lost == 2

    def test_what_is_held_no_longer_is_not_begun(self):
        queue = self.queue("lease", "fence", "begin")
        held, late = one_waiting(queue, 60.0), one_waiting(queue)
        eventually(lambda: queue.now() > late.until)
        assert [lease.token for lease in queue.begin([late, held])] == [held.token]
        run_out(queue, [late])
        assert claim(queue)[0].entry.lost == 0

    def test_only_the_holder_can_begin(self):
        queue = self.queue("lease", "fence", "begin")
        lease = run_out(queue, [one_waiting(queue)])[0]
        (again,) = claim(queue, lease=SHORT)
        assert queue.begin([lease]) == []
        assert queue.complete([again]) == [again]
        assert queue.begin([again]) == []

    def test_a_late_holder_whom_nobody_replaced_may_hold_what_had_not_begun(self):
        queue = self.queue("lease", "fence", "begin")
        (late,) = run_out(queue, [one_waiting(queue)])
        (held,) = queue.touch([late], 60)
        assert (nothing_to_claim(queue), queue.find(late.entry.id).entry.lost) == (True, 0)
        assert queue.complete([held]) == [held]

    def test_a_fact_is_kept_with_what_it_is_of_if_that_was_still_ours(self):
        queue = self.queue("lease", "fence", "facts")
        put(queue, "done", "failed", "stolen")
        done, failed, late = claim(queue, 3, 60)
        assert queue.complete([late]) == [late]
        facts = [Fact(name, name.encode(), 60) for name in ("stolen", "done")]
        assert queue.complete([late, done], facts) == [done]
        assert queue.bury([failed], [Fact("failed", b"failed", 60)]) == [failed]
        assert [queue.store.get(name) for name in ("done", "failed", "stolen")] == [b"done", b"failed", None]

    def test_facts_are_kept_of_those_only_that_have_one(self):
        queue = self.queue("lease", "facts")
        put(queue, *"abc")
        leases = claim(queue, 3, 60)
        assert len(queue.complete(leases, [None, Fact("b", b"of b", 60), None])) == 3
        assert queue.store.get("b") == b"of b"

    def test_a_fact_that_is_kept_with_what_it_is_of_ends_with_its_time(self):
        queue = self.queue("lease", "facts")
        put(queue, *"ab")
        queue.complete(claim(queue, 2, 60), [Fact("short", b"", 0.05), Fact("long", b"", 60)])
        eventually(lambda: queue.store.get("short") is None)
        assert queue.store.get("long") == b""

    def test_work_handed_back_untried_counts_as_nothing(self):
        queue = self.queue("lease", "order")
        put(queue, "a", "b", "c")
        a, b = claim(queue, 2)
        assert len(queue.release([with_counts(b, attempts=0), with_counts(a, attempts=0)])) == 2
        leases = claim(queue, 3)
        assert names(leases) == ["a", "b", "c"]
        assert [lease.entry.attempts for lease in leases] == [1, 1, 1]

    def test_to13_several_reapers_give_back_each_entry_once(self):
        queue = self.queue("lease", "fence")
        put(queue, *map(str, range(30)))
        leases = claim(queue, 30, SHORT)
        until_now_is(queue, max(lease.until for lease in leases))
        reaped = together(*[lambda: queue.reap(limit=100).count] * 4, last=queue.close)
        rest = []
        eventually(lambda: rest.append(queue.reap().count) or sum(reaped + rest) >= 30)
        assert sum(reaped + rest) == 30
        again = claim(queue, 30)
        assert sorted(names(again), key=int) == [str(number) for number in range(30)]
        assert {lease.entry.lost for lease in again} == {1}

    def test_reap_says_when_the_next_lease_may_run_out(self):
        queue = self.queue("lease", "fence")
        assert queue.reap().next == inf
        put(queue, "work")
        (lease,) = claim(queue, lease=60)
        reaped = queue.reap()
        assert (reaped.count, 0 < reaped.next <= 60) == (0, True)
        queue.complete([lease])
        assert queue.reap().next == inf

    def test_reap_gives_back_no_more_than_its_limit(self):
        queue = self.queue("lease", "fence")
        put(queue, *"abcde")
        leases = claim(queue, 5, SHORT)
        until_now_is(queue, max(lease.until for lease in leases) + 0.01)
        first, second = queue.reap(limit=3), queue.reap(limit=3)
        assert (first.count, first.next, second.count, second.next) == (3, 0, 2, inf)

    def test_to20_the_clock_of_the_worker_has_no_effect(self):
        queue = self.queue("lease", "fence")
        put(queue, "work")
        put(queue, "later", delay=30)
        held = claim(queue, lease=30)
        for skewed in (time.time() + 60, time.time() - 60):
            with mock.patch("time.time", return_value=skewed):
                assert nothing_to_claim(queue)
                assert queue.reap().count == 0
                assert len(queue.touch(held, 30)) == 1
        with mock.patch("time.time", return_value=time.time() - 60):
            queue.touch(held, SHORT)
            eventually(lambda: queue.reap().count == 1)

    def test_to22_a_hundred_in_one_call_of_each_verb(self):
        queue = self.queue("lease", "order", "count")
        put(queue, *map(str, range(100)))
        leases = claim(queue, 100)
        assert len(queue.touch(leases)) == len(queue.release(leases)) == 100
        leases = claim(queue, 100)
        assert names(leases) == [str(number) for number in range(100)]
        assert queue.complete(leases) == leases
        assert queue.stats().done == 100

    def test_of_eight_who_complete_one_lease_one_succeeds(self):
        queue = self.queue("lease", "count")
        put(queue, "work")
        leases = claim(queue)
        told = together(*[lambda: queue.complete(leases)] * 8, last=queue.close)
        assert sorted(map(len, told)) == [0] * 7 + [1]
        assert queue.stats().done == 1

    def test_eight_claimers_share_a_queue_without_overlap(self):
        queue = self.queue("lease")
        put(queue, *map(str, range(80)))

        def drain() -> list[str]:
            mine: list[str] = []
            while leases := queue.claim(3):
                mine += names(leases)
            return mine

        taken = sum(together(*[drain] * 8, last=queue.close), [])
        taken += names(claim(queue, 80 - len(taken)))  # a claim may pass over what another one was looking at
        assert sorted(taken, key=int) == [str(number) for number in range(80)]


class LeaseContract(FenceContract, OrderContract, AcceptContract, InspectContract, ErrorsContract, LoopContract):
    """All that a queue with leases keeps."""
