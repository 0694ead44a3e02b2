"""What SQS does instead of what holds elsewhere. What holds here too is asked in the suites with `WITH_SQS`."""

import time

import pytest
from botocore.exceptions import EndpointConnectionError

from djqueue import queues
from djqueue.backends.guards import DedupMark
from djqueue.backends.sqs import connection
from djqueue.decorators import queue_command
from djqueue.exceptions import MessageTooLarge, NotSupported, StoreUnreachable
from djqueue.messages.failures import errors_of
from djqueue.policies.outcomes import Outcome
from djqueue.testing.contract.steps import claim, nothing_to_claim
from tests.backends.sqs.support import counts, ids, work
from tests.support.consumer import entry_of, is_delayed, run_when_due

pytestmark = pytest.mark.backends("sqs", "sqs-fifo")
LONG = 60.0
"""Seconds that no test outlasts."""
AWAY = EndpointConnectionError(endpoint_url="http://away")


@queue_command
def count(*args):
    return len(args)


@queue_command(debounce=LONG)
def refresh(*args):
    return len(args)


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


def begun(queue):
    """Claim and complete the next as soon as it comes; when that was."""
    [lease] = claim(queue)
    queue.complete([lease])
    return lease.claimed


# ---- calls


@pytest.mark.parametrize("options", [{"unique": True}, {"extend": True, "debounce": 5}, {"priority": 1}])
def test_what_needs_a_look_at_what_waits_is_refused(queue, options):
    with pytest.raises(NotSupported, match="SqsQueue"):
        count.using(**options).enqueue()
    handle = count.using(unique=LONG).enqueue()
    assert [handle.enqueued, count.using(unique=LONG).enqueue().enqueued, handle.status] == [True, False, "unknown"]
    with pytest.raises(NotSupported):
        handle.cancel()
    with pytest.raises(NotSupported):  # there is no list of errors to take an id from
        queue.failed.peek("ready")


def test_df21_what_never_reports_ends_in_the_failed_queue_after_its_attempts(queue):
    """Killed for real: test_consumer.py."""
    handle = count.using(max_attempts=3).enqueue()
    for _ in range(3):
        claim(queue, lease=0.2)
    assert run_when_due(queue).outcome is Outcome.FAILED
    entry = entry_of(queue.failed, handle.id)
    assert (entry.attempts, entry.failures, entry.lost) == (4, 0, 3)
    assert errors_of(entry.errors)[-1]["reason"] == "worker died: 3 attempts never reported"


# ---- time


@pytest.mark.alone
def test_df9_what_is_delayed_comes_within_a_second_after_it_is_due(queue):
    """SQS delays by whole seconds; a FIFO queue not at all: the consumer that finds it holds it."""
    called = time.time()
    handle = count.using(delay=1.1).enqueue()
    assert is_delayed(queue, handle.id)
    assert called + 1.1 <= begun(queue) <= called + 1.1 + 2  # one more for a slow machine


def test_df26_a_delay_beyond_what_sqs_knows_is_kept_in_steps(queue, monkeypatch):
    monkeypatch.setattr(connection, "LONGEST_DELAY", 1)
    monkeypatch.setattr(connection, "LONGEST_HOLD", 2)
    called, due = time.time(), queue.now() + 2.2
    count.using(delay=2.2).enqueue()
    [lease] = claim(queue)
    assert (lease.claimed >= called + 2.2, queue.now() >= due, counts(lease)) == (True, True, (1, 0, 0))
    assert queue.complete([lease]) == [lease]
    assert nothing_to_claim(queue)
    handle = count.using(delay=3600).enqueue()
    assert is_delayed(queue, handle.id)


# ---- debounce


def test_df12_of_three_calls_one_comes_now_one_after_the_window_and_one_not_at_all(queue):
    often, called = refresh.using(debounce=1), time.time()
    calls = [often("x"), often("x"), often("x"), often("y")]
    assert [call.enqueued for call in calls] == [True, True, False, True]
    assert sorted(ids(claim(queue, 2))) == sorted([calls[0].id, calls[3].id])
    assert begun(queue) >= called + 1
    assert nothing_to_claim(queue)


def test_df14_a_call_after_the_delayed_run_is_followed_by_another(queue):
    """Moments are a window apart by the store; SQS may keep each of them for up to a second more."""
    often, called = refresh.using(debounce=2), time.time()
    assert [often().enqueued for _ in range(2)] == [True, True]
    moments = [begun(queue), begun(queue)]
    assert often().enqueued
    moments.append(begun(queue))
    assert [moment >= called + 2 * number for number, moment in enumerate(moments)] == [True] * 3


def test_df16_when_a_put_fails_the_next_call_is_not_skipped(queue, faulty_client, settings):
    settings.QUEUES = {"default": {**settings.QUEUES["default"], "CONNECTION": faulty_client}}
    for _ in range(2):  # the first comes at once, the next is delayed
        faulty_client.fail("send_message_batch", AWAY)
        with pytest.raises(StoreUnreachable):
            refresh()
        assert refresh().enqueued
    assert not refresh().enqueued


def test_df17_windows_are_exact_and_equal_calls_are_equal(queue):
    """The store knows the moment to the microsecond; SQS brings the message at the next whole second."""
    exact = refresh.using(debounce=1.005, always_delay=True)
    called, first = time.time(), exact({"a": 1, "b": 2})
    assert [first.enqueued, exact({"b": 2, "a": 1}).enqueued] == [True, False]
    assert exact.using(queue_name="mail").enqueue({"a": 1, "b": 2}).enqueued
    [mark] = map(DedupMark.read, queue.store._facts.values())
    assert mark.at - mark.first == 1_005_000
    assert begun(queue) >= called + 1.005


# ---- the queue itself


def test_df24_put_and_complete_tell_of_each_and_what_is_too_large_is_refused(queue):
    """An id that waits is taken again by a standard queue, and not by a FIFO queue, which does not tell."""
    assert (queue.take(), queue.claim(10)) == ((None, None), [])
    made = work(12)
    assert queue.put(made) == [True] * 12
    assert queue.put(made[:1]) == [True]
    leases = claim(queue, 12 if queue.is_fifo else 13)
    assert queue.complete(leases[:1]) == leases[:1]
    assert queue.complete(leases) == leases[1:]
    with pytest.raises(MessageTooLarge):
        queue.put([*work(1), *work(1, b"x" * 2**20)])
    assert len(queue) == 0
