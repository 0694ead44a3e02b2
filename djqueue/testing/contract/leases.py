"""The contract of a queue with leases. Mix LeaseContract into a test class, as QueueContract."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from math import inf
from unittest import mock

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Fact, Lease
from djqueue.backends.entries import READY
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.testing.contract.exchange import ExchangeContract
from djqueue.testing.contract.history import HistoryContract
from djqueue.testing.contract.inspection import ErrorsContract, InspectContract
from djqueue.testing.contract.order import HIGHEST, LOWEST, OrderContract
from djqueue.testing.contract.reclaim import ReclaimContract
from djqueue.testing.contract.steps import (
    Contract,
    claim,
    entry,
    leased,
    names,
    nothing_to_claim,
    put,
    run_out,
    until_now_is,
    with_counts,
)
from djqueue.testing.patience import PATIENCE, eventually, together


class AcceptContract(Contract):
    """Idempotent puts, replays, and the limits of an entry."""

    def test_an_id_that_waits_or_is_leased_is_refused_until_it_is_completed(self):
        queue, beside = self.queue("idempotent"), self.queue("idempotent")
        ready, later = entry("ready"), entry("later", delay=60)
        assert queue.put([ready, later, ready]) == [True, True, False]
        assert queue.put([replace(ready, body=b"other"), later, entry("new")]) == [False, False, True]
        assert beside.put([ready]) == [True]
        leases = claim(queue, 2)
        assert names(leases) == ["ready", "new"]
        assert queue.put([ready]) == [False]
        assert len(queue) == 1
        queue.complete(leases)
        assert queue.put([ready]) == [True]

    def test_of_eight_who_put_one_id_one_succeeds(self):
        queue = self.queue("idempotent")
        one = entry("one")
        assert sorted(together(*[lambda: queue.put([one])] * 8, last=queue.close)) == [[False]] * 7 + [[True]]
        assert len(queue) == 1

    def test_ids_that_differ_in_case_are_different(self):
        queue = self.queue("idempotent")
        base = new_id()[-20:]
        assert queue.put([entry(id=base + end) for end in ("a", "A", "ä", "a.", "á")]) == [True] * 5
        assert len(queue) == 5

    def test_to16_equal_bodies_are_separate_entries(self):
        queue = self.queue("lease", entries=["same"])
        put(queue, "same")
        leases = claim(queue, 2)
        assert names(leases) == ["same", "same"]
        assert queue.complete(leases[:1]) == leases[:1]
        assert queue.complete(leases[1:]) == leases[1:]

    def test_to17_a_completed_id_is_refused_for_as_long_as_it_is_remembered(self):
        queue = self.queue_with("remember_done", 60, "lease")
        work = entry()
        queue.put([work])
        queue.complete(claim(queue))
        assert queue.put([work, entry("other")]) == [False, True]
        assert names(claim(queue)) == ["other"]

    def test_to17_what_is_remembered_is_bounded_by_age(self):
        queue = self.queue_with("remember_done", 0.1, "lease")
        work = entry()
        queue.put([work])
        queue.complete(claim(queue))
        eventually(lambda: queue.put([work]) == [True])

    def test_to17_what_is_remembered_is_bounded_by_count(self):
        queue = self.queue_with("keep_done", 2, "lease")
        works = [entry(str(number)) for number in range(3)]
        queue.put(works)
        for _ in works:
            queue.complete(claim(queue))
        assert queue.put(works) == [True, False, False]

    def test_a_replay_of_what_was_released_or_failed_is_not_a_replay_of_what_is_done(self):
        queue = self.queue_with("remember_done", 60, "lease")
        queue.release(leased(queue, "work"))
        queue.fail(claim(queue))
        assert queue.requeue([queue.failed.peek("ready")[0].entry.id]) == 1
        assert len(queue.complete(claim(queue))) == 1

    def test_to19_fields_at_their_limits_travel_whole(self):
        queue = self.queue("lease", "priority")
        whole = entry(
            id="i" * 64, command="ä" * 255, lane="customer 7", errors="[" + '"x"' * 2000 + "]", priority=LOWEST
        )
        whole = replace(whole, body=bytes(range(256)) * 400, failures=3, lost=2)
        assert queue.put([whole, replace(whole, id="j" * 64, body=b"", priority=HIGHEST)]) == [True, True]
        empty, full = claim(queue, 2)
        assert empty.entry.body == b""
        assert replace(full.entry, created=0.0, run_at=0.0) == replace(whole, attempts=1)
        assert nothing_to_claim(queue)


# ---- Loops of one's own, without a consumer: they take over from dead workers, and lose no failed message

BRIEF = 0.1
"""Seconds: the shortest lease that ``take`` gives."""


def taken(queue: BaseQueue, **how: float) -> tuple[Lease, object]:
    """The next item, once there is one."""
    return eventually(lambda: (got := queue.take(**how))[0] and got)


def refused(queue: BaseQueue, verb: str) -> bool:
    """Whether ``take``, ``pop`` or ``read`` raises InvalidMessage."""
    try:
        eventually(getattr(queue, verb))
    except InvalidMessage:
        return True
    return False


class LoopContract(Contract):
    """``take``, ``pop``, ``reserve`` and ``read`` where no other process reaps, and in the failed queue."""

    def test_tq18_what_a_dead_loop_had_taken_is_taken_by_another(self):
        queue = self.queue("lease")
        id = queue.push("item")
        assert queue.take(lease=BRIEF)[1] == "item"
        lease, item = taken(queue)
        assert (lease.entry.id, lease.entry.attempts, item) == (id, 2, "item")

    def test_a_loop_that_waits_takes_over_when_a_lease_runs_out(self):
        queue = self.queue("lease")
        for verb in (lambda: queue.take(wait=PATIENCE)[1], lambda: queue.pop(timeout=PATIENCE)):
            queue.push("item")
            started = queue.now()
            assert queue.take(lease=BRIEF)[1] == "item"
            assert verb() == "item"
            assert queue.now() - started < PATIENCE / 2
            queue.flush()

    def test_a_loop_that_always_finds_something_takes_over_within_a_second_of_the_end_of_a_lease(self):
        queue = self.queue("lease", "priority")
        queue.push("lost", priority=10)
        queue.push("other")
        assert queue.take(lease=BRIEF)[1] == "lost"
        ended = time.monotonic() + BRIEF

        def found() -> bool:
            lease, item = queue.take()
            queue.release(lease)
            return item == "lost"

        eventually(found)
        assert time.monotonic() - ended < PATIENCE / 4  # a second, and a slow machine

    def test_a_loop_that_always_finds_something_takes_over_all_that_hundreds_have_left(self):
        queue = self.queue("lease", "priority")
        queue.push_many(["lost"] * 250, priority=10)
        queue.push("other")
        assert len(queue.take_many(250, lease=BRIEF)) == 250
        started, found = time.monotonic(), []

        def found_all() -> bool:
            taken = queue.take_many(100)
            found.extend(item for _, item in taken if item == "lost")
            queue.release([lease for lease, item in taken if item == "other"])
            return len(found) == 250

        eventually(found_all)
        assert time.monotonic() - started < PATIENCE / 4

    def test_who_reserves_or_reads_takes_over_what_was_claimed_by_the_dead(self):
        queue = self.queue("lease")
        made = put(queue, "work")
        claim(queue, lease=BRIEF)
        [lease] = queue.reserve(1, wait=PATIENCE)
        assert lease.entry.id == made["work"].id
        queue.write("text")
        claim(queue, lease=BRIEF)
        assert eventually(queue.read) == "text"

    def test_one_who_waits_wakes_for_the_end_of_a_lease(self):
        queue = self.queue("lease")
        queue.poll = 10 * PATIENCE
        leased(queue, "work", lease=1.5)
        assert queue.reserve(1, wait=PATIENCE)

    def test_what_the_living_hold_is_not_taken_over(self):
        queue = self.queue("lease")
        queue.push("item")
        assert queue.take(lease=PATIENCE * 2)[1] == "item"
        assert queue.take(wait=1.2) == (None, None)

    def test_a_loop_reaps_at_most_once_a_second(self):
        queue, reaped = self.queue("lease"), threading.Semaphore(0)
        reap = queue.reap
        queue.reap = lambda limit: reaped.release() or reap(limit)
        started = time.monotonic()
        for _ in range(10):
            assert queue.take() == (None, None)
        most = 1 + int(time.monotonic() - started)
        assert 1 <= sum(reaped.acquire(blocking=False) for _ in range(10)) <= most

    def test_of_several_loops_one_takes_over(self):
        queue = self.queue("lease")
        queue.push("item")
        queue.take(lease=BRIEF)
        got = together(*[lambda: queue.take(lease=PATIENCE * 2, wait=2)[1]] * 4, last=queue.close)
        assert sorted(map(str, got)) == ["None"] * 3 + ["item"]

    def test_to10_an_item_that_is_lost_every_time_is_put_aside_and_requeued_with_its_counts_afresh(self):
        queue = self.queue("lease", "fence", "inspect")
        most = conf.get("QUEUE_MAX_LOST")
        id, counted = queue.push("poison"), 0
        while counted < most:
            lease, item = taken(queue, lease=BRIEF)
            assert (lease.entry.lost, item) == (counted, "poison")
            counted += lease.begun or not lease.entry.lost  # a lease may run out before a later start is noted
        queue.push("next")
        eventually(lambda: queue.reap().count)
        assert queue.take()[1] == "next"
        [record] = queue.failed.peek(READY)
        assert (record.entry.id, record.entry.lost, len(queue)) == (id, most, 0)
        assert errors_of(record.entry.errors)[-1]["reason"] == f"its holder died: {most} attempts never reported"
        lease, item = queue.failed.take()
        assert (item, queue.failed.release([lease])) == ("poison", [lease])
        assert queue.requeue([id]) == 1
        lease, item = taken(queue)
        assert (lease.entry.lost, item) == (0, "poison")

    def test_the_verbs_that_settle_take_one_lease_or_many(self):
        queue = self.queue("lease")
        put(queue, "done", "back", "failed", "held")
        leases = {lease.entry.body: lease for lease in claim(queue, 4)}
        for lease in leases.values():
            assert names(queue.touch(lease, PATIENCE)) == names([lease])
        assert queue.complete(leases[b"done"]) == [leases[b"done"]]
        assert queue.release(leases[b"back"]) == [leases[b"back"]]
        assert queue.fail(leases[b"failed"]) == [leases[b"failed"]]
        assert queue.complete([leases[b"held"]]) == [leases[b"held"]]
        assert (len(queue), len(queue.failed)) == (1, 1)

    def test_many_items_are_taken_by_one_claim_and_those_that_cannot_be_read_are_put_aside(self):
        queue = self.queue("lease")
        queue.push_many(range(3))
        queue.put([Entry(b"no item", new_id())])
        queue.push("last")
        taken: list[tuple[Lease, object]] = []
        eventually(lambda: taken.extend(queue.take_many(2)) or len(taken) >= 4)
        assert sorted(str(item) for _, item in taken) == ["0", "1", "2", "last"]
        assert len(queue.complete([lease for lease, _ in taken])) == 4
        assert (queue.take_many(5), len(queue), len(queue.failed)) == ([], 0, 1)
        assert (queue.failed.take_many(5), len(queue.failed)) == ([], 1)

    # ---- in the failed queue

    def test_a_failed_message_that_is_looked_at_stays_in_the_failed_queue_and_that_counts_as_nothing(self):
        for verb in ("take", "pop"):
            queue = self.queue("lease")
            made = put(queue, "failed", command="app.commands.work")
            queue.fail(claim(queue))
            before = queue.failed.find(made["failed"].id) if "inspect" in queue.features else None
            assert refused(queue.failed, verb)
            assert refused(queue.failed, verb)
            assert (len(queue), len(queue.failed)) == (0, 1)
            assert before is None or queue.failed.find(made["failed"].id).entry == before.entry
            assert queue.requeue([made["failed"].id]) == 1
            assert [lease.entry.body for lease in claim(queue)] == [b"failed"]

    def test_what_is_no_text_is_not_read_away(self):
        queue = self.queue("lease")
        queue.put([Entry(b"\xff", new_id(), command="app.commands.work")])
        assert refused(queue, "read")
        for _ in range(2):
            assert (len(queue), len(queue.failed)) == (0, 1)
            assert refused(queue.failed, "read")


# ---- LeaseContract, for a queue with leases: fences, reclaiming, order, acceptance, inspection, errors, loops in one

SHORT = 0.05
"""Seconds of a lease that is meant to run out."""


def lost(queue: BaseQueue, *new: str) -> list[Lease]:
    """Leases (on new entries, or on the first) that ran out and were reaped; the entries are not claimed again yet."""
    if new:
        put(queue, *new)
    return run_out(queue, queue.touch(queue.begin(claim(queue, len(new) or 1)), SHORT))


def one_waiting(queue: BaseQueue, lease: float = SHORT) -> Lease:
    """A new entry, claimed for a short time, that has not begun."""
    put(queue, "waiting")
    found: list[Lease] = []
    eventually(lambda: found.extend(queue.claim(1, lease, begin=False)) or found)
    return found[0]


class FenceContract(Contract):
    """Ownership: leases, their end, and what a holder may do before and after it."""

    def test_to1_what_is_held_is_not_given_to_others_and_a_token_opens_only_its_own_entry(self):
        queue = self.queue("lease", entries=["a", "b"])
        (a,), (b,) = claim(queue), claim(queue)
        assert names([a, b]) == ["a", "b"]
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)
        assert queue.complete([replace(a, token=b.token)]) == []
        assert queue.touch([replace(b, token=a.token)], 1) == []
        assert queue.complete([a, b]) == [a, b]

    def test_to2_to4_what_was_not_completed_in_time_comes_again_and_its_old_holder_can_do_nothing(self):
        queue = self.queue("lease", "fence")
        (old,) = lost(queue, "work")
        assert len(queue) == 1
        (new,) = claim(queue)
        assert (new.entry.id, new.entry.body, new.token != old.token) == (old.entry.id, b"work", True)
        assert queue.complete([old]) == queue.touch([old]) == queue.release([old]) == queue.fail([old]) == []
        (kept,) = leased(queue, "kept")
        assert queue.complete([old, kept, new]) == [kept, new]
        assert (len(queue), len(queue.failed)) == (0, 0)
        assert queue.stats().done == 2 or "count" not in queue.features

    def test_to9_a_lease_lasts_as_long_as_was_asked_for_and_its_holder_extends_it(self):
        queue = self.queue("lease", entries=["work"])
        before = queue.now()
        (lease,) = claim(queue, lease=0.3)
        assert before - 0.01 <= lease.claimed <= queue.now() + 0.01
        assert abs(lease.until - lease.claimed - 0.3) < 0.01
        (kept,) = queue.touch([lease], 60)
        assert (kept.entry, kept.token) == (lease.entry, lease.token)
        assert 50 < kept.until - queue.now() <= 60
        until_now_is(queue, lease.until)
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)
        assert queue.complete([lease]) == [lease]  # the token did not change

    def test_to3_to7_what_is_completed_never_comes_again_and_only_the_first_word_counts(self):
        queue = self.queue("lease")
        (lease,) = leased(queue, "work")
        assert queue.release([lease]) == [lease]
        assert queue.release([lease]) == queue.complete([lease]) == queue.touch([lease]) == queue.fail([lease]) == []
        (lease,) = claim(queue)
        assert (names([lease]), queue.complete([lease])) == (["work"], [lease])
        assert queue.complete([lease]) == queue.touch([lease]) == queue.release([lease]) == queue.fail([lease]) == []
        assert nothing_to_claim(queue)
        assert len(queue) == len(queue.failed) == 0

    def test_leases_are_completed_in_any_order(self):
        queue = self.queue("lease", "count")
        a, b, c = leased(queue, "a", "b", "c")
        assert queue.complete([c]) == [c]
        assert queue.complete([b, a]) == [b, a]
        assert queue.stats().done == 3

    def test_to5_a_late_holder_may_complete_before_anybody_reaped(self):
        queue = self.queue("lease", "fence")
        (lease,) = leased(queue, "work", lease=SHORT)
        until_now_is(queue, lease.until)
        assert queue.complete([lease]) == [lease]
        assert queue.reap().count == 0
        assert nothing_to_claim(queue)

    def test_to5_a_late_holder_whom_nobody_replaced_may_hold_on_and_was_not_lost(self):
        queue = self.queue("lease", "fence", "inspect")
        (lease,) = lost(queue, "work")
        assert queue.find(lease.entry.id).entry.lost == 1
        (kept,) = queue.touch([lease], 60)
        assert kept.until > queue.now() + 50
        assert (nothing_to_claim(queue), queue.find(lease.entry.id).entry.lost) == (True, 0)
        assert len(queue.complete([kept])) == 1

    def test_to5_a_late_holder_whom_nobody_replaced_may_complete_release_or_fail(self):
        queue = self.queue("lease", "fence")
        (lease,) = lost(queue, "work")
        assert (queue.complete([lease]), queue.complete([lease])) == ([lease], [])
        assert (nothing_to_claim(queue), len(queue)) == (True, 0)
        assert queue.stats().done == 1 or "count" not in queue.features
        (lease,) = lost(queue, "release")
        assert queue.release([with_counts(lease, failures=1)]) != []
        (again,) = claim(queue, 1)
        assert (again.entry.failures, again.entry.attempts) == (1, 2)
        assert (nothing_to_claim(queue), len(queue.complete([again]))) == (True, 1)
        (lease,) = lost(queue, "fail")
        assert queue.fail([lease]) != []
        assert (len(queue), len(queue.failed)) == (0, 1)
        assert nothing_to_claim(queue)

    def test_touch_counts_from_now_and_may_shorten(self):
        queue = self.queue("lease", "fence")
        (held,) = queue.touch(leased(queue, "work", lease=60), SHORT)
        assert held.until < queue.now() + 1
        eventually(lambda: queue.reap().count == 1)

    def test_to10_starts_are_counted_at_the_claim_and_lost_ones_at_the_reaping(self):
        queue = self.queue("lease", "fence", entries=["work"])
        for number in range(3):
            (lease,) = lost(queue)
            assert (lease.entry.attempts, lease.entry.lost, lease.entry.failures) == (number + 1, number, 0)
        found = queue.find(lease.entry.id).entry
        assert (found.attempts, found.lost) == (3, 3)

    def test_what_had_not_begun_is_not_lost_when_its_lease_runs_out_and_only_its_holder_can_begin_it(self):
        queue = self.queue("lease", "fence", "begin")
        (begun,) = leased(queue, "work")
        (lease,) = run_out(queue, [one_waiting(queue)])
        (again,) = claim(queue, lease=SHORT)
        assert (begun.begun, lease.begun) == (True, False)
        assert (again.entry.id, again.entry.attempts, again.entry.lost) == (lease.entry.id, 2, 0)
        assert queue.begin([lease]) == []
        assert queue.complete([again]) == [again]
        assert queue.begin([again]) == []

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

    def test_a_late_holder_whom_nobody_replaced_may_hold_what_had_not_begun(self):
        queue = self.queue("lease", "fence", "begin")
        (late,) = run_out(queue, [one_waiting(queue)])
        (held,) = queue.touch([late], 60)
        assert (nothing_to_claim(queue), queue.find(late.entry.id).entry.lost) == (True, 0)
        assert queue.complete([held]) == [held]

    def test_a_fact_is_kept_for_its_time_with_what_it_is_of_if_that_was_still_ours(self):
        queue = self.queue("lease", "facts")
        done, without, failed, late = leased(queue, "done", "without", "failed", "stolen")
        assert queue.complete([late]) == [late]
        facts = [Fact("stolen", b"stolen", 60), None, Fact("done", b"done", 60)]
        assert queue.complete([late, without, done], facts) == [without, done]
        assert queue.fail([failed], [Fact("failed", b"failed", 60)]) == [failed]
        assert [queue.store.get(name) for name in ("done", "failed", "stolen")] == [b"done", b"failed", None]
        queue.complete(leased(queue, *"ab"), [Fact("short", b"", 0.05), Fact("long", b"", 60)])
        eventually(lambda: queue.store.get("short") is None)
        assert queue.store.get("long") == b""

    def test_work_handed_back_untried_counts_as_nothing(self):
        queue = self.queue("lease", "order", entries=["a", "b", "c"])
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

    def test_reap_gives_back_no_more_than_its_limit_and_says_when_the_next_lease_may_run_out(self):
        queue = self.queue("lease", "fence")
        assert queue.reap().next == inf
        (lease,) = leased(queue, "work")
        reaped = queue.reap()
        assert (reaped.count, 0 < reaped.next <= 60) == (0, True)
        queue.complete([lease])
        assert queue.reap().next == inf
        leases = leased(queue, *"abcde", lease=SHORT)
        until_now_is(queue, max(lease.until for lease in leases) + 0.01)
        first, second = queue.reap(limit=3), queue.reap(limit=3)
        assert (first.count, first.next, second.count, second.next) == (3, 0, 2, inf)

    def test_to20_the_clock_of_the_worker_has_no_effect(self):
        queue = self.queue("lease", "fence", entries=["work"])
        put(queue, "later", delay=30)
        held = claim(queue, lease=30)
        for skewed in (time.time() + 60, time.time() - 60):
            with mock.patch("time.time", return_value=skewed):
                assert nothing_to_claim(queue)
                assert queue.reap().count == 0
                assert len(queue.touch(held, 30)) == 1
                before = queue.now()
                (lease,) = leased(queue, "skewed", lease=30)
                assert before <= lease.claimed <= queue.now()
                assert before - 0.01 <= lease.entry.created <= lease.claimed
                assert abs(lease.until - lease.claimed - 30) < 0.01
                queue.complete([lease])
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
        leases = leased(queue, "work")
        told = together(*[lambda: queue.complete(leases)] * 8, last=queue.close)
        assert sorted(map(len, told)) == [0] * 7 + [1]
        assert queue.stats().done == 1


class LeaseContract(
    FenceContract,
    ReclaimContract,
    ExchangeContract,
    HistoryContract,
    OrderContract,
    AcceptContract,
    InspectContract,
    ErrorsContract,
    LoopContract,
):
    """All suites for a queue with leases."""
