"""What ``enqueue()`` returns, keeps, announces and refuses."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from djqueue.testing.conformance import compat
from djqueue.testing.conformance.adapter import Adapter

UNSERIALISABLE = (datetime(2030, 1, 1, tzinfo=UTC), date(2030, 1, 1), Decimal(1), uuid.UUID(int=1), {1, 2}, object())
TEXTS = ("", " ", "žluťoučký 🐎", "'; -- \"%s %% {} \\", "two\nlines\r\n", "x" * 20_000)
NUMBERS = (0, -1, 2**53, 1.5, True, None)
SLACK = timedelta(seconds=2)
"""How much the clock of a store may differ from ours."""


class Enqueueing(Adapter):
    """One call of ``enqueue()`` or ``aenqueue()``."""

    def test_enqueue_returns_a_result_that_is_ready(self):
        for way, enqueue in self.ways():
            with self.subTest(way):
                before = timezone.now()
                result = enqueue(self.tasks.add, 1, b=2)
                self.assertIsInstance(result, compat.TaskResult)
                self._about_now(result.enqueued_at, before)
                self.assertEqual((result.args, result.kwargs, result.backend), ([1], {"b": 2}, "default"))
                self.assert_task(result.task, self.tasks.add)
                if result.is_finished:
                    continue  # it ran before enqueue() returned
                self.assert_status(result, "READY")
                self.assertEqual((result.started_at, result.last_attempted_at, result.finished_at), (None, None, None))
                self.assertEqual((result.attempts, result.worker_ids, result.errors), (0, [], []))
                with self.assertRaises(ValueError, msg="return_value raises until the task has succeeded"):
                    result.return_value  # noqa: B018

    def test_each_result_has_an_id_of_its_own(self):
        ids = [enqueue(self.tasks.add, 1).id for _, enqueue in self.ways() for _ in range(3)]
        for id in ids:
            self.assertIsInstance(id, str, "the id of a result is a string")
            self.assertTrue(0 < len(id) <= 64, f"the id of a result has from 1 to 64 characters: {id!r}")
        self.assertEqual(len(set(ids)), len(ids), "two results share an id")

    def test_arguments_are_made_json(self):
        given = ((1, "a", [True, None]), b"caf\xc3\xa9", {"deep": {"tuple": (1.5,)}}, range(3))
        kept = [[1, "a", [True, None]], "café", {"deep": {"tuple": [1.5]}}, [0, 1, 2]]
        for way, enqueue in self.ways():
            with self.subTest(way):
                self._kept(enqueue(self.tasks.echo, *given), kept, {})
                self._kept(enqueue(self.tasks.echo, key=given), [], {"key": kept})

    def test_text_and_numbers_arrive_as_they_are(self):
        self._kept(self.tasks.echo.enqueue(*TEXTS, text=TEXTS), [*TEXTS], {"text": [*TEXTS]})
        self._kept(self.tasks.echo.enqueue(*NUMBERS), [*NUMBERS], {})

    def test_arguments_that_change_after_the_call_are_kept_as_they_were(self):
        for way, enqueue in self.ways():
            with self.subTest(way):
                values, mapping = [1], {"list": [1]}
                result = enqueue(self.tasks.echo, values, mapping=mapping)
                values.append(2)
                mapping["list"].append(2)
                self._kept(result, [[1]], {"mapping": {"list": [1]}})

    def test_arguments_that_are_not_json_are_refused_and_nothing_is_enqueued(self):
        for way, enqueue in self.ways():
            with self.subTest(way):
                for value in UNSERIALISABLE:
                    for args, kwargs in (([value], {}), ([], {"b": [{"deep": value}]})):
                        with self.assertRaises(TypeError, msg=f"a {type(value).__name__} as an argument is refused"):
                            enqueue(self.tasks.echo, *args, **kwargs)
                with self.assertRaises(ValueError, msg="bytes that are not UTF-8 are refused as an argument"):
                    enqueue(self.tasks.echo, b"\xff")
        self.assertEqual(self.events, [], "a signal was sent for a task that was refused")

    def test_a_call_that_does_not_fit_the_signature_fails_with_type_error(self):
        """At once, as ImmediateBackend does not, or when it is run."""
        try:
            result = self.tasks.add.enqueue(1, 2, 3)
        except TypeError:
            return
        end = self.end_of(result)
        self.assert_status(end, "FAILED")
        self.assertEqual(end.errors[-1].exception_class, TypeError)

    def test_a_task_is_validated_when_it_is_enqueued(self):
        """TASKS may have changed since it was declared, as in tests."""
        only = {"default": {**self.tasks_setting()["default"], "QUEUES": [self.queue_names[1]]}}
        for way, enqueue in self.ways():
            with self.subTest(way):
                with override_settings(TASKS=only), self.assertRaises(compat.InvalidTask):
                    enqueue(self.tasks.add, 1)

    def test_task_enqueued_is_sent_with_the_class_of_the_backend(self):
        for way, enqueue in self.ways():
            with self.subTest(way):
                result = enqueue(self.tasks.add, 1)
                told = [event for event in self.events_of(result) if event.signal == "task_enqueued"]
                self.assertEqual(len(told), 1, "task_enqueued is sent once for each task")
                self.assertIs(told[0].sender, type(self.task_backend()), "the sender is the class of the backend")
                self.assertEqual(str(told[0].status.value), "READY", "the status at task_enqueued")
                self.assertIsNotNone(told[0].result.enqueued_at, "enqueued_at at task_enqueued")

    def test_task_enqueued_writes_a_debug_record(self):
        with self.assertLogs(compat.NAMESPACE, "DEBUG") as logs:
            result = self.tasks.add.enqueue(1)
        records = [
            record for record in logs.records if record.levelname == "DEBUG" and result.id in record.getMessage()
        ]
        self.assertEqual(len(records), 1, f"one record of the task in the logger {compat.NAMESPACE}: {logs.output}")

    def test_each_alias_keeps_its_own_tasks(self):
        results = {alias: self.tasks.add.using(backend=alias).enqueue(1, b=2) for alias in ("default", "second")}
        for alias, result in results.items():
            with self.subTest(alias):
                self.assertEqual((result.backend, result.task.backend), (alias, alias))
                if self.executes:
                    end = self.end_of(result)
                    self.assert_succeeded(end, 3)
                    self.assertEqual((end.backend, end.task.backend), (alias, alias))

    def test_each_queue_is_served(self):
        for name in self.queue_names:
            with self.subTest(name):
                task = self.tasks.add.using(queue_name=name)
                result = task.enqueue(1, b=2)
                self.assertEqual(result.task.queue_name, name)
                if self.executes:
                    self.assertEqual(self.end_of(result).task.queue_name, name)

    def test_a_queue_of_any_name_is_served_with_empty_queues(self):
        self.needs_execution()
        self.assert_succeeded(self.outcome(self.tasks.add.using(backend="any", queue_name=self.queue_names[1]), 1), 1)

    def test_a_task_with_a_higher_priority_runs_first(self):
        self.needs("supports_priority")
        self.needs_waiting()
        names = {priority: self.name(f"priority {priority}") for priority in (-50, 0, 50, 100, -100)}
        for priority, name in names.items():
            self.tasks.note.using(priority=priority).enqueue(name)
        expected = [names[priority] for priority in sorted(names, reverse=True)]
        self.assertEqual(self.wait_until_ran(*names.values()), expected, "tasks with a higher priority run first")

    def test_a_deferred_task_does_not_run_early(self):
        self.needs("supports_defer")
        self.needs_execution()
        name, due = self.name("deferred"), timezone.now() + timedelta(seconds=1.5)
        result = self.tasks.note.using(run_after=due).enqueue(name)
        self.assertEqual(result.task.run_after, due)
        far = self.name("in an hour")
        self.tasks.note.using(run_after=due + timedelta(hours=1)).enqueue(far)
        early = self.ran_after_another(name) and timezone.now() < due
        self.assertFalse(early, "a task ran before its run_after")
        self.wait_until_ran(name)
        self.assertGreaterEqual(timezone.now(), due, "a task ran before its run_after")
        self.assertNotIn(far, self.tasks.ran, "a task ran an hour early")

    def test_a_task_whose_run_after_has_passed_runs_at_once(self):
        self.needs("supports_defer")
        self.needs_execution()
        self.assert_succeeded(self.outcome(self.tasks.add.using(run_after=timezone.now() - timedelta(days=1)), 1), 1)

    # ---- steps

    def _about_now(self, moment: Any, before: datetime) -> None:
        self.assertIsInstance(moment, datetime, "enqueued_at is a datetime")
        self.assertEqual(timezone.is_aware(moment), settings.USE_TZ, "a datetime is aware if USE_TZ")
        self.assertTrue(before - SLACK <= moment <= timezone.now() + SLACK, f"enqueued_at is {moment}, not now")

    def _kept(self, result: Any, args: list, kwargs: dict) -> None:
        """The result says these arguments, and the task was given them."""
        self.assertEqual((result.args, result.kwargs), (args, kwargs))
        if self.executes:
            self.assert_succeeded(self.end_of(result), [args, kwargs])
