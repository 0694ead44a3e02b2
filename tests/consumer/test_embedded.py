"""The consumer as an object: its options, its queues, next to other tasks."""

import asyncio
import threading
import time

import pytest

from djqueue import Consumer, crontab, current_message, periodic_command, queue_command, queues
from djqueue.consumer import Options, Supervisor
from djqueue.consumer.scheduler import Scheduler
from djqueue.exceptions import InvalidQueueError
from djqueue.registry import registry
from djqueue.testing import eventually
from tests.support.consumer import Release, exit_code, only, serving
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])
release = cleared_per_test(Release())


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def wait_for_release(number=0):
    release.wait()
    ran.append((number, current_message().attempt))


@pytest.mark.backends("memory")
class TestSeveral:
    @pytest.mark.parametrize(
        ("named", "served"), [(None, ["default", "mail", "slow"]), (["slow", "mail"], ["mail", "slow"])]
    )
    def test_one_consumer_serves_all_queues_or_those_that_are_named(self, backend, settings, named, served):
        settings.QUEUES = backend.queues("default", "mail", "slow")
        for alias in ("default", "mail", "slow"):
            work.using(queue_name=alias).enqueue(alias)
        assert Consumer(named, periodic=False, drain=True).run() == 0
        assert sorted(ran) == served

    def test_strictly_in_the_order_given(self, backend, settings):
        settings.QUEUES = backend.queues("default", "mail", "slow")
        for alias in ("slow", "mail", "slow", "mail"):
            work.using(queue_name=alias).enqueue(alias)
        assert Consumer(["mail", "slow"], periodic=False, strict=True, threads=1).run(limit=4) == 0
        assert ran == ["mail", "mail", "slow", "slow"]

    @pytest.mark.backends("sqlite")
    def test_queues_of_different_kinds(self, backend, settings):
        memory = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
        settings.QUEUES = {**backend.queues(), "memory": memory}
        for alias in ("default", "memory"):
            work.using(queue_name=alias).enqueue_many([(alias,)] * 3)
        assert Consumer(periodic=False, drain=True).run() == 0
        assert sorted(ran) == ["default"] * 3 + ["memory"] * 3


@pytest.mark.backends("memory")
class TestEmbedded:
    def test_arun_runs_beside_other_tasks(self, queue):
        work.enqueue_many([(1,), (2,)])
        assert asyncio.run(Consumer(periodic=False).arun(limit=2)) == 0
        assert sorted(ran) == [1, 2]

    def test_cancelling_arun_stops_it(self, queue):
        async def embed():
            consumer = asyncio.ensure_future(Consumer(periodic=False).arun())
            await asyncio.to_thread(release.await_waiting, 1)
            consumer.cancel()
            await asyncio.sleep(0)
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await consumer

        wait_for_release()
        asyncio.run(embed())
        assert ran == [(0, 1)]
        assert queue.stats().done == 1

    def test_it_keeps_the_schedule_or_not(self, queue, monkeypatch):
        """Its first look is a fifth of a second before a minute, however late it is."""
        start, looked, tick = 1_772_452_799.8, [], Scheduler.tick
        queue.clock = lambda: start + (time.time() - looked[0] if looked else 0.0)
        monkeypatch.setattr(Scheduler, "tick", lambda self: (tick(self), looked or looked.append(time.time()))[0])
        with only():
            command = periodic_command(crontab())(minutely)
        with only(command):
            assert exit_code(periodic=True, limit=1) == 0
            assert ran == ["minutely"]
            assert "1 schedule" in Consumer().banner()
            assert "0 schedules" in Consumer(periodic=False).banner()
            assert Supervisor(Consumer(periodic=False), None).duties.schedulers == []

    def test_it_leaves_schedule_and_reaping_to_another_and_takes_them_back_while_it_serves(self):
        def duties():
            names = {thread.name for thread in threading.enumerate()}
            return names & {"djqueue-reaper-default", "djqueue-scheduler-default"}

        with serving("default", periodic=True) as running:
            eventually(lambda: len(duties()) == 2)
            running.consumer.has_duties = False
            eventually(lambda: not duties())
            running.consumer.has_duties = True
            eventually(lambda: len(duties()) == 2)
            assert running.end() == 0
        assert not duties()


def minutely():
    ran.append("minutely")


@pytest.mark.backends("memory")
class TestOptions:
    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"threads": 0}, ValueError, "threads is 0"),
            ({"threads": -1}, ValueError, "threads is -1"),
            ({"threads": 2.5}, ValueError, "threads is 2.5"),
            ({"threads": True}, ValueError, "threads is True"),
            ({"backoff": 0.99}, ValueError, "backoff is 0.99"),
            ({"backoff": float("nan")}, ValueError, "backoff is nan"),
            ({"delay": 0}, ValueError, "delay is 0"),
            ({"max_delay": -1}, ValueError, "max_delay is -1"),
            ({"grace": -1}, ValueError, "grace is -1"),
            ({"lease": 0}, ValueError, "lease is 0"),
            ({"lease": "long"}, TypeError, "lease is 'long'"),
            ({"thread": 3}, TypeError, "thread"),
            ({"queues": ["nowhere"]}, InvalidQueueError, "'nowhere'"),
            ({"queues": "default"}, TypeError, "list of aliases"),
        ],
    )
    def test_dj14_bad_ones_are_refused(self, queue, options, error, words):
        with pytest.raises(error, match=words):
            Consumer(**options)

    @pytest.mark.parametrize("limit", [0, -1, 1.5, True])
    def test_a_bad_limit_is_refused(self, queue, limit):
        with pytest.raises(ValueError, match=f"limit is {limit}"):
            Consumer().run(limit=limit)

    def test_the_usual_ones(self):
        usual = Options()
        assert (usual.threads, usual.delay, usual.backoff) == (4, 0.1, 1.15)
        assert (usual.longest_pause, usual.grace) == (1.0, 25.0)

    def test_the_lease_is_the_queues_unless_it_is_given(self, backend, settings):
        settings.QUEUES = backend.queues(LEASE=7)
        assert Consumer().lease_of(queues["default"]) == 7
        assert Consumer(lease=9).lease_of(queues["default"]) == 9


@pytest.mark.backends("memory")
def test_the_banner_says_what_is_served_and_no_password(settings):
    redis = {"CLASS": "djqueue.backends.redis_backend.RedisQueue"}
    redis["CONNECTION"] = "redis://user:s3cr3t@mail.example.com:6380/2"
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}, "mail": redis}
    banner = Consumer(threads=7).banner()
    for words in ("7 threads", f"{len(registry)} commands", "default (in the memory of this process)", "mail ("):
        assert words in banner
    assert "mail.example.com" in banner
    assert "s3cr3t" not in banner
