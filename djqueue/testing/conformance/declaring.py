"""What a backend accepts as a task, and what it refuses when the task is declared."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.checks import ERROR, CheckMessage
from django.test import override_settings
from django.utils import timezone

from djqueue.testing.conformance import compat
from djqueue.testing.conformance.adapter import TASKS, Adapter


class Declaring(Adapter):
    """Tasks as they are declared, changed and refused."""

    def test_the_decorator_makes_a_task_of_this_backend(self):
        for task, name in [(self.tasks.add, "add"), (self.tasks.echo, "echo"), (self.tasks.look, "look")]:
            with self.subTest(name):
                self.assertIsInstance(task, self.task_backend().task_class)
                self.assertIsInstance(task, compat.Task, "task_class is no subclass of django.tasks' Task")
                self.assertEqual((task.name, task.module_path), (name, f"{TASKS}.{name}"))
                self.assertIs(task.get_backend(), self.task_backend())
                self.assertIs(task.takes_context, name == "look")

    def test_the_backend_has_its_alias_its_queues_and_its_options(self):
        for alias, said in self.tasks_setting().items():
            with self.subTest(alias):
                backend = self.task_backend(alias)
                self.assertEqual(backend.alias, alias)
                self.assertLessEqual({*said["QUEUES"]}, {*backend.queues})
                self.assertLessEqual(said.get("OPTIONS", {}).items(), dict(backend.options).items())

    def test_its_checks_find_no_error_in_these_settings(self):
        for alias in self.tasks_setting():
            with self.subTest(alias):
                found = list(self.task_backend(alias).check())
                for message in found:
                    self.assertIsInstance(message, CheckMessage, "check() returns messages of django.core.checks")
                self.assertEqual([message for message in found if message.level >= ERROR], [])

    def test_a_function_that_is_not_of_a_module_is_refused(self):
        def nested(value):
            return value

        for function in (nested, lambda value: value, self.test_a_function_that_is_not_of_a_module_is_refused, len):
            self._refused("a function that a worker cannot import", compat.task, function)

    def test_an_async_function_is_accepted_if_supports_async_task(self):
        if self.task_backend().supports_async_task:
            self.assertIsInstance(self._task(self.tasks.plain_async), compat.Task)
        else:
            self._refused("an async function, as supports_async_task is False", compat.task, self.tasks.plain_async)

    def test_a_task_with_context_has_context_as_its_first_parameter(self):
        self._refused("takes_context=True without context", compat.task(takes_context=True), self.tasks.plain)

    def test_a_priority_is_accepted_if_supports_priority(self):
        for priority in (-100, -1, 1, 100):
            with self.subTest(priority=priority):
                if self.task_backend().supports_priority:
                    self.assertEqual(self.tasks.add.using(priority=priority).priority, priority)
                    self.assertEqual(self._task(self.tasks.plain, priority=priority).priority, priority)
                else:
                    what = f"priority={priority}, as supports_priority is False"
                    self._refused(what, self.tasks.add.using, priority=priority)
        self.assertEqual(self.tasks.add.using(priority=0).priority, 0)

    def test_a_priority_is_a_whole_number_from_minus_100_to_100(self):
        for priority in (-101, 101, 1.5, 10**9):
            self._refused(f"priority={priority}", self.tasks.add.using, priority=priority)

    def test_run_after_is_accepted_if_supports_defer(self):
        later = timezone.now() + timedelta(hours=1)
        if self.task_backend().supports_defer:
            self.assertEqual(self.tasks.add.using(run_after=later).run_after, later)
        else:
            self._refused("run_after, as supports_defer is False", self.tasks.add.using, run_after=later)

    def test_run_after_without_a_time_zone_is_refused(self):
        if not settings.USE_TZ:
            self.skipTest("USE_TZ is False")
        self._refused("a naive run_after", self.tasks.add.using, run_after=datetime(2040, 1, 1))

    def test_run_after_is_no_argument_of_the_decorator(self):
        with self.assertRaises(TypeError, msg="@task(run_after=...) is refused"):
            compat.task(run_after=timezone.now())(self.tasks.plain)

    def test_a_queue_that_queues_does_not_name_is_refused(self):
        self._refused("a queue_name that is not in QUEUES", self.tasks.add.using, queue_name="nowhere")
        self._refused("a queue_name that is not in QUEUES", compat.task(queue_name="nowhere"), self.tasks.plain)
        for name in self.queue_names:
            self.assertEqual(self.tasks.add.using(queue_name=name).queue_name, name)

    def test_empty_queues_accept_any_name(self):
        task = self.tasks.add.using(backend="any", queue_name="nowhere")
        self.assertEqual((task.queue_name, task.get_backend()), ("nowhere", self.task_backend("any")))

    def test_a_backend_that_tasks_does_not_have_is_refused(self):
        with self.assertRaises(compat.InvalidTaskBackend):
            self.tasks.add.using(backend="nowhere")
        with override_settings(TASKS={}), self.assertRaises(compat.InvalidTaskBackend):
            self.tasks.add.enqueue(1)

    def test_using_returns_a_changed_copy(self):
        task = self.tasks.add
        other = task.using(queue_name=self.queue_names[1], backend="second")
        self.assertEqual((other.queue_name, other.backend, other.func), (self.queue_names[1], "second", task.func))
        self.assertEqual((task.queue_name, task.backend), ("default", "default"), "using() changed the task itself")
        self.assertEqual(other.using(backend="default").queue_name, self.queue_names[1], "using() forgot what it had")
        self.assertEqual(task.using(), task)
        self.assertIsNot(task.using(), task)

    def test_a_task_is_called_in_place_by_call_and_acall(self):
        self.assertEqual(self.tasks.add.call(1, b=2), 3)
        self.assertEqual(async_to_sync(self.tasks.add.acall)(1, b=2), 3)
        if self.task_backend().supports_async_task:
            self.assertEqual(self.async_tasks().add_async.call(1, b=2), 3)
            self.assertEqual(async_to_sync(self.async_tasks().add_async.acall)(1, b=2), 3)

    def test_a_task_can_be_pickled(self):
        if django.VERSION < (6, 1):
            self.skipTest("tasks can be pickled since Django 6.1")
        task = self.tasks.add.using(backend="second", queue_name=self.queue_names[1])
        self.assertEqual(pickle.loads(pickle.dumps(task)), task)

    def _task(self, function: Any, **options: Any) -> Any:
        return compat.task(**options)(function)

    def _refused(self, what: str, call: Any, *args: Any, **kwargs: Any) -> None:
        with self.subTest(what), self.assertRaises(compat.InvalidTask, msg=f"{what} is refused by InvalidTask"):
            call(*args, **kwargs)
