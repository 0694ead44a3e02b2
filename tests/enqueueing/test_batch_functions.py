"""Batches of functions: several calls at once, each settled by itself."""

import asyncio

import pytest

from djqueue import Batch, Consumer, Discard, PartialFailure, Retry, current_batch, current_message, queue_command
from djqueue.enqueueing.command import Call
from djqueue.registry import registry
from djqueue.testing import crash_at, eventually, run_due
from tests.support.backends import FULL
from tests.support.consumer import Release, recorded_signals, run_one, serving
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory", "redis", *(["sqlite", "postgres"] if FULL else []))

batches = cleared_per_test([])
fail = cleared_per_test({})
release = cleared_per_test(Release())


def known(items):
    """What a test wants of a batch, and what is returned then."""
    batches.append((list(items), current_batch()))
    return [fail.pop(item, None) or item for item in items if isinstance(item, int)]


@queue_command(batch=10)
def store(numbers):
    known(numbers)


@queue_command(batch=10, result_ttl=60)
def double(numbers: list[int]) -> list[int]:
    known(numbers)
    return [2 * number for number in numbers]


@queue_command(batch=10, result_ttl=60)
def report_each(numbers):
    return known(numbers)


@queue_command(batch=10, result_ttl=60)
def fail_some(numbers):
    known(numbers)
    failed = {index: KeyError(number) for index, number in enumerate(numbers) if number in (2, 4)}
    if failed:
        raise PartialFailure(failed)


@queue_command(batch=10, retry_on=[KeyError], backoff=0.01, max_attempts=2)
def fail_all(numbers):
    known(numbers)
    raise KeyError("all")


@queue_command(batch=3, shard=lambda user, number: user, retry_on=[KeyError], backoff=0.01)
def keep_order(calls):
    batches.append(([number for (_, number), _ in calls], current_batch()))
    if any(number == 1 for (_, number), _ in calls) and 1 not in fail:
        fail[1] = True
        return [KeyError(number) if number == 1 else None for (_, number), _ in calls]
    return None


@queue_command(batch=10)
async def store_async(numbers):
    await asyncio.sleep(0)
    known(numbers)


@queue_command(batch=10)
def wait_for_release(numbers):
    batches.append((list(numbers), current_batch()))
    release.wait()


@queue_command(batch=Batch(size=10, min_size=3, timeout=60))
def gather(numbers):
    known(numbers)


@queue_command(batch=Batch(size=10, min_size=3, timeout=0.2))
def gather_for_a_while(numbers):
    known(numbers)


@queue_command(batch=5)
def answer_badly(numbers):
    return ["one too many", *numbers]


def items():
    return [list(items) for items, _ in batches]


def drain(**options):
    assert Consumer(periodic=False, drain=True, **{"threads": 1, **options}).run() == 0


class TestCalls:
    @pytest.mark.parametrize("command", [store, store_async], ids=["plain", "async"])
    def test_a_function_is_given_a_list_of_calls(self, queue, command):
        command.enqueue_many([(number,) for number in range(25)])
        drain()
        assert [len(some) for some in items()] == [10, 10, 5]
        assert sorted(sum(items(), [])) == list(range(25))

    def test_a_call_of_one_argument_is_that_argument_and_any_other_a_call(self, queue):
        store(7)
        store((1, 2))
        store(1, 2)
        store(one=1)
        store()
        drain()
        assert items() == [[7, (1, 2), Call((1, 2), {}), Call((), {"one": 1}), Call((), {})]]
        args, kwargs = batches[0][0][3]
        assert (args, kwargs) == ((), {"one": 1})

    def test_each_message_keeps_its_own_data(self, queue):
        handles = store.enqueue_many([(number,) for number in range(3)])
        drain()
        [(_, messages)] = batches
        assert [message.id for message in messages] == [handle.id for handle in handles]
        assert [message.attempt for message in messages] == [1, 1, 1]
        assert (current_batch(), current_message()) == ([], None)

    def test_called_here_it_is_given_what_it_is_given_and_one_alone_is_a_batch_of_one(self, queue):
        assert double.call([1, 2]) == [2, 4]
        handle = double(4)
        run_one(queue)
        assert handle.get(0) == 8

    def test_eager_calls_are_batches_of_one(self, queue, settings):
        settings.QUEUE_ALWAYS_EAGER = True
        assert double(4).get(0) == 8
        with pytest.raises(KeyError):
            fail_some(2)
        assert items() == [[4], [2]]

    def test_what_is_cancelled_or_expired_takes_no_part(self, queue):
        handles = store.enqueue_many([(number,) for number in range(3)])
        handles[1].cancel()
        store.using(ttl=0.001).enqueue(3)
        eventually(lambda: queue.now() > queue.peek("ready")[-1].entry.created + 0.002)
        drain()
        assert items() == [[0, 2]]

    def test_what_cannot_be_read_takes_no_part(self, queue):
        handles = store.enqueue_many([(number,) for number in range(3)])
        claimed = queue.claim(1)
        from dataclasses import replace

        spoilt = replace(claimed[1].entry, body=b"djq1c" + b"x" * 60)
        queue.complete(claimed)
        queue.put([replace(one.entry, attempts=0) if one is not claimed[1] else spoilt for one in claimed])
        drain()
        assert items() == [[0, 2]]
        assert queue.failed.find(handles[1].id) is not None

    def test_other_commands_are_never_in_it(self, queue):
        for number in range(3):
            store(number)
            double(number)
        drain()
        assert sorted(items()) == [[0, 1, 2], [0, 1, 2]]


class TestSizes:
    def test_sq4_at_most_so_many_and_of_one_priority(self, queue):
        for number in range(6):
            store.using(priority=number % 2).enqueue(number)
        drain()
        assert items() == [[1, 3, 5], [0, 2, 4]]

    def test_fewer_than_the_least_wait_for_more(self, queue):
        gather(1)
        claimed = queue.claim(1)
        assert (len(claimed), 0 < claimed.retry_after <= 60) == (0, True)
        with serving(threads=1, limit=3) as consumer:
            gather(2)
            gather(3)
            assert consumer.code() == 0
        assert items() == [[1, 2, 3]]

    def test_for_a_while(self, queue):
        gather_for_a_while(1)
        assert Consumer(periodic=False, threads=1).run(limit=1) == 0
        assert items() == [[1]]

    def test_sq7_a_limit_counts_messages(self, queue):
        store.enqueue_many([(number,) for number in range(25)])
        assert Consumer(periodic=False, threads=2).run(limit=14) == 0
        assert sum(map(len, items())) == 14
        stats = queue.stats()
        assert (stats.ready, stats.leased) == (11, 0)

    def test_batches_without_a_shard_run_beside_each_other(self, queue):
        wait_for_release.enqueue_many([(number,) for number in range(25)])
        with serving(threads=3, limit=25) as consumer:
            release.await_waiting(3)
            release.set()
            assert consumer.code() == 0


class TestWhatBecomesOfEach:
    def test_a_list_says_it(self, queue):
        handles = double.enqueue_many([(number,) for number in range(3)])
        drain()
        assert [handle.get(0) for handle in handles] == [0, 2, 4]

    def test_exceptions_in_it_are_judged_each_by_itself(self, queue):
        fail.update({1: KeyError("one"), 2: Discard("not needed"), 3: Retry(0)})
        handles = report_each.enqueue_many([(number,) for number in range(5)])
        eventually(lambda: drain() or not len(queue))
        assert [handle.status for handle in handles] == ["done", "failed", "discarded", "done", "done"]
        assert items() == [[0, 1, 2, 3, 4], [3]]
        assert [message.attempt for message in batches[1][1]] == [2]

    def test_a_partial_failure_names_those_that_failed(self, queue):
        handles = fail_some.enqueue_many([(number,) for number in range(6)])
        drain()
        assert [handle.status for handle in handles] == ["done", "done", "failed", "done", "failed", "done"]
        assert queue.stats().failed == 2

    def test_an_exception_fails_all_of_them(self, queue):
        fail_all.enqueue_many([(number,) for number in range(3)])
        with recorded_signals("retried", "failed") as told:
            assert Consumer(periodic=False, threads=1).run(limit=6) == 0
        assert sorted(name for name, _ in told) == ["failed"] * 3 + ["retried"] * 3
        assert {about["attempt"] for name, about in told if name == "failed"} == {2}

    def test_an_answer_of_another_length_fails_all_of_them(self, queue):
        answer_badly.enqueue_many([(number,) for number in range(2)])
        with recorded_signals("failed") as told:
            drain()
        assert len(told) == 2
        assert "a batch of 2 returned 3" in told[0][1]["reason"]

    def test_sq8_the_rest_of_a_shard_waits_for_what_failed(self, queue):
        keep_order.enqueue_many([(9, number) for number in range(5)])
        assert Consumer(periodic=False, threads=4).run(limit=6) == 0
        assert items() == [[0, 1, 2], [1, 3, 4]]
        assert [message.attempt for message in batches[1][1]] == [2, 1, 1]

    def test_signals_are_those_of_messages(self, queue):
        with recorded_signals("claimed", "started", "completed") as told:
            store.enqueue_many([(number,) for number in range(3)])
            drain()
        assert [name for name, _ in told] == ["claimed"] * 3 + ["started"] * 3 + ["completed"] * 3


class TestStops:
    def test_sq11_a_batch_that_runs_ends(self, queue):
        wait_for_release.enqueue_many([(number,) for number in range(15)])
        with serving(threads=1) as consumer:
            release.await_waiting(1)
            consumer.stop()
            eventually(lambda: not consumer.claims())
            release.set()
            assert consumer.code() == 0
        assert items() == [list(range(10))]
        assert (queue.stats().ready, queue.stats().leased) == (5, 0)

    def test_a_second_stop_hands_all_of_it_back(self, queue):
        handles = wait_for_release.enqueue_many([(number,) for number in range(3)])
        with serving(threads=1) as consumer:
            release.await_waiting(1)
            consumer.stop()
            assert consumer.end() == 1
            assert [queue.find(handle.id).entry.attempts for handle in handles] == [1, 1, 1]
            release.set()

    def test_one_that_does_not_end_fails_all_of_it(self, queue, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = 0
        wait_for_release.using(time_limit=0.05).enqueue_many([(number,) for number in range(3)])
        with serving(threads=1) as consumer, recorded_signals("failed") as told:
            eventually(lambda: len(told) == 3)
            release.set()
            consumer.stop()
        assert all("does not end" in about["reason"] for _, about in told)


class TestRunDue:
    def test_it_runs_batches_as_a_consumer_does(self, queue):
        double.enqueue_many([(number,) for number in range(12)])
        runs = run_due()
        assert items() == [list(range(10)), [10, 11]]
        assert [run.value for run in runs] == [2 * number for number in range(12)]

    def test_and_delivers_them_twice(self, queue):
        fail_some.enqueue_many([(number,) for number in range(4)])
        runs = run_due(deliveries=2)
        assert items() == [[0, 1, 2, 3], [0, 1, 3]]
        expected = [("lost", 1)] * 3 + [("done", 2), ("done", 2), ("failed", 1), ("done", 2)]
        assert [(run.outcome, run.attempt) for run in runs] == expected

    def test_and_has_their_workers_die_with_all_of_it(self, queue):
        handles = store.enqueue_many([(number,) for number in range(3)])
        with crash_at("ran"):
            lost = run_due()
        assert [run.outcome for run in lost] == ["lost"] * 3
        assert [run.id for run in run_due()] == [handle.id for handle in handles]
        assert items() == [[0, 1, 2], [0], [1], [2]]  # each may be what killed it, and leaves alone


def _nothing():
    pass


def test_a_function_without_a_parameter_is_refused():
    with pytest.raises(TypeError, match="given a list of calls"):
        queue_command(batch=2)(_nothing)
    assert f"{__name__}._nothing" not in registry


@pytest.mark.parametrize("failed", [{}, {"a": KeyError()}, {0: "text"}, [KeyError()], KeyError(), None])
def test_a_partial_failure_says_which_and_why(failed):
    with pytest.raises(TypeError, match=r"give the exceptions .* as in PartialFailure\(\{0: error\}\)"):
        PartialFailure(failed)
