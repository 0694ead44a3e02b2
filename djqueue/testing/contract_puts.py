"""What a queue accepts, and what it refuses because it has it or had it."""

from __future__ import annotations

from dataclasses import replace

from djqueue.messages.envelope import new_id
from djqueue.testing.patience import eventually, together
from djqueue.testing.steps import Contract, claim, entry, names, nothing_to_claim, put

HIGHEST, LOWEST = 2**31 - 1, -(2**31)


class AcceptContract(Contract):
    """Idempotent puts, replays, and the limits of an entry."""

    def test_an_id_that_waits_or_is_leased_is_refused(self):
        queue = self.queue("idempotent")
        ready, later = entry("ready"), entry("later", delay=60)
        assert queue.put([ready, later]) == [True, True]
        assert queue.put([replace(ready, data=b"other"), later, entry("new")]) == [False, False, True]
        leases = claim(queue, 2)
        assert names(leases) == ["ready", "new"]
        assert queue.put([ready]) == [False]
        assert len(queue) == 1

    def test_an_id_twice_in_one_put_is_one_entry(self):
        queue = self.queue("idempotent")
        one = entry("one")
        assert queue.put([one, entry("two"), one]) == [True, True, False]
        assert names(claim(queue, 2)) == ["one", "two"]

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

    def test_the_same_id_in_two_queues_is_two_entries(self):
        one, other, same = self.queue("idempotent"), self.queue("idempotent"), entry()
        assert one.put([same]) == other.put([same]) == [True]

    def test_to16_equal_bodies_are_separate_entries(self):
        queue = self.queue("lease")
        put(queue, "same")
        put(queue, "same")
        leases = claim(queue, 2)
        assert names(leases) == ["same", "same"]
        assert queue.complete(leases[:1]) == leases[:1]
        assert queue.complete(leases[1:]) == leases[1:]

    def test_a_completed_id_is_forgotten(self):
        queue = self.queue("lease", "idempotent")
        work = entry()
        queue.put([work])
        queue.complete(claim(queue))
        assert queue.put([work]) == [True]

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

    def test_a_replay_of_what_was_released_or_buried_is_not_a_replay_of_what_is_done(self):
        queue = self.queue_with("remember_done", 60, "lease")
        put(queue, "work")
        queue.release(claim(queue))
        queue.bury(claim(queue))
        assert queue.revive([queue.dead.peek("ready")[0].entry.id]) == 1
        assert len(queue.complete(claim(queue))) == 1

    def test_to19_fields_at_their_limits_travel_whole(self):
        queue = self.queue("lease", "priority")
        whole = entry(id="i" * 64, label="ä" * 255, lane="customer 7", note="[" + '"x"' * 2000 + "]", priority=LOWEST)
        whole = replace(whole, data=bytes(range(256)) * 400, failures=3, lost=2)
        assert queue.put([whole, replace(whole, id="j" * 64, data=b"", priority=HIGHEST)]) == [True, True]
        empty, full = claim(queue, 2)
        assert empty.entry.data == b""
        assert replace(full.entry, created=0.0, run_at=0.0) == replace(whole, attempts=1)
        assert nothing_to_claim(queue)
