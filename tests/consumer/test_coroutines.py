"""Async commands that share one event loop."""

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import translation

from djqueue import Consumer, Retry, current_message, signals
from djqueue.consumer import loop_tasks
from djqueue.consumer.pool import Worker
from djqueue.decorators import queue_command
from djqueue.exceptions import TimeLimitExceeded
from djqueue.messages.failures import errors_of
from djqueue.testing import eventually
from tests.app.models import Thing
from tests.support.consumer import exit_code, recorded_signals, serving
from tests.support.misdeeds import MISDEEDS, UNSEEN, wait_with_tasks

MEMORY = pytest.mark.backends("memory")
SOME = pytest.mark.backends("memory", "sqlite", "redis")
waiting, most_waiting, seen, transports, descriptors = [], [], [], [], []
release = threading.Event()


@pytest.fixture(autouse=True)
def _reset():
    release.clear()
    for one in (waiting, most_waiting, seen, transports, descriptors):
        one.clear()
    yield
    release.set()


async def stay(number):
    waiting.append(number)
    most_waiting.append(len(waiting))
    try:
        while not release.is_set():
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    finally:
        waiting.remove(number)


@queue_command(result_ttl=60)
async def wait(number):
    seen.append(asyncio.get_running_loop())
    await stay(number)
    return number * 2


@queue_command(concurrency=3)
async def wait_in_a_few(number):
    await stay(number)


@queue_command(shard=1)
async def wait_in_order(number):
    seen.append((number, asyncio.get_running_loop()))


@queue_command(batch=10)
async def wait_together(calls):
    seen.append(asyncio.get_running_loop())


@queue_command
def work(number):
    seen.append(threading.current_thread().name)


@queue_command
async def speak(language):
    seen.append((translation.get_language(), current_message().id))
    translation.activate(language)
    await asyncio.sleep(0)
    seen.append((translation.get_language(), current_message().id))


@queue_command(time_limit=0.1)
async def exceed():
    await stay(0)


@queue_command(max_attempts=2, backoff=False, retry_on=(ValueError,))
async def fail():
    seen.append(current_message().attempt)
    raise ValueError("no")


@queue_command
async def block():
    while not release.is_set():
        time.sleep(0.01)


@queue_command
async def make_thing(number):
    seen.append(await sync_to_async(threading.get_ident)())
    await stay(number)
    await Thing.objects.acreate(name=str(number))
    seen.append(await sync_to_async(lambda: connection.in_atomic_block)())


class TestOptions:
    @pytest.mark.parametrize("wrong", [-1, 1.5, "many", True])
    def test_a_number_of_coroutines_is_a_whole_number(self, wrong):
        with pytest.raises(ValueError, match="coroutines"):
            Consumer(coroutines=wrong)


@SOME
class TestTogether:
    def test_many_wait_at_once_on_one_loop(self, queue):
        handles = wait.enqueue_many([(number,) for number in range(100)])
        with serving(threads=2, coroutines=100) as consumer:
            eventually(lambda: len(waiting) == 100)
            assert len(set(seen)) == 1
            release.set()
            assert [handle.get(timeout=30) for handle in handles] == [2 * number for number in range(100)]
            assert consumer.end() == 0
        assert (queue.stats().done, queue.stats().leased) == (100, 0)

    def test_no_more_run_than_there_are_coroutines(self, queue):
        wait.enqueue_many([(number,) for number in range(20)])
        with serving(threads=2, coroutines=5) as consumer:
            eventually(lambda: len(waiting) == 5)
            release.set()
            eventually(lambda: queue.stats().done == 20)
            assert consumer.end() == 0
        assert max(most_waiting) == 5

    def test_threads_are_free_for_functions(self, queue):
        wait.enqueue_many([(number,) for number in range(20)])
        with serving(threads=1, coroutines=50) as consumer:
            eventually(lambda: len(waiting) == 20)
            work.enqueue_many([(number,) for number in range(20)])
            eventually(lambda: len(seen) == 40)
            assert len(waiting) == 20
            release.set()
            assert consumer.end() == 0
        assert queue.stats().done == 40

    def test_the_limit_of_a_command_holds(self, queue):
        wait_in_a_few.enqueue_many([(number,) for number in range(12)])
        with serving(threads=2, coroutines=50) as consumer:
            eventually(lambda: len(waiting) == 3)
            release.set()
            eventually(lambda: queue.stats().done == 12)
            assert consumer.end() == 0
        assert max(most_waiting) == 3

    def test_batches_and_shards_run_on_the_same_loop_and_in_order(self, queue):
        wait_in_order.enqueue_many([(number,) for number in range(30)])
        wait_together.enqueue_many([(number,) for number in range(30)])
        release.set()
        wait(0)
        assert exit_code(threads=3, coroutines=10, drain=True) == 0
        ordered = [one for one in seen if isinstance(one, tuple)]
        assert [number for number, _ in ordered] == list(range(30))
        assert len({one[1] if isinstance(one, tuple) else one for one in seen}) == 1

    def test_what_one_activates_does_not_reach_another(self, queue):
        handles = [speak(language) for language in ("de", "fr", "it")]
        with recorded_signals("completed") as told:
            assert exit_code(threads=2, coroutines=10, drain=True) == 0
        assert len(told) == 3
        for handle, language in zip(handles, ("de", "fr", "it"), strict=True):
            assert [spoken for spoken, id in seen if id == handle.id] == ["en-us", language]


@SOME
class TestEnds:
    def test_a_time_limit_cancels(self, queue):
        handle = exceed()
        assert exit_code(threads=1, coroutines=5, drain=True) == 0
        assert seen == ["cancelled"]
        assert TimeLimitExceeded.__name__ in queue.failed.find(handle.id).entry.errors

    def test_a_failure_is_retried_and_fails(self, queue):
        handle = fail()
        assert exit_code(threads=1, coroutines=5, drain=True) == 0
        assert seen == [1, 2]
        assert queue.failed.find(handle.id) is not None

    def test_what_runs_as_the_consumer_stops_may_end(self, queue):
        wait.enqueue_many([(number,) for number in range(5)])
        with serving(threads=2, coroutines=5) as consumer:
            eventually(lambda: len(waiting) == 5)
            consumer.stop()
            release.set()
            assert consumer.code() == 0
        assert (queue.stats().done, queue.stats().ready) == (5, 0)

    def test_what_does_not_end_in_time_is_handed_back_and_cancelled(self, queue):
        wait.enqueue_many([(number,) for number in range(8)])
        with serving(threads=2, coroutines=5, grace=0.0) as consumer:
            eventually(lambda: len(waiting) == 5)
            assert consumer.end() == 1
        assert (queue.stats().ready, queue.stats().leased, queue.stats().done) == (8, 0, 0)
        assert seen.count("cancelled") == 5

    def test_what_waits_for_a_place_goes_back_uncounted(self, queue):
        handles = wait.enqueue_many([(number,) for number in range(3)])
        with serving(threads=1, coroutines=1, grace=0.0) as consumer:
            eventually(lambda: len(waiting) == 1)
            eventually(lambda: queue.stats().leased > 1)
            assert consumer.end() == 1
        attempts = sorted(queue.find(handle.id).entry.attempts for handle in handles)
        assert attempts == [0, 0, 1]

    def test_what_a_worker_has_just_taken_goes_back_uncounted(self, queue, monkeypatch):
        taken, serve = [], Worker._serve

        def serve_late(worker, unit):
            taken.extend(unit)
            eventually(lambda: unit[0].final)
            return serve(worker, unit)

        monkeypatch.setattr(Worker, "_serve", serve_late)
        handle = wait(1)
        with serving(threads=1, coroutines=1, grace=0.0) as consumer:
            eventually(lambda: taken)
            assert consumer.end() == 1
        assert queue.find(handle.id).entry.attempts == 0
        assert not seen


@MEMORY
class TestBlocking:
    def test_what_blocks_the_loop_is_named(self, queue, caplog):
        caplog.set_level(logging.WARNING, "djqueue")
        handle = block()
        with serving(threads=1, coroutines=5) as consumer:
            record = eventually(lambda: [one for one in caplog.records if "blocks the event loop" in one.getMessage()])
            release.set()
            assert consumer.end() == 0
        assert f"{block.name} (message {handle.id})" in record[0].getMessage()
        assert "time.sleep(0.01)" in record[0].getMessage()
        assert queue.stats().done == 1

    def test_if_its_time_limit_is_over_another_process_is_needed(self, queue, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = 0.1
        handle = block.using(time_limit=1.5).enqueue()
        assert exit_code(threads=1, coroutines=5) == 70
        assert "does not end" in queue.failed.find(handle.id).entry.errors


@pytest.mark.backends("sqlite", "postgres", "mariadb", database=True)
class TestDatabase:
    def test_no_more_use_it_at_once_than_there_are_threads(self, queue):
        make_thing.enqueue_many([(number,) for number in range(12)])
        with serving(threads=3, coroutines=12) as consumer:
            eventually(lambda: len(waiting) == 3)
            release.set()
            eventually(lambda: queue.stats().done == 12)
            assert consumer.end() == 0
        assert max(most_waiting) == 3
        assert len({one for one in seen if one is not False}) == 3
        assert Thing.objects.count() == 12


@queue_command(result_ttl=60)
async def wait_as_an_innocent():
    return await wait_with_tasks(0.3)


@queue_command
async def misbehave(how):
    waiting.append(how)
    await (UNSEEN[how] if how in UNSEEN else MISDEEDS[how][0])()


async def _raise():
    raise asyncio.CancelledError("its own")


async def _wait_for_a_cancelled_task():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


CANCELLATIONS = {func.__name__: func for func in (_raise, _wait_for_a_cancelled_task)}


@queue_command
async def be_cancelled(how):
    seen.append(current_message().attempt)
    await CANCELLATIONS[how]()


@queue_command(result_ttl=60)
async def be_cancelled_late():
    """It polls first, and is cancelled by others then."""
    attempt = current_message().attempt
    if attempt <= loop_tasks.MOST_STARTS:
        raise Retry(after=0)
    if attempt == loop_tasks.MOST_STARTS + 1:
        raise asyncio.CancelledError
    return attempt


@queue_command
async def block_for_a_while(seconds):
    """For four seconds in all."""
    for _ in range(round(4 / seconds)):
        time.sleep(seconds)
        await asyncio.sleep(0)


@queue_command(batch=10, result_ttl=60)
async def wait_in_a_batch(calls):
    seen.append("batch")
    while not release.is_set():
        await asyncio.sleep(0.2)
    return list(calls)


@queue_command(shard=lambda number: str(number), result_ttl=60)
async def wait_as_a_shard(number):
    seen.append("shard")
    while not release.is_set():
        await asyncio.sleep(0.2)
    return "waited"


@queue_command(result_ttl=60)
async def wait_after_a_timeout(number):
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        pass
    seen.append("timeout")
    while not release.is_set():
        await asyncio.sleep(0.2)
    return "waited"


@queue_command(result_ttl=60)
async def wait_for_word_of_a_task():
    """As a client waits for its reader, which says nothing if it is cancelled."""
    word = asyncio.get_running_loop().create_future()

    async def say():
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            return
        word.set_result("said")

    task = asyncio.create_task(say())
    said = await word
    await task
    return said


class Unspeakable(str):
    def __str__(self):
        return self

    def __repr__(self):
        sys.exit(10)


@queue_command(result_ttl=60)
async def raise_if_a_task_is_cancelled():
    """It has a task whose name is a trap for who logs it, and an error of its own for the end of that task."""
    task = asyncio.create_task(asyncio.sleep(60 if current_message().attempt == 1 else 0), name="a task to cancel")
    seen.append("waits")
    await asyncio.wait([task])
    if task.cancelled():
        raise ValueError("its task is gone")
    return "ended"


@queue_command(result_ttl=60)
async def cancel_the_task_of_another():
    asyncio.current_task().set_name(Unspeakable("it exits"))
    await asyncio.sleep(0)
    cancel_named(asyncio.get_running_loop(), "a task to cancel")
    return repr(asyncio.current_task().get_name())


@queue_command(result_ttl=60)
async def wait_for_good_if_cancelled():
    """As ``create_subprocess_exec`` does, whose transport waits for what its task was to set."""
    if current_message().attempt == 2:
        return "ended"
    seen.append("waits")
    task = asyncio.create_task(asyncio.sleep(60))
    while not release.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    task.cancel()


@queue_command(result_ttl=60)
async def receive():
    loop, pair = asyncio.get_running_loop(), socket.socketpair()
    for one in pair:
        one.setblocking(False)
    with pair[0] as ours, pair[1] as theirs:
        seen.append(loop.call_later(0.5, theirs.send, b"x"))
        return len(await loop.sock_recv(ours, 1))


@queue_command(result_ttl=60)
async def receive_what_is_sent_on_release():
    pair = socket.socketpair()
    for one in pair:
        one.setblocking(False)

    async def send(theirs):
        while not release.is_set():
            await asyncio.sleep(0.01)
        theirs.send(b"x")

    with pair[0] as ours, pair[1] as theirs:
        descriptors.append(ours.fileno())
        seen.append(asyncio.create_task(send(theirs)))
        return len(await asyncio.get_running_loop().sock_recv(ours, 1))


@queue_command(result_ttl=60)
async def read_from_a_pipe_once_another_reads_there():
    ours, theirs = os.pipe()
    descriptors.append(ours)
    while len(descriptors) < 2:
        await asyncio.sleep(0.01)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
    )
    os.write(theirs, b"x")
    os.close(theirs)
    received = await reader.read()
    transport.close()
    return len(received)


@queue_command
async def read_at_the_first_descriptor():
    asyncio.get_running_loop().add_reader(descriptors[0], print)
    descriptors.append(descriptors[0])
    await asyncio.sleep(0.5)


@queue_command(result_ttl=60)
async def receive_at_a_shared_socket():
    pair = socket.socketpair()
    for one in pair:
        one.setblocking(False)
    seen.extend(pair)
    return len(await asyncio.get_running_loop().sock_recv(pair[0], 1))


@queue_command(result_ttl=60)
async def write_at_a_shared_socket():
    loop, is_writable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(seen[0], is_writable.set)
    await is_writable.wait()
    seen[1].send(b"x")
    await asyncio.sleep(0.5)
    return loop.remove_writer(seen[0])


@queue_command(result_ttl=60)
async def close_sockets_that_have_readers():
    for ours, theirs in [socket.socketpair() for _ in range(5)]:
        asyncio.get_running_loop().add_reader(ours.fileno(), print)
        asyncio.get_running_loop().add_reader(theirs.fileno(), print)
        ours.close(), theirs.close()
    return "closed"


@queue_command(result_ttl=60)
async def close_sockets_under_their_transports():
    for ours, theirs in [socket.socketpair() for _ in range(5)]:
        for one in (ours, theirs):
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, one)
            transports.append(transport)
        ours.close(), theirs.close()
    return len(transports)


@queue_command(result_ttl=60)
async def close_transports():
    for transport in transports:
        transport.close()
    return "closed"


@queue_command
async def read_at_the_descriptors_of_others():
    for number in descriptors:
        file = os.fdopen(number, "rb", closefd=False)
        transports.append(await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, file))


@queue_command
async def remove_the_readers_of_others():
    for number in range(3, 200):
        with suppress(RuntimeError, OSError):
            asyncio.get_running_loop().remove_reader(number)
            asyncio.get_running_loop().add_reader(number, print)
            asyncio.get_running_loop().remove_reader(number)


@queue_command
async def lose_all_timers(seconds=0):
    await asyncio.sleep(0.1)
    asyncio.get_running_loop()._scheduled.clear()
    await asyncio.sleep(seconds)


@queue_command(batch=10)
async def stop_in_a_batch(calls):
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
    await asyncio.sleep(60)


client = {}


@queue_command(result_ttl=60)
async def open_a_client():
    client["reader"] = asyncio.create_task(asyncio.sleep(600))
    seen.append("open")
    while not release.is_set():
        await asyncio.sleep(0.01)
    return "ended"


@queue_command(result_ttl=60)
async def close_the_client():
    client["reader"].cancel()
    await asyncio.gather(client["reader"], return_exceptions=True)
    return "closed"


@queue_command(result_ttl=60)
async def cancel_all_in_a_thread(everything=False):
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    messages = [task for task in tasks if everything or "(message " in task.get_name()]
    thread = threading.Thread(target=lambda: [task.cancel() for task in messages] + [cancel_later(loop, messages)])
    thread.start()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0.1)
    return current_message().attempt


def cancel_later(loop, tasks):
    for task in tasks:
        loop.call_soon_threadsafe(task.cancel)


def cancel_named(loop, name):
    for task in asyncio.all_tasks(loop):
        if name in task.get_name():
            task.cancel()


waiters = []


@queue_command
async def ask_a_client(number):
    waiters.append(asyncio.get_running_loop().create_future())
    await waiters[-1]


@queue_command(result_ttl=60)
async def answer_with_the_error():
    while len(waiters) < 3:
        await asyncio.sleep(0.005)
    told = [*waiters]
    waiters.clear()
    try:
        raise ConnectionError("gone")
    except ConnectionError as error:
        for waiter in told:
            waiter.set_exception(error)
    await asyncio.sleep(0.5)
    return len(told)


class Unheard(asyncio.Future):
    def add_done_callback(self, callback, *, context=None):
        """It calls nobody back."""


@queue_command
async def never_go_on():
    await _never_go_on()


@queue_command(batch=10)
async def never_go_on_in_a_batch(calls):
    await _never_go_on()


async def _never_go_on():
    seen.append(current_message().attempt)
    future = Unheard()
    future.set_result(None)
    future._asyncio_future_blocking = True
    await Awaitable(future)


class Awaitable:
    def __init__(self, future):
        self.future = future

    def __await__(self):
        yield self.future


@MEMORY
class TestMisdeeds:
    @pytest.mark.parametrize("how", MISDEEDS)
    def test_a_command_that_harms_the_loop_fails_alone(self, queue, how):
        before = wait_as_an_innocent.enqueue_many([()] * 10)
        guilty = misbehave(how)
        after = wait_as_an_innocent.enqueue_many([()] * 10)
        with recorded_signals("retried", "failed", "released") as told, serving(threads=2, coroutines=50) as consumer:
            assert [handle.get(timeout=30) for handle in [*before, *after]] == [2] * 20
            eventually(lambda: queue.stats().failed == 1)
            assert (consumer.future.done(), consumer.end()) == (False, 0)
        assert [name for name, about in told if name != "released"] == ["failed"]
        assert waiting == [how]
        [note] = errors_of(queue.failed.find(guilty.id).entry.errors)
        assert [part for part in MISDEEDS[how][1] if part not in note["reason"]] == []

    @pytest.mark.parametrize("how", UNSEEN)
    def test_what_none_is_known_to_have_done_makes_no_other_fail(self, queue, how):
        handles = wait_as_an_innocent.enqueue_many([()] * 20)
        misbehave(how)
        with serving(threads=2, coroutines=50) as consumer:
            assert [handle.get(timeout=30) for handle in handles] == [2] * 20
            assert wait_as_an_innocent.enqueue().get(timeout=30) == 2
            eventually(lambda: not queue.stats().leased)
            assert (consumer.future.done(), consumer.end()) == (False, 0)
        assert queue.failed.find(handles[0].id) is None

    def test_one_that_caught_the_error_with_which_others_failed_goes_on(self, queue):
        """As the task of a client that gives the error of its connection to all who wait for an answer."""
        asking = [ask_a_client(number) for number in range(3)]
        answering = answer_with_the_error.enqueue()
        with serving(threads=1, coroutines=50) as consumer:
            assert answering.get(timeout=30) == 3
            eventually(lambda: queue.stats().failed == 3)
            assert consumer.end() == 0
        for handle in asking:
            [note] = errors_of(queue.failed.find(handle.id).entry.errors)
            assert note["reason"] == "ConnectionError: gone"

    @pytest.mark.parametrize("command", [never_go_on, never_go_on_in_a_batch])
    def test_what_never_goes_on_fails_in_the_end(self, queue, monkeypatch, command):
        monkeypatch.setattr(loop_tasks, "MOST_STARTS", 3)
        handle = command()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: queue.failed.find(handle.id))
            assert consumer.end() == 0
        assert seen == [1, 2, 3]

    @pytest.mark.parametrize("how", CANCELLATIONS)
    def test_a_cancellation_that_nothing_explains_comes_again_but_not_for_ever(self, queue, monkeypatch, how):
        monkeypatch.setattr(loop_tasks, "MOST_STARTS", 3)
        handle = be_cancelled(how)
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: queue.failed.find(handle.id))
            assert consumer.end() == 0
        assert seen == [1, 2, 3]

    def test_starts_that_were_not_cancelled_do_not_count_as_such(self, queue):
        handle = be_cancelled_late()
        with serving(threads=1, coroutines=5) as consumer:
            assert handle.get(timeout=30) == loop_tasks.MOST_STARTS + 2
            assert consumer.end() == 0

    def test_what_code_that_serves_no_message_cancels_runs_on(self, queue):
        loop, attempts = [], []

        def cancel(sender, attempt, **about):
            attempts.append(attempt)
            if loop:
                loop[0].call_soon_threadsafe(lambda: loop[0].call_soon(cancel_named, loop[0], wait_as_an_innocent.name))

        wait(0)
        signals.started.connect(cancel)
        try:
            with serving(threads=1, coroutines=50) as consumer:
                loop.append(eventually(lambda: seen and seen[0]))
                handles = wait_as_an_innocent.enqueue_many([()] * 20)
                assert [handle.get(timeout=30) for handle in handles] == [2] * 20
                release.set()
                assert consumer.end() == 0
        finally:
            signals.started.disconnect(cancel)
        assert (queue.stats().failed, queue.stats().leased, set(attempts)) == (0, 0, {1})

    def test_a_thread_cancels_no_message(self, queue):
        handles = wait_as_an_innocent.enqueue_many([()] * 10)
        guilty = cancel_all_in_a_thread()
        with serving(threads=1, coroutines=50) as consumer:
            assert [handle.get(timeout=30) for handle in handles] == [2] * 10
            assert guilty.get(timeout=30) == 1
            assert consumer.end() == 0

    def test_what_waits_for_a_task_that_a_thread_cancelled_comes_again(self, queue):
        handles = wait_for_word_of_a_task.enqueue_many([()] * 5)
        with serving(threads=1, coroutines=50) as consumer:
            guilty = cancel_all_in_a_thread.enqueue(everything=True)
            assert [handle.get(timeout=30) for handle in handles] == ["said"] * 5
            assert guilty.get(timeout=30) == 1
            assert consumer.end() == 0
        assert queue.stats().failed == 0

    def test_what_does_not_end_when_it_is_cancelled_for_no_fault_comes_again(self, queue, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = 0.2
        handle = wait_for_good_if_cancelled()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: seen)
            cancel_all_in_a_thread.enqueue(everything=True)
            assert handle.get(timeout=30) == "ended"
            release.set()
            assert consumer.end() == 0
        assert queue.stats().failed == 0

    def test_a_socket_that_was_closed_with_its_reader_costs_no_other_its_own(self, queue):
        with serving(threads=1, coroutines=50) as consumer:
            assert close_sockets_that_have_readers().get(timeout=30) == "closed"
            handles = receive.enqueue_many([()] * 5)
            assert [handle.get(timeout=10) for handle in handles] == [1] * 5
            assert consumer.end() == 0

    def test_a_transport_whose_socket_was_closed_costs_no_other_its_descriptor(self, queue):
        with serving(threads=1, coroutines=50) as consumer:
            assert close_sockets_under_their_transports().get(timeout=30) == 10
            handles = receive_what_is_sent_on_release.enqueue_many([()] * 5)
            eventually(lambda: len(seen) == 5)
            assert close_transports().get(timeout=30) == "closed"
            release.set()
            assert [handle.get(timeout=10) for handle in handles] == [1] * 5
            assert consumer.end() == 0

    def test_a_message_has_its_own_pipe_though_another_reads_there(self, queue):
        handle = read_from_a_pipe_once_another_reads_there()
        with serving(threads=1, coroutines=50) as consumer:
            eventually(lambda: descriptors)
            read_at_the_first_descriptor()
            assert handle.get(timeout=10) == 1
            assert consumer.end() == 0

    def test_messages_may_share_a_socket_that_one_reads_and_the_other_writes(self, queue):
        receiving = receive_at_a_shared_socket()
        with serving(threads=1, coroutines=50) as consumer:
            eventually(lambda: seen)
            writing = write_at_a_shared_socket()
            assert (receiving.get(timeout=10), writing.get(timeout=10)) == (1, True)
            assert consumer.end() == 0
        for one in seen:
            one.close()

    @pytest.mark.parametrize("misuse", [remove_the_readers_of_others, read_at_the_descriptors_of_others])
    def test_no_command_takes_from_others_what_they_wait_for_at_a_descriptor(self, queue, misuse):
        handles = receive_what_is_sent_on_release.enqueue_many([()] * 5)
        with serving(threads=1, coroutines=50) as consumer:
            eventually(lambda: len(seen) == 5)
            guilty = misuse()
            eventually(lambda: queue.stats().failed == 1)
            release.set()
            assert [handle.get(timeout=10) for handle in handles] == [1] * 5
            assert consumer.end() == 0
        assert "changed a file descriptor for which others wait" in queue.failed.find(guilty.id).entry.errors

    def test_an_error_for_a_task_that_another_message_cancelled_is_no_failure(self, queue):
        handle = raise_if_a_task_is_cancelled()
        with serving(threads=1, coroutines=5) as consumer:
            eventually(lambda: seen)
            assert cancel_the_task_of_another().get(timeout=30) == "'it exits'"
            assert handle.get(timeout=30) == "ended"
            assert consumer.end() == 0
        assert queue.stats().failed == 0

    def test_a_loop_without_timers_needs_another_process(self, queue):
        handles = wait_as_an_innocent.enqueue_many([()] * 5)
        lose_all_timers()
        assert exit_code(threads=1, coroutines=50) == 70
        assert (queue.stats().failed, queue.stats().leased) == (0, 0)
        with serving(threads=1, coroutines=50):
            assert [handle.get(timeout=30) for handle in handles] == [2] * 5

    def test_what_ran_on_a_loop_that_was_given_up_counts_as_lost(self, queue):
        """Else a message that breaks each loop would end one consumer after another, for ever."""
        guilty = lose_all_timers.using(max_lost=2).enqueue(60)
        for lost in (1, 2):
            assert exit_code(threads=1, coroutines=50) == 70
            assert queue.find(guilty.id).entry.lost == lost
        with serving(threads=1, coroutines=50) as consumer:
            [note] = errors_of(eventually(lambda: queue.failed.find(guilty.id)).entry.errors)
            assert "2 attempts never reported" in note["reason"]
            assert consumer.end() == 0

    @pytest.mark.parametrize("command", ["wait_as_a_shard", "wait_in_a_batch", "wait_after_a_timeout"])
    def test_what_others_cancel_comes_again_wherever_it_runs(self, queue, command):
        handle = globals()[command](0)
        with serving(threads=2, coroutines=50) as consumer:
            eventually(lambda: seen)
            misbehave("cancel_the_futures_of_others")
            eventually(lambda: len(seen) == 2)
            release.set()
            assert handle.get(timeout=30) in (0, "waited")
            assert consumer.end() == 0
        assert queue.stats().failed == 0

    def test_a_client_that_messages_share_may_cancel_the_tasks_that_another_message_started(self, queue):
        first = open_a_client()
        with serving(threads=1, coroutines=50) as consumer:
            eventually(lambda: "open" in seen)
            assert close_the_client().get(timeout=30) == "closed"
            release.set()
            assert first.get(timeout=30) == "ended"
            assert consumer.end() == 0
        assert queue.stats().failed == 0

    @pytest.mark.parametrize("command", ["stop the loop", "cancel all other tasks", "exit in a stray task"])
    def test_what_runs_as_a_batch_is_safe_too(self, queue, command):
        batch = [wait_in_a_batch(number) for number in range(3)]
        with serving(threads=2, coroutines=50) as consumer:
            eventually(lambda: "batch" in seen)
            guilty = misbehave(command)
            eventually(lambda: queue.failed.find(guilty.id))
            release.set()
            assert [handle.get(timeout=30) for handle in batch] == [0, 1, 2]
            assert consumer.end() == 0
        assert (queue.stats().failed, queue.stats().done) == (1, 3)

    def test_a_batch_that_harms_the_loop_fails(self, queue):
        innocents = wait_as_an_innocent.enqueue_many([()] * 5)
        guilty = [stop_in_a_batch(number) for number in range(3)]
        with serving(threads=2, coroutines=50) as consumer:
            assert [handle.get(timeout=30) for handle in innocents] == [2] * 5
            eventually(lambda: queue.stats().failed == 3)
            assert consumer.end() == 0
        assert all("stopped the event loop" in queue.failed.find(one.id).entry.errors for one in guilty)

    @pytest.mark.parametrize("seconds", [2.0, 0.4])
    def test_time_in_which_another_blocks_the_loop_does_not_count_against_a_limit(self, queue, seconds):
        limited = [wait_as_an_innocent.using(time_limit=1.5).enqueue() for _ in range(5)]
        with serving(threads=1, coroutines=50) as consumer:
            block_for_a_while(seconds)
            assert [handle.get(timeout=30) for handle in limited] == [2] * 5
            assert consumer.end() == 0
        assert queue.stats().failed == 0
