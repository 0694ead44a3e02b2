"""A thread of the consumer that dies, or finds no memory, descriptors or threads, is noticed; nothing stays held."""

import errno
import gc
import io
import logging
import sys
import threading
import time
import weakref

import pytest

from djqueue.consumer import STUCK, Consumer, loop
from djqueue.consumer.announcer import Announcer
from djqueue.consumer.housekeeper import Housekeeper
from djqueue.consumer.loop import Loop, Starvation, is_for_want
from djqueue.consumer.maintenance import Reaper, TimeLimits
from djqueue.consumer.pool import Worker
from djqueue.consumer.pump import Pump
from djqueue.consumer.scheduler import Scheduler
from djqueue.decorators import queue_command
from djqueue.testing import eventually
from djqueue.utils import log_safely
from tests.support.backends import ACROSS
from tests.support.consumer import Release, exit_code, serving
from tests.support.notes import cleared_per_test

MEMORY = pytest.mark.backends("memory")
EVERY = pytest.mark.backends(*ACROSS)
dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
ran, actions = cleared_per_test([]), []
release, seen = cleared_per_test(Release()), threading.Event()


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def take_all(number):
    ran.append(number)
    actions[-1]()
    raise MemoryError


@queue_command(shard=1)
def take_all_in_order(number):
    ran.append(number)
    actions[-1]()
    raise MemoryError


@queue_command
def wait_for_release():
    release.wait()


@queue_command
def see_threads():
    ran.append({thread.name.removesuffix("-default") for thread in threading.enumerate()})
    seen.set()


def die(*args):
    raise SystemExit("the thread is to end")


def critical_lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


@MEMORY
@dies
class TestDeaths:
    @EVERY
    def test_what_a_worker_died_with_goes_back_at_once_and_counts_as_lost(self, queue, monkeypatch, caplog):
        """It may have been the reason; whoever is poison is put aside after as many starts as any other."""
        monkeypatch.setattr(Worker, "_execute", die)
        handle = work(1)
        began = time.monotonic()
        assert exit_code(threads=2, lease=60.0) == STUCK == 70
        assert time.monotonic() - began < 10
        entry = queue.find(handle.id).entry
        assert (entry.attempts, entry.lost) == (1, 1)
        assert (queue.stats().leased, queue.stats().ready) == (0, 1)
        [text] = critical_lines(caplog)
        assert "djqueue-worker-" in text
        assert "SystemExit: the thread is to end" in text

    def test_what_runs_beside_a_dead_worker_may_end(self, queue, monkeypatch):
        execute = Worker._execute
        monkeypatch.setattr(Worker, "_execute", lambda *args: execute(*args) if not release.waiting else die())
        wait_for_release()
        with serving(threads=2) as consumer:
            release.await_waiting(1)
            handle = work(1)
            eventually(lambda: queue.find(handle.id).entry.lost)
            release.set()
            assert consumer.code() == STUCK
        assert (queue.stats().done, queue.find(handle.id).entry.lost) == (1, 1)

    def test_what_was_on_its_way_to_a_worker_that_died_goes_back_as_if_nothing_had_happened(self, queue, monkeypatch):
        monkeypatch.setattr(Worker, "_serve", die)
        handle = work(1)
        assert exit_code(threads=2) == STUCK
        entry = queue.find(handle.id).entry
        assert (queue.stats().ready, entry.attempts, entry.lost) == (1, 0, 0)

    def test_all_threads_live_before_a_message_is_claimed(self, queue, monkeypatch):
        """What a command takes of memory or descriptors cannot keep them from starting."""
        start = Scheduler.start
        monkeypatch.setattr(Scheduler, "start", lambda self: (seen.wait(0.1), start(self)))
        seen.clear()
        see_threads()
        assert exit_code(threads=2, periodic=True, drain=True) == 0
        kinds = "pump", "housekeeper", "announcer", "reaper", "timelimits", "scheduler", "worker-2"
        assert {f"djqueue-{kind}" for kind in kinds} <= ran[-1]

    @pytest.mark.parametrize("kind", [Pump, Housekeeper, Announcer, Reaper, TimeLimits, Scheduler])
    def test_any_thread_that_ends_is_noticed(self, queue, monkeypatch, caplog, kind):
        monkeypatch.setattr(kind, "duty", die, raising=False)
        assert exit_code(threads=2, periodic=True) == STUCK
        [text] = critical_lines(caplog)
        assert f"djqueue-{kind.__name__.lower()}" in text

    @EVERY
    def test_the_main_thread_settles_for_a_pump_that_died(self, queue, monkeypatch, caplog):
        monkeypatch.setattr(Pump, "_wait", lambda pump, pause: die() if pump.mail.asked_at else time.sleep(0.001))
        work(1)
        assert exit_code(threads=2) == STUCK
        stats = queue.stats()
        assert stats.leased == 0
        assert stats.done == len(ran) == 1
        assert "djqueue-pump-default has died of SystemExit" in critical_lines(caplog)[0]

    def test_and_extends_what_still_runs(self, queue, monkeypatch):
        wait_for_release()
        monkeypatch.setattr(Pump, "_wait", lambda pump, pause: die() if release.waiting else time.sleep(0.01))
        with serving(threads=1, lease=1.0) as consumer:
            release.await_waiting(1)
            [pump] = consumer.consumer._supervisor.pumps
            eventually(lambda: pump.is_dead)
            until = queue.peek("leased")[0].at
            eventually(lambda: queue.peek("leased")[0].at > until + 1)
            release.set()
            assert consumer.code() == STUCK
        assert queue.stats().done == 1

    def test_a_thread_that_cannot_be_begun_ends_the_consumer_in_order(self, queue, monkeypatch, caplog):
        def none_left(self):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(Scheduler, "start", none_left)
        before = set(threading.enumerate())
        assert exit_code(periodic=True) == STUCK
        assert any("cannot go on" in text for text in critical_lines(caplog))
        eventually(lambda: not [one for one in {*threading.enumerate()} - before if one.name.startswith("djqueue-")])

    @pytest.mark.parametrize("step", ["_watch", "_shut_down"])
    def test_the_thread_that_watches_may_be_short_of_memory_itself(self, queue, monkeypatch, step):
        monkeypatch.setattr(Consumer, step, no_memory)
        before = set(threading.enumerate())
        assert exit_code(drain=True) == STUCK
        eventually(lambda: not [one for one in {*threading.enumerate()} - before if one.name.startswith("djqueue-")])


def no_memory(*args, **kwargs):
    raise MemoryError


def no_descriptor(*args, **kwargs):
    try:
        raise OSError(errno.EMFILE, "Too many open files")
    except OSError:
        raise ConnectionError("cannot connect")  # noqa: B904


def no_lock(*args, **kwargs):
    raise RuntimeError("can't allocate lock")


@MEMORY
@pytest.mark.slow
class TestStarvation:
    @pytest.mark.parametrize(
        ("verb", "starve"),
        [
            ("claim", no_memory),
            ("claim", no_descriptor),
            ("claim", no_lock),
            ("complete", no_memory),
        ],
    )
    def test_a_pump_that_starves_for_a_second_ends_the_consumer(self, queue, monkeypatch, caplog, verb, starve):
        monkeypatch.setattr(queue, verb, starve)
        work(1)
        assert exit_code() == STUCK
        [text] = critical_lines(caplog)
        assert "djqueue-pump-default starves" in text

    def test_what_passes_within_the_second_is_ridden_out(self, queue, monkeypatch):
        monkeypatch.setattr(loop, "PATIENCE", 30.0)  # a second of a calm machine
        claim, left = queue.claim, iter(range(3))

        def now_and_then(*args, **how):
            return claim(*args, **how) if next(left, None) is None else no_memory()

        monkeypatch.setattr(queue, "claim", now_and_then)
        work(1)
        with serving() as consumer:
            eventually(lambda: ran)
            assert consumer.end() == 0

    def test_a_store_that_is_away_is_no_want_of_ours(self, queue, monkeypatch):
        away = threading.Event()
        claim, asked = queue.claim, []

        def ask(*args, **how):
            asked.append(time.monotonic())
            if not away.is_set():
                raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
            return claim(*args, **how)

        monkeypatch.setattr(queue, "claim", ask)
        work(1)
        with serving() as consumer:
            eventually(lambda: len(asked) > 1 and asked[-1] - asked[0] > 1.2)
            away.set()
            eventually(lambda: ran)
            assert consumer.end() == 0

    def test_waiting_that_fails_ends_no_loop(self, monkeypatch):
        ticks = []

        class Restless(Loop):
            def tick(self):
                ticks.append(time.monotonic())
                return 60.0

        loop = Restless("restless")
        monkeypatch.setattr(loop._wake, "wait", no_lock)
        loop.start()
        eventually(lambda: len(ticks) > 3)
        assert not loop.trouble
        loop.stop()
        loop.join(10)

    @pytest.mark.parametrize("fail", [no_memory, no_descriptor, no_lock])
    def test_it_is_seen_wherever_in_the_chain_it_stands(self, fail):
        try:
            try:
                fail()
            except Exception as error:
                raise ExceptionGroup("several", [ValueError("other"), error]) from ValueError("cause")
        except ExceptionGroup as group:
            assert is_for_want(group)

    def test_a_driver_may_say_it_in_words_of_its_own(self, monkeypatch):
        starvation = Starvation()
        assert not starvation.add(ConnectionError("cannot create a socket"))
        monkeypatch.setattr("os.open", no_descriptor)
        assert starvation.add(ConnectionError("cannot create a socket"))

    @pytest.mark.backends()
    @pytest.mark.parametrize("command", [take_all, take_all_in_order], ids=["apart", "in a run"])
    def test_a_worker_begins_nothing_while_the_process_is_at_its_limits(self, queue, monkeypatch, command):
        """What it began would fail for no fault of its own; what is behind a failure in its run would, too."""
        short = threading.Event()
        monkeypatch.setattr("djqueue.consumer.loop.at_limits", short.is_set)
        monkeypatch.setattr("djqueue.consumer.loop.gc.collect", int)  # there is much, after many tests
        command.enqueue_many([(number,) for number in range(20)])
        actions.append(short.set)
        assert exit_code(threads=2) == STUCK
        assert 1 <= len(ran) <= 2  # one of each thread
        assert (queue.stats().leased, queue.stats().ready) == (0, 20 - len(ran))


class Big:
    """Something that is seen to go."""


held = []
modes = {}


def big():
    one = Big()
    held.append(weakref.ref(one))
    return one


@queue_command
def fail_holding(how):
    one = big()
    modes[how](one)


@queue_command
async def fail_async_holding(how):
    one = big()
    modes[how](one)


@queue_command(batch=3)
def fail_batch_holding(hows):
    one = big()
    modes[hows[0]](one)


class Attributed(Exception):
    def __init__(self, one):
        super().__init__("with an attribute")
        self.one = one


def plainly(one):
    raise ValueError("boom")


def from_another(one):
    try:
        plainly(big())
    except ValueError as error:
        raise RuntimeError("because of it") from error


def in_a_group(one):
    errors = []
    for _ in range(2):
        try:
            from_another(big())
        except RuntimeError as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)


def with_an_attribute(one):
    raise Attributed(one)


modes |= {one.__name__: one for one in (plainly, from_another, in_a_group, with_an_attribute)}


@pytest.fixture
def no_garbage_collection():
    """So that only counting references frees anything."""
    gc.collect()
    gc.disable()
    held.clear()
    yield
    gc.enable()


@EVERY
@pytest.mark.parametrize(
    "command", [fail_holding, fail_async_holding, fail_batch_holding], ids=lambda one: one.name.rpartition(".")[2]
)
@pytest.mark.parametrize("how", sorted(modes))
def test_what_a_failed_command_held_goes_with_it(queue, no_garbage_collection, command, how):
    if command is fail_batch_holding and "lanes" not in queue.features:
        pytest.skip("no lanes")
    logging.disable(logging.CRITICAL)  # else pytest keeps what was logged
    try:
        command(how)
        with serving(threads=1) as consumer:
            eventually(lambda: len(queue.failed) == 1)
            eventually(lambda: held and not [one for one in held if one() is not None], 5)
            assert consumer.end() == 0
    finally:
        logging.disable(logging.NOTSET)


@MEMORY
def test_the_lines_of_a_traceback_stay(queue):
    fail_holding("from_another")
    with serving(threads=1) as consumer:
        record = eventually(lambda: queue.failed.peek("ready"))[0]
        consumer.end()
    for words in ("in plainly", "in from_another", "in fail_holding", "because of it", "boom"):
        assert words in record.entry.errors


class Raising(logging.Handler):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("closed"), MemoryError(), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("stream", ["open", "closed", "none"])
def test_to_tell_something_never_raises(monkeypatch, error, stream):
    stderr = None if stream == "none" else io.StringIO()
    if stream == "closed":
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    logger, handler = logging.getLogger("tests.telling"), Raising(error)
    logger.addHandler(handler)
    try:
        log_safely(logger, logging.ERROR, "%s", "words", exc_info=True)
    finally:
        logger.removeHandler(handler)
