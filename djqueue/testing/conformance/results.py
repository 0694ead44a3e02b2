"""What ``get_result()`` and ``refresh()`` say, wherever and whenever they are called."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections
from django.utils import timezone

from djqueue.testing.conformance import compat
from djqueue.testing.conformance.adapter import TASKS, Adapter
from djqueue.testing.patience import together

MALFORMED = ("123", "", "no id", "a" * 1000, "0-0", "%", "../x", "ž🐎", "a:b:c", "[]", "\x00")
FIELDS = (
    "id",
    "args",
    "kwargs",
    "backend",
    "enqueued_at",
    "started_at",
    "finished_at",
    "last_attempted_at",
    "worker_ids",
)
KEPT: list[Any] = []
"""Connections that a forked process has from its parent. They must not be closed there: their server would notice."""


class Results(Adapter):
    """Results that are looked up. Without ``supports_get_result``, that they are refused."""

    def test_without_support_a_result_cannot_be_looked_up(self):
        """Or only in its own thread, as DummyBackend does."""
        if self.task_backend().supports_get_result:
            self.skipTest("supports_get_result is True")
        refusals = (NotImplementedError, compat.TaskResultDoesNotExist)
        for look in self._lookers(self.task_backend()):
            with self.assertRaises(refusals, msg="get_result() is refused, as supports_get_result is False"):
                look("123")

    def test_a_result_is_found_by_its_task_and_by_its_backend(self):
        self.needs("supports_get_result")
        result = self.tasks.add.enqueue(1, b=2)
        for look in (*self._lookers(self.tasks.add), *self._lookers(self.task_backend())):
            found = look(result.id)
            self.assertEqual((found.id, found.args, found.kwargs, found.backend), (result.id, [1], {"b": 2}, "default"))
            self.assert_task(found.task, self.tasks.add)
            self.assertIsInstance(found, compat.TaskResult)
        if self.executes:
            end = self.end_of(result)
            for look in (*self._lookers(self.tasks.add), *self._lookers(self.task_backend())):
                self._alike(look(result.id), end)

    def test_a_found_result_has_the_task_as_it_was_enqueued(self):
        self.needs("supports_get_result")
        changes: dict[str, Any] = {"queue_name": self.queue_names[1], "backend": "second"}
        if self.task_backend().supports_priority:
            changes["priority"] = 7
        if self.task_backend().supports_defer:
            changes["run_after"] = timezone.now() + timedelta(hours=1)
        task = self.tasks.look.using(**changes)
        self.assert_task(self.task_backend("second").get_result(task.enqueue().id).task, task)

    def test_an_id_that_does_not_exist_or_is_malformed_is_told_by_its_exception(self):
        self.needs("supports_get_result")
        known = self.tasks.add.enqueue(1).id
        changed = known[:-1] + ("0" if known[-1] != "0" else "1")
        for id in (changed, *MALFORMED):
            for look in (*self._lookers(self.tasks.add), *self._lookers(self.task_backend())):
                with (
                    self.subTest(id=id[:40]),
                    self.assertRaises(compat.TaskResultDoesNotExist, msg=f"the id {id[:40]!r} is unknown"),
                ):
                    look(id)

    def test_a_result_of_another_task_is_refused(self):
        self.needs("supports_get_result")
        result = self.tasks.add.enqueue(1)
        for look in self._lookers(self.tasks.echo):
            with self.assertRaises(compat.TaskResultMismatch, msg="the id is of another task"):
                look(result.id)

    def test_refresh_brings_a_result_up_to_date(self):
        self.needs("supports_get_result")
        self.needs_waiting()
        for refresh in (lambda result: result.refresh(), lambda result: async_to_sync(result.arefresh)()):
            result = self.tasks.add.enqueue(1, b=2)
            refresh(result)
            self.assert_status(result, "READY")
            end = self.end_of(result)
            self.assert_status(result, "READY")
            refresh(result)
            self.assert_succeeded(result, 3)
            self._alike(result, end)

    def test_refresh_brings_the_errors(self):
        self.needs("supports_get_result")
        self.needs_execution()
        result = self.tasks.fail.enqueue("the reason")
        self.end_of(result)
        result.refresh()
        self.assert_failed(result, "builtins.ValueError", "the reason")

    def test_a_result_is_found_in_another_thread(self):
        self.needs("supports_get_result")
        self._found_by(lambda id: together(lambda: _told(id), last=connections.close_all)[0])

    def test_a_result_is_found_in_another_process(self):
        self.needs("supports_get_result")
        if not self.across_processes:
            self.skipTest("across_processes is False: the store is in the memory of this process")
        if "fork" not in multiprocessing.get_all_start_methods():
            self.skipTest("this system cannot fork")
        for connection in connections.all(initialized_only=True):
            if connection.vendor == "sqlite" and connection.is_in_memory_db():
                self.skipTest("the test database is in memory: name a file in DATABASES[...]['TEST']['NAME']")
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_answer, args=(theirs,), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which is at work now
            process.start()  # before the task is enqueued: it must not know it from this process's memory
        self.addCleanup(process.join, self.patience)
        self.addCleanup(ours.send, None)

        def ask(id: str) -> Any:
            ours.send(id)
            self.assertTrue(ours.poll(self.patience), "another process did not answer")
            return ours.recv()

        self._found_by(ask)

    def test_a_result_stays_readable_when_its_function_is_gone(self):
        self.needs("supports_get_result")
        end = self.outcome(self.tasks.vanish, "kept")
        self._remove("vanish")
        found = self.task_backend().get_result(end.id)
        self.assert_succeeded(found, "kept")
        self._alike(found, end)
        self.assertEqual(found.task.module_path, f"{TASKS}.vanish")

    def test_an_error_stays_readable_when_its_class_is_gone(self):
        self.needs("supports_get_result")
        end = self.outcome(self.tasks.fail_and_vanish)
        self._remove("Vanishing")
        found = self.task_backend().get_result(end.id)
        self.assert_failed(found, f"{TASKS}.Vanishing", "it was here")
        with self.assertRaises(ImportError):
            found.errors[0].exception_class  # noqa: B018

    # ---- steps

    def _lookers(self, place: Any) -> list[Callable]:
        return [place.get_result, async_to_sync(place.aget_result)]

    def _alike(self, one: Any, other: Any) -> None:
        for field in FIELDS:
            self.assertEqual(getattr(one, field), getattr(other, field), field)
        self.assertEqual(one.status, other.status)

    def _found_by(self, ask: Callable[[str], Any]) -> None:
        result = self.tasks.add.enqueue(1, b=2)
        expected: tuple[str, list, dict, Any] = ("READY", [1], {"b": 2}, None)
        if self.executes:
            self.end_of(result)
            expected = ("SUCCESSFUL", [1], {"b": 2}, 3)
        self.assertEqual(ask(result.id), expected)

    def _remove(self, name: str) -> None:
        removed = getattr(self.tasks, name)
        delattr(self.tasks, name)
        self.addCleanup(setattr, self.tasks, name, removed)


def _told(id: str) -> tuple[str, list, dict, Any]:
    found = compat.task_backends["default"].get_result(id)
    return str(found.status.value), found.args, found.kwargs, found._return_value


def _answer(pipe: Any) -> None:
    """In a forked process: report what is found of each id, until there is None."""
    for connection in connections.all(initialized_only=True):
        KEPT.append(connection.connection)
        connection.connection = None
    while (id := pipe.recv()) is not None:
        try:
            pipe.send(_told(id))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
