"""For how long a message may wait, and from when on: ttl and delay, by the store's clock."""

import time
from datetime import timedelta

import pytest

from djqueue import Retry, current_message
from djqueue.decorators import queue_command
from djqueue.messages.failures import errors_of
from djqueue.messages.metadata import register_event_consumer
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.policies.policy import Policy
from djqueue.running.settle import settle
from tests.support.backends import ACROSS, WITH_SQS
from tests.support.consumer import Recorder, can_look, claim_one, recorded_signals, run_one, serving
from tests.support.notes import cleared_per_test

EVERY = pytest.mark.backends(*ACROSS)
AND_SQS = pytest.mark.backends(*WITH_SQS)
MEMORY = pytest.mark.backends("memory")
LIFE = ("claimed", "started", "completed", "expired", "retried", "failed", "discarded")
SHORT = 0.05
ran = cleared_per_test([])


class Hiccup(Exception):
    pass


@queue_command
def work(number=0):
    ran.append(number)
    return number


@queue_command(ttl=3, retry_on=[Hiccup], backoff=False, max_attempts=9)
def stumble():
    ran.append(current_message().attempt)
    raise Hiccup


@queue_command(ttl=100, retry_on=[Hiccup], backoff=40, max_attempts=9)
def limp():
    ran.append(current_message().attempt)
    raise Hiccup


@queue_command(ttl=100)
def idle_timeout():
    ran.append(current_message().attempt)
    raise Retry(40)


@pytest.fixture
def recorder():
    register_event_consumer(recorder := Recorder())
    return recorder


@EVERY
class TestExpiry:
    @AND_SQS
    def test_df7_what_is_too_old_is_not_run_and_is_gone(self, queue, recorder):
        handle = work.using(ttl=SHORT).enqueue()
        time.sleep(1.5 * SHORT)
        with recorded_signals(*LIFE) as told:
            verdict = run_one(queue)
        assert verdict.outcome is Outcome.EXPIRED
        assert f"its ttl of {SHORT:g} s is over" in verdict.reason
        assert [name for name, _ in told] == ["claimed", "expired"]
        about = {"sender": work.name, "id": handle.id, "queue_name": "default", "attempt": 1}
        assert told[1][1] == {**about, "reason": verdict.reason}
        assert [(name, item["id"]) for name, item in recorder.calls] == [
            (name, handle.id) for name in ("on_push", "on_pop", "on_expire", "on_complete")
        ]
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)
        assert (ran, len(queue), len(queue.failed)) == ([], 0, 0)
        if can_look(queue):
            assert (queue.find(handle.id), queue.failed.find(handle.id)) == (None, None)

    def test_what_is_young_enough_runs(self, queue):
        work.using(ttl=60).enqueue(3)
        assert run_one(queue).value == 3

    @AND_SQS
    def test_df8_the_ttl_counts_from_the_first_put_across_retries(self, queue):
        stumble()
        assert run_one(queue).outcome is Outcome.RETRY
        time.sleep(3.1)
        assert run_one(queue).outcome is Outcome.EXPIRED
        assert (ran, len(queue), len(queue.failed)) == ([1], 0, 0)

    def test_df8_handing_back_changes_nothing(self, queue):
        work.using(ttl=SHORT).enqueue()
        for outcome in (Outcome.RETURNED, Outcome.INTERRUPTED):
            settle(queue, [(claim_one(queue), Verdict(outcome))])
        time.sleep(1.5 * SHORT)
        assert run_one(queue).outcome is Outcome.EXPIRED

    def test_df8_what_is_requeued_from_the_failed_queue_begins_anew(self, queue):
        handle = stumble.using(retry_on=[]).enqueue()
        put = queue.find(handle.id).entry.created
        assert run_one(queue).outcome is Outcome.FAILED
        time.sleep(SHORT)
        assert queue.requeue([handle.id]) == 1
        assert queue.find(handle.id).entry.created >= put + SHORT


@MEMORY
class TestMoments:
    @pytest.fixture
    def clock(self, queue):
        moment = [1_000_000.0]
        queue.clock = lambda: moment[0]
        return moment

    @pytest.mark.parametrize(
        ("options", "waits", "outcome"),
        [
            ({"ttl": 10}, 10, Outcome.DONE),
            ({"ttl": 10}, 10.001, Outcome.EXPIRED),
            ({"delay": 10, "ttl": 15}, 14, Outcome.DONE),
            ({"delay": 10, "ttl": 15}, 16, Outcome.EXPIRED),
            ({"ttl": 10}, -10_000, Outcome.DONE),
            ({}, 10**9, Outcome.DONE),
        ],
        ids=["at its end", "after its end", "with a delay", "too late with a delay", "clock put back", "without a ttl"],
    )
    def test_df7_df8_it_runs_until_its_ttl_is_over_which_counts_from_the_put(
        self, queue, clock, options, waits, outcome
    ):
        work.using(**options).enqueue(1)
        clock[0] += waits
        verdict = run_one(queue)
        assert (verdict.outcome, verdict.value) == (outcome, 1 if outcome is Outcome.DONE else None)

    @pytest.mark.parametrize("command", [limp, idle_timeout], ids=["by the backoff", "by the command"])
    def test_df8_the_wait_between_two_tries_counts_too(self, queue, clock, command):
        command()
        outcomes = []
        for _ in range(4):
            outcomes.append(run_one(queue).outcome)
            clock[0] += 40
        assert outcomes == [Outcome.RETRY] * 3 + [Outcome.EXPIRED]

    def test_the_ttl_does_not_end_what_runs(self, queue, clock):
        work.using(ttl=10).enqueue(1)
        lease = claim_one(queue)
        clock[0] += 100
        settle(queue, [(lease, Verdict(Outcome.DONE))])
        assert queue.stats().done == 1

    def test_one_that_is_lost_and_old_is_dead_rather_than_expired(self, queue, clock):
        """What may have killed workers is looked at by somebody."""
        handle = work.using(ttl=10, max_lost=1).enqueue()
        claim_one(queue, lease=5)
        clock[0] += 20
        queue.reap()
        assert run_one(queue).outcome is Outcome.FAILED
        assert "worker died" in errors_of(queue.failed.find(handle.id).entry.errors)[-1]["reason"]

    def test_none_for_a_call_lifts_the_ttl_of_its_command(self, queue, clock, monkeypatch):
        monkeypatch.setattr(work, "policy", Policy.of(ttl=10))
        work.using(ttl=None).enqueue(1)
        clock[0] += 10**6
        assert run_one(queue).value == 1


@pytest.mark.backends("memory", "sqlite", "redis")
def test_df7_a_consumer_lets_expire_what_is_too_old_and_runs_the_rest(queue):
    work.using(ttl=SHORT).enqueue_many([(number,) for number in range(5)])
    time.sleep(1.5 * SHORT)
    work(7)
    with recorded_signals("started", "expired", "completed") as told, serving(threads=2, drain=True) as consumer:
        assert consumer.code() == 0
    names = [name for name, _ in told]
    assert sorted(names) == ["completed", *["expired"] * 5, "started"]
    assert (ran, len(queue), len(queue.failed)) == ([7], 0, 0)


@EVERY
class TestDelay:
    @pytest.mark.alone
    def test_df9_what_is_delayed_is_not_available_before_and_soon_after(self, queue):
        handle = work.using(delay=0.2).enqueue(1)
        assert queue.claim(1) == []
        record = queue.find(handle.id)
        assert record.state == "delayed"
        assert record.at == pytest.approx(record.entry.created + 0.2, abs=0.002)
        [lease] = queue.reserve(1, wait=10)
        assert record.at - 0.002 <= lease.claimed <= record.at + 0.5

    def test_df9_it_is_counted_as_delayed_and_what_is_delayed_by_nothing_as_ready(self, queue):
        work.using(delay=60).enqueue()
        work()
        work.using(delay=0).enqueue()
        stats = queue.stats()
        assert (stats.ready, stats.delayed) == (2, 1)
        assert len(queue) == 3

    def test_df9_a_timedelta_is_a_delay(self, queue):
        handle = work.using(delay=timedelta(minutes=2)).enqueue()
        record = queue.find(handle.id)
        assert record.at == pytest.approx(record.entry.created + 120, abs=0.01)

    def test_each_call_has_its_own(self, queue):
        handles = [work.using(delay=delay).enqueue(delay) for delay in (40, 20, 30)]
        waiting = [record.entry.id for record in queue.peek("delayed")]
        assert waiting == [handles[1].id, handles[2].id, handles[0].id]


@MEMORY
def test_df9_the_moment_it_is_due_it_is_available(queue):
    start = queue.now()
    queue.clock = lambda: start
    work.using(delay=1).enqueue(5)
    queue.clock = lambda: start + 0.999
    assert (queue.claim(1), queue.stats().delayed) == ([], 1)
    queue.clock = lambda: start + 1.0
    assert (queue.stats().ready, run_one(queue).value) == (1, 5)


@pytest.mark.alone
@pytest.mark.backends("memory", "sqlite", "redis", "redis-blocking")
def test_df9_a_consumer_begins_a_delayed_message_soon_after_it_is_due(queue):
    with recorded_signals("started") as told, serving(threads=1, delay=0.01, max_delay=0.02, limit=1) as consumer:
        handle = work.using(delay=0.3).enqueue()
        due = queue.find(handle.id).at
        assert consumer.code() == 0
    assert [name for name, _ in told] == ["started"]
    assert due - 0.01 <= queue.now() < due + 3
