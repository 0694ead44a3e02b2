"""Async commands that run in the threads: what one leaves on the event loop of its thread costs no other."""

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import sync_to_async

from djqueue import BatchCommand, Route
from djqueue.consumer import thread_loop
from djqueue.decorators import queue_command
from djqueue.running import executor
from djqueue.testing import eventually
from tests.support.consumer import exit_code, serving
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory")
seen = cleared_per_test([])
release = threading.Event()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(thread_loop, "LAST", 0.1)
    release.clear()
    yield
    release.set()
    kept.clear()


async def exit_later():
    await asyncio.sleep(0.01)
    sys.exit(3)


async def stay():
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("cancelled")


async def stay_whatever_happens():
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            seen.append("cancelled")


def wait_for_release():
    release.wait(10)


def raise_exit(*args, **kwargs):
    sys.exit(3)


async def exits_in_the_end():
    try:
        yield 1
    finally:
        await asyncio.sleep(0.01)
        sys.exit(3)


async def read_half():
    await anext(exits_in_the_end())


async def endless():
    try:
        yield 1
    finally:
        await asyncio.Event().wait()


async def keep_half(generator=exits_in_the_end):
    kept.append(generator())
    await anext(kept[-1])


def use_no_executor(loop):
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    executor.shutdown()


def fill_the_threads(loop):
    for _ in range(min(32, os.cpu_count() + 4)):
        loop.run_in_executor(None, wait_for_release)


def stop_the_clock(loop):
    loop.time = lambda: 0.0
    kept.append(loop.create_task(stay_whatever_happens()))


def read_a_pipe(loop):
    end, other = os.pipe()
    loop.add_reader(end, raise_exit)
    os.write(other, b"x")


DEEDS = {
    "a task that exits": lambda loop: kept.append(loop.create_task(exit_later())),
    "a task": lambda loop: kept.append(loop.create_task(stay())),
    "a task that is not to be cancelled": lambda loop: kept.append(loop.create_task(stay_whatever_happens())),
    "a timer that exits": lambda loop: loop.call_later(0.01, raise_exit),
    "a reader that exits": read_a_pipe,
    "a task factory that exits": lambda loop: loop.set_task_factory(raise_exit),
    "an exception handler that exits": lambda loop: (loop.set_exception_handler(raise_exit), loop.call_soon(int, "")),
    "no executor": lambda loop: kept.append(loop.create_task(loop.shutdown_default_executor())),
    "an executor that is shut down": use_no_executor,
    "threads that are busy": fill_the_threads,
    "half an asynchronous generator that does not end": lambda loop: kept.append(loop.create_task(keep_half(endless))),
    "half an asynchronous generator": lambda loop: kept.append(loop.create_task(read_half())),
    "half an asynchronous generator that is kept": lambda loop: kept.append(loop.create_task(keep_half())),
    "a stopped loop": lambda loop: loop.stop(),
    "another clock": stop_the_clock,
}
kept = []


@queue_command(max_attempts=1)
async def misbehave(deed):
    DEEDS[deed](asyncio.get_running_loop())
    await asyncio.sleep(0)


@queue_command
def leave_a_running_loop():
    asyncio._set_running_loop(asyncio.new_event_loop())


@queue_command
def close_the_loop():
    asyncio.get_event_loop_policy().get_event_loop().close()


@queue_command(result_ttl=60, max_attempts=1)
async def innocent():
    await asyncio.sleep(0.03)  # what others left would run meanwhile
    return await asyncio.create_task(asyncio.to_thread(threading.get_ident))


@queue_command(result_ttl=60, max_attempts=1)
def drop_what_is_kept():
    kept.clear()


@queue_command(result_ttl=60, max_attempts=1)
def innocent_function():
    return asyncio.run(asyncio.sleep(0, "ran"))


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_what_a_command_does_to_the_loop_of_its_thread_costs_no_other(queue, deed, caplog):
    misbehave(deed)
    handles = [drop_what_is_kept(), *(innocent() for _ in range(3))]
    assert exit_code(threads=1, drain=True) == 0
    assert [handle.status for handle in handles] == ["done"] * 4


def test_a_task_that_is_left_is_cancelled_when_its_command_ends(queue):
    misbehave("a task")
    innocent()
    assert exit_code(threads=1, drain=True) == 0
    assert seen == ["cancelled"]


def test_a_loop_that_a_function_has_closed_is_replaced(queue):
    handles = [innocent(), close_the_loop.using(result_ttl=60)(), innocent()]
    assert exit_code(threads=1, drain=True) == 0
    assert [handle.status for handle in handles] == ["done"] * 3


def test_an_event_loop_that_seems_to_run_in_a_thread_is_taken_away(queue, caplog):
    leave_a_running_loop()
    handles = [innocent_function(), innocent()]
    assert exit_code(threads=1, drain=True) == 0
    assert [handle.status for handle in handles] == ["done"] * 2
    assert "A command left an event loop" in caplog.text


def test_the_loop_goes_on_if_nothing_is_left_on_it(queue, monkeypatch):
    made, make = [], thread_loop._new_runner
    monkeypatch.setattr(thread_loop, "_new_runner", lambda coroutine: made.append(1) or make(coroutine))
    innocent.enqueue_many([()] * 5)
    assert exit_code(threads=1, drain=True) == 0
    assert made == [1]


@queue_command(max_attempts=1)
async def wrap_the_close_of_the_loop():
    """As channels_redis does, whose connections are closed by it."""
    loop = asyncio.get_running_loop()
    close = loop.close
    loop.close = lambda: (seen.append("flushed"), close())


@pytest.mark.parametrize("options", [{}, {"coroutines": 5}], ids=["threads", "coroutines"])
def test_what_is_to_happen_as_the_loop_is_closed_does(queue, options):
    wrap_the_close_of_the_loop()
    assert exit_code(threads=1, drain=True, **options) == 0
    assert seen == ["flushed"]


@queue_command(max_attempts=1)
async def use_a_thread():
    seen.append(await sync_to_async(threading.current_thread)())


def test_the_thread_for_its_database_is_ended_without_another_one(queue, monkeypatch):
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread) or start(thread))
    use_a_thread()
    assert exit_code(threads=1, drain=True) == 0
    [thread] = seen
    thread.join(10)
    assert not thread.is_alive()
    main, *others = [one for one in started if not one.name.startswith("djqueue-")]
    assert others == [thread]


@pytest.fixture
def no_threads(monkeypatch):
    """A list: for each thing in it, a worker fails to start one thread."""
    missing, start = [], threading.Thread.start

    def start_if_allowed(thread):
        if missing and threading.current_thread().name.startswith("djqueue-worker-"):
            missing.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)
    return missing


def test_it_comes_again_if_there_is_no_thread_for_its_database(queue, no_threads):
    no_threads.append(1)
    handle = use_a_thread.using(result_ttl=60)()
    with serving(threads=1):
        assert eventually(lambda: handle.status == "done")
    assert (len(seen), no_threads) == (1, [])


@queue_command(result_ttl=60)
async def use_a_thread_from_two_others():
    first, second = await asyncio.gather(*[asyncio.to_thread(lambda: asyncio.run(ask())) for _ in range(2)])
    seen.append(first is second)


async def ask():
    return await sync_to_async(threading.current_thread)()


def test_functions_in_other_threads_share_its_thread(queue):
    use_a_thread_from_two_others.enqueue_many([()] * 10)
    assert exit_code(threads=1, drain=True) == 0
    assert seen == [True] * 10


def test_it_does_not_come_again_for_ever(queue, no_threads, monkeypatch):
    monkeypatch.setattr(executor, "MOST_TRIES", 2)
    no_threads.extend([1] * 9)
    handle = use_a_thread.using(result_ttl=60)()
    with serving(threads=1):
        assert eventually(lambda: handle.status == "failed")
    assert (seen, len(no_threads)) == ([], 7)


class Kept(BatchCommand):
    """Keeps a task as long as its handler is kept."""

    async def start(self):
        self.task, self.loop = asyncio.create_task(stay()), asyncio.get_running_loop()

    @staticmethod
    def route(*requests):
        return [Route("one") for _ in requests]

    async def perform(self, *numbers):
        await asyncio.sleep(0)
        seen.append(self.task.done() or self.loop is not asyncio.get_running_loop())

    async def stop(self):
        seen.append("stopped")


def test_what_a_handler_leaves_goes_on_until_it_was_stopped(queue):
    Kept.enqueue(1)
    Kept.enqueue(2)
    assert exit_code(threads=1, drain=True) == 0
    assert seen[-2:] == ["stopped", "cancelled"]
    assert not any(seen[:-2]) and seen[:-2]
