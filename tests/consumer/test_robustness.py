"""What goes wrong next to the work - in handlers, receivers, one store of several - costs no thread and no message."""

import asyncio
import errno
import logging
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from math import inf

import pytest
from django.db import transaction

from djqueue import Consumer, current_message, queues, schedules, signals
from djqueue.backends.base import Lease, OnceGuard, Reaped
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import Loop, run_all
from djqueue.consumer.maintenance import Reaper
from djqueue.consumer.suspects import Suspects
from djqueue.decorators import queue_command
from djqueue.messages.failures import errors_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.results import Progress
from djqueue.running.settle import settle
from djqueue.testing import eventually
from tests.support.consumer import Release, claim_one, exit_code, message_for, only, run_one, serving, unreachable
from tests.support.notes import cleared_per_test
from tests.support.pump import PumpHarness

ran = cleared_per_test([])
releases = {}


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def append(path, number):
    """Seen by other processes, too."""
    with open(path, "a") as file:
        file.write(f"{number}\n")


@queue_command
def wait_for_release():
    releases[0].wait()


@queue_command(result_ttl=60)
def half_done():
    current_message().progress(1, 2)
    releases[0].wait()


@queue_command
async def aexplode():
    ran.append("aexplode")
    raise RuntimeError("boom")


@queue_command
def explode(number=0):
    ran.append(number)
    raise RuntimeError("boom")


@queue_command
def explode_unspeakably():
    raise SyntaxError("bad", ("f", 1, "x", "y"))  # whose traceback cannot be formatted


class Raising(logging.Handler):
    def emit(self, record):
        raise OSError("the mail server is away")


@pytest.mark.backends("memory", "redis")
def test_an_async_command_waits_until_an_event_loop_can_be_made(queue, monkeypatch, recwarn):
    """Others may hold all descriptors when a thread meets its first async command, which has not begun then."""
    make, failures = asyncio.Runner.get_loop, [OSError(errno.EMFILE, "Too many open files")] * 2

    def get_loop(runner):
        if failures:
            raise failures.pop()
        return make(runner)

    monkeypatch.setattr(asyncio.Runner, "get_loop", get_loop)
    result = aexplode()
    assert Consumer(threads=1, periodic=False, drain=True).run() == 0
    entry = queue.failed.find(result.id).entry
    assert (ran, failures, entry.failures, entry.lost) == (["aexplode"], [], 1, 0)
    assert errors_of(entry.errors)[-1]["reason"] == "RuntimeError: boom"
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


@contextmanager
def a_handler_that_raises(name):
    handler, logger = Raising(), logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.DEBUG)  # at every record that there is
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.backends("memory", "sqlite", "redis")
class TestHandlersAndReceivers:
    @pytest.mark.parametrize("name", ["djqueue", "djqueue.running.reporting", "djqueue.consumer"])
    def test_a_log_handler_that_raises_costs_no_worker_and_no_verdict(self, queue, name):
        explode.enqueue_many([(number,) for number in range(6)])
        work.enqueue_many([(number,) for number in range(10, 14)])
        with a_handler_that_raises(name), serving(threads=2) as consumer:
            eventually(lambda: len(queue.failed) == 6 and queue.stats().done == 4)
            assert consumer.end() == 0
        assert sorted(ran) == [*range(6), *range(10, 14)]

    def test_a_receiver_that_calls_exit_changes_nothing(self, queue):
        def leave(**kwargs):
            raise SystemExit

        signals.completed.connect(leave)
        try:
            work.enqueue_many([(number,) for number in range(5)])
            assert exit_code(drain=True) == 0
        finally:
            signals.completed.disconnect(leave)
        assert queue.stats().done == 5

    @pytest.mark.backends("memory")
    @pytest.mark.backends("memory")
    def test_a_child_that_a_handler_of_the_log_forks_ends_and_runs_nothing(self, queue, tmp_path, caplog):
        caplog.set_level(logging.INFO, "djqueue")
        path, children = tmp_path / "ran", []

        class Forking(logging.Handler):
            def emit(self, record):
                if " done" in record.getMessage() and (child := os.fork()):
                    children.append(child)

        append.enqueue_many([(str(path), number) for number in range(3)])
        handler, log = Forking(), logging.getLogger("djqueue")
        log.addHandler(handler)
        try:
            assert exit_code(threads=1, drain=True) == 0
        finally:
            log.removeHandler(handler)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 3
        assert path.read_text().split() == ["0", "1", "2"]

    def test_a_child_that_a_receiver_forks_ends_there(self, queue):
        parent, children = os.getpid(), []

        def fork(**kwargs):
            if child := os.fork():
                children.append(child)

        signals.completed.connect(fork)
        try:
            signals.emit(signals.completed, "command", id="id", queue_name="default")
        finally:
            if os.getpid() != parent:
                os._exit(9)
            signals.completed.disconnect(fork)
        assert [os.waitpid(child, 0)[1] for child in children] == [0]


@pytest.mark.backends("memory", "sqlite", "redis")
class TestNotes:
    @pytest.mark.parametrize("note", ["5", "{}", "null", "[" * 5000, '[1, "two"]', '"text"', "not json"])
    def test_whatever_stands_in_a_note_a_message_can_fail(self, queue, note):
        claimed = _with_note(queue, message_for(queue, explode.name), note)
        settle(queue, [(claimed, Verdict(Outcome.FAILED, "boom"))])
        [record] = queue.failed.peek("ready")
        assert errors_of(record.entry.errors)[-1]["reason"] == "boom"
        assert all(isinstance(one, dict) for one in errors_of(record.entry.errors))

    def test_an_exception_whose_traceback_cannot_be_shown(self, queue):
        explode_unspeakably()
        assert run_one(queue).outcome is Outcome.FAILED
        [record] = queue.failed.peek("ready")
        assert "SyntaxError" in errors_of(record.entry.errors)[0]["traceback"]


def _with_note(queue, entry, note) -> Lease:
    """A claimed entry in whose envelope somebody has written."""
    queue.put([entry])
    lease = claim_one(queue)
    queue.release([Lease(replace(lease.entry, attempts=0, errors=note), lease.token)])
    return claim_one(queue)


class Unreachable:
    """A queue out of reach, as far as the loops ask it."""

    alias = "away"
    lease = 60.0

    def reap(self, limit, by):
        raise ConnectionError("away")

    touch = reap


@pytest.mark.backends("memory")
class TestOneStoreOfSeveral:
    def test_each_goes_on_after_an_error_and_tells_it(self):
        done = []

        def do(number):
            done.append(number)
            if number == 1:
                raise ValueError("one")
            return number

        with pytest.raises(ValueError, match="one"):
            run_all([1, 2, 3], do)
        assert done == [1, 2, 3]
        assert run_all([3, 2], do) == 2
        assert run_all([], do) == inf

    def test_one_that_does_not_answer_holds_up_no_other(self, settings, monkeypatch):
        """What runs of the others is extended, what ends of them is told, their dead are found, and they have ticks."""
        path = "djqueue.backends.memory.MemoryQueue"
        settings.QUEUES = {alias: {"CLASS": path, "CONNECTION": alias} for alias in ("default", "other")}
        hung, well, store = queues["default"], queues["other"], Release()
        there = work.using(queue_name="other")
        there.enqueue("of the dead")
        well.claim(1, 0.01)
        schedules.add("often", there, ("tick",), every=1)
        for owner, verb in ((hung, "complete"), (hung, "touch"), (hung, "reap"), (hung.store, "get")):
            do = getattr(owner, verb)
            monkeypatch.setattr(owner, verb, lambda *args, do=do, **named: store.wait() or do(*args, **named))
        monkeypatch.setattr("djqueue.consumer.suspects.PATIENCE", 1.0)  # else what was lost waits longer for the store
        release = releases[0] = Release()
        work("ends")
        wait_for_release.using(queue_name="other").enqueue()
        with only(work, wait_for_release), serving("default", "other", threads=3, lease=2.0, periodic=True):
            store.await_waiting(3)
            release.await_waiting(1)
            until = max(record.at for record in well.peek("leased"))
            done = well.stats().done
            there.enqueue_many([(number,) for number in range(10)])
            eventually(lambda: well.stats().done >= done + 10 and {"of the dead", "tick"} <= set(ran))
            eventually(lambda: max(record.at for record in well.peek("leased")) > until)
            release.set()
            store.set()
            eventually(lambda: hung.stats().done == 1)

    def test_nor_does_it_hold_up_what_begins_and_what_is_reported_of_the_others(self, settings, monkeypatch):
        path = "djqueue.backends.memory.MemoryQueue"
        settings.QUEUES = {alias: {"CLASS": path, "CONNECTION": alias} for alias in ("default", "other")}
        hung, store, begin = queues["default"], Release(), queues["default"].begin
        monkeypatch.setattr(hung, "begin", lambda leases: store.wait() or begin(leases))
        release = releases[0] = Release()
        work("begins")
        with serving("default", "other", threads=2):
            store.await_waiting(1)
            handle = half_done.using(queue_name="other").enqueue()
            eventually(lambda: handle.progress == Progress(1, 2))
            release.set()
            store.set()
            eventually(lambda: hung.stats().done == 1)

    def test_the_reaper_reaps_the_others(self, queue, monkeypatch):
        reaped = []
        monkeypatch.setattr(queue, "reap", lambda limit, by: reaped.append(limit) or Reaped())
        with pytest.raises(ConnectionError):
            Reaper([Unreachable(), queue], lambda queue: 60.0).tick()
        assert len(reaped) == 1

    def test_a_stop_says_what_the_store_was_not_told(self, queue, monkeypatch, caplog):
        monkeypatch.setattr(queue, "complete", unreachable)
        work()
        with serving(grace=1.0) as consumer:  # all of which it tries
            eventually(lambda: ran)
            assert consumer.end() == 1
        assert "the store does not know" in caplog.text


def test_nothing_ends_a_loop():
    class Exiting(Loop):
        def tick(self):
            raise SystemExit

    loop = Exiting("exiting")
    assert loop.guarded_tick() > 0
    with a_handler_that_raises("djqueue"):
        assert loop.guarded_tick() > 0


def enter(pump, queue, lease):
    """A message that a pump holds."""
    message = pump.mail.table[id(queue), lease.entry.id] = Message(pump.mail, queue, lease, 0.0)
    return message


@pytest.mark.backends("memory")
def test_one_suspect_runs_at_a_time_whoever_claimed_it(queue):
    pump, leases = PumpHarness(queue).pump, [Lease(message_for(queue, work.name), number) for number in (1, 2, 3)]
    first, second = (enter(pump, queue, lease) for lease in leases[:2])
    suspects = Suspects([queue], pump.mail.table.values)
    assert not (suspects.admit(first) or suspects.admit(second))
    del pump.mail.table[id(queue), first.lease.entry.id]
    assert suspects.admit(second)
    third = enter(pump, queue, leases[2])
    assert suspects.shuts_out(third) and not suspects.admit(third)
    del pump.mail.table[id(queue), second.lease.entry.id]
    assert suspects.admit(third)


@pytest.mark.backends("memory")
@pytest.mark.parametrize("runs", ["of the same queue", "of another"])
def test_a_suspect_begins_once_the_others_are_settled_and_they_once_it_is(settings, runs):
    path = "djqueue.backends.memory.MemoryQueue"
    settings.QUEUES = {alias: {"CLASS": path, "CONNECTION": alias} for alias in ("default", "other")}
    release = releases[0] = Release()
    before = wait_for_release.using(queue_name="default" if runs == "of the same queue" else "other")
    before.enqueue()
    with serving("default", "other", threads=3) as consumer:
        release.await_waiting(1)
        entry = message_for(queues["default"], work.name, 1)
        queues["default"].put([replace(entry, attempts=1, lost=1)])
        eventually(lambda: consumer.consumer._supervisor.crew.suspects.awaited)
        before.enqueue()
        began = time.monotonic()
        release.clear()
        eventually(lambda: ran)
        release.await_waiting(1)
        assert time.monotonic() - began < 5
        release.set()
        assert consumer.end() == 0


@pytest.mark.backends("sqlite", "postgres")
def test_a_consumer_within_a_transaction_is_refused(queue):
    """Its threads would wait for that transaction for ever."""
    with transaction.atomic(using=queue.database), pytest.raises(RuntimeError, match="TransactionTestCase"):
        Consumer(drain=True).run()


@pytest.mark.backends("memory")
def test_a_stop_of_an_earlier_run_does_not_end_the_next(queue):
    consumer = Consumer(drain=True, periodic=False)
    consumer.stop()
    consumer.stop()
    consumer.run()
    work(7)
    assert consumer.run() == 0
    assert ran == [7]


@pytest.mark.backends("memory", "sqlite", "redis")
def test_a_guard_and_its_mark(queue):
    """A tick's mark is seen by the queue's own store."""
    assert queue.put([message_for(queue, work.name)], [OnceGuard("tick:x", 60)]) == [True]
    assert queue.store.get("tick:x") is not None
