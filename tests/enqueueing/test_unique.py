"""Unique commands: a call is refused while an equal one waits, while it waits or runs, or for a time."""

import pickle
import time
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connections, transaction

from djqueue import queues
from djqueue.decorators import queue_command
from djqueue.exceptions import Retry
from djqueue.messages.fingerprint import fingerprint
from djqueue.policies.outcomes import Outcome
from djqueue.testing.patience import eventually, together
from tests.support.consumer import claim_one, recorded_signals, run_one, serving
from tests.support.database import rolled_back
from tests.support.notes import cleared_per_test

LONG = 60.0
"""Seconds that no test outlasts."""
SHORT = 0.8
"""Seconds that are meant to end."""

ran = cleared_per_test([])


@queue_command(unique=True)
def sync(*args, **kwargs):
    ran.append((args, kwargs))


@queue_command(unique=True, retry_on=[KeyError], backoff=LONG, max_attempts=2)
def stumble():
    raise KeyError("once more")


@queue_command(unique=True)
def again():
    raise Retry(after=LONG)


@queue_command(unique=True)
def call_itself():
    ran.append(call_itself().enqueued)


@queue_command(unique="queued")
def follow():
    ran.append(follow().enqueued)


@queue_command(unique=True)
def crowd():
    begun = time.monotonic()
    time.sleep(0.002)
    ran.append((begun, time.monotonic()))


def put(results) -> list:
    return [result.enqueued for result in results]


EACH = pytest.mark.parametrize("unique", ["queued", "running", True, LONG, timedelta(minutes=1)])


@EACH
def test_while_one_waits_an_equal_one_is_refused_and_it_is_known_which_stands_for_it(queue, unique):
    once = sync.using(unique=unique)
    first, second, *others = once(1), once(1), once(2), once(1)
    assert put([first, second, *others]) == [True, False, True, False]
    assert len(queue) == 2
    assert (first.duplicate_of, second.duplicate_of.id, second.duplicate_of.status) == (None, first.id, "ready")
    assert [one.status for one in (first, second, pickle.loads(pickle.dumps(second)))] == [
        "ready",
        "refused",
        "refused",
    ]
    assert "enqueued=False" in repr(second) and "enqueued" not in repr(first)


@pytest.mark.backends("memory", "redis", database=True)
def test_a_handle_learns_at_the_commit_whether_its_call_was_put(queue):
    with transaction.atomic():
        first, second = sync(), sync()
        assert put([first, second]) == [None, None]
        with pytest.raises(RuntimeError, match="not sent yet"):
            first.cancel()
    assert put([first, second]) == [True, False]
    with transaction.atomic():
        assert first.cancel()


@EACH
def test_a_delayed_one_waits_too(queue, unique):
    once = sync.using(unique=unique, delay=LONG)
    assert put([once(), once(), sync.using(unique=unique)()]) == [True, False, False]


@pytest.mark.parametrize(
    "unique, while_it_runs, afterwards", [("queued", True, True), (True, False, True), (LONG, False, False)]
)
def test_while_it_runs_and_afterwards(queue, unique, while_it_runs, afterwards):
    once = sync.using(unique=unique)
    once()
    lease = claim_one(queue)
    during = once()
    assert during.enqueued is while_it_runs
    if during.enqueued:
        assert not once().enqueued
        queue.complete([claim_one(queue)])
    queue.complete([lease])
    assert once().enqueued is afterwards


def test_for_a_time_counts_from_the_call_that_was_put(queue):
    once = sync.using(unique=SHORT)
    assert put([once(), once()]) == [True, False]
    placed = queue.now()
    eventually(lambda: queue.now() >= placed + SHORT + 0.1)
    assert (once().enqueued, len(queue)) == (True, 2)


@pytest.mark.parametrize("command", [stumble, again])
def test_one_that_is_to_run_again_still_stands_for_others(queue, command):
    command()
    assert run_one(queue).outcome is Outcome.RETRY
    assert (command().enqueued, len(queue)) == (False, 1)


def test_one_that_failed_for_good_or_was_cancelled_stands_for_none(queue):
    once = stumble.using(max_attempts=1)
    once()
    assert run_one(queue).outcome is Outcome.FAILED
    assert once().enqueued
    assert len(queue.failed) == 1
    assert sync().cancel()
    assert sync().enqueued


def test_one_whose_worker_died_stands_until_it_has_run(queue):
    sync()
    lease = queue.claim(1, lease=0.05)[0]
    eventually(lambda: queue.now() > lease.until)
    assert not sync().enqueued  # nobody has reaped it yet, and it is to run again
    queue.reap()
    assert not sync().enqueued
    run_one(queue)
    assert sync().enqueued


@pytest.mark.backends("memory", "sqlite")
def test_a_command_that_enqueues_itself(queue):
    """ "running" refuses that, "queued" allows it: so a chain is made."""
    call_itself(), follow()
    run_one(queue), run_one(queue)
    assert (ran, len(queue)) == ([False, True], 1)


def test_of_twenty_calls_at_the_same_moment_one_is_put(queue):
    calls = together(*[lambda: sync("x")] * 20, last=lambda: (queue.close(), connections.close_all()))
    assert (sum(put(calls)), len(queue)) == (1, 1)


@pytest.mark.parametrize("unique", ["queued", "running"])
def test_in_a_crowd_none_is_lost_and_none_runs_beside_another_that_may_not(queue, unique):
    """Of "queued" a run begins after every call, and of "running" one at a time."""
    once, ended = crowd.using(unique=unique), time.monotonic() + 1.0
    asked = []

    def produce():
        while time.monotonic() < ended or len(ran) <= 5:
            asked.append(time.monotonic())
            once()

    with serving(threads=3, delay=0.005, max_delay=0.02):
        together(*[produce] * 4, last=lambda: (queue.close(), connections.close_all()))
        eventually(lambda: len(queue) == queue.stats().leased == 0)
    assert len(ran) > 5
    assert unique == "running" or max(begun for begun, _ in ran) >= max(asked)
    assert unique == "queued" or all(earlier <= begun for (_, earlier), (begun, _) in pairwise(sorted(ran)))


def test_of_many_equal_calls_at_once_one_is_put(queue):
    assert put(sync.enqueue_many([(1,), (1,), (2,), (1,)])) == [True, False, True, False]


def test_ids_that_are_remembered_do_not_disturb_it(backend, settings):
    settings.QUEUES = backend.queues(REMEMBER_DONE=LONG)
    sync()
    run_one(queues["default"])
    assert put([sync(), sync()]) == [True, False]


@pytest.mark.backends("memory", "sqlite", "postgres", "mariadb", "redis")
def test_an_item_of_a_set_is_marked_while_it_waits_and_no_longer(queue):
    keys = [f"item:{fingerprint(item)}" for item in "abc"]

    def marked():
        return [queue.store.get(key) is not None for key in keys]

    for item, delay in zip("abc", (0, 0, LONG), strict=True):
        queue.push(item, delay=delay, unique=True)
    assert marked() == [True, True, True]
    assert queue.pop() == "a"
    assert marked() == [False, True, True]
    queue.clear()
    eventually(lambda: marked() == [False, False, False])
    assert (len(queue), queue.stats().leased) == (0, 0)


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_what_is_rolled_back_stands_for_none(queue):
    for unique in (True, LONG):
        once = sync.using(unique=unique)
        with rolled_back(queue.database):
            assert put([once(unique), once(unique)]) == [True, False]
        assert once(unique).enqueued


@pytest.mark.backends("memory")
def test_it_is_told(queue):
    with recorded_signals("enqueued", "refused", "debounced") as told:
        first, second = sync(), sync()
    assert [(name, about["id"]) for name, about in told] == [("enqueued", first.id), ("refused", second.id)]


@pytest.mark.backends("memory")
def test_a_key_says_which_are_equal(queue):
    by_first = sync.using(key=lambda first, *rest: first)
    assert put([by_first(1, 2), by_first(1, 3), by_first(2, 3)]) == [True, False, True]


@pytest.mark.backends("memory")
def test_the_forms_share_their_keys(queue):
    """A call is refused by what waits, whichever form put it there; for a time it is the time that counts."""
    assert put([sync.using(unique="queued")(), sync.using(unique="running")(), sync()]) == [True, False, False]


@pytest.mark.backends("memory")
@pytest.mark.parametrize("unique", [False, None])
def test_it_can_be_switched_off(queue, unique):
    assert put([sync(), sync.using(unique=unique)(), sync()]) == [True, True, False]


@pytest.mark.backends("memory")
def test_in_eager_mode_every_call_runs(queue, settings):
    settings.QUEUE_ALWAYS_EAGER = True
    assert (put([sync(), sync()]), len(ran)) == ([True, True], 2)
