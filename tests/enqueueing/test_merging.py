"""Merging: debounced calls whose arguments are collected, so that none is lost."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from django.db import connections, transaction

from djqueue import queues
from djqueue.backends.entries import DELAYED
from djqueue.decorators import queue_command
from djqueue.enqueueing.command import Call
from djqueue.exceptions import MessageTooLarge, QueueError
from djqueue.running.context import open_entry
from djqueue.testing.patience import eventually, together
from tests.support.consumer import recorded_signals, run_one, serving
from tests.support.database import rolled_back
from tests.support.notes import cleared_per_test

LONG = 60.0
"""Seconds of a window that no test outlasts."""

ran = cleared_per_test([])


def joined(waits, new):
    return (waits.args[0] + new.args[0],)


def updated(waits, new):
    return {"changes": waits.kwargs["changes"] | new.kwargs["changes"]}


@queue_command(debounce=LONG, merge=joined)
def collect(items):
    ran.append(items)


@queue_command(debounce=LONG, merge=updated, key=lambda pk, changes: pk)
def save(pk=0, *, changes):
    ran.append((pk, changes))


@queue_command(debounce=0.1, merge=joined, retry_on=[ConnectionError], backoff=0.05)
def deliver(items):
    ran.append(items)


def waiting(queue, result):
    """The arguments of a call that waits, as they are by now."""
    record = queue.find(result.id)
    return open_entry(queue, record.entry).arguments()


def test_a_call_that_is_debounced_goes_into_the_one_that_waits(queue):
    first, second, third, fourth = (collect([n]) for n in range(1, 5))
    assert [one.enqueued for one in (first, second, third, fourth)] == [True, True, False, False]
    assert (waiting(queue, first), waiting(queue, second)) == ((([1],), {}), (([2, 3, 4],), {}))
    assert len(queue) == 2
    run_one(queue)
    assert ran == [[1]]


def test_with_extend_all_go_into_one(queue):
    quiet = collect.using(extend=True)
    first = quiet([1])
    was = queue.find(first.id).at
    eventually(lambda: queue.now() > was - LONG + 0.02)
    quiet([2]), quiet([3])
    record = queue.find(first.id)
    assert (waiting(queue, first)[0], record.at > was, len(queue)) == (([1, 2, 3],), True, 1)


def test_many_at_once_are_merged_in_their_order(queue):
    results = collect.enqueue_many([([n],) for n in range(6)])
    assert [one.enqueued for one in results] == [True, True] + [False] * 4
    assert waiting(queue, results[1])[0] == ([1, 2, 3, 4, 5],)


@pytest.mark.parametrize("threads, calls", [(8, 50)])
def test_no_call_is_lost_whoever_comes_between(queue, threads, calls):
    """While a consumer runs what falls due, and others merge into the same call."""
    sent = [[thread * calls + n for n in range(calls)] for thread in range(threads)]

    def produce(numbers):
        for number in numbers:
            deliver([number])

    with serving(threads=2, delay=0.02, max_delay=0.05):
        together(*[partial(produce, numbers) for numbers in sent], last=connections.close_all)
        eventually(lambda: sum(map(len, ran)) >= threads * calls, timeout=60)
    assert sorted(number for items in ran for number in items) == list(range(threads * calls))
    assert len(ran) < threads * calls


@pytest.mark.backends("memory")
def test_no_call_is_lost_when_the_one_that_waits_is_claimed_in_between(queue, monkeypatch):
    collect([1])
    second = collect([2])
    amend = queue.amend

    def amend_too_late(*args):
        monkeypatch.setattr(queue, "amend", amend)
        queue.clock = lambda: due  # noqa: B023
        assert [lease.entry.id for lease in queue.claim(2)][1] == second.id
        return amend(*args)

    due = queue.find(second.id).at
    monkeypatch.setattr(queue, "amend", amend_too_late)
    third = collect([3])
    assert (third.enqueued, waiting(queue, second)[0], waiting(queue, third)[0]) == (True, ([2],), ([3],))


@pytest.mark.backends("memory")
def test_one_that_nobody_lets_merge_is_an_error_and_not_lost_in_silence(queue, monkeypatch):
    collect([1]), collect([2])
    monkeypatch.setattr(queue, "amend", lambda *args: False)
    with pytest.raises(QueueError, match="100 times in a row; this one was not put"):
        collect([3])


def test_one_that_is_to_run_again_takes_more(queue):
    slow = deliver.using(debounce=0.5)
    first, second = slow.enqueue_many([([1],), ([2],)])
    for _ in range(2):
        [lease] = queue.reserve(1, wait=10)
    queue.release([replace(lease, entry=replace(lease.entry, delay=LONG))])
    third = slow([3])
    assert (third.enqueued, waiting(queue, second)[0]) == (False, ([2, 3],))
    assert first.enqueued


@pytest.mark.backends("memory", "sqlite", "redis")
def test_a_key_keeps_apart_what_is_not_to_be_merged(queue):
    for pk in (1, 2):
        calls = [save(pk, changes={field: pk}) for field in "abc"]
        assert [one.enqueued for one in calls] == [True, True, False]
        assert waiting(queue, calls[1]) == ((), {"changes": {"b": pk, "c": pk}})


@pytest.mark.backends("memory")
class TestTheFunction:
    def test_it_is_given_two_calls(self, queue):
        given = []

        def merge(waits, new):
            given.append((waits, new))
            return new

        command = save.using(merge=merge)
        command(1, changes={"a": 1}), command(1, changes={"b": 2}), command(pk=1, changes={"c": 3})
        assert given == [(Call((1,), {"changes": {"b": 2}}), Call((), {"pk": 1, "changes": {"c": 3}}))]

    @pytest.mark.parametrize("answer", [([7],), {"items": [7]}, Call(([7],)), [[7]]])
    def test_it_returns_a_tuple_a_dictionary_or_a_call(self, queue, answer):
        seven = collect.using(merge=lambda waits, new: answer)
        seven([1]), seven([2]), seven([3])
        queue.clock = lambda: 2e10
        run_one(queue), run_one(queue)
        assert ran == [[1], [7]]

    @pytest.mark.parametrize("answer", [(1, 2, 3), {"item": 1}, None, "items"])
    def test_what_does_not_fit_the_command_is_refused(self, queue, answer):
        wrong = collect.using(merge=lambda waits, new: answer)
        wrong([1])
        second = wrong([2])
        with pytest.raises(TypeError):
            wrong([3])
        assert (waiting(queue, second)[0], len(queue)) == (([2],), 2)

    def test_what_it_raises_reaches_the_caller(self, queue):
        wrong = collect.using(merge=lambda waits, new: 1 / 0)
        wrong([1]), wrong([2])
        with pytest.raises(ZeroDivisionError):
            wrong([3])

    def test_what_grows_too_large_is_refused(self, queue, settings):
        settings.QUEUE_MAX_MESSAGE_SIZE = 2000
        collect(["a" * 1000]), collect(["b" * 1000])
        with pytest.raises(MessageTooLarge):
            collect(["c" * 1000])
        assert len(queues["default"]) == 2

    def test_the_codec_of_the_call_is_kept(self, queue):
        as_json = collect.using(serializer="json")
        as_json([1])
        second = as_json([(2,)])
        as_json([{3}])
        assert waiting(queue, second)[0] == ([(2,), {3}],)
        assert b"$tuple" in queue.find(second.id).entry.body


def test_what_the_call_that_waits_carries_stays_with_it(queue):
    collect([1])
    second = collect.using(time_limit=5)([2])
    collect.using(time_limit=7)([3])
    record = queue.find(second.id)
    assert (record.state, open_entry(queue, record.entry).options) == (DELAYED, {"time_limit": 5.0})


@pytest.mark.backends("memory", "redis", database=True)
def test_arguments_are_those_at_the_call_though_it_is_sent_at_the_commit(queue):
    with transaction.atomic():
        for number in (1, 2, 3):
            given = [number]
            collect(given)
            given.append("changed later")
    states = sorted(waiting(queue, record)[0] for record in _entries(queue))
    assert states == [([1],), ([2, 3],)]


@pytest.mark.backends("sqlite", "postgres", "mariadb")
class TestOnADatabase:
    def test_what_is_rolled_back_is_not_merged(self, queue):
        collect([1])
        second = collect([2])
        with rolled_back(queue.database):
            collect([3])
            assert waiting(queue, second)[0] == ([2, 3],)
        assert waiting(queue, second)[0] == ([2],)

    def test_many_are_merged_all_or_none(self, queue):
        def careful(waits, new):
            return joined(waits, new) if new.args[0] != [9] else 1 / 0

        command = collect.using(merge=careful)
        with recorded_signals("enqueued") as told, pytest.raises(ZeroDivisionError):
            command.enqueue_many([([1],), ([2],), ([3],), ([9],)])
        assert (len(queue), told) == (0, [])


@pytest.mark.backends("memory", database=True)
def test_one_that_cannot_be_merged_after_the_commit_is_reported_alone(queue):
    def careful(waits, new):
        return joined(waits, new) if new.args[0] != [9] else 1 / 0

    with recorded_signals("enqueued", "debounced", "enqueue_failed") as told, transaction.atomic():
        calls = collect.using(merge=careful).enqueue_many([([1],), ([2],), ([3],), ([9],), ([4],)])
    assert [name for name, _ in told] == ["enqueued", "enqueued", "debounced", "enqueue_failed", "debounced"]
    assert [about["id"] for _, about in told] == [call.id for call in calls]


@pytest.mark.backends("memory", "redis")
def test_async_code_merges_as_well(queue):
    async def call():
        return [await collect.aenqueue([n]) for n in range(4)]

    results = asyncio.run(call())
    assert waiting(queue, results[1])[0] == ([1, 2, 3],)


@pytest.mark.backends("memory")
def test_in_eager_mode_each_call_runs_alone(queue, settings):
    settings.QUEUE_ALWAYS_EAGER = True
    collect.enqueue_many([([1],), ([2],), ([3],)])
    assert ran == [[1], [2], [3]]


@pytest.mark.backends("memory")
def test_beside_a_call_that_cannot_be_read_the_new_one_is_put(queue, settings, caplog):
    collect([1])
    second = collect([2])
    settings.SECRET_KEY = "another key, so that what waits does not verify " * 2
    third = collect([3])
    assert (third.enqueued, waiting(queue, third)[0], queue.find(second.id).state) == (True, ([3],), DELAYED)
    assert "the waiting call cannot be read" in caplog.text


def _entries(queue):
    return [record.entry for state in ("ready", "delayed") for record in queue.peek(state)]
