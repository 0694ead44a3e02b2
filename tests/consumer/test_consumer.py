"""The consumer as a whole: how many it runs, at once and in all, and how it ends."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from djqueue import Consumer, consumer, current_message, queues
from djqueue.consumer import Supervisor, supervisor
from djqueue.decorators import queue_command
from djqueue.flow.limits import Throttle
from djqueue.testing import eventually
from tests.support.consumer import Release, message_for, recorded_signals, serving, unreachable
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])
release = cleared_per_test(Release())


@queue_command(throttle=Throttle(2, 3600))
def slowly(number):
    ran.append(number)


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def wait_for_release(number=0):
    release.wait()
    ran.append((number, current_message().attempt))


@queue_command
def breed(generations):
    ran.append(generations)
    if generations:
        breed(generations - 1)


@queue_command
def explode():
    raise RuntimeError("boom")


@queue_command
def leave():
    raise SystemExit(3)


@queue_command
async def work_async():
    await asyncio.sleep(0)
    ran.append((threading.get_ident(), id(asyncio.get_running_loop())))


class TestHowMany:
    def test_limit_is_exact(self, queue):
        work.enqueue_many([(number,) for number in range(12)])
        assert Consumer(periodic=False).run(limit=5) == 0
        assert len(ran) == 5
        stats = queue.stats()
        assert (stats.ready, stats.leased, stats.done) == (7, 0, 5)
        assert Consumer(periodic=False, threads=1).run(limit=7) == 0
        assert sorted(ran) == list(range(12))

    @pytest.mark.backends("memory", "redis")
    def test_limit_counts_failures_and_not_what_was_put_back(self, queue):
        queue.put([message_for(queue, "no.such.command")])
        explode()
        work()
        assert Consumer(periodic=False).run(limit=2) == 0
        assert (ran, len(queue), len(queue.failed)) == ([0], 1, 1)

    @pytest.mark.backends("memory")
    def test_a_limit_is_not_reached_by_asking(self, queue, monkeypatch):
        """While a claim of an empty queue is on its way, the rate limit is out but nothing has run."""
        asking, looks, claim, ended = Release(), Release(), queue.claim, Supervisor.ended
        looks.set()
        monkeypatch.setattr(queue, "claim", lambda *args, **how: asking.wait() or claim(*args, **how))
        monkeypatch.setattr(Supervisor, "ended", lambda supervisor: looks.wait() or ended(supervisor))
        with serving(threads=1, limit=1) as consumer:
            asking.await_waiting(1)
            looks.await_passed(looks.passed + 3)
            assert not consumer.future.done()
            asking.set()
            work()
            assert consumer.code() == 0
        assert ran == [0]

    def test_drain_runs_what_is_due_and_what_that_brings(self, queue):
        breed(3)
        work.enqueue_many([(number,) for number in range(10, 30)])
        later = work.using(delay=3600).enqueue(99)
        assert Consumer(periodic=False, drain=True).run() == 0
        assert sorted(ran) == [0, 1, 2, 3, *range(10, 30)]
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased) == (0, 1, 0)
        assert queue.find(later.id).state == "delayed"

    @pytest.mark.backends("memory", "sqlite", "redis-blocking")
    def test_draining_an_empty_queue_ends(self, queue, caplog):
        caplog.set_level("INFO", "djqueue")
        assert Consumer(periodic=False, drain=True).run() == 0
        assert "are due" not in caplog.text

    @pytest.mark.backends("memory", "sqlite", "redis-blocking")
    def test_a_drain_does_not_wait_for_a_throttle_and_says_so(self, queue, caplog):
        caplog.set_level("INFO", "djqueue")
        slowly.enqueue_many([(number,) for number in range(5)])
        work.using(delay=3600).enqueue(99)
        assert Consumer(periodic=False, drain=True).run() == 0
        assert sorted(ran) == [0, 1]
        assert "default: 3 are due and may not run yet: they wait for a throttle" in caplog.text

    @pytest.mark.backends("memory", "redis-blocking")
    def test_a_drain_does_not_wait_for_the_throttle_of_a_queue_and_says_so(self, backend, settings, caplog):
        caplog.set_level("INFO", "djqueue")
        settings.QUEUES = {"default": {**backend.config("default"), "THROTTLE": {"limit": 2, "window": 3600}}}
        work.enqueue_many([(number,) for number in range(5)])
        assert Consumer(periodic=False, drain=True).run() == 0
        assert sorted(ran) == [0, 1]
        assert "default: 3 are due and may not run yet: they wait for a throttle" in caplog.text

    @pytest.mark.backends("memory")
    def test_drain_with_a_limit_ends_at_whichever_comes_first(self, queue):
        work.enqueue_many([(number,) for number in range(5)])
        assert Consumer(periodic=False, drain=True).run(limit=3) == 0
        assert len(ran) == 3
        assert Consumer(periodic=False, drain=True).run(limit=30) == 0
        assert len(ran) == 5

    def test_dj25_as_many_at_once_as_there_are_threads_and_never_more(self, queue):
        wait_for_release.enqueue_many([(number,) for number in range(12)])
        with serving(threads=4, limit=12) as consumer:
            release.await_waiting(4)
            assert queue.stats().leased == 4  # nothing is claimed ahead of work that takes long
            release.set()
            assert consumer.code() == 0
        assert (release.most_waiting, release.passed) == (4, 12)
        assert sorted(ran) == [(number, 1) for number in range(12)]

    @pytest.mark.backends("memory", "redis")
    def test_dj17_failures_leave_the_pool_at_full_strength(self, queue):
        for command in (explode, leave) * 4:
            command()
        wait_for_release.enqueue_many([(number,) for number in range(4)])
        with serving(threads=4, limit=12) as consumer:
            release.await_waiting(4)
            release.set()
            assert consumer.code() == 0
        assert (len(queue.failed), release.most_waiting) == (8, 4)

    @pytest.mark.backends("memory")
    def test_async_commands_of_a_thread_share_its_loop(self, queue):
        work_async.enqueue_many([()] * 12)
        assert Consumer(periodic=False, threads=2).run(limit=12) == 0
        loops = {}
        for thread, loop in ran:
            loops.setdefault(thread, set()).add(loop)
        assert all(len(found) == 1 for found in loops.values())


class TestHowItEnds:
    def test_a_stop_waits_for_what_runs_and_gives_back_the_rest(self, queue):
        handles = wait_for_release.enqueue_many([(number,) for number in range(4)])
        with serving(threads=1) as consumer, recorded_signals("consumer_stopping") as told:
            release.await_waiting(1)
            consumer.stop()
            eventually(lambda: told)
            eventually(lambda: not consumer.claims())
            release.set()
            assert consumer.code() == 0
        assert ran == [(0, 1)]
        left = queue.claim(10)
        assert [lease.entry.id for lease in left] == [handle.id for handle in handles[1:]]
        assert {lease.entry.attempts for lease in left} == {1}

    @pytest.mark.backends("memory")
    def test_nothing_is_claimed_after_a_stop(self, queue, monkeypatch):
        wait_for_release()
        with serving(threads=2) as consumer, recorded_signals("consumer_stopping") as told:
            release.await_waiting(1)
            consumer.stop()
            eventually(lambda: told)
            eventually(lambda: not consumer.claims())
            work()
            assert not consumer.future.done()
            release.set()
            assert consumer.code() == 0
        assert ran == [(0, 1)]
        assert queue.stats().ready == 1

    def test_a_second_stop_gives_back_what_runs(self, queue):
        handle = wait_for_release()
        with serving(threads=2) as consumer, recorded_signals("released") as told:
            release.await_waiting(1)
            consumer.stop()
            assert consumer.end() == 1
            assert [about["id"] for _, about in told] == [handle.id]
            entry = queue.find(handle.id).entry
            assert (entry.attempts, entry.failures, entry.lost) == (1, 0, 0)
            assert queue.stats().ready == 1  # another consumer may have it at once
            release.set()

    @pytest.mark.backends("memory")
    def test_after_the_grace_what_runs_is_given_back(self, queue):
        wait_for_release()
        with serving(threads=2, grace=0.05) as consumer:
            release.await_waiting(1)
            assert consumer.end() == 1
            assert queue.stats().ready == 1
            release.set()

    @pytest.mark.backends("memory")
    def test_what_was_given_back_is_not_finished_twice(self, queue):
        wait_for_release()
        with serving(threads=1) as first, recorded_signals("completed", "lease_lost") as told:
            release.await_waiting(1)
            first.stop()
            assert first.end() == 1
            with serving(threads=1, limit=1) as second:
                release.await_waiting(2)
                release.set()
                assert second.code() == 0
        assert [name for name, _ in told] == ["completed"]
        assert queue.stats().done == 1
        eventually(lambda: {(0, 1), (0, 2)} <= set(ran))  # a late thread of another test may have added to it

    @pytest.mark.backends("memory")
    def test_a_consumer_may_run_again(self, queue):
        consumer = Consumer(periodic=False)
        for number in range(2):
            work(number)
            assert consumer.run(limit=1) == 0
        assert ran == [0, 1]

    @pytest.mark.backends("memory")
    def test_a_store_that_cannot_be_reached_at_the_start(self, queue, monkeypatch, caplog):
        monkeypatch.setattr(queue, "stats", unreachable)
        assert Consumer().run() == 75
        assert "The store of queue 'default' cannot be used: the store is unreachable" in caplog.text

    @pytest.mark.backends("memory")
    def test_one_that_says_nothing_at_the_start_holds_up_no_other(self, settings, monkeypatch, caplog):
        path = "djqueue.backends.memory.MemoryQueue"
        settings.QUEUES = {alias: {"CLASS": path, "CONNECTION": alias} for alias in ("default", "other")}
        monkeypatch.setattr(consumer, "FIRST_ANSWER", 0.05)
        hung, store, stats = queues["default"], Release(), queues["default"].stats
        monkeypatch.setattr(hung, "stats", lambda: store.wait() or stats())
        work.using(queue_name="other").enqueue(1)
        with serving("default", "other"):
            store.await_waiting(1)
            eventually(lambda: ran == [1])
            assert "The store of queue 'default' says nothing for 0.05 s" in caplog.text
            store.set()
            work(2)
            eventually(lambda: ran == [1, 2])

    @pytest.mark.backends("memory")
    def test_what_has_ended_is_told_for_as_long_as_its_grace_lasts(self, queue, monkeypatch):
        with self.stopping(queue, monkeypatch) as (consumer, store):
            with pytest.raises(TimeoutError):
                consumer.future.result(0.3)
            store.set()
            assert consumer.code() == 0
        assert queue.stats().done == 1

    @pytest.mark.backends("memory")
    def test_but_not_after_a_second_stop(self, queue, monkeypatch):
        with self.stopping(queue, monkeypatch) as (consumer, store):
            assert consumer.end() == 1
            store.set()

    @contextmanager
    def stopping(self, queue, monkeypatch):
        """A consumer that was stopped, and a store that does not answer when it is told of something that has ended."""
        monkeypatch.setattr(supervisor, "LAST_WORDS", 0.05)
        store, complete = Release(), queue.complete
        monkeypatch.setattr(queue, "complete", lambda *args: store.wait() or complete(*args))
        work(1)
        with serving(grace=60) as consumer:
            store.await_waiting(1)
            consumer.stop()
            yield consumer, store

    def test_its_threads_are_gone(self, queue):
        work()
        before = set(threading.enumerate())
        assert Consumer(threads=3).run(limit=1) == 0
        since = [one for one in threading.enumerate() if one not in before and one.name.startswith("djqueue-")]
        eventually(lambda: not [one.name for one in since if one.is_alive()])

    @pytest.mark.backends("memory")
    def test_signals_tell_of_its_life(self, queue):
        consumer = Consumer(periodic=False)
        with recorded_signals("consumer_started", "consumer_stopping") as told:
            consumer.stop()
            consumer.run()
        assert told == [("consumer_started", {"sender": consumer}), ("consumer_stopping", {"sender": consumer})]
