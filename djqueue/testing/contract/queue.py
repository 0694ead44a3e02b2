"""The contract of every queue, also with four methods. Mix QueueContract into a test class and write ``make_queue``.

::

    class TestMyQueue(QueueContract, unittest.TestCase):
        def make_queue(self, name, **options):
            return MyQueue(name, "my-server:1234", **options)

The classes here serve under pytest (without TestCase as well) and under unittest.
"""

from __future__ import annotations

from contextlib import closing
from math import inf

from djqueue.backends.base import Claimed, Entry
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.steps import Contract, claim, entry, leased, names, nothing_to_claim, put, with_counts
from djqueue.testing.patience import PATIENCE, together

TEXTS = [
    "plain",
    "",
    " spaces ",
    "two\nlines\r\n",
    '{"json": [1, "2"]}',
    "'; -- \"%s %% \\",
    "žluťoučký 🐎",
    "x" * 100_000,
]
NOTHING = object()


class QueueContract(Contract):
    """The contract of every backend, over the four verbs alone."""

    # ---- the four verbs

    def test_dj20_text_comes_out_as_it_went_in_and_in_its_order(self):
        queue, texts = self.queue(), [*TEXTS, *map(str, range(20))]
        for text in texts:
            queue.write(text)
        assert [queue.read() for _ in texts] == texts

    def test_an_empty_queue_reads_none_and_is_true_and_close_is_not_the_end(self):
        queue = self.queue()
        assert queue.read() is None
        queue.write("one")
        queue.close()
        queue.close()
        assert queue.read() == "one"
        assert queue.read() is None
        assert bool(queue) is True

    def test_dj20_len_and_flush_know_only_their_own_queue(self):
        one, other = self.queue(), self.queue()
        for _ in range(3):
            one.write("mine")
        other.write("theirs")
        assert (len(one), len(other)) == (3, 1)
        one.flush()
        assert (len(one), len(other)) == (0, 1)
        assert one.read() is None
        assert other.read() == "theirs"

    def test_dj21_names_that_differ_in_case_or_punctuation_are_different_queues(self):
        base = new_id()[-8:]
        queues = [
            self.make_queue(base + end)
            for end in ("mail", "Mail", "MAIL", "mail-", "mail.", "m_il", "m%il", "ma*l", "mäil")
        ]
        for queue in queues:
            queue.write(queue.name)
        assert [len(queue) for queue in queues] == [1] * len(queues)
        queues[0].flush()
        assert [queue.read() for queue in queues] == [None] + [queue.name for queue in queues[1:]]

    def test_tq11_each_message_is_handed_to_exactly_one_of_many_threads(self):
        queue = self.queue()
        for number in range(60):
            queue.write(str(number))

        def drain() -> list[str]:
            return list(iter(queue.read, None))

        read = together(*[drain] * 4, last=queue.close)
        assert sorted(sum(read, [])) == sorted(map(str, range(60)))

    # ---- put, claim, complete, release, fail

    def test_what_is_put_is_claimed_and_completed(self):
        queue = self.queue()
        started = queue.now()
        first = Entry(bytes(range(256)), new_id(), command="app.commands.churn", failures=2, attempts=3, errors='["x"]')
        assert queue.put([first, entry("second")]) == [True, True]
        assert len(queue) == 2
        leases = claim(queue, 2)
        got = leases[0].entry
        assert (got.body, got.id, got.command, got.errors) == (first.body, first.id, first.command, first.errors)
        assert (got.attempts, got.failures, got.lost, leases[1].entry.attempts) == (4, 2, 0, 1)
        assert started - 1 <= got.created <= leases[0].claimed <= queue.now()
        assert leases[0].until > leases[0].claimed
        assert len(queue.complete(leases)) == 2
        assert len(queue) == 0
        assert nothing_to_claim(queue)

    def test_one_that_is_new_is_put_like_any_other(self):
        queue = self.queue()
        first = Entry(bytes(range(256)), new_id(), command="app.commands.churn", failures=2, attempts=3, errors='["x"]')
        assert queue.put_new(first) is True
        [lease] = claim(queue)
        got = lease.entry
        assert (got.body, got.id, got.command, got.errors) == (first.body, first.id, first.command, first.errors)
        assert (got.attempts, got.failures, got.lost) == (4, 2, 0)
        queue.complete([lease])
        assert queue.put_new(entry("later", delay=60)) is True
        assert nothing_to_claim(queue)

    def test_a_claim_gives_no_more_than_its_limit_and_says_when_to_ask_again(self):
        queue = self.queue()
        claimed = queue.claim(2)
        assert isinstance(claimed, Claimed)
        assert (claimed, claimed.retry_after) == ([], inf)
        put(queue, *"abcde")
        first = queue.claim(2)
        assert first.retry_after == 0
        assert [len(first), *(len(queue.claim(2)) for _ in range(2))] == [2, 2, 1]

    def test_an_empty_put_is_accepted(self):
        queue = self.queue()
        assert queue.put([]) == []
        assert queue.complete([]) == queue.release([]) == queue.fail([]) == queue.touch([]) == []

    def test_a_delay_is_kept_and_does_not_keep_back_others(self):
        queue = self.queue()
        put(queue, "later", delay=60)
        assert queue.claim(1) == []
        assert names(leased(queue, "now")) == ["now"]
        assert nothing_to_claim(queue)

    def test_what_is_delayed_is_counted_and_a_claim_says_when_it_is_due(self):
        queue = self.queue("count")
        put(queue, "later", delay=60)
        assert 0 < queue.claim(1).retry_after <= 60
        assert len(queue) == 1

    def test_a_delayed_entry_comes_when_it_is_due_and_a_moment_to_run_at_is_kept(self):
        queue = self.queue()
        started = queue.now()
        (lease,) = leased(queue, "later", delay=0.1)
        assert (lease.claimed >= started + 0.1, lease.entry.delay) == (True, 0)
        put(queue, "much later", run_at=queue.now() + 60)
        due = queue.now() + 0.1
        (lease,) = leased(queue, "moment", run_at=due)
        assert (names([lease]), lease.claimed >= due) == (["moment"], True)
        assert nothing_to_claim(queue)

    def test_to11_what_is_released_comes_again_as_the_lease_says_and_after_its_delay(self):
        queue = self.queue()
        (lease,) = leased(queue, "work")
        assert len(queue.release([with_counts(lease, failures=1, errors='["no"]')])) == 1
        assert len(queue) == 1
        (again,) = claim(queue)
        assert (again.entry.id, again.entry.body) == (lease.entry.id, b"work")
        assert (again.entry.attempts, again.entry.failures, again.entry.errors) == (2, 1, '["no"]')
        released = queue.now()
        queue.release(with_counts(again, delay=0.1))  # one lease, or many
        (late,) = claim(queue)
        assert late.claimed >= released + 0.1
        queue.release([with_counts(late, delay=60)])
        assert nothing_to_claim(queue)

    def test_what_failed_is_in_the_failed_queue_with_its_note_and_stays_in_it(self):
        queue = self.queue()
        (lease,) = leased(queue, "work")
        assert len(queue.fail([with_counts(lease, failures=1, errors='["boom"]')])) == 1
        assert (len(queue), len(queue.failed)) == (0, 1)
        assert nothing_to_claim(queue)
        (failed,) = claim(queue.failed)
        assert (failed.entry.id, failed.entry.body, failed.entry.failures) == (lease.entry.id, b"work", 1)
        assert failed.entry.errors == '["boom"]'
        assert len(queue.failed.fail([failed])) == 1
        assert (len(queue), len(queue.failed)) == (0, 1)
        assert names(claim(queue.failed)) == ["work"]

    def test_the_failed_queue_bears_the_name_of_its_queue_and_has_none_itself(self):
        queue = self.queue()
        assert (queue.failed.name, queue.failed.base_name) == (f"{queue.name}:failed", queue.name)
        assert queue.failed.failed is None
        assert type(queue.failed) is type(queue)

    def test_the_failed_queue_is_trimmed_to_a_count(self):
        queue = self.queue()
        queue.fail(leased(queue, *"abcde"))
        assert queue.failed.trim() == queue.failed.trim(most=5) == 0
        assert queue.failed.trim(most=3, limit=1) == 1
        assert queue.failed.trim(most=1) == 3
        assert (queue.failed.trim(most=1), len(queue.failed)) == (0, 1)
        assert queue.failed.trim(most=0) == 1

    def test_stats_count_what_waits(self):
        queue = self.queue(entries=["a", "b"])
        stats = queue.stats()
        assert (stats.ready, stats.failed) == (2, 0)

    def test_a_nap_ends(self):
        one, other = self.queue(), self.queue()
        beside = [other] if other.connection_key == one.connection_key else []
        for queues in ([], beside):
            with closing(one.bell(queues)) as bell:
                assert bell.wait(0.01) in (True, False)
        assert one.describe()

    # ---- items

    def test_tq21_every_item_can_be_told_from_nothing(self):
        queue = self.queue()
        items = [None, 0, "", False, [], {}, ("a", 1), {"b": 2.5}]
        for item in items:
            queue.push(item)
        assert len(queue) == len(items)
        assert [queue.pop(default=NOTHING) for _ in items] == items
        assert queue.pop(default=NOTHING) is NOTHING
        assert queue.pop(timeout=0.01) is None

    def test_an_item_is_taken_released_taken_again_and_completed(self):
        queue = self.queue()
        assert queue.take() == (None, None)
        id = queue.push(None)
        lease, item = queue.take()
        assert (lease.entry.id, item) == (id, None)
        queue.release([lease])
        lease, item = queue.take(wait=PATIENCE)
        assert (lease.entry.id, item) == (id, None)
        assert len(queue.complete([lease])) == 1
        assert queue.take() == (None, None)

    def test_a_delayed_item_is_waited_for(self):
        queue = self.queue()
        queue.push("much later", delay=60)
        assert queue.pop(default=NOTHING) is NOTHING
        queue.push("later", delay=0.1)
        assert queue.pop(timeout=PATIENCE) == "later"

    def test_an_item_that_nobody_signed_goes_to_the_failed_queue(self):
        queue = self.queue(entries=["forged"])
        try:
            queue.take()
        except InvalidMessage:
            assert (len(queue), len(queue.failed)) == (0, 1)
        else:
            raise AssertionError("an unsigned item was accepted")

    def test_clear_is_flush(self):
        queue = self.queue()
        queue.push("a")
        queue.push("b", delay=60)
        queue.clear()
        assert (len(queue), queue.pop(default=NOTHING)) == (0, NOTHING)
