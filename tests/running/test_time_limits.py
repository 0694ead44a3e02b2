"""For how long a command may run, what ends it, and for how long its message is held."""

import asyncio
import threading
import time
from math import inf

import pytest

from djqueue import current_message, queues
from djqueue.consumer import STUCK
from djqueue.decorators import queue_command
from djqueue.exceptions import TimeLimitExceeded
from djqueue.messages.failures import errors_of
from djqueue.policies.outcomes import Outcome
from djqueue.running.context import CurrentMessage
from djqueue.testing import eventually
from tests.support.backends import ACROSS, WITH_SQS
from tests.support.consumer import Release, can_look, exit_code, recorded_signals, run_one, serving
from tests.support.notes import cleared_per_test

EVERY = pytest.mark.backends(*ACROSS)
MEMORY = pytest.mark.backends("memory")
SOME = pytest.mark.backends("memory", "sqlite", "redis")
LIMIT = 0.1
releases: dict[str, Release] = {}
seen = cleared_per_test([])


@queue_command(time_limit=LIMIT)
async def sleep_long():
    seen.append(current_message().remaining)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise


@queue_command(time_limit=LIMIT)
async def swallow():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen.append("cancelled")
    return "all the same"


@queue_command(time_limit=LIMIT)
async def fail_when_cancelled():
    try:
        await asyncio.sleep(60)
    finally:
        raise ValueError("its own trouble")


@queue_command(time_limit=60)
async def time_out_by_itself():
    async with asyncio.timeout(0.01):
        await asyncio.sleep(60)


@queue_command(time_limit=60)
async def breathe():
    await asyncio.sleep(2 * LIMIT)


@queue_command(time_limit=LIMIT)
async def never_yield():
    time.sleep(3 * LIMIT)
    return "done late"


@queue_command(time_limit=LIMIT)
async def swallow_for_ever(name):
    release = releases[name]
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            seen.append("cancelled")


@queue_command(time_limit=LIMIT)
def hang(name):
    release = releases[name]
    seen.append(current_message().attempt)
    release.wait()
    return "late"


@queue_command(time_limit=LIMIT)
def hang_and_fail(name):
    release = releases[name]
    release.wait()
    raise ValueError("late")


@queue_command(time_limit=60)
def look():
    before = current_message().remaining
    time.sleep(0.02)
    seen.append((before, current_message().remaining))


@queue_command
def look_without():
    seen.append(current_message().remaining)


@queue_command(time_limit=LIMIT)
def obey():
    while current_message().remaining > 0:
        time.sleep(0.005)
    return current_message().remaining


@queue_command
def quick(number):
    seen.append(number)


@queue_command
def hold(name):
    seen.append(current_message().attempt)
    releases[name].wait()


@queue_command(lease=30)
def hold_long(name):
    releases[name].wait()


@queue_command(lease=0.8)
def hold_short(name):
    releases[name].wait()


@pytest.fixture
def release(monkeypatch):
    """A release by name; those that still wait for it at the end may go on."""
    made = Release()
    monkeypatch.setitem(releases, "release", made)
    yield made
    made.set()


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues()
    settings.QUEUE_TIME_LIMIT_GRACE = 0.1
    return queues["default"]


@EVERY
def test_an_async_command_is_cancelled_at_its_limit(queue):
    limit = 5 * LIMIT  # it begins before, on a busy machine too
    handle = sleep_long.using(time_limit=limit).enqueue()
    began = time.monotonic()
    verdict = run_one(queue)
    assert limit * 0.9 <= time.monotonic() - began < 20
    assert verdict.outcome is Outcome.FAILED
    assert isinstance(verdict.exception, TimeLimitExceeded)
    assert isinstance(verdict.exception, TimeoutError)
    assert 0 < seen[0] <= limit
    assert seen[1] == "cancelled"
    [note] = errors_of(queue.failed.find(handle.id).entry.errors)
    assert note["exception"] == "djqueue.exceptions.TimeLimitExceeded"
    assert "longer than its time_limit of 0.5 s" in note["reason"]


@MEMORY
class TestCoroutines:
    @pytest.mark.parametrize("listed", [TimeLimitExceeded, TimeoutError])
    def test_it_is_retried_if_that_is_listed(self, queue, listed):
        handle = sleep_long.using(retry_on=[listed], max_attempts=2, backoff=False).enqueue()
        assert [run_one(queue).outcome for _ in range(2)] == [Outcome.RETRY, Outcome.FAILED]
        assert queue.failed.find(handle.id).entry.failures == 2

    @pytest.mark.parametrize("listed", [(), (TimeLimitExceeded,)])
    @pytest.mark.parametrize(
        ("action", "outcomes"),
        [
            ("retry", [Outcome.RETRY, Outcome.FAILED]),
            ("fail", [Outcome.FAILED]),
            ("discard", [Outcome.DISCARDED]),
        ],
    )
    def test_a_timeout_action_decides_whatever_is_listed(self, queue, action, outcomes, listed):
        options = {"timeout_action": action, "retry_on": listed, "max_attempts": 2, "backoff": False}
        sleep_long.using(**options).enqueue()
        assert [run_one(queue).outcome for _ in outcomes] == outcomes
        assert (len(queue), len(queue.failed)) == (0, int(action != "discard"))

    def test_a_timeout_action_is_for_no_other_failure(self, queue):
        fail_when_cancelled.using(timeout_action="discard").enqueue()
        assert run_one(queue).outcome is Outcome.FAILED

    def test_a_call_may_have_another_limit_or_none(self, queue):
        never_yield.using(time_limit=None).enqueue()
        assert run_one(queue).outcome is Outcome.DONE
        obey.using(time_limit=0.02).enqueue()
        verdict = run_one(queue)
        assert (verdict.outcome, -0.5 < verdict.value <= 0) == (Outcome.DONE, True)

    def test_one_that_swallows_the_cancelling_has_ended_by_itself(self, queue):
        swallow()
        verdict = run_one(queue)
        assert (verdict.outcome, verdict.value) == (Outcome.DONE, "all the same")
        assert seen == ["cancelled"]

    def test_what_it_raises_instead_is_its_own_failure_and_a_timeout_of_its_own_is_not_the_limit(self, queue):
        fail_when_cancelled()
        verdict = run_one(queue)
        assert (verdict.outcome, type(verdict.exception)) == (Outcome.FAILED, ValueError)
        time_out_by_itself()
        assert type(run_one(queue).exception) is TimeoutError

    def test_the_next_one_on_the_same_loop_is_not_cancelled(self, queue):
        for _ in range(2):
            sleep_long()
            breathe()
        assert exit_code(threads=1, drain=True) == 0
        assert (queue.stats().done, len(queue.failed)) == (2, 2)


@MEMORY
class TestRemaining:
    def test_a_function_sees_what_remains_and_without_a_limit_there_is_no_end(self, queue):
        look()
        run_one(queue)
        [(before, after)] = seen
        assert 59 < after <= before - 0.02 < 60
        look_without()
        run_one(queue)
        assert seen[1:] == [inf]

    def test_what_remains_is_negative_when_it_is_over(self):
        message = CurrentMessage("id", 1, "c", "default", time_limit=1.0, began=time.monotonic() - 5)
        assert -60 < message.remaining <= -4


@SOME
class TestStuck:
    def test_its_message_is_taken_from_it_and_the_others_go_on(self, queue, release):
        handle = hang("release")
        with recorded_signals("failed", "completed", "lease_lost") as told, serving(threads=2) as consumer:
            release.await_waiting(1)
            quick.enqueue_many([(number,) for number in range(10)])
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            eventually(lambda: queue.stats().done == 10)
            assert release.waiting == 1  # it still hangs
            quick.enqueue_many([(number,) for number in range(10, 20)])
            eventually(lambda: queue.stats().done == 20)
            assert consumer.end() == 0
        [note] = errors_of(entry.errors)
        assert note["exception"] == "djqueue.exceptions.TimeLimitExceeded"
        assert "does not end" in note["reason"]
        assert "in hang" in note["traceback"]  # where it hangs
        assert [name for name, _ in told].count("failed") == 1
        assert (entry.attempts, entry.failures, entry.lost) == (1, 1, 0)

    @pytest.mark.parametrize("command", [hang, hang_and_fail], ids=["returns", "raises"])
    def test_its_late_return_changes_nothing(self, queue, release, command):
        handle = command.using(result_ttl=60).enqueue("release")
        with recorded_signals("failed", "completed", "lease_lost") as told, serving(threads=2) as consumer:
            eventually(lambda: handle.status == "failed")
            before = queue.failed.find(handle.id).entry
            release.set()
            release.await_passed(1)
            quick(1)
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0
        assert [name for name, about in told if about["id"] == handle.id] == ["failed"]
        assert queue.failed.find(handle.id).entry == before
        assert handle.status == "failed"
        assert queue.stats().done == 1

    def test_it_is_retried_on_another_thread_if_that_is_listed(self, queue, release):
        handle = hang.using(retry_on=[TimeLimitExceeded], max_attempts=2, backoff=False).enqueue("release")
        with serving(threads=3) as consumer:
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            assert release.waiting == 2
            assert consumer.end() == 0
        assert (entry.attempts, entry.failures) == (2, 2)
        assert seen == [1, 2]

    def test_with_as_many_stuck_as_there_are_threads_the_consumer_ends(self, queue, release):
        handles = hang.enqueue_many([("release",)] * 2)
        assert exit_code(threads=2) == STUCK == 70
        assert {queue.failed.find(handle.id) is not None for handle in handles} == {True}
        assert queue.stats().leased == 0

    def test_those_that_ended_after_all_count_no_more(self, queue, release, monkeypatch):
        with serving(threads=2) as consumer:
            for number in range(3):
                monkeypatch.setitem(releases, f"release {number}", release := Release())
                handle = hang(f"release {number}")
                eventually(lambda handle=handle: queue.failed.find(handle.id))
                release.set()
                release.await_passed(1)
            quick(1)
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0


@MEMORY
class TestStuckOddly:
    def test_a_coroutine_that_swallows_for_ever_is_left_behind_too(self, queue, release):
        handle = swallow_for_ever("release")
        with serving(threads=2) as consumer:
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            quick(1)
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0
        assert "does not end" in errors_of(entry.errors)[0]["reason"]

    def test_one_that_ends_within_the_grace_is_done(self, queue, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = 30
        queue = queues["default"]
        never_yield()
        assert exit_code(threads=1, limit=1) == 0
        assert (queue.stats().done, len(queue.failed)) == (1, 0)

    def test_one_without_a_limit_may_run(self, queue, release):
        hold("release")
        with serving(threads=1, limit=1) as consumer:
            release.await_waiting(1)
            threading.Event().wait(0.8)  # longer than the time limits looks
            assert len(queue.failed) == 0
            release.set()
            assert consumer.code() == 0
        assert queue.stats().done == 1


@pytest.mark.backends(*WITH_SQS)
def test_df22_a_job_of_three_leases_runs_once(queue, release):
    """Two consumers: the other one would take it if its lease ran out."""
    handle, lease = hold("release"), 1.0 if can_look(queue) else 2.0  # SQS leases by whole seconds
    with (
        recorded_signals("completed", "lease_lost") as told,
        serving(threads=1, lease=lease) as one,
        serving(threads=1, lease=lease) as other,
    ):
        release.await_waiting(1)
        began = queue.now()
        eventually(lambda: queue.now() > began + 3 * lease + 0.1)
        if can_look(queue):
            record = queue.find(handle.id)
            assert (record.state, record.entry.attempts, record.entry.lost) == ("leased", 1, 0)
        release.set()
        eventually(lambda: told)
        for consumer in (one, other):
            assert consumer.end() == 0
    assert (seen, release.passed, [name for name, _ in told]) == ([1], 1, ["completed"])
    assert (len(queue), queue.stats().done or 1) == (0, 1)


@EVERY
class TestOwnLease:
    @pytest.mark.parametrize("command, beyond", [(hold_long, 20), (hold.using(lease=40), 25)], ids=["command", "call"])
    def test_a_longer_one_is_what_it_is_extended_by(self, queue, release, command, beyond):
        handle = command.enqueue("release")
        with serving(threads=1, lease=0.4) as consumer:
            release.await_waiting(1)
            assert eventually(lambda: queue.find(handle.id).at > queue.now() + beyond)
            release.set()
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0

    def test_df22_one_with_a_shorter_lease_is_extended_as_often_as_that_needs(self, queue, release):
        hold_short("release")
        with recorded_signals("lease_lost", "started") as told, serving(threads=1, lease=8.0) as consumer:
            release.await_waiting(1)
            began = queue.now()
            while queue.now() < began + 2.5:
                assert queue.reap().count == 0
                time.sleep(0.02)
            assert queue.stats().leased == 1
            release.set()
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0
        assert [name for name, _ in told] == ["started"]
