"""The contract of the history, the records of what has ended; a part of LeaseContract."""

from __future__ import annotations

from collections.abc import Sequence

from django.test import override_settings

from djqueue.backends.base import BaseQueue, Fact, Lease
from djqueue.backends.history import MOMENT, MOST_AT_ONCE, HistoryRow
from djqueue.testing.contract.steps import Contract, claim, entry, leased, names, put, run_out
from djqueue.testing.patience import eventually

_WORDS = ("done", "žluťoučký 🐎\ttab '%s' \\ \"{}\"")


def record(at: float, *words: str) -> bytes:
    """A record of what ended at this moment (epoch seconds)."""
    return " ".join((f"{round(at * 1e6):0{MOMENT}d}", *words)).encode()


def records(queue: BaseQueue, number: int, *words: str) -> list[bytes]:
    """Records of what ends one after the other from now on."""
    now = queue.now()
    return [record(now + place / 1e6, *(words or _WORDS), str(place)) for place in range(number)]


def kept(queue: BaseQueue) -> dict[str, bytes]:
    """All records of a queue by id, the newest first."""
    return {row.id: row.record for row in queue.history.page(limit=10_000)}


def listed(queue: BaseQueue, size: int) -> list[HistoryRow]:
    """All records of a queue, read in pages of some size."""
    found: list[HistoryRow] = []
    while page := queue.history.page(size, found[-1].cursor if found else ""):
        assert len(page) <= size
        found += page
    return found


def ids(leases: Sequence[Lease]) -> list[str]:
    return [lease.entry.id for lease in leases]


class HistoryContract(Contract):
    """A record is kept with the end of its message, found by id, listed and bounded."""

    def test_what_is_completed_leaves_its_record(self):
        queue = self.queue("history")
        leases = leased(queue, "a", "b", "c")
        told = records(queue, 3)
        assert queue.history.get(leases[0].entry.id) is None
        assert queue.complete(leases, history=told) == leases
        assert [queue.history.get(id) for id in ids(leases)] == told
        assert [queue.history.get(unknown) for unknown in ("", "unknown", entry().id)] == [None] * 3
        assert kept(self.queue("history")) == {}, "of its own queue alone"

    def test_what_fails_leaves_its_record(self):
        queue = self.queue("history")
        leases = leased(queue, "a", "b")
        told = records(queue, 2, "failed")
        assert queue.fail(leases, history=told) == leases
        assert [queue.history.get(id) for id in ids(leases)] == told
        assert len(queue.failed) == 2
        assert kept(queue.failed) == {}

    def test_what_is_completed_with_a_claim_leaves_its_record(self):
        queue = self.queue("history", "order", entries="abcd")
        first = claim(queue, 2)
        told = records(queue, 4)
        held, second = queue.exchange(first, 2, history=told[:2])
        assert (held, names(second)) == (first, ["c", "d"])
        assert queue.exchange(second, 0, history=told[2:]) == (second, [])
        assert kept(queue) == dict(zip(ids([*first, *second]), told, strict=True))

    def test_an_empty_record_is_none_and_without_records_nothing_is_kept(self):
        queue = self.queue("history", entries="abcdef")
        a, b, *others = claim(queue, 6)
        (told,) = records(queue, 1)
        queue.complete([a, b], history=[b"", told])
        queue.complete(others[0])
        queue.fail(others[1:2], history=[b""])
        queue.exchange(others[2:], 1)
        assert kept(queue) == {b.entry.id: told}

    def test_only_leases_that_were_held_leave_records(self):
        queue = self.queue("history", "fence")
        (old,) = run_out(queue, leased(queue, "old", lease=0.05))
        (new,) = claim(queue)
        first, second, third, fourth = records(queue, 4)
        assert queue.complete([old], history=[first]) == []
        assert queue.fail([old], history=[first]) == []
        assert queue.exchange([old], 1, history=[first]) == ([], [])
        assert kept(queue) == {}
        (beside,) = leased(queue, "beside")
        assert queue.complete([old, beside, new], history=[second, third, fourth]) == [beside, new]
        assert kept(queue) == {beside.entry.id: third, new.entry.id: fourth}
        assert queue.complete([new], history=[first]) == []
        assert queue.history.get(new.entry.id) == fourth

    def test_records_and_facts_are_kept_together(self):
        queue = self.queue("history", "facts")
        leases = leased(queue, *"abc")
        told = records(queue, 3)
        queue.complete(leases[:2], [Fact("result:a", b"1", 60), None], told[:2])
        queue.fail(leases[2:], [Fact("result:c", b"3", 60)], told[2:])
        assert kept(queue) == dict(zip(ids(leases), told, strict=True))
        assert queue.store.get_many(["result:a", "result:b", "result:c"]) == [b"1", None, b"3"]

    def test_the_latest_record_of_an_id_counts(self):
        queue = self.queue("history", "inspect")
        (lease,) = leased(queue, "work")
        queue.fail([lease], history=[record(queue.now(), "failed")])
        assert queue.requeue([lease.entry.id]) == 1
        (again,) = claim(queue)
        last = record(queue.now(), "done")
        queue.complete([again], history=[last])
        assert queue.history.get(lease.entry.id) == last
        assert [row.record for row in queue.history.page()] == [last]

    def test_an_id_is_listed_once_whatever_the_page(self):
        queue, (a, b, c) = self.queue("history"), sorted(entry().id for _ in "abc")
        with override_settings(QUEUE_HISTORY={"count": 6}):
            told = dict(enumerate(records(queue, 6)))
            for at, some in enumerate([[a], [b], [a, c], [b], [a]]):
                queue.history.keep(some, [told[at]] * len(some))
            expected = [(a, told[4]), (b, told[3]), (c, told[2])]
            for size in (1, 2, 10):
                assert [(row.id, row.record) for row in listed(queue, size)] == expected

    def test_what_is_cancelled_leaves_its_record_and_its_fact(self):
        queue = self.queue("history", "inspect", "facts")
        (held,) = leased(queue, "held")
        waits, later = put(queue, "waits")["waits"], put(queue, "later", delay=60)["later"]
        told = records(queue, 3)
        fact = Fact("result:a", b"1", 60)
        assert queue.remove([waits.id], [fact], told[:1]) == 1
        assert (queue.find(waits.id), queue.history.get(waits.id)) == (None, told[0])
        assert queue.store.get("result:a") == b"1"
        assert queue.remove([later.id], [None], [b""]) == 1
        assert queue.remove([held.entry.id], [Fact("result:b", b"2", 60)], told[1:2]) == 0
        assert queue.remove([waits.id], [fact._replace(value=b"3")], told[2:]) == 0
        assert kept(queue) == {waits.id: told[0]}
        assert queue.store.get_many(["result:a", "result:b"]) == [b"1", None]
        assert (len(queue), queue.find(held.entry.id) is not None) == (0, True)

    def test_what_ended_without_a_lease_is_remembered(self):
        queue = self.queue("history")
        told, named = records(queue, 2, "cancelled"), [entry().id, entry().id]
        queue.history.keep(named, told)
        assert [queue.history.get(id) for id in named] == told
        queue.history.keep([], [])
        assert kept(queue) == dict(zip(named, told, strict=True))

    def test_the_newest_are_listed_first_page_by_page(self):
        queue, total = self.queue("history"), 23
        put(queue, *map(str, range(total)))
        told = records(queue, total)
        leases, at = claim(queue, total), 0
        for size in (1, 5, 2, 15):
            queue.complete(leases[at : at + size], history=told[at : at + size])
            at += size
        found = listed(queue, 4)
        expected = list(zip(ids(leases), told, strict=True))[::-1]
        assert [(row.id, row.record) for row in found] == expected
        assert list(queue.history.page(limit=0)) == []

    def test_more_than_one_call_carries(self):
        queue, total = self.queue("history"), 2 * MOST_AT_ONCE + 100
        put(queue, *map(str, range(total)))
        leases = [*claim(queue, MOST_AT_ONCE), *claim(queue, MOST_AT_ONCE), *claim(queue, 100)]
        told = records(queue, total)
        half = MOST_AT_ONCE + 50
        assert len(queue.complete(leases[:half], history=told[:half])) == half
        queue.exchange(leases[half:], 1, history=told[half:])
        assert kept(queue) == dict(zip(ids(leases), told, strict=True))

    def test_the_history_is_trimmed_to_a_count(self):
        queue, total = self.queue("history"), 40
        told, named = records(queue, total), [entry().id for _ in range(total)]
        for id, one in zip(named, told, strict=True):
            queue.history.keep([id], [one])
        assert queue.history.trim(total, 3600) == 0
        dropped = queue.history.trim(20, 3600)
        left = list(kept(queue))
        assert 20 <= dropped == total - len(left) <= 30
        assert left == named[dropped:][::-1]
        assert queue.history.get(named[0]) is None
        assert queue.history.get(named[-1]) == told[-1]
        assert queue.history.trim(0, 3600) == len(left)
        assert kept(queue) == {}

    def test_the_history_is_trimmed_to_an_age(self):
        queue = self.queue("history")
        queue.complete(leased(queue, *"ab"), history=records(queue, 2))
        assert queue.history.trim(100, 3600) == 0
        assert len(kept(queue)) == 2

        def trimmed() -> bool:
            queue.history.trim(100, 0.001)
            return not kept(queue)

        eventually(trimmed)

    def test_the_history_is_bounded_while_messages_end(self):
        queue, most, size = self.queue("history"), 400, 10
        with override_settings(QUEUE_HISTORY={"count": most}):
            for _ in range(200):
                queue.complete(leased(queue, *map(str, range(size))), history=records(queue, size))
            assert most / 2 <= len(kept(queue)) <= most * 1.1 + MOST_AT_ONCE
            queue.history.trim(most, 3600)
            assert most / 2 <= len(kept(queue)) <= most

    def test_a_flush_leaves_it(self):
        queue = self.queue("history")
        (lease,) = leased(queue, "done")
        (told,) = records(queue, 1)
        queue.complete(lease, history=[told])
        put(queue, "waits")
        queue.flush()
        assert queue.history.get(lease.entry.id) == told
