"""The threads in which async commands on one event loop call functions."""

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from asgiref.sync import sync_to_async

from djqueue import current_message
from djqueue.consumer import STUCK
from djqueue.decorators import queue_command
from djqueue.messages.failures import errors_of
from djqueue.testing import eventually
from tests.app.models import Thing
from tests.support.consumer import PATIENCE, exit_code, serving
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory")
COMMON = min(32, os.cpu_count() + 4)
"""How many threads asyncio.to_thread has by itself."""
DATABASE = "djqueue-coroutines-database"
CALLS = {"sync_to_async": lambda function: sync_to_async(function)(), "to_thread": asyncio.to_thread}
seen, held = cleared_per_test([]), []
release = threading.Event()


def hang_here():
    held.append(threading.current_thread())
    assert release.wait(PATIENCE)


def stay(seconds):
    threading.Event().wait(seconds)


@pytest.fixture(autouse=True)
def _reset(settings):
    settings.QUEUE_TIME_LIMIT_GRACE = 0.1
    release.clear()
    seen.clear()
    held.clear()
    yield
    release.set()
    for thread in held:
        thread.join(PATIENCE)  # else it would be seen in the next test


@queue_command(time_limit=0.3)
async def hang(how):
    await CALLS[how](hang_here)


@queue_command(time_limit=0.3)
async def hang_until_cancelled():
    """Its function goes on until the time limit has cancelled it."""
    cancelled = threading.Event()

    def hang_for_it():
        held.append(threading.current_thread())
        assert cancelled.wait(PATIENCE)

    try:
        await sync_to_async(hang_for_it)()
    except asyncio.CancelledError:
        cancelled.set()
        raise


@queue_command
async def use(how, number):
    seen.append((await CALLS[how](threading.current_thread), number))


@queue_command(time_limit=0.5)
async def use_for_long(how):
    await CALLS[how](lambda: stay(0.3))
    seen.append(current_message().remaining)


@queue_command(time_limit=0.3)
async def use_and_sleep():
    await sync_to_async(stay)(0)
    await asyncio.sleep(PATIENCE)


@queue_command
async def wait_for_its_own_thread():
    """A function of the database that runs a loop of its own, which calls another one."""
    await sync_to_async(lambda: asyncio.run(sync_to_async(stay)(0)))()


@queue_command(batch=5)
async def wait_for_its_own_thread_in_a_batch(calls):
    await sync_to_async(lambda: asyncio.run(sync_to_async(stay)(0)))()


@queue_command
async def hold():
    await sync_to_async(hang_here)()


@queue_command(time_limit=0.3)
async def give_up_and_sleep():
    with suppress(TimeoutError):
        await asyncio.wait_for(sync_to_async(stay)(0), 0.05)
    seen.append("gave up")
    await asyncio.sleep(PATIENCE)


@queue_command
async def leave_a_call(how):
    with suppress(TimeoutError):
        await asyncio.wait_for(CALLS[how](hang_here), 0.05)


@queue_command
async def leave_a_task():
    async def stray():
        await asyncio.sleep(0.05)
        await sync_to_async(hang_here)()

    seen.append(asyncio.create_task(stray()))


@queue_command(time_limit=0.2)
async def swallow():
    while not release.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


@queue_command
async def shut_down():
    await asyncio.get_running_loop().shutdown_default_executor()


@queue_command
async def set_its_own():
    with ThreadPoolExecutor() as pool:
        asyncio.get_running_loop().set_default_executor(pool)


@queue_command
async def raise_in_a_thread(how, kind):
    def fail():
        raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "stop": StopIteration("no more")}[kind]

    await CALLS[how](fail)


@queue_command
async def count_things():
    seen.append(await Thing.objects.acount())


def use_many(queue, how, count=10):
    """Messages that do nothing wrong, once they are done."""
    before = queue.stats().done
    use.enqueue_many([(how, number) for number in range(count)])
    return lambda: queue.stats().done >= before + count


def stuck_lines(caplog):
    return [record for record in caplog.records if "is stuck" in record.getMessage()]


EITHER = pytest.mark.parametrize("how", CALLS)
ALL = {"sync_to_async": 2, "to_thread": COMMON}
"""How many messages use up all threads of a kind."""


class TestStuck:
    @EITHER
    def test_what_hangs_fails_with_where_and_others_have_threads(self, queue, caplog, how):
        handles = hang.enqueue_many([(how,)] * (ALL[how] - 1))
        with serving(threads=2, coroutines=50) as consumer:
            entry = eventually(lambda: queue.failed.find(handles[0].id)).entry
            eventually(lambda: len(stuck_lines(caplog)) == len(handles))
            eventually(use_many(queue, how))
            assert not release.is_set()
            assert consumer.end() == 0
        [note] = errors_of(entry.errors)
        assert note["exception"] == "djqueue.exceptions.TimeLimitExceeded"
        record = next(one for one in stuck_lines(caplog) if handles[0].id in one.getMessage())
        assert (record.levelno, record.queue) == (logging.WARNING, "default")
        assert hang.name in record.getMessage()
        assert "in hang_here" in record.getMessage()

    def test_the_failure_says_where_the_function_of_a_thread_is(self, queue):
        handle = hang("sync_to_async")
        with serving(threads=2, coroutines=5) as consumer:
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            assert consumer.end() == 0
        [note] = errors_of(entry.errors)
        assert "in hang_here" in note["traceback"]

    @EITHER
    def test_with_as_many_as_there_are_threads_another_process_is_needed(self, queue, caplog, how):
        handles = hang.enqueue_many([(how,)] * ALL[how])
        is_done = use_many(queue, how)
        with serving(threads=2, coroutines=50) as consumer:
            assert consumer.code() == STUCK == 70
        assert {queue.failed.find(handle.id) is not None for handle in handles} == {True}
        assert f"Too many commands are stuck ({ALL[how]})" in caplog.text
        assert queue.stats().leased == 0
        assert is_done()  # threads took the place of those that were stuck

    @EITHER
    def test_those_that_ended_after_all_count_no_more(self, queue, caplog, how):
        with serving(threads=2, coroutines=50) as consumer:
            for number in range(1, 4):
                hang.enqueue_many([(how,)] * (ALL[how] - 1))
                eventually(lambda number=number: len(stuck_lines(caplog)) == number * (ALL[how] - 1))
                eventually(use_many(queue, how))
                release.set()
                eventually(lambda: not any(thread.is_alive() for thread in held))
                release.clear()
            assert consumer.end() == 0

    def test_a_coroutine_that_swallows_its_cancellation_keeps_no_place(self, queue):
        handle = swallow()
        with serving(threads=2, coroutines=2) as consumer:
            eventually(lambda: queue.failed.find(handle.id))
            eventually(use_many(queue, "sync_to_async"))
            release.set()
            eventually(use_many(queue, "sync_to_async"))
            assert consumer.end() == 0

    def test_with_as_many_of_these_as_there_are_places_another_process_is_needed(self, queue):
        handles = swallow.enqueue_many([()] * 2)
        assert exit_code(threads=1, coroutines=2) == STUCK
        assert {queue.failed.find(handle.id) is not None for handle in handles} == {True}


class TestLeft:
    @EITHER
    def test_a_message_that_left_a_call_is_done_and_its_thread_is_for_no_other(self, queue, caplog, how):
        handle = leave_a_call.using(result_ttl=60).enqueue(how)
        with serving(threads=2, coroutines=5) as consumer:
            handle.get(timeout=PATIENCE)
            eventually(lambda: stuck_lines(caplog))
            eventually(use_many(queue, how))
            assert held[0] not in [thread for thread, _ in seen]
            assert held[0].is_alive()
            assert consumer.end() == 0

    def test_a_call_of_a_task_that_outlives_its_message_is_left_behind_too(self, queue, caplog):
        handle = leave_a_task()
        with serving(threads=2, coroutines=5) as consumer:
            [record] = eventually(lambda: stuck_lines(caplog))
            eventually(use_many(queue, "sync_to_async"))
            assert consumer.end() == 0
        assert f"{leave_a_task.name} (message {handle.id})" in record.getMessage()

    def test_a_call_that_ends_within_the_grace_costs_no_thread(self, queue, caplog, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = PATIENCE
        handle = hang_until_cancelled()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: queue.failed.find(handle.id))
            eventually(use_many(queue, "sync_to_async"))
            assert {thread for thread, _ in seen} == set(held)
            assert consumer.end() == 0
        assert not stuck_lines(caplog)


class TestWaiting:
    @EITHER
    def test_it_does_not_count_against_the_time_limit(self, queue, how):
        use_for_long.enqueue_many([(how,)] * 4 * ALL[how])
        with serving(threads=2, coroutines=100) as consumer:
            eventually(lambda: queue.stats().done == 4 * ALL[how])
            assert consumer.end() == 0
        assert len(queue.failed) == 0
        assert all(0 < remaining < 0.5 for remaining in seen)

    def test_after_it_the_limit_holds(self, queue):
        hold()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: held)
            handle = use_and_sleep()
            assert len(queue.failed) == 0
            release.set()
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            assert consumer.end() == 0
        [note] = errors_of(entry.errors)
        assert note["reason"].endswith("it ran for longer than its time_limit of 0.3 s")

    def test_one_that_waits_no_more_is_bounded_again(self, queue):
        hold()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: held)
            handle = give_up_and_sleep()
            eventually(lambda: queue.failed.find(handle.id))
            assert seen == ["gave up"]
            release.set()
            assert consumer.end() == 0


class TestSharedThreads:
    @pytest.mark.parametrize("command", [shut_down, set_its_own], ids=lambda command: command.name)
    def test_a_command_cannot_take_the_threads_of_the_loop(self, queue, command):
        handle = command()
        with serving(threads=2, coroutines=5) as consumer:
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            eventually(use_many(queue, "to_thread"))
            assert consumer.end() == 0
        assert "all async commands share its threads" in errors_of(entry.errors)[0]["reason"]

    @EITHER
    @pytest.mark.parametrize("kind", ["exit", "interrupt", "stop"])
    def test_whatever_a_function_raises_its_message_alone_fails(self, queue, how, kind):
        handle = raise_in_a_thread(how, kind)
        with serving(threads=1, coroutines=5) as consumer:
            entry = eventually(lambda: queue.failed.find(handle.id)).entry
            eventually(use_many(queue, how))
            assert consumer.end() == 0
        assert entry.attempts == 1

    @pytest.mark.parametrize("times", [2, 10_000])
    def test_where_no_thread_can_be_started_messages_wait_or_another_process_is_needed(self, queue, monkeypatch, times):
        start, failed = threading.Thread.start, []

        def failing(self):
            if self.name.startswith(DATABASE) and len(failed) < times:
                failed.append(self)
                raise RuntimeError("can't start new thread")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", failing)
        is_done = use_many(queue, "sync_to_async")
        with serving(threads=2, coroutines=50, grace=0.0) as consumer:
            if times == 2:
                eventually(is_done)
                assert consumer.end() == 0
            else:
                assert consumer.code() == STUCK
        assert (len(queue.failed), queue.stats().leased) == (0, 0)


@pytest.mark.backends("sqlite", database=True)
class TestAsgiref:
    def test_sync_to_async_and_django_use_the_threads_of_the_consumer(self, queue):
        """They find them by what asgiref keeps to itself: if this fails, see how it chooses a thread now."""
        count_things()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(use_many(queue, "sync_to_async"))
            eventually(lambda: 0 in seen)
            assert consumer.end() == 0
        [thread] = {one[0] for one in seen if one != 0}
        assert thread.name.startswith(DATABASE)

    @pytest.mark.parametrize("coroutines", [0, 10])
    @pytest.mark.parametrize("as_batch", [False, True])
    def test_a_function_cannot_wait_for_the_thread_in_which_it_runs(self, queue, coroutines, as_batch):
        guilty = wait_for_its_own_thread_in_a_batch(0) if as_batch else wait_for_its_own_thread()
        with serving(threads=1, coroutines=coroutines) as consumer:
            eventually(lambda: queue.failed.find(guilty.id))
            assert consumer.end() == 0
        assert "RuntimeError: This function runs in the thread" in queue.failed.find(guilty.id).entry.errors
