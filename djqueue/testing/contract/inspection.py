"""What operators read and do: find, remove, amend, peek, stats, and the queue of failed messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from djqueue.backends.base import BaseQueue, Entry, Record
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.steps import (
    Contract,
    claim,
    entry,
    leased,
    names,
    nothing_to_claim,
    put,
    until_now_is,
    with_counts,
)
from djqueue.testing.patience import eventually, together


def pages(queue: BaseQueue, state: str, size: int) -> list[list[Record]]:
    """All records of a state, page by page, the empty last one included."""
    found = [queue.peek(state, size)]
    while found[-1]:
        found.append(queue.peek(state, size, after=found[-1][-1].cursor))
    return found


def bodies(records: Iterable[Record]) -> list[str]:
    return [record.entry.body.decode() for record in records]


class InspectContract(Contract):
    """Inspection."""

    def test_find_tells_state_and_moment(self):
        queue = self.queue("inspect")
        assert queue.peek(READY) == queue.peek(DELAYED) == queue.peek(LEASED) == []
        now = queue.now()
        made = put(queue, "held", command="app.commands.held") | put(queue, "ready") | put(queue, "later", delay=60)
        (lease,) = queue.claim(1, 30, owner="host:1")
        held, ready, later = (queue.find(made[name].id) for name in ("held", "ready", "later"))
        assert (held.state, ready.state, later.state) == (LEASED, READY, DELAYED)
        assert (held.entry.body, held.entry.command, held.entry.attempts) == (b"held", "app.commands.held", 1)
        assert held.owner == "host:1"
        assert abs(held.at - lease.until) < 0.01
        assert now - 1 <= ready.at <= queue.now()
        assert now + 59 <= later.at <= queue.now() + 60
        assert queue.find(new_id()) is None
        queue.complete([lease])
        assert queue.find(made["held"].id) is None

    def test_an_id_that_no_message_can_have_is_that_of_none(self):
        queue = self.queue("inspect")
        put(queue, "ready")
        for id in ("\0", "a\0b", "\ud800", "x" * 1000):
            assert queue.find(id) is queue.failed.find(id) is queue.history.get(id) is None
            assert queue.store.get(f"result:{id}") is None
            changed = queue.remove([id]), queue.requeue([id]), queue.reprioritise([id], 5), queue.amend(id, b"", b"new")
            assert changed == (0, 0, 0, False)

    def test_remove_takes_what_waits_and_never_what_is_leased(self):
        queue = self.queue("inspect")
        made = put(queue, "held", "ready", "kept") | put(queue, "later", delay=60)
        leases = claim(queue)
        assert queue.remove([made[name].id for name in ("held", "ready", "later")] + [new_id()]) == 2
        assert queue.remove([]) == 0
        assert names(claim(queue)) == ["kept"]
        assert len(queue.complete(leases)) == 1

    def test_what_waits_is_amended_if_its_body_is_still_that_one(self):
        queue = self.queue("inspect")
        made = put(queue, "ready", command="app.commands.ready") | put(queue, "later", delay=0.05)
        assert queue.amend(new_id(), b"work", b"new") is False
        assert queue.amend(made["ready"].id, b"other", b"new") is False
        assert queue.amend(made["ready"].id, b"ready", bytes(range(256))) is True
        assert queue.amend(made["ready"].id, b"ready", b"again") is False
        assert queue.amend(made["later"].id, b"later", b"") is True
        leases = claim(queue, 2)
        assert [lease.entry.body for lease in leases] == [bytes(range(256)), b""]
        assert (leases[0].entry.id, leases[0].entry.command) == (made["ready"].id, "app.commands.ready")
        assert queue.amend(made["later"].id, b"", b"new") is False
        assert queue.complete(leases) == leases
        assert queue.amend(made["later"].id, b"", b"new") is False
        made = put(queue, "lost", "released")
        lost, released = claim(queue, lease=0.01) + claim(queue)
        queue.release([released])
        eventually(lambda: queue.reap().count == 1)
        assert [queue.amend(made[name].id, name.encode(), b"new") for name in made] == [True, True]
        queue.release([lost])
        assert names(claim(queue, 2)) == ["new", "new"]

    def test_what_is_amended_keeps_its_place_and_its_counts(self):
        queue = self.queue("inspect", "priority")
        made = put(queue, "a", "b", "c", priority=1)
        leases = [with_counts(lease, failures=2, lost=1, errors='["no"]') for lease in claim(queue, 2)]
        queue.release(leases)
        before = queue.find(made["b"].id)
        assert queue.amend(made["b"].id, b"b", b"new") is True
        after = queue.find(made["b"].id)
        assert (replace(after.entry, body=b"b"), after.state, after.at) == (before.entry, before.state, before.at)
        assert names(claim(queue, 3)) == ["a", "new", "c"]

    def test_of_eight_who_amend_one_body_one_succeeds(self):
        queue = self.queue("inspect")
        work = put(queue, "work")["work"]
        amends = [lambda number=number: queue.amend(work.id, b"work", b"%d" % number) for number in range(8)]
        assert sorted(won := together(*amends, last=queue.close)) == [False] * 7 + [True]
        assert names(claim(queue)) == [str(won.index(True))]

    def test_what_is_amended_while_others_claim_is_claimed_as_it_was_told(self):
        queue = self.queue("inspect")
        made = list(put(queue, *map(str, range(30))).values())

        def amend() -> list[str]:
            return [one.id for one in made if queue.amend(one.id, one.body, b"new")]

        amended, leases = together(amend, lambda: claim(queue, 30), last=queue.close)
        assert {lease.entry.id for lease in leases if lease.entry.body == b"new"} == set(amended)

    def test_what_is_promoted_is_due_behind_what_waits_and_a_retry_has_its_place_again(self):
        queue = self.queue("inspect")
        made = put(queue, "retried")
        queue.release([with_counts(lease, delay=60, failures=1, errors='["no"]') for lease in claim(queue)])
        made |= put(queue, "ready", "held") | put(queue, "later", "much later", delay=60)
        before = queue.now()
        assert queue.promote([made[name].id for name in ("later", "ready", "retried", "later")] + [new_id()]) == 2
        later = queue.find(made["later"].id)
        assert (later.state, before <= later.at <= queue.now(), later.entry.attempts) == (READY, True, 0)
        leases = claim(queue, 4)
        assert names(leases) == ["retried", "ready", "held", "later"]
        assert (leases[0].entry.attempts, leases[0].entry.failures, leases[0].entry.errors) == (2, 1, '["no"]')
        assert queue.promote([made["held"].id]) == 0
        assert (queue.promote([made["much later"].id]), queue.promote([made["much later"].id])) == (1, 0)
        assert names(claim(queue)) == ["much later"]
        assert len(queue.complete(leases)) == 4

    def test_what_is_promoted_and_given_back_is_still_due(self):
        queue = self.queue("inspect")
        put(queue, "retried")
        (lease,) = claim(queue)
        queue.release([with_counts(lease, delay=60)])
        assert queue.promote([lease.entry.id]) == 1
        queue.release(claim(queue))
        stats = queue.stats()
        assert (stats.ready, stats.delayed) == (1, 0)

    def test_what_several_promote_at_once_is_promoted_once(self):
        queue = self.queue("inspect")
        made = put(queue, *map(str, range(20)), delay=60)
        ids = [one.id for one in made.values()]
        assert sum(together(*[lambda: queue.promote(ids)] * 4, last=queue.close)) == 20
        assert sorted(names(claim(queue, 20))) == sorted(made)

    def test_what_is_promoted_has_its_priority(self):
        queue = self.queue("inspect", "priority")
        put(queue, "ready")
        made = put(queue, "first", delay=60, priority=3)
        assert queue.promote([made["first"].id]) == 1
        assert names(claim(queue, 2)) == ["first", "ready"]

    def test_peek_pages_through_what_is_ready_in_its_order(self):
        queue = self.queue("inspect", "priority")
        numbers = [(number, (number * 7) % 3) for number in range(120)]
        queue.put([entry(str(number), priority=priority) for number, priority in numbers])
        found = pages(queue, READY, 50)
        assert [len(page) for page in found] == [50, 50, 20, 0]
        records = sum(found, [])
        assert {record.state for record in records} == {READY}
        assert bodies(records) == names(claim(queue, 120))

    def test_peek_pages_through_what_is_delayed_by_its_moment(self):
        queue = self.queue("inspect")
        queue.put([entry(str(number), delay=1000 - (number * 7) % 120) for number in range(120)])
        found = pages(queue, DELAYED, 50)
        assert [len(page) for page in found] == [50, 50, 20, 0]
        records = sum(found, [])
        assert [record.at for record in records] == sorted(record.at for record in records)
        assert bodies(records) == sorted(map(str, range(120)), key=lambda number: -((int(number) * 7) % 120))

    def test_peek_pages_through_what_is_leased_by_its_end(self):
        queue = self.queue("inspect")
        put(queue, *map(str, range(30)))
        ends = {}
        for turn in range(6):
            for lease in claim(queue, 5, lease=100 - 10 * turn):
                ends[lease.entry.id] = lease.until
        records = sum(pages(queue, LEASED, 7), [])
        assert {record.entry.id for record in records} == set(ends)
        assert [record.at for record in records] == sorted(record.at for record in records)
        assert all(abs(ends[record.entry.id] - record.at) < 0.01 for record in records)

    def test_to14_counts_are_exact_at_rest_and_sum_up(self):
        queue = self.queue("lease", "count")
        put(queue, *map(str, range(10)))
        put(queue, "x", "y", "z", delay=60)
        leases = claim(queue, 5)
        queue.complete(leases[:2])
        queue.fail(leases[2:3])
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed, stats.done) == (5, 3, 2, 1, 2)
        assert len(queue) == 8
        queue.release(leases[3:4])
        queue.complete(leases[4:])
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed, stats.done) == (6, 3, 0, 1, 3)

    def test_the_age_of_the_oldest_is_not_that_of_the_first(self):
        queue = self.queue("priority")
        put(queue, "old", run_at=queue.now() - 100)
        put(queue, "first", priority=9)
        assert 99 < queue.stats().oldest < 200
        (first,) = claim(queue)
        assert names([first]) == ["first"]
        claim(queue)
        queue.release([first])
        assert queue.stats().oldest < 60

    def test_flush_leaves_what_is_leased_or_dead(self):
        queue = self.queue("lease", "count", entries=["failed", "held", "ready"])
        put(queue, "later", delay=60)
        failed, held = claim(queue, 2)
        queue.fail([failed])
        queue.flush()
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 1, 1)
        assert queue.release([held]) == [held]
        assert names(claim(queue)) == ["held"]


# ---- The failed queue: its order, the way back, and its bounds


def fail_in_order(queue: BaseQueue, order: str, **priorities: int) -> dict[str, Entry]:
    """Entries of one letter that failed in this order; their priorities are 0 if not given."""
    made: dict[str, Entry] = {}
    for name in sorted(order):
        made |= put(queue, name, priority=priorities.get(name, 0))
    leases = {lease.entry.body.decode(): lease for lease in claim(queue, len(order))}
    for name in order:
        assert queue.fail([leases[name]]) == [leases[name]]
    return made


def order_of_failed(queue: BaseQueue) -> str:
    """The names of the entries in the failed queue, in order."""
    return "".join(bodies(queue.failed.peek(READY)))


class ErrorsContract(Contract):
    """The failed queue of a queue with leases."""

    def test_a_failed_entry_shows_what_went_wrong_and_when(self):
        queue = self.queue("inspect")
        long_ago = queue.now() - 1000
        (lease,) = leased(queue, "work", command="app.commands.work", priority=3, run_at=long_ago)
        before = queue.now()
        queue.fail([with_counts(lease, failures=1, errors='["Traceback …"]')])
        (record,) = queue.failed.peek(READY)
        assert record == queue.failed.find(lease.entry.id) or record.entry == queue.failed.find(lease.entry.id).entry
        shown = record.entry
        assert (shown.body, shown.command, shown.attempts, shown.failures) == (b"work", "app.commands.work", 1, 1)
        assert shown.errors == '["Traceback …"]'
        assert before - 0.01 <= record.at <= queue.now() + 0.01
        assert queue.failed.trim(age=60) == 0

    def test_a_requeued_entry_waits_with_its_counts_afresh_and_is_nobodys(self):
        queue = self.queue("lease")
        made = put(queue, "work", "other")
        leases = [with_counts(lease, failures=4, lost=2, attempts=6) for lease in claim(queue, 2)]
        queue.fail(leases)
        requeued_at = queue.now()
        assert queue.requeue([made["work"].id, new_id()]) == 1
        assert (len(queue), len(queue.failed)) == (1, 1)
        assert queue.complete(leases) == queue.touch(leases) == []
        (lease,) = claim(queue)
        assert nothing_to_claim(queue)
        assert lease.entry.created >= requeued_at  # its age begins again too
        fresh = replace(lease.entry, created=0.0, run_at=0.0, errors="")
        assert fresh == replace(made["work"], attempts=1)
        assert queue.complete([lease]) == [lease]

    def test_an_entry_is_requeued_once_and_not_while_somebody_holds_it(self):
        queue = self.queue("lease")
        queue.fail(leased(queue, "work"))
        (held,) = claim(queue.failed)
        assert queue.requeue([held.entry.id]) == 0
        assert queue.failed.release([held]) == [held]
        assert queue.requeue([held.entry.id]) == 1
        ids = [lease.entry.id for lease in queue.fail(claim(queue) + leased(queue, *map(str, range(19))))]
        assert sum(together(*[lambda: queue.requeue(ids)] * 6, last=queue.close)) == 20
        assert queue.requeue(ids) == 0
        assert (len(queue), len(queue.failed)) == (20, 0)

    def test_those_that_failed_last_are_read_first(self):
        queue = self.queue("inspect")
        fail_in_order(queue, "cbdae")
        assert bodies(queue.failed.peek("ready", 3, last=True)) == ["e", "a", "d"]
        assert bodies(queue.failed.peek("ready", 10, last=True)) == list("eadbc")
        assert queue.failed.peek("ready", 0, last=True) == queue.peek("ready", last=True) == []
        (last,) = queue.failed.peek("ready", 1, last=True)
        assert last == queue.failed.peek(READY)[-1]

    def test_the_failed_queue_can_be_removed_from_and_flushed(self):
        queue = self.queue("inspect")
        made = put(queue, "a", "b", "c")
        queue.fail(claim(queue, 3))
        assert queue.failed.remove([made["a"].id]) == 1
        assert len(queue.failed) == 2
        queue.failed.flush()
        assert (len(queue.failed), queue.stats().failed) == (0, 0)

    def test_the_dead_stand_in_the_order_in_which_they_died_and_keep_their_priority(self):
        queue = self.queue("inspect", "priority")
        made = fail_in_order(queue, "cbdae", a=-3, b=7, d=1, e=9)
        assert order_of_failed(queue) == "cbdae"
        assert [queue.failed.find(made[name].id).entry.priority for name in "ab"] == [-3, 7]
        (first,) = queue.failed.peek(READY, 1)
        assert [record.entry.body for record in queue.failed.peek(READY, 2, after=first.cursor)] == [b"b", b"d"]
        leases = claim(queue.failed, 5)
        assert names(leases) == list("cbdae")
        assert [lease.entry.priority for lease in leases] == [0, 7, 1, -3, 9]
        queue.failed.release(leases)
        assert order_of_failed(queue) == "cbdae"
        x, y, z = leased(queue, *"xyz")
        queue.fail([z, x, y])
        assert order_of_failed(queue) == "cbdaezxy"

    def test_what_is_requeued_stands_behind_what_waits_and_last_when_it_dies_again(self):
        queue = self.queue("inspect")
        made = fail_in_order(queue, "abc")
        queue.requeue([made["a"].id])
        queue.fail(claim(queue))
        assert order_of_failed(queue) == "bca"
        put(queue, "waits")
        before = queue.now()
        assert queue.requeue([made["b"].id]) == 1
        assert queue.requeue([made["a"].id]) == 1
        assert queue.find(made["b"].id).at >= before - 0.01
        put(queue, "last")
        assert names(claim(queue, 4)) == ["waits", "b", "a", "last"]

    def test_what_is_requeued_has_its_priority_again(self):
        queue = self.queue("inspect", "priority")
        made = fail_in_order(queue, "abc", a=1, b=2, c=-1)
        put(queue, "waits", priority=1)
        assert queue.requeue([one.id for one in made.values()]) == 3
        assert names(claim(queue, 4)) == ["b", "waits", "a", "c"]

    # ---- trim

    def test_what_died_first_or_long_ago_is_trimmed_first(self):
        queue = self.queue("inspect", "priority")
        fail_in_order(queue, "dbaec", a=4, b=9, d=-2)
        assert queue.failed.trim(most=3) == 2
        assert order_of_failed(queue) == "aec"
        assert queue.failed.trim(most=3) == queue.failed.trim(most=100) == queue.failed.trim() == 0
        assert queue.failed.trim(most=0) == 3
        assert (order_of_failed(queue), queue.stats().failed) == ("", 0)
        made = fail_in_order(queue, "ba", a=-1)
        last = queue.failed.find(made["a"].id).at
        until_now_is(queue, last + 0.6)
        fail_in_order(queue, "c", c=5)
        assert queue.failed.trim(age=60) == 0
        assert queue.failed.trim(age=queue.now() - last - 0.01) == 2
        assert order_of_failed(queue) == "c"

    def test_both_bounds_hold_and_no_more_is_trimmed_than_the_limit(self):
        queue = self.queue("inspect")
        fail_in_order(queue, "abcdefgh")
        until_now_is(queue.failed, queue.failed.peek(READY)[-1].at + 0.01)
        assert queue.failed.trim(most=7, age=60) == 1
        assert queue.failed.trim(most=3, limit=2) == 2
        assert queue.failed.trim(age=0.005, limit=2) == 2
        assert order_of_failed(queue) == "fgh"
        assert queue.failed.trim(most=100, age=0.005) == 3

    def test_a_dead_one_that_somebody_holds_is_neither_counted_nor_trimmed(self):
        queue = self.queue("inspect")
        fail_in_order(queue, "abc")
        (held,) = claim(queue.failed)
        assert queue.failed.trim(most=2) == 0
        assert queue.failed.trim(most=1) == 1
        assert queue.failed.trim(most=0, age=0.0) == 1
        assert queue.failed.release([held]) == [held]
        assert order_of_failed(queue) == "a"

    def test_several_trim_no_more_than_one_would(self):
        queue = self.queue("inspect")
        fail_in_order(queue, "abcdefghijklmnop")
        assert sum(together(*[lambda: queue.failed.trim(most=6)] * 4, last=queue.close)) == 10
        assert order_of_failed(queue) == "klmnop"
