"""What SQS counts and what we count; what is not due; what a wait keeps."""

import random
import threading
import time
from contextlib import closing
from math import inf

import pytest
from botocore.exceptions import ClientError

from djqueue.backends import entries
from djqueue.backends.entries import untried
from djqueue.backends.sqs import connection
from djqueue.backends.sqs import queue as queue_module
from djqueue.backends.sqs.messages import Received
from djqueue.backends.sqs.queue import SqsQueue
from djqueue.exceptions import NotSupported, QueueError
from djqueue.testing.contract.steps import claim, entry, leased, names, nothing_to_claim, put, with_counts
from djqueue.testing.patience import PATIENCE, eventually, together
from tests.backends.sqs.support import counts, ids, work
from tests.support.bells import waited

pytestmark = pytest.mark.backends("sqs", "sqs-fifo")


# ---- lost starts


def test_to10_starts_that_never_reported_are_counted(queue):
    put(queue, "work")
    for number in range(3):
        (lease,) = claim(queue, lease=0.2)
        assert counts(lease) == (number + 1, 0, number)


def test_what_was_handed_back_is_not_lost_and_what_was_lost_stays_counted(queue):
    leased(queue, "work", lease=0.2)
    (second,) = claim(queue)
    assert counts(second) == (2, 0, 1)
    queue.release([untried(second)])
    (again,) = claim(queue)
    assert counts(again) == (2, 0, 1)
    queue.release([with_counts(again, failures=1, errors='["no"]')])
    (third,) = claim(queue, lease=0.2)
    assert (counts(third), third.entry.errors) == ((3, 1, 1), '["no"]')
    (fourth,) = claim(queue)
    assert (counts(fourth), fourth.entry.errors) == ((4, 1, 2), '["no"]')


def test_after_its_lease_a_report_is_not_taken_but_what_is_done_is_deleted(queue):
    done, back, dead = leased(queue, "done", "back", "failed", lease=0.1)
    eventually(lambda: done.token.late and back.token.late and dead.token.late)
    assert (
        queue.touch([done, back, dead]) == queue.complete([done]) == queue.release([back]) == queue.fail([dead]) == []
    )
    assert sorted(names(claim(queue, 2))) == ["back", "failed"]
    assert nothing_to_claim(queue)


def test_nobody_holds_a_message_for_more_than_twelve_hours(queue, monkeypatch):
    (lease,) = leased(queue, "work")
    lease.token.until, now = connection.clock() + 90_000, connection.clock()
    monkeypatch.setattr(connection, "clock", lambda: now + 43_000)
    assert lease.token.span(900) < 200
    monkeypatch.setattr(connection, "clock", lambda: now + 43_200)
    assert queue.touch([lease], 60) == []


@pytest.mark.slow
def test_to6_to8_nothing_is_lost_and_nothing_is_completed_twice(queue):
    made = work(100)
    queue.put(made)
    completed, late = [], []

    def act(lease, way):
        """Complete it, give it back, or leave it to come again."""
        if way < 0.6 or lease.entry.attempts > 3:
            (completed if queue.complete([lease]) else late).append(lease.entry.id)
        elif way < 0.8:
            queue.release([untried(lease) if way < 0.7 else with_counts(lease, failures=1)])

    def serve(seed):
        chance = random.Random(seed)
        while (claimed := queue.claim(3, lease=2)) or is_any_left():
            for lease in claimed:
                act(lease, chance.random())

    def is_any_left():
        """One that was given back just now is ready, and in nobody's hands."""
        stats = queue.stats()
        return stats.ready or stats.delayed or stats.leased

    together(*[lambda seed=seed: serve(seed) for seed in range(6)], last=queue.close)
    assert len(completed) == len(set(completed))
    assert {*completed, *late} == set(ids(made))
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)


# ---- what is not due


def send_early(queue, **fields):
    """A message that SQS gives out before its entry is due."""
    early = entry("early", **fields)
    message = connection.outgoing(entries.stamped(early, queue.now()), queue.now(), early.id if queue.is_fifo else "")
    message = {**message, "MessageBody": entries.pack(early)} | ({} if queue.is_fifo else {"DelaySeconds": 0})
    queue._link.call("send_message_batch", Entries=[{"Id": "0", **message}])
    return early


def test_what_comes_early_waits_on_and_reaches_nobody(queue):
    early = send_early(queue, run_at=queue.now() + 3600, attempts=2)
    claimed = queue.claim(10)
    assert (claimed, 3500 < claimed.retry_after <= 3600) == ([], True)
    stats = queue.stats()
    assert (stats.ready, stats.leased if queue.is_fifo else stats.delayed) == (0, 1)
    assert not waited(queue, 1.5)
    queue.flush()
    assert early.attempts == 2


def test_what_is_not_due_keeps_what_was_lost_before(queue, monkeypatch):
    monkeypatch.setattr(connection, "LONGEST_DELAY", 1)
    leased(queue, "work", lease=0.2)
    queue.release([with_counts(lease, delay=2.5) for lease in claim(queue)])
    (lease,) = claim(queue)
    assert counts(lease) == (3, 0, 1)


def test_a_delay_that_sqs_keeps_is_kept_by_its_clock(make):
    message = connection.outgoing(entry(run_at=1060.5), 1000.0, group="")
    assert (message["DelaySeconds"], entries.unpack(message["MessageBody"]).run_at) == (61, 0)
    message = connection.outgoing(entry(run_at=2000.0), 1000.0, group="")
    assert (message["DelaySeconds"], entries.unpack(message["MessageBody"]).run_at) == (900, 2000.0)


# ---- waits


def test_a_nap_keeps_what_it_received_for_the_next_claim(queue, faulty_client, make):
    queue = make(connection=faulty_client)
    put(queue, "a", "b")
    with closing(queue.bell()) as bell:
        assert bell.wait(5) and bell.wait(5)
        assert len(faulty_client.named("receive_message")) == 1
        leases = queue.claim(2, queue.lease)
    assert (sorted(names(leases)), [counts(lease) for lease in leases]) == (["a", "b"], [(1, 0, 0)] * 2)
    assert faulty_client.named("change_message_visibility_batch") == []
    assert queue.complete(leases) == leases


@pytest.mark.parametrize("what", ["bell", "queue", "nothing"])
def test_what_a_nap_kept_is_given_back_uncounted_and_held_for_as_long_as_the_claim_says(queue, what):
    """By close, or because no claim takes it in time."""
    put(queue, "work")
    with closing(queue.bell()) as bell:
        assert bell.wait(5)
        bell.close() if what == "bell" else queue.close() if what == "queue" else eventually(lambda: not queue.has_kept)
    with closing(queue.bell()) as bell:
        assert bell.wait(5)
        (lease,) = queue.claim(1, lease=1)
    assert counts(lease) == (1, 0, 0)
    assert 0.5 < lease.until - queue.now() <= 1
    (again,) = claim(queue)
    assert counts(again) == (2, 0, 1)


def test_a_queue_is_taken_to_be_empty_after_all_servers_were_asked(make, faulty_client, monkeypatch):
    monkeypatch.setattr(queue_module, "CERTAIN", 1)
    queue = make(connection=faulty_client)
    queue.put(work(1))
    faulty_client.fail("receive_message", None)
    assert len(queue.claim(1)) == 1
    assert [arguments["WaitTimeSeconds"] for arguments in faulty_client.named("receive_message")] == [0, 1]


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_queue_to_which_something_is_sent_meanwhile_is_not_taken_to_be_empty(queue, monkeypatch, ends_first):
    """Whether the poll or the sending ends first: with --drain a consumer would leave what it has just enqueued."""
    receive, send, polls = queue._messages.receive, queue._messages.send, []

    def nothing(count, lease, seconds):
        polls.append(seconds)
        if len(polls) == 2 and not ends_first:
            queue.put(work(1))
        return Received(0, [], inf)

    def send_while_asked(entries):
        if ends_first:
            assert queue.claim(1) == []
        send(entries)

    monkeypatch.setattr(queue._messages, "receive", nothing)
    monkeypatch.setattr(queue._messages, "send", send_while_asked)
    queue.put(work(1)) if ends_first else queue.claim(1)
    monkeypatch.setattr(queue._messages, "receive", receive)
    assert len(claim(queue)) == 1 and not queue._empty


def test_what_an_end_sets_free_in_its_group_meanwhile_is_not_passed_over(queue, monkeypatch):
    queue.put(work(1))
    held, polls = claim(queue), []

    def nothing(count, lease, seconds):
        polls.append(seconds)
        if len(polls) == 2:
            queue.complete(held)
        return Received(0, [], inf)

    monkeypatch.setattr(queue._messages, "receive", nothing)
    assert (queue.claim(1), len(polls), queue._empty) == ([], 2, not queue.is_fifo)


def test_an_idle_queue_is_asked_once_a_second(make, faulty_client):
    queue = make(connection=faulty_client)
    queue.claim(1)
    before = len(faulty_client.named("receive_message"))
    with closing(queue.bell()) as bell:
        for _ in range(6):
            bell.disarm()
            assert queue.claim(1) == []
            assert not bell.wait(0.5)
    assert 2 <= len(faulty_client.named("receive_message")) - before <= 4


def test_to21_work_is_there_at_once_for_who_reserves(queue):
    assert queue.claim(1) == []
    asked, waited = threading.Event(), []

    def wait():
        asked.set()
        waited.append((queue.reserve(1, wait=PATIENCE), queue.now()))

    sleeper = threading.Thread(target=wait)
    sleeper.start()
    assert asked.wait(PATIENCE)
    time.sleep(0.3)  # so that it is likely to be in the middle of its poll; else it finds the message even sooner
    sent = queue.now()
    put(queue, "work")
    sleeper.join(PATIENCE)
    ((claimed, moment),) = waited
    assert names(claimed) == ["work"]
    assert moment - sent < 5


# ---- the failed queue


def test_what_failed_is_requeued_by_its_ids(queue):
    put(queue, *map(str, range(25)))
    leases = claim(queue, 25)
    queue.fail([with_counts(lease, failures=2) for lease in leases])
    wanted = ids(leases[3:15])
    assert queue.requeue([*wanted, "no such id"]) == 12
    assert queue.requeue([]) == 0
    again = claim(queue, 12)
    assert (sorted(ids(again)), {counts(lease) for lease in again}) == (sorted(wanted), {(1, 0, 0)})
    assert len(claim(queue.failed, 13)) == 13
    assert queue.failed.requeue(wanted) == 0


def test_a_failed_queue_is_trimmed_by_age(queue):
    queue.fail(leased(queue, "old"))
    eventually(lambda: queue.failed.trim(age=0.5) == 1)
    queue.fail(leased(queue, "new"))
    assert queue.failed.trim(age=60) == 0
    assert names(claim(queue.failed)) == ["new"]


def test_a_second_purge_within_a_minute_is_told(make, faulty_client):
    queue = make(connection=faulty_client)
    queue.flush()
    code = {"Error": {"Code": "AWS.SimpleQueueService.PurgeQueueInProgress"}}
    faulty_client.fail(
        "purge_queue", ClientError(code, "PurgeQueue"), ClientError({"Error": {"Code": "Else"}}, "PurgeQueue")
    )
    with pytest.raises(QueueError, match="less than a minute ago"):
        queue.flush()
    with pytest.raises(ClientError, match="Else"):
        queue.flush()


def test_flush_spares_what_is_leased_and_then_cannot_delete_what_is_delayed(queue, caplog):
    put(queue, *map(str, range(15)))
    held = claim(queue)
    if not queue.is_fifo:
        put(queue, "later", delay=60)
    queue.flush()
    assert (queue.stats().ready, queue.stats().delayed) == (0, 0 if queue.is_fifo else 1)
    assert ("1 delayed messages stay" in caplog.text) is not queue.is_fifo
    assert queue.complete(held) == held


@pytest.mark.parametrize("call", ["find('x')", "remove(['x'])", "peek('ready')", "amend('x', b'', b'')"])
def test_nobody_looks_into_a_queue(queue, call):
    with pytest.raises(NotSupported, match="SqsQueue cannot"):
        eval(f"queue.{call}", {"queue": queue})


def test_a_foreign_message_is_an_entry_of_its_own(queue):
    extra = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if queue.is_fifo else {}
    queue._link.call("send_message", MessageBody="from elsewhere", **extra)
    assert names(claim(queue)) == ["from elsewhere"]


# ---- groups of a FIFO queue


@pytest.mark.backends("sqs-fifo")
class TestGroups:
    """Entries of a lane are a group; others are a group each."""

    def test_what_is_in_no_lane_does_not_wait_for_others(self, queue):
        queue.put(work(2))
        assert [len(queue.claim(1)) for _ in range(2)] == [1, 1]

    def test_a_lane_comes_in_its_order_and_waits_for_what_is_out(self, queue):
        put(queue, "a1", "a2", lane="a")
        put(queue, "b1", lane="customer b, with blanks and ž")
        first = claim(queue)
        assert names(first) == ["a1"]
        assert names(queue.claim(10)) == ["b1"]
        queue.complete(first)
        assert names(claim(queue)) == ["a2"]

    def test_what_goes_back_keeps_its_place_in_its_lane(self, queue):
        put(queue, *"abc", lane="lane")
        queue.release([untried(lease) for lease in claim(queue)])
        queue.release([with_counts(lease, failures=1) for lease in claim(queue)])
        found = []
        for _ in "abc":
            found += claim(queue)
            queue.complete(found[-1:])
        assert names(found) == ["a", "b", "c"]
        assert [counts(lease) for lease in found] == [(2, 1, 0), (1, 0, 0), (1, 0, 0)]

    def test_of_a_lane_one_run_is_out_at_a_time(self, queue):
        put(queue, *"abc", lane="lane")
        assert names(queue.claim(2)) == ["a", "b"]
        assert queue.claim(2) == []

    def test_an_id_that_came_within_minutes_is_one_message(self, queue):
        one = entry("once")
        assert queue.put([one]) == queue.put([one]) == [True]
        assert len(queue) == 1

    def test_what_it_noted_is_forgotten_when_the_work_is_done(self, queue):
        put(queue, "work")
        queue.release([untried(lease) for lease in claim(queue)])
        assert len(queue.store._facts) == 1
        queue.complete(claim(queue))
        assert len(queue.store._facts) == 0

    def test_without_a_store_nothing_can_be_given_back(self, backend):
        given = {key.lower(): value for key, value in backend.options.items()}
        queue = SqsQueue("mail", backend.connection, **given)
        put(queue, "work")
        with pytest.raises(NotSupported, match="has no store"):
            queue.release(claim(queue))
