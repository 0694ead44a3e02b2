"""What operators see and do: find, remove, peek, stats, and the way back from the error queue."""

from __future__ import annotations

from dataclasses import replace

from djqueue.backends.base import BaseQueue, Record
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.message import new_id
from djqueue.testing.patience import together
from djqueue.testing.steps import Contract, claim, entry, names, nothing_to_claim, put, with_counts


def pages(queue: BaseQueue, state: str, size: int) -> list[list[Record]]:
    """All records of a state, page by page, the empty last one included."""
    found = [queue.peek(state, size)]
    while found[-1]:
        found.append(queue.peek(state, size, after=found[-1][-1].cursor))
    return found


def bodies(records: list[Record]) -> list[str]:
    return [record.entry.data.decode() for record in records]


class InspectContract(Contract):
    """Inspection, and the error queue."""

    def test_find_tells_state_and_moment(self):
        queue = self.queue("inspect")
        now = queue.now()
        made = put(queue, "held", label="app.commands.held") | put(queue, "ready") | put(queue, "later", delay=60)
        (lease,) = queue.claim(1, 30, owner="host:1")
        held, ready, later = (queue.find(made[name].id) for name in ("held", "ready", "later"))
        assert (held.state, ready.state, later.state) == (LEASED, READY, DELAYED)
        assert (held.entry.data, held.entry.label, held.entry.attempts) == (b"held", "app.commands.held", 1)
        assert held.owner == "host:1"
        assert abs(held.at - lease.until) < 0.01
        assert now - 1 <= ready.at <= queue.now()
        assert now + 59 <= later.at <= queue.now() + 60
        assert queue.find(new_id()) is None
        queue.complete([lease])
        assert queue.find(made["held"].id) is None

    def test_remove_takes_what_waits_and_never_what_is_leased(self):
        queue = self.queue("inspect")
        made = put(queue, "held", "ready", "kept") | put(queue, "later", delay=60)
        leases = claim(queue)
        assert queue.remove([made[name].id for name in ("held", "ready", "later")] + [new_id()]) == 2
        assert queue.remove([]) == 0
        assert names(claim(queue)) == ["kept"]
        assert len(queue.complete(leases)) == 1

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

    def test_peek_of_nothing_is_nothing(self):
        queue = self.queue("inspect")
        assert queue.peek(READY) == queue.peek(DELAYED) == queue.peek(LEASED) == []

    def test_to14_counts_are_exact_at_rest_and_sum_up(self):
        queue = self.queue("lease")
        put(queue, *map(str, range(10)))
        put(queue, "x", "y", "z", delay=60)
        leases = claim(queue, 5)
        queue.complete(leases[:2])
        queue.bury(leases[2:3])
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead, stats.done) == (5, 3, 2, 1, 2)
        assert len(queue) == 8
        queue.release(leases[3:4])
        queue.complete(leases[4:])
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead, stats.done) == (6, 3, 0, 1, 3)

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
        queue = self.queue("lease")
        put(queue, "dead", "held", "ready")
        put(queue, "later", delay=60)
        dead, held = claim(queue, 2)
        queue.bury([dead])
        queue.flush()
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead) == (0, 0, 1, 1)
        assert queue.release([held]) == [held]
        assert names(claim(queue)) == ["held"]

    # ---- the error queue

    def test_a_buried_entry_shows_what_went_wrong(self):
        queue = self.queue("inspect")
        put(queue, "work", label="app.commands.work", priority=3)
        (lease,) = claim(queue)
        queue.bury([with_counts(lease, failures=1, note='["Traceback …"]')])
        (record,) = queue.dead.peek(READY)
        assert record == queue.dead.find(lease.entry.id) or record.entry == queue.dead.find(lease.entry.id).entry
        shown = record.entry
        assert (shown.data, shown.label, shown.attempts, shown.failures) == (b"work", "app.commands.work", 1, 1)
        assert shown.note == '["Traceback …"]'

    def test_a_revived_entry_waits_with_its_counts_afresh(self):
        queue = self.queue("lease")
        made = put(queue, "work", "other")
        leases = [with_counts(lease, failures=4, lost=2, attempts=6) for lease in claim(queue, 2)]
        queue.bury(leases)
        revived_at = queue.now()
        assert queue.revive([made["work"].id, new_id()]) == 1
        assert (len(queue), len(queue.dead)) == (1, 1)
        (lease,) = claim(queue)
        assert lease.entry.created >= revived_at  # its age begins anew too
        fresh = replace(lease.entry, created=0.0, run_at=0.0, note="")
        assert fresh == replace(made["work"], attempts=1)
        assert queue.complete([lease]) == [lease]

    def test_an_entry_is_revived_once(self):
        queue = self.queue("lease")
        put(queue, *map(str, range(20)))
        ids = [lease.entry.id for lease in queue.bury(claim(queue, 20))]
        assert sum(together(*[lambda: queue.revive(ids)] * 6, last=queue.close)) == 20
        assert queue.revive(ids) == 0
        assert (len(queue), len(queue.dead)) == (20, 0)

    def test_a_dead_entry_that_somebody_holds_is_not_revived(self):
        queue = self.queue("lease")
        put(queue, "work")
        queue.bury(claim(queue))
        (held,) = claim(queue.dead)
        assert queue.revive([held.entry.id]) == 0
        assert queue.dead.release([held]) == [held]
        assert queue.revive([held.entry.id]) == 1

    def test_a_revived_entry_is_nobodys(self):
        queue = self.queue("lease")
        put(queue, "work")
        leases = claim(queue)
        queue.bury(leases)
        queue.revive([leases[0].entry.id])
        assert queue.complete(leases) == queue.touch(leases) == []
        assert names(claim(queue)) == ["work"]
        assert nothing_to_claim(queue)

    def test_the_error_queue_can_be_removed_from_and_flushed(self):
        queue = self.queue("inspect")
        made = put(queue, "a", "b", "c")
        queue.bury(claim(queue, 3))
        assert queue.dead.remove([made["a"].id]) == 1
        assert len(queue.dead) == 2
        queue.dead.flush()
        assert (len(queue.dead), queue.stats().dead) == (0, 0)
