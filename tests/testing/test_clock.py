"""A test moves the time of its queues."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import transaction
from django.test import SimpleTestCase, TestCase, override_settings
from django.utils import timezone

from djqueue import crontab, periodic_command, queue_command, queues
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.exceptions import NotSupported
from djqueue.testing import assert_enqueued, assert_not_enqueued, capture_enqueued, memory_queues, run_due, virtual_time
from tests.support.consumer import only
from tests.support.notes import cleared_per_test

MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}
START = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
seen: list = cleared_per_test([])


@queue_command
def look(what="once"):
    seen.append((what, timezone.now()))
    return what


@queue_command(ttl=60)
def hurry():
    """Nothing."""


@queue_command(retry_on=[ConnectionError], retries=2, backoff=30)
def call():
    raise ConnectionError("no answer")


@queue_command(debounce=60)
def tidy():
    """Nothing."""


@queue_command(unique=60)
def greet():
    """Nothing."""


@queue_command(result_ttl=60)
def answer():
    return 42


@periodic_command(crontab(minute="*/15"))
def sweep():
    """Nothing."""


class InTime:
    """Where calls are sent at once, and where they wait for a commit that never comes."""

    def setUp(self):
        self.enterContext(memory_queues())

    def test_what_is_delayed_is_run_when_it_is_due(self):
        with virtual_time(START) as clock:
            look.using(delay=30).enqueue("later")
            assert run_due() == []
            clock.move(29)
            assert run_due() == []
            clock.move(1)
            assert [run.value for run in run_due()] == ["later"]

    def test_a_time_to_live_begins_at_the_call_and_is_over(self):
        with virtual_time() as clock:
            hurry()
            clock.move(61)
            assert [run.outcome for run in run_due()] == ["expired"]


class Timed(InTime, SimpleTestCase):
    def test_time_stands_still_until_it_is_moved(self):
        queue = queues["default"]
        with virtual_time(START) as clock:
            assert (clock.now, queue.now(), queue.store.now()) == (START, START.timestamp(), START.timestamp())
            clock.move(30)
            clock.move(timedelta(minutes=1))
            assert clock.now == START + timedelta(seconds=90)
            clock.move_to(START + timedelta(days=1))
            assert queue.failed.now() == queue.failed.store.now() == START.timestamp() + 86400

    def test_time_does_not_go_back(self):
        with virtual_time(START) as clock:
            with self.assertRaisesRegex(ValueError, "It is 2030-01-01 12:00:00 UTC already"):
                clock.move_to(START - timedelta(seconds=1))
            with self.assertRaises(ValueError):
                clock.move(-1)
            with self.assertRaises(ValueError):
                run_due(until=START - timedelta(seconds=1))

    def test_until_goes_from_one_due_moment_to_the_next(self):
        with virtual_time(START) as clock:
            look.using(delay=3600).enqueue("an hour")
            look.using(run_after=START + timedelta(minutes=1)).enqueue("a minute")
            look.using(delay=86401).enqueue("too late")
            assert [run.value for run in run_due(until=timedelta(days=1))] == ["a minute", "an hour"]
            assert clock.now == START + timedelta(days=1)
            assert [run.value for run in run_due(until=START + timedelta(days=2))] == ["too late"]

    def test_until_needs_no_block(self):
        before = queues["default"].now()
        look.using(delay=3600).enqueue("later")
        assert [run.value for run in run_due(until=3600)] == ["later"]
        assert queues["default"].now() < before + 60

    def test_without_a_block_each_begins_at_the_present(self):
        look.using(delay=100).enqueue("later")
        assert run_due(until=60) == run_due(until=60) == []
        with virtual_time():
            assert run_due(until=60) == []
            assert [run.value for run in run_due(until=60)] == ["later"]

    def test_backoffs_pass(self):
        with virtual_time(START):
            call()
            runs = run_due(until=60)
            assert [(run.attempt, run.outcome) for run in runs] == [(1, "retried"), (2, "retried"), (3, "failed")]

    def test_debounce_windows_end(self):
        with virtual_time() as clock:
            for _ in range(3):
                tidy()
            assert len(run_due()) == 1
            assert_enqueued(tidy, delay=60, count=1)
            assert len(run_due(until=60)) == 1
            clock.move(60)
            tidy()
            assert len(run_due()) == 1

    def test_results_are_forgotten(self):
        with virtual_time() as clock:
            result = answer()
            run_due()
            assert (result.get(timeout=0), result.status) == (42, "done")
            clock.move(60)
            assert (queues["default"].store.get(f"result:{result.id}"), result.status) == (None, "done")

    def test_schedules_come_due_if_that_is_wanted(self):
        with only(sweep), virtual_time(START):
            assert [run.command for run in run_due(until=3600, periodic=True)].count(sweep.name) == 4
            assert run_due(until=3600) == []
            runs = run_due(until=900, periodic=True)
            assert [run.command for run in runs] == [sweep.name] * 2  # one was missed, one came

    def test_what_follows_is_told(self):
        with time_machine.travel(START, tick=False) as world, virtual_time(START, follow=world.move_to):
            look.using(delay=3600).enqueue()
            run_due(until=7200)
            assert seen == [("once", START + timedelta(hours=1))]
            assert timezone.now() == START + timedelta(hours=2)

    def test_without_that_the_time_of_your_own_code_is_its_own(self):
        with virtual_time(START):
            look()
            run_due()
        assert seen[0][1] < START

    def test_queues_that_are_made_within_and_a_store_of_its_own_follow_too(self):
        with virtual_time(START), override_settings(QUEUES={"default": MEMORY}):
            assert queues["default"].now() == START.timestamp()
        apart = MEMORY | {"STORE": "djqueue.backends.memory.MemoryStore"}
        with override_settings(QUEUES={"default": apart}), virtual_time(START):
            assert queues["default"].store.now() == START.timestamp()

    def test_blocks_within_blocks(self):
        with virtual_time(START) as outer:
            outer.move(10)
            with virtual_time() as inner:
                assert inner.now == outer.now
                inner.move(10)
                look.using(delay=5).enqueue()
                assert len(run_due(until=5)) == 1
            assert outer.now == START + timedelta(seconds=10)
            assert queues["default"].now() == START.timestamp() + 10

    def test_the_clocks_are_restored_after_an_exception_too(self):
        before = vars(MemoryQueue)["clock"], vars(MemoryStore)["clock"]
        with self.assertRaises(ZeroDivisionError), virtual_time(START) as clock:
            clock.move(1 / 0)
        look.using(delay=1).enqueue()
        with self.assertRaises(RuntimeError):
            run_due(until=1, limit=1)
        assert (vars(MemoryQueue)["clock"], vars(MemoryStore)["clock"]) == before

    def test_what_was_captured_knows_its_moment(self):
        with virtual_time(START), capture_enqueued() as calls:
            look.using(delay=30).enqueue()
        assert calls[0].run_at == START + timedelta(seconds=30)


class TimedInATransaction(InTime, TestCase):
    """What waits for a commit that never comes was called all the same."""

    def test_a_debounce_window_and_a_time_of_uniqueness_begin_at_the_call(self):
        for command in (tidy, greet):
            with virtual_time() as clock:
                command()
                clock.move_to(clock.now + timedelta(seconds=60))
                command()
                assert len(run_due()) == 2
                assert_not_enqueued()

    def test_a_call_before_the_block_has_the_time_before_it(self):
        hurry()
        with virtual_time(datetime.now(UTC) + timedelta(days=1)):
            assert [run.outcome for run in run_due()] == ["expired"]

    def test_a_call_within_it_has_its_time(self):
        with virtual_time(START):
            look.using(delay=60).enqueue()
        [waits] = assert_enqueued(look, delay=60)
        assert waits.run_at == START + timedelta(seconds=60)

    def test_what_was_rolled_back_is_not_sent(self):
        with virtual_time() as clock:
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                look(1 / 0 if look("lost") else None)
            clock.move(1)
            assert_not_enqueued()

    def test_what_may_still_be_rolled_back_is_sent_when_its_block_ends(self):
        with virtual_time() as clock:
            with transaction.atomic():
                hurry()
                clock.move(61)
                assert len(queues["default"]) == 0
            assert [run.outcome for run in run_due()] == ["done"]

    def test_callbacks_of_your_own_wait_for_run_due_and_keep_their_order(self):
        with virtual_time() as clock:
            transaction.on_commit(lambda: look("mine"))
            clock.move(1)
            assert_not_enqueued()
            assert [run.value for run in run_due()] == ["mine"]
        transaction.on_commit(lambda: look("first"))
        look("second")
        assert [run.value for run in run_due(until=1)] == ["first", "second"]

    def test_a_time_that_is_refused_sends_nothing(self):
        with virtual_time() as clock:
            look()
            with self.assertRaises(ValueError):
                clock.move(-1)
            assert len(queues["default"]) == 0


class NotTimed(SimpleTestCase):
    @override_settings(QUEUES={"default": MEMORY, "mail": DATABASE})
    def test_the_clock_of_a_server_cannot_be_moved_and_the_error_says_what_to_do(self):
        fix = r"QUEUES\['mail'\] is a DatabaseQueue.*memory_queues\(\)"
        with self.assertRaisesRegex(NotSupported, fix), virtual_time():
            """Never here."""
        with self.assertRaisesRegex(NotSupported, fix):
            run_due(until=1)
        with virtual_time(queues=["default"]), self.assertRaisesRegex(NotSupported, fix):
            run_due(until=1)
        assert run_due(until=1, queues=["default"]) == []

    @override_settings(QUEUES={"default": MEMORY | {"STORE": "djqueue.backends.database.DatabaseStore"}})
    def test_nor_that_of_another_store(self):
        with self.assertRaisesRegex(NotSupported, r"\['STORE'\] is a DatabaseStore"), virtual_time():
            """Never here."""


@memory_queues()
def test_memory_queues_are_empty_each_time_and_keep_their_options():
    look()
    with override_settings(
        QUEUES={"default": DATABASE | {"NAME": "own", "OPTIONS": {"LEASE": 7}}, "mail": DATABASE | {"STORE": False}},
        QUEUE_ALWAYS_EAGER=True,
    ):
        with memory_queues() as own:
            assert {alias: type(own[alias]) for alias in own} == {"default": MemoryQueue, "mail": MemoryQueue}
            default = own["default"]
            assert (default.name, default.lease, "facts" not in own["mail"].features) == ("own", 7.0, True)
            assert_not_enqueued()
            look()
            assert_enqueued(look, count=1)
        with pytest.raises(RuntimeError):
            assert_not_enqueued()
