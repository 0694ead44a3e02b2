"""What a user of the suite says about a backend, and the steps that its tests share."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.test import override_settings

from djqueue.testing.conformance import compat

if TYPE_CHECKING:
    from django.test import TransactionTestCase as Case
else:
    Case = object

SIGNALS = {
    "task_enqueued": compat.task_enqueued,
    "task_started": compat.task_started,
    "task_finished": compat.task_finished,
}
TASKS = "djqueue.testing.conformance.tasks"
ASYNC_TASKS = "djqueue.testing.conformance.async_tasks"


@dataclass(frozen=True)
class Event:
    """A signal that was sent."""

    signal: str
    sender: Any
    result: Any
    status: Any
    """The result's status when the signal was sent."""
    raising: type | None
    """The exception that was being handled when the signal was sent."""


class Adapter(Case):
    """What is tested, and how its tasks are run."""

    backend: dict[str, Any] = {}
    """What ``TASKS["default"]`` says: BACKEND, and OPTIONS if it needs some."""

    queue_names: tuple[str, str] = ("default", "other")
    """Two queues that the backend serves. The first must be ``"default"``."""

    executes = True
    """False for a backend that only stores tasks, as Django's DummyBackend does."""

    across_processes = True
    """False if the store is in the memory of this process."""

    transactional = False
    """True if a task that is enqueued within a transaction of ``database`` is gone when it is rolled back."""

    database = "default"
    """The alias of the database whose transactions are meant."""

    retrying: dict[str, Any] | None = None
    """What TASKS says of a backend that runs a failed task once more, about a second later."""

    patience = 15.0
    """Seconds after which what should happen is taken to never happen."""

    def run_due(self) -> None:
        """Run in this process what is due on all queues and aliases, and return when it has ended.

        Nothing, if the backend runs tasks when they are enqueued, or in threads of its own.
        """

    # ---- the settings

    def tasks_setting(self) -> dict[str, Any]:
        """TASKS: the backend as ``default``, next to it as ``second``, and as ``any`` for queues of any name."""
        one = {"QUEUES": [*self.queue_names], **self.backend}
        aliases = {"default": one, "second": one, "any": {**one, "QUEUES": []}}
        return aliases | ({"retrying": {"QUEUES": [*self.queue_names], **self.retrying}} if self.retrying else {})

    def setUp(self) -> None:
        super().setUp()
        if not self.backend:
            self.fail("Say which backend is tested: backend = {'BACKEND': 'path.to.Backend'}.")
        self.enterContext(override_settings(TASKS=self.tasks_setting()))
        self.tasks = self._declared(TASKS)
        self.tasks.ran.clear()
        self.tasks.attempts.clear()
        self.events: list[Event] = []
        for name, signal in SIGNALS.items():
            self._record(name, signal)

    def _record(self, name: str, signal: Any) -> None:
        def receive(sender: Any, task_result: Any, **_: Any) -> None:
            self.events.append(Event(name, sender, task_result, task_result.status, sys.exc_info()[0]))

        signal.connect(receive, weak=False)
        self.addCleanup(signal.disconnect, receive)

    def _declared(self, path: str) -> Any:
        """A module with its tasks as this backend declares them, which may have a class of tasks of its own."""
        module = importlib.import_module(path)
        declared = next(value for value in vars(module).values() if isinstance(value, compat.Task))
        if type(declared) is not self.task_backend().task_class:
            module = importlib.reload(module)
        return module

    # ---- the steps

    def task_backend(self, alias: str = "default") -> Any:
        return compat.task_backends[alias]

    def needs(self, flag: str) -> None:
        """Skip the test unless the backend has this flag."""
        if not getattr(self.task_backend(), flag):
            self.skipTest(f"{flag} is False: what it stands for is tested to be refused")

    def needs_execution(self) -> None:
        if not self.executes:
            self.skipTest("executes is False: this backend runs nothing")

    def needs_waiting(self) -> None:
        """Skip the test if the backend runs tasks without ``run_due()``."""
        self.needs_execution()
        if type(self).run_due is Adapter.run_due:
            self.skipTest("without a run_due() tasks run when they are enqueued")

    def async_tasks(self) -> Any:
        """The module with async tasks. It is imported only for a backend that accepts them."""
        self.needs("supports_async_task")
        return self._declared(ASYNC_TASKS)

    def name(self, part: str) -> str:
        """A name that occurs in this test only, whatever other tests left in the store."""
        return f"{self.id().rpartition('.')[2]}-{part}-{time.monotonic_ns()}"

    def ways(self) -> Iterable[tuple[str, Callable]]:
        """The ways to enqueue a task, by name: ``enqueue(task, *args, **kwargs)``."""
        return {
            "task.enqueue": lambda task, *args, **kwargs: task.enqueue(*args, **kwargs),
            "task.aenqueue": lambda task, *args, **kwargs: async_to_sync(task.aenqueue)(*args, **kwargs),
            "backend.enqueue": lambda task, *args, **kwargs: task.get_backend().enqueue(task, args, kwargs),
            "backend.aenqueue": lambda task, *args, **kwargs: async_to_sync(task.get_backend().aenqueue)(
                task, args, kwargs
            ),
        }.items()

    def events_of(self, result: Any) -> list[Event]:
        """The signals that were sent of a result, in order."""
        return [event for event in self.events if event.result.id == result.id]

    def outcome(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a task and run it; the TaskResult of its end."""
        return self.end_of(task.enqueue(*args, **kwargs))

    def end_of(self, result: Any) -> Any:
        """Run what is due until this task has ended; its TaskResult then. Skips the test if nothing is run."""
        self.needs_execution()
        what = f"the end of {result.task.name}, told by get_result() or, without it, by the signal task_finished"
        return self.wait_for(lambda: self._ended(result), what)

    def _ended(self, result: Any) -> Any:
        if result.is_finished:
            return result
        self.run_due()
        if self.task_backend(result.backend).supports_get_result:
            now = self.task_backend(result.backend).get_result(result.id)
            return now if now.is_finished else None
        told = [event.result for event in self.events_of(result) if event.signal == "task_finished"]
        return told[-1] if told else None

    def wait_for(self, look: Callable[[], Any], what: str) -> Any:
        """The first true value that ``look`` returns; ``what`` says what it is that did not come."""
        deadline = time.monotonic() + self.patience
        while not (found := look()):
            if time.monotonic() > deadline:
                self.fail(f"within {self.patience:g} seconds there was not: {what}")
            time.sleep(0.01)
        return found

    def wait_until_ran(self, *names: str) -> list[str]:
        """Run what is due until ``note`` was called with these names; those of them that ran, in order."""

        def all_ran() -> bool:
            self.run_due()
            return {*names} <= {*self.tasks.ran}

        self.wait_for(all_ran, f"a run of the tasks {names}; these ran: {self.tasks.ran}")
        return [name for name in self.tasks.ran if name in names]

    def ran_after_another(self, name: str) -> bool:
        """Whether ``note`` was called with a name when a task that was enqueued after it had run."""
        later = self.name("later")
        self.tasks.note.enqueue(later)
        self.wait_until_ran(later)
        return name in self.tasks.ran

    # ---- the assertions

    def assert_task(self, task: Any, expected: Any) -> None:
        """It is this task, though a store may give another object."""
        for field in ("func", "backend", "queue_name", "priority", "run_after", "takes_context"):
            self.assertEqual(getattr(task, field), getattr(expected, field), f"{field} of the result's task")

    def assert_status(self, result: Any, status: str) -> None:
        errors = "".join(error.traceback for error in result.errors)
        self.assertEqual(str(result.status.value), status, f"{result.task.name} is {result.status.value}. {errors}")

    def assert_succeeded(self, result: Any, value: Any) -> None:
        self.assert_status(result, "SUCCESSFUL")
        self.assertEqual(result.return_value, value, f"the return value of {result.task.name}")

    def assert_failed(self, result: Any, path: str, text: str) -> None:
        """It failed with an exception of this path, whose traceback ends with this text."""
        self.assert_status(result, "FAILED")
        self.assertEqual(len(result.errors), 1, f"errors of {result.task.name}: one for its one attempt")
        [error] = result.errors
        self.assertIsInstance(error.traceback, str, "TaskError.traceback")
        self.assertEqual(error.exception_class_path, path, "TaskError.exception_class_path")
        self.assertEqual(error.traceback.rstrip().rpartition("\n")[2].rpartition(": ")[2], text, "the traceback's end")
