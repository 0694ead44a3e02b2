"""A test has its worker die at a point, and sees what comes of that."""

import pytest
from django.test import SimpleTestCase, TestCase, override_settings

from djqueue import BatchCommand, current_message, queues
from djqueue.decorators import queue_command
from djqueue.testing import assert_enqueued, crash_at, memory_queues, run_due, virtual_time
from tests.support.consumer import recorded_signals
from tests.support.notes import cleared_per_test

MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}
ran: list = cleared_per_test([])


@queue_command(result_ttl=60)
def work(name="work"):
    ran.append((name, current_message().attempt))
    return name


@queue_command
def other():
    """Nothing."""


class Together(BatchCommand):
    def perform(self, *requests):
        """Nothing."""


class Crashes:
    """What holds on every backend."""

    def test_before_it_began(self):
        work()
        with crash_at("claimed"):
            [run] = run_due()
        assert (run.outcome, run.attempt, run.done, ran) == ("lost", 1, False, [])
        [again] = run_due()
        assert (again.outcome, ran) == ("done", [("work", 2)])

    def test_before_the_queue_knew(self):
        result = work()
        with crash_at("ran"), recorded_signals("completed") as told:
            [run] = run_due()
            assert (run.outcome, run.value, result.status) == ("lost", "work", "running")
        assert told == []
        assert [run.outcome for run in run_due()] == ["done"]
        assert ran == [("work", 1), ("work", 2)]
        assert result.get(timeout=0) == "work"

    def test_before_anybody_else_knew(self):
        result = work()
        with crash_at("settled"), recorded_signals("completed") as told:
            assert [run.outcome for run in run_due()] == ["done"]
        assert (told, result.status, ran) == ([], "unknown", [("work", 1)])
        assert run_due() == []

    def test_at_one_command_and_the_others_go_on(self):
        other()
        work()
        other()
        with crash_at("ran", work):
            assert [run.outcome for run in run_due()] == ["done", "lost", "done"]
        assert [run.command for run in run_due()] == [work.name]

    def test_at_the_command_of_a_class(self):
        other()
        Together.enqueue(1)
        with crash_at("ran", Together):
            outcomes = {run.command: run.outcome for run in run_due()}
        assert outcomes == {other.name: "done", Together.command().name: "lost"}
        assert [run.command for run in run_due()] == [Together.command().name]

    def test_what_kills_its_workers_goes_to_the_failed_queue(self):
        work()
        for _ in range(3):
            with crash_at("ran"):
                run_due()
        [run] = run_due()
        assert (run.failed, run.reason) == (True, "worker died: 3 attempts never reported")
        assert len(queues["default"].failed) == 1

    def test_what_had_not_begun_is_not_lost(self):
        work()
        for _ in range(3):
            with crash_at("claimed"):
                run_due()
        assert [(run.outcome, run.attempt) for run in run_due()] == [("done", 4)]

    def test_a_lease_is_held_until_the_block_ends(self):
        work()
        with crash_at("claimed"):
            assert len(run_due()) == 1
            assert run_due() == []
        assert len(run_due()) == 1

    def test_nothing_is_left_after_an_exception(self):
        work()
        with self.assertRaises(ZeroDivisionError), crash_at("ran"):
            raise ZeroDivisionError
        assert [run.outcome for run in run_due()] == ["done"]

    def test_who_expects_a_crash_that_does_not_come_is_told(self):
        with self.assertRaisesRegex(AssertionError, "No worker died: none came to 'ran'"), crash_at("ran", work):
            other()
            run_due()

    def test_an_unknown_point_is_refused_with_those_that_there_are(self):
        with self.assertRaisesRegex(ValueError, "'claimed', 'ran', 'settled'"), crash_at("middle"):
            """Never here."""
        with self.assertRaisesRegex(ValueError, "times"), crash_at("ran", times=0):
            """Never here."""

    def test_together_with_deliveries(self):
        work()
        with crash_at("ran"):
            assert [run.outcome for run in run_due(deliveries=2)] == ["lost", "lost"]
        assert ran == [("work", 1), ("work", 2)]


class OnMemory(Crashes, SimpleTestCase):
    def setUp(self):
        self.enterContext(memory_queues())

    def test_time_passes_until_the_lease_runs_out(self):
        with virtual_time() as clock:
            work()
            began = clock()
            with crash_at("ran"):
                assert [run.outcome for run in run_due(until=29)] == ["lost"]
                assert [run.outcome for run in run_due(until=1)] == ["done"]
            assert (ran, clock() - began) == ([("work", 1), ("work", 2)], 30.0)

    def test_as_often_as_it_is_said(self):
        work()
        with crash_at("ran", times=2):
            assert [run.outcome for run in run_due(until=600)] == ["lost", "lost", "done"]


@override_settings(QUEUES={"default": DATABASE})
class OnDatabase(Crashes, TestCase):
    """Where calls are part of the transaction."""


@pytest.mark.backends
def test_on_every_backend(backend, settings):
    settings.QUEUES = backend.queues()
    work()
    with crash_at("ran"):
        assert [run.outcome for run in run_due()] == ["lost"]
    assert [(run.outcome, run.attempt) for run in run_due()] == [("done", 2)]
    assert [attempt for _, attempt in ran] == [1, 2]
    with pytest.raises(AssertionError, match="Nothing waits"):
        assert_enqueued(work)
