"""What the options and schedules owe to those who knew ``if_not_exists``, ``defer`` and ``recurrent``: SQ-13 to SQ-19.

SQ-22 is what a storage of shards did. SQ-18 and SQ-19 are shown one by one in test_schedules; here they are seen on
the databases too.
"""

import time

import pytest
from django.db import connections

from djqueue import queue_command, queues, schedules
from djqueue.backends.base import BaseQueue, Entry
from djqueue.consumer.scheduler import Scheduler
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.testing import run_due, together, virtual_time
from djqueue.testing.patience import eventually
from tests.support.backends import FULL
from tests.support.consumer import claim_one, serving
from tests.support.notes import cleared_per_test

LATE = 0.2
"""Seconds after its due moment in which what was put off must have begun."""
STORES = pytest.mark.backends("memory", "sqlite", "redis", "postgres")

pytestmark = pytest.mark.usefixtures("no_periodic_commands")
ran = cleared_per_test([])


@queue_command
def notify(user):
    ran.append((user, time.time()))


@queue_command(unique="queued")
def notify_once(user):
    ran.append((user, time.time()))


@pytest.fixture
def running_consumer(queue):
    """A consumer next to the test that has run something: its connections are there, its modules loaded."""
    with serving(delay=0.02, max_delay=0.05, threads=2):
        notify("warm")
        eventually(lambda: ran)
        ran.clear()
        yield


@STORES
class TestIfNotExists:
    """``if_not_exists`` is ``unique="queued"``."""

    def test_sq13_an_equal_call_is_put_once_and_without_the_option_twice(self, queue):
        assert [notify_once(1).enqueued for _ in range(2)] == [True, False]
        assert [notify(1).enqueued for _ in range(2)] == [True, True]
        told = notify_once.enqueue_many([(2,), (3,), (2,), (1,)])
        assert [one.enqueued for one in told] == [True, True, False, False]
        told = together(*[lambda: notify_once(4).enqueued] * 20, last=connections.close_all)
        assert sorted(told) == [False] * 19 + [True]
        assert len(queue) == 6

    def test_sq14_while_an_equal_one_is_handled_one_more_run_follows(self, queue):
        notify_once(1)
        handled = claim_one(queue)
        assert [notify_once(1).enqueued for _ in range(3)] == [True, False, False]
        queue.complete([handled])
        queue.complete([claim_one(queue)])
        assert len(queue) == 0


@STORES
class TestDefer:
    """``defer`` is ``delay``."""

    @pytest.mark.alone
    @pytest.mark.slow
    def test_sq15_what_is_deferred_is_never_early_and_soon_after(self, queue, running_consumer):
        called = time.time()
        notify.using(delay=1).enqueue("later")
        eventually(lambda: ran)
        [(_, at)] = ran
        assert 1.0 <= at - called < 1.0 + LATE

    @pytest.mark.alone
    @pytest.mark.slow
    def test_sq16_ten_thousand_that_are_deferred_hide_no_one_that_is_due(self, queue, running_consumer):
        put_off(queue, 10_000)
        called = time.time()
        notify("now")
        eventually(lambda: ran)
        assert ran[0][1] - called < LATE

    def test_sq15_sq16_before_its_moment_nobody_sees_what_is_deferred_and_it_costs_a_look_nothing(self, queue):
        """However many wait, as many claims find nothing in as long: no look goes through them."""
        empty = seconds_for_looks(queue)
        put_off(queue, 10_000)
        claimed, stats = queue.claim(1), queue.stats()
        assert (claimed, 3000 < claimed.retry_after <= 3600, stats.ready, stats.delayed) == ([], True, 0, 10_000)
        assert seconds_for_looks(queue) < 5 * empty + 0.05


def put_off(queue: BaseQueue, number: int) -> None:
    for _ in range(number // 1000):
        queue.put([Entry(b"", new_id(), delay=3600.0) for _ in range(1000)])


def seconds_for_looks(queue: BaseQueue, looks: int = 50) -> float:
    """The least that so many claims of nothing take, of several tries: the machine has other work too."""

    def measured() -> float:
        start = time.perf_counter()
        for _ in range(looks):
            assert queue.claim(1) == []
        return time.perf_counter() - start

    return min(measured() for _ in range(15))


@pytest.mark.backends("memory")
def test_sq17_deferral_works_in_memory_for_several_rounds(queue):
    with virtual_time():
        for number in range(5):
            notify.using(delay=30).enqueue(number)
            assert run_due(until=29) == []
            assert [run.args for run in run_due(until=1)] == [(number,)]


@pytest.mark.backends("sqlite", "postgres", "redis", "memory")
class TestRecurrent:
    """``recurrent`` is a schedule."""

    def test_sq18_registered_again_it_has_one_interval_and_can_be_cancelled(self, queue, monkeypatch):
        schedules.add("sync", notify_once, (1,), every=5)
        schedules.add("sync", notify_once, (1,), every=60)
        assert [one.timetable.every for one in schedules.list()] == [60]
        advance(queue, monkeypatch, 180)
        assert len(queue) == 1  # of three ticks, as the first still waits
        assert schedules.remove("sync")
        assert schedules.list() == []
        advance(queue, monkeypatch, 600)
        assert len(queue) == 1

    def test_sq19_thirty_ticks_in_thirty_seconds_for_two_consumers(self, queue, monkeypatch):
        schedules.add("second", notify, (1,), every=1)
        advance(queue, monkeypatch, 30)
        assert len(queue) in (29, 30, 31)


def advance(queue: BaseQueue, monkeypatch, seconds: int) -> None:
    """Let time pass for two schedulers, a second at a time."""
    pair = [Scheduler([queues["default"]]) for _ in range(2)]
    start = queue.now()
    with monkeypatch.context() as patch:
        for second in range(seconds + 1):
            patch.setattr(queue, "now", lambda second=second: start + second)
            for scheduler in pair:
                scheduler.refresh()
                scheduler.follow()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.backends("memory", "redis")
def test_sq19_a_schedule_of_a_second_begins_each_second_by_the_clock_on_the_wall(queue):
    """Thirty seconds of it with DJQUEUE_FULL=1."""
    ticks = 30 if FULL else 4
    made = schedules.add("second", notify, (1,), every=1)
    with serving(periodic=True, delay=0.02, max_delay=0.05):
        eventually(lambda: len(ran) >= ticks, 2 * ticks)
    late = [at - made.timetable.start.timestamp() - number for number, (_, at) in enumerate(ran, 1)]
    assert all(0 <= one < 1 for one in late)  # none left out, none twice
    assert sorted(late)[len(late) // 2] < LATE


@STORES
class TestStorage:
    """What a storage of shards did, the contract of queues does."""

    def test_sq22_looking_takes_nothing_a_claim_takes_what_it_returns_and_empty_lanes_are_not_listed(self, queue):
        gate = Gate(ordered=True, max_run=2).written()
        queue.put([Entry(b"", id, lane=f"tube {id[0]}", gate=gate) for id in ("a1", "b1", "a2", "a3")])
        assert len(queue) == 4
        assert [lane.name for lane in queue.lanes.page()] == ["tube a", "tube b"]
        assert sorted(record.entry.id for record in queue.peek("ready")) == ["a1", "a2", "a3", "b1"]
        assert len(queue) == 4
        assert queue.find("a2").entry.lane == "tube a"
        assert queue.find("a9") is None
        assert queue.remove(["a2", "a9"]) == 1
        taken = queue.claim(5)
        assert sorted(lease.entry.id for lease in taken) == ["a1", "a3", "b1"]
        assert not queue.claim(5)
        assert len(queue.complete(taken)) == 3
        assert not queue.claim(5)
        assert queue.lanes.page() == []
