"""What becomes of a task: its value, its errors, its context, signals and log records."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.utils import timezone

from djqueue.testing.conformance import compat
from djqueue.testing.conformance.adapter import TASKS, Adapter


class Running(Adapter):
    """A task that a worker runs. These tests are skipped for a backend that runs nothing."""

    def test_a_task_that_returns_is_successful(self):
        end = self.outcome(self.tasks.add, 1, b=2)
        self.assert_succeeded(end, 3)
        self.assertEqual((end.args, end.kwargs, end.errors, end.backend), ([1], {"b": 2}, [], "default"))
        self.assertIs(end.is_finished, True)
        self.assert_task(end.task, self.tasks.add)
        self.assert_succeeded(self.outcome(self.tasks.note, self.name("returns None")), None)

    def test_each_attempt_has_a_worker_and_its_times(self):
        for task, args in [(self.tasks.add, (1,)), (self.tasks.fail, ("text",))]:
            with self.subTest(task.name):
                end = self.outcome(task, *args)
                self.assertEqual((end.attempts, len(end.worker_ids)), (1, 1), "one entry in worker_ids per attempt")
                self.assertIsInstance(end.worker_ids[0], str)
                self.assertTrue(0 < len(end.worker_ids[0]) <= 64, f"1 to 64 characters: {end.worker_ids[0]!r}")
                times = [end.enqueued_at, end.started_at, end.finished_at]
                self.assertNotIn(None, times, "enqueued_at, started_at and finished_at of a finished task")
                self.assertEqual(times, sorted(times), "a task is enqueued, started, then finished")
                self.assertEqual(end.last_attempted_at, end.started_at, "last_attempted_at after one attempt")
                for moment in times:
                    self.assertEqual(timezone.is_aware(moment), settings.USE_TZ, "a datetime is aware if USE_TZ")

    def test_a_return_value_is_made_json(self):
        made = {"tuple": ["a", ["b"]], "bytes": "café", "range": [0, 1, 2], "nested": {"a": [{"b": [1]}]}}
        for kind, value in made.items():
            with self.subTest(kind):
                self.assert_succeeded(self.outcome(self.tasks.return_text, kind), value)

    def test_a_return_value_that_is_not_json_fails_the_task_with_type_error(self):
        end = self.outcome(self.tasks.return_object)
        self.assert_status(end, "FAILED")
        self.assertEqual([error.exception_class for error in end.errors], [TypeError])
        self.assertIsNone(end._return_value, "_return_value of a task that failed")

    def test_an_exception_fails_the_task_and_is_kept(self):
        end = self.outcome(self.tasks.fail, "the reason")
        self.assert_failed(end, "builtins.ValueError", "the reason")
        self.assertIs(end.errors[0].exception_class, ValueError)
        self.assertIs(end.is_finished, True)
        with self.assertRaises(ValueError, msg="return_value of a task that failed raises ValueError"):
            end.return_value  # noqa: B018

    def test_any_exception_can_be_kept(self):
        end = self.outcome(self.tasks.fail_pickily)
        self.assert_failed(end, f"{TASKS}.Picky", "left and right")
        self.assertIs(end.errors[0].exception_class, self.tasks.Picky)
        end = self.outcome(self.tasks.fail_deep)
        self.assert_status(end, "FAILED")
        self.assertEqual(end.errors[0].exception_class_path, "json.decoder.JSONDecodeError")
        self.assertIn("raw_decode", end.errors[0].traceback, "the traceback shows the line that raised")
        end = self.outcome(self.tasks.fail_within, "the effect")
        self.assert_failed(end, "builtins.RuntimeError", "the effect")
        self.assertIn("the cause", end.errors[0].traceback, "the traceback shows the exception's cause")

    def test_system_exit_fails_the_task_and_the_worker_goes_on(self):
        self.assert_failed(self.outcome(self.tasks.leave), "builtins.SystemExit", "it leaves")
        self.assert_succeeded(self.outcome(self.tasks.add, 1), 1)

    def test_a_keyboard_interrupt_is_no_success(self):
        """It leaves the worker, or it fails the task."""
        self.needs_execution()
        with suppress(KeyboardInterrupt):
            self.tasks.interrupt.enqueue(self.name("interrupt"))
            self.run_due()
        self.assert_succeeded(self.outcome(self.tasks.add, 1), 1)
        told = [event.status for event in self.events if event.result.task.name == "interrupt"]
        self.assertNotIn(compat.TaskResultStatus.SUCCESSFUL, told, "a task was interrupted and is successful")

    def test_async_functions_are_run(self):
        tasks = self.async_tasks()
        for way, enqueue in self.ways():
            with self.subTest(way):
                self.needs_execution()
                self.assert_succeeded(self.end_of(enqueue(tasks.add_async, 1, b=2)), 3)
        end = self.outcome(tasks.look_async)
        self.assert_succeeded(end, [end.id, 1])
        self.assert_failed(self.outcome(tasks.fail_async, "awaited"), "builtins.ValueError", "awaited")

    def test_a_task_with_context_is_given_its_own_result(self):
        end = self.outcome(self.tasks.look, 1, "two")
        self.assert_status(end, "SUCCESSFUL")
        seen = end.return_value
        self.assertEqual(
            {key: seen[key] for key in ("id", "attempt", "path", "given", "args", "status", "started")},
            {
                "id": end.id,
                "attempt": 1,
                "path": f"{TASKS}.look",
                "given": [1, "two"],
                "args": [1, "two"],
                "status": "RUNNING",
                "started": True,
            },
        )
        self.assertEqual(seen["worker_ids"], end.worker_ids, "worker_ids in the context and in the result")

    def test_a_task_can_enqueue_another(self):
        name = self.name("inner")
        self.assert_succeeded(self.outcome(self.tasks.note_later, name), None)
        self.assertEqual(self.wait_until_ran(name), [name])

    def test_the_signals_are_sent_in_order_with_the_status_of_the_moment(self):
        for task, last in [(self.tasks.add, "SUCCESSFUL"), (self.tasks.fail, "FAILED")]:
            with self.subTest(task.name):
                told = self._told(task, 1)
                expected = [("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", last)]
                self.assertEqual([(event.signal, str(event.status.value)) for event in told], expected)
                for event in told:
                    self.assertIs(event.sender, type(self.task_backend()), f"the sender of {event.signal}")

    def test_task_finished_carries_the_whole_result(self):
        [*_, good] = self._told(self.tasks.add, 1)
        self.assertEqual((good.result.return_value, good.result.attempts), (1, 1))
        [*_, bad] = self._told(self.tasks.fail, "the reason")
        self.assert_failed(bad.result, "builtins.ValueError", "the reason")
        self.assertIsNotNone(bad.result.finished_at, "finished_at at task_finished")

    def test_task_finished_of_a_failure_is_sent_while_its_exception_is_handled(self):
        """Receivers, as Django's own which logs it, take it from ``sys.exc_info()``."""
        told = self._told(self.tasks.fail, "the reason")
        self.assertEqual([event.raising for event in told], [None, None, ValueError])

    def test_the_log_says_what_became_of_a_task(self):
        """At INFO what has started and succeeded, at ERROR what has failed, with its traceback."""
        started, succeeded = self._logged(self.tasks.add, 1)
        self.assertEqual([started.levelno, succeeded.levelno], [logging.INFO, logging.INFO])
        self.assertIn("RUNNING", started.getMessage())
        self.assertIn("SUCCESSFUL", succeeded.getMessage())
        self.assertFalse(succeeded.exc_info and succeeded.exc_info[0], "a success is logged without an exception")
        started, failed = self._logged(self.tasks.fail, "the reason")
        self.assertEqual([started.levelno, failed.levelno], [logging.INFO, logging.ERROR])
        self.assertIs(failed.exc_info and failed.exc_info[0], ValueError, "a failure is logged with its exception")

    # ---- steps

    def _told(self, task: Any, *args: Any) -> list:
        end = self.outcome(task, *args)
        self.wait_for(lambda: [one for one in self.events_of(end) if one.signal == "task_finished"], "task_finished")
        return self.events_of(end)

    def _logged(self, task: Any, *args: Any) -> list[logging.LogRecord]:
        """The records of a task's start and end."""
        with self.assertLogs(compat.NAMESPACE, "INFO") as logs:
            result = task.enqueue(*args)
            self.end_of(result)
        records = [
            record for record in logs.records if result.id in record.getMessage() and "state=" in record.getMessage()
        ]
        self.assertEqual(len(records), 2, f"a record of the start and one of the end: {logs.output}")
        return records
