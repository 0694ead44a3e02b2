"""What loops of one's own rely on, which no consumer serves: they take over from the dead, and lose no failed one."""

from __future__ import annotations

import threading

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import READY
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import notes
from djqueue.testing.patience import PATIENCE, eventually, together
from djqueue.testing.steps import Contract, claim, put

SHORT = 0.1
"""Seconds: the shortest lease that ``take`` gives."""


def taken(queue: BaseQueue, **how: float) -> tuple[Lease, object]:
    """The next item, once there is one."""
    return eventually(lambda: (got := queue.take(**how))[0] and got)


def refused(queue: BaseQueue, verb: str) -> bool:
    """Whether to ``take``, ``pop`` or ``read`` raises InvalidMessage."""
    try:
        eventually(getattr(queue, verb))
    except InvalidMessage:
        return True
    return False


class LoopContract(Contract):
    """``take``, ``pop``, ``reserve`` and ``read`` where nobody else reaps, and in the error queue."""

    def test_tq18_what_a_dead_loop_had_taken_is_taken_by_another(self):
        queue = self.queue("lease")
        id = queue.push("item")
        assert queue.take(lease=SHORT)[1] == "item"
        lease, item = taken(queue)
        assert (lease.entry.id, lease.entry.attempts, item) == (id, 2, "item")

    def test_a_loop_that_waits_takes_over_when_a_lease_runs_out(self):
        queue = self.queue("lease")
        for verb in (lambda: queue.take(wait=PATIENCE)[1], lambda: queue.pop(timeout=PATIENCE)):
            queue.push("item")
            started = queue.now()
            assert queue.take(lease=SHORT)[1] == "item"
            assert verb() == "item"
            assert queue.now() - started < PATIENCE / 2
            queue.flush()

    def test_who_reserves_takes_over_what_was_claimed_by_the_dead(self):
        queue = self.queue("lease")
        made = put(queue, "work")
        claim(queue, lease=SHORT)
        [lease] = queue.reserve(1, wait=PATIENCE)
        assert lease.entry.id == made["work"].id

    def test_one_who_waits_wakes_for_the_end_of_a_lease(self):
        queue = self.queue("lease")
        queue.poll = 10 * PATIENCE
        put(queue, "work")
        claim(queue, lease=1.5)
        assert queue.reserve(1, wait=PATIENCE)

    def test_who_reads_takes_over_too(self):
        queue = self.queue("lease")
        queue.write("text")
        claim(queue, lease=SHORT)
        assert eventually(queue.read) == "text"

    def test_what_the_living_hold_is_not_taken_over(self):
        queue = self.queue("lease")
        queue.push("item")
        assert queue.take(lease=PATIENCE * 2)[1] == "item"
        assert queue.take(wait=1.2) == (None, None)

    def test_a_loop_reaps_at_most_once_a_second(self):
        queue, reaped = self.queue("lease"), threading.Semaphore(0)
        reap = queue.reap
        queue.reap = lambda limit: reaped.release() or reap(limit)
        for _ in range(10):
            assert queue.take() == (None, None)
        assert (reaped.acquire(blocking=False), reaped.acquire(blocking=False)) == (True, False)

    def test_of_several_loops_one_takes_over(self):
        queue = self.queue("lease")
        queue.push("item")
        queue.take(lease=SHORT)
        got = together(*[lambda: queue.take(lease=PATIENCE * 2, wait=2)[1]] * 4, last=queue.close)
        assert sorted(map(str, got)) == ["None"] * 3 + ["item"]

    def test_to10_an_item_that_is_lost_every_time_is_put_aside(self):
        queue = self.queue("lease", "fence", "inspect")
        most = conf.get("QUEUE_MAX_LOST")
        id = queue.push("poison")
        for start in range(1, most + 1):
            lease, item = taken(queue, lease=SHORT)
            assert (lease.entry.attempts, item) == (start, "poison")
        queue.push("next")
        eventually(lambda: queue.reap().count)
        assert queue.take()[1] == "next"
        [record] = queue.dead.peek(READY)
        assert (record.entry.id, record.entry.lost, len(queue)) == (id, most, 0)
        assert notes(record.entry.note)[-1]["reason"] == f"its holder died: {most} starts never reported"
        assert queue.dead.take()[1] == "poison"

    def test_an_item_that_was_put_aside_is_revived_with_its_counts_afresh(self):
        queue = self.queue("lease", "fence", "inspect")
        queue.push("poison")
        for _ in range(conf.get("QUEUE_MAX_LOST")):
            taken(queue, lease=SHORT)
        eventually(lambda: queue.take() == (None, None) and len(queue.dead))
        [record] = queue.dead.peek(READY)
        assert queue.revive([record.entry.id]) == 1
        lease, item = taken(queue)
        assert (lease.entry.lost, item) == (0, "poison")

    # ---- in the error queue

    def test_a_failed_message_that_is_looked_at_stays_in_the_error_queue(self):
        for verb in ("take", "pop"):
            queue = self.queue("lease")
            made = put(queue, "failed", label="app.commands.work")
            queue.bury(claim(queue))
            assert refused(queue.dead, verb)
            assert refused(queue.dead, verb)
            assert (len(queue), len(queue.dead)) == (0, 1)
            assert queue.revive([made["failed"].id]) == 1
            assert [lease.entry.data for lease in claim(queue)] == [b"failed"]

    def test_what_is_no_text_is_not_read_away(self):
        queue = self.queue("lease")
        queue.put([Entry(b"\xff", new_id(), label="app.commands.work")])
        assert refused(queue, "read")
        for _ in range(2):
            assert (len(queue), len(queue.dead)) == (0, 1)
            assert refused(queue.dead, "read")

    def test_to_look_at_a_failed_message_counts_as_nothing(self):
        queue = self.queue("inspect")
        made = put(queue, "failed", label="app.commands.work")
        queue.bury(claim(queue))
        before = queue.dead.find(made["failed"].id).entry
        assert refused(queue.dead, "take")
        assert queue.dead.find(made["failed"].id).entry == before
