"""The contract of ``exchange``, which completes and claims together; a part of LeaseContract and of LaneContract."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.testing.contract.lane_steps import ORDERED, LaneSuite, fill, runs, runs_of
from djqueue.testing.contract.steps import Contract, claim, leased, names, nothing_to_claim, put, run_out, until_now_is
from djqueue.testing.patience import eventually, together


def exchanged(queue: BaseQueue, done: list[Lease], count: int, lease: float = 60.0) -> list[Lease]:
    """Exactly ``count`` leases, for others that are all held and done."""
    held, found = queue.exchange(done, count, lease)
    assert held == done

    def full() -> bool:
        if len(found) < count:
            found.extend(queue.exchange([], count - len(found), lease)[1])
        return len(found) >= count

    eventually(full)
    assert len(found) == count
    return list(found)


class ExchangeContract(Contract):
    """Completing and claiming in one call is what the two verbs do one after the other."""

    def test_what_is_done_is_completed_and_the_next_is_claimed(self):
        queue = self.queue("lease", "order", "count", entries="abcdef")
        done: list[Lease] = []
        for expected in ("ab", "cd", "ef"):
            done = exchanged(queue, done, 2)
            assert names(done) == list(expected)
            assert {(one.entry.attempts, one.entry.failures, one.entry.lost) for one in done} == {(1, 0, 0)}
        assert queue.exchange(done, 2) == (done, [])
        stats = queue.stats()
        assert (stats.ready, stats.leased or 0, stats.done) == (0, 0, 6)

    def test_either_may_be_left_out(self):
        queue = self.queue("lease", "order", entries="abc")
        assert queue.exchange([]) == queue.exchange([], 0) == ([], [])
        leases = exchanged(queue, [], 2)
        assert names(leases) == ["a", "b"]
        held, claimed = queue.exchange(leases)
        assert (held, claimed, claimed.retry_after) == (leases, [], 0.0)
        assert queue.complete(leases) == []
        assert names(claim(queue)) == ["c"]

    def test_its_claim_says_when_more_may_come(self):
        queue = self.queue("lease", "order", entries="ab")
        held, claimed = queue.exchange(claim(queue), 1)
        assert (len(held), len(claimed), claimed.retry_after) == (1, 1, 0.0)
        _, claimed = queue.exchange(claimed, 1)
        assert (claimed, claimed.retry_after, claimed.reason) == ([], inf, "")
        put(queue, "later", delay=60)
        _, claimed = queue.exchange([], 1)
        assert claimed == []
        assert 50 < claimed.retry_after <= 60

    def test_its_leases_last_as_long_as_was_asked_for_and_hold_off_others(self):
        queue = self.queue("lease", entries=["work"])
        (lease,) = exchanged(queue, [], 1, lease=0.3)
        assert abs(lease.until - lease.claimed - 0.3) < 0.01
        assert nothing_to_claim(queue)
        (kept,) = queue.touch([lease], 60)
        until_now_is(queue, lease.until)
        assert queue.reap().count == 0
        assert queue.exchange([kept]) == ([kept], [])

    def test_what_it_claims_has_not_begun(self):
        queue = self.queue("lease", "begin", entries="ab")
        idle, busy = exchanged(queue, [], 2)
        assert (idle.begun, busy.begun) == (False, False)
        (busy,) = queue.begin([busy])
        run_out(queue, queue.touch([idle, busy], 0.05))
        lost = {lease.entry.id: lease.entry.lost for lease in claim(queue, 2)}
        assert lost == {idle.entry.id: 0, busy.entry.id: 1}

    def test_leases_that_are_not_held_are_told_and_keep_nothing_from_the_others(self):
        queue = self.queue("lease", "fence", "order")
        (old,) = run_out(queue, leased(queue, "old", lease=0.05))
        (new,) = claim(queue)
        (kept,) = leased(queue, "kept")
        put(queue, "next")
        held, claimed = queue.exchange([old, kept, replace(new, token=kept.token)], 1)
        assert (held, names(claimed)) == ([kept], ["next"])
        assert queue.exchange([kept, new, *claimed], 1) == ([new, *claimed], [])

    def test_repeating_it_is_harmless(self):
        queue = self.queue("lease", "fence", "count", entries="abc")
        done = exchanged(queue, [], 1)
        later = exchanged(queue, done, 1)
        held, claimed = queue.exchange(done, 1)
        assert (held, len(claimed)) == ([], 1)
        assert queue.complete([*later, *claimed]) == [*later, *claimed]
        assert queue.stats().done == 3

    def test_more_than_one_call_carries(self):
        queue = self.queue("lease", "count")
        put(queue, *map(str, range(1100)))
        leases = [*claim(queue, 600), *claim(queue, 500)]
        put(queue, "next")
        assert names(exchanged(queue, leases, 1)) == ["next"]
        assert queue.stats().done == 1100

    def test_of_many_who_exchange_at_once_each_completes_its_own(self):
        queue = self.queue("lease", "count")
        put(queue, *map(str, range(200)))
        found: list[str] = []
        lock = threading.Lock()

        def work() -> None:
            done: list[Lease] = []
            while True:
                held, claimed = queue.exchange(done, 7)
                assert held == done
                with lock:
                    found.extend(names(held))
                if not claimed and claimed.retry_after:
                    return
                done = list(claimed)

        together(*[work] * 4, last=queue.close)
        assert sorted(map(int, found)) == list(range(200))
        stats = queue.stats()
        assert (stats.ready, stats.leased or 0, stats.done) == (0, 0, 200)


class LaneExchangeContract(LaneSuite):
    """The same with entries in lanes."""

    def test_an_ordered_lane_goes_on_within_the_call(self):
        queue = self.with_lane("a", *"123")
        done: list[Lease] = []
        for name in "123":
            done = exchanged(queue, done, 1)
            assert (names(done), bool(done[0].run), queue.exchange([], 5)[1]) == ([name], True, [])
        assert queue.exchange(done, 5) == (done, [])

    def test_units_of_lanes_and_plain_entries_together(self):
        queue = self.with_lanes("ab", 4, runs_of(2))
        put(queue, "plain")
        first = exchanged(queue, [], 5)
        assert sorted(map(tuple, runs(first))) == [("a0", "a1"), ("b0", "b1"), ("plain",)]
        second = exchanged(queue, first, 4)
        assert sorted(map(tuple, runs(second))) == [("a2", "a3"), ("b2", "b3")]
        fill(queue, "a", "5", gate=ORDERED)
        assert (queue.exchange(second[:1], 5)[1], names(queue.exchange(second[1:], 5)[1])) == ([], ["5"])
