"""Tasks that have the options of commands, and commands that are tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from asgiref.sync import sync_to_async

from djqueue.enqueueing.command import Calls, Command
from djqueue.enqueueing.producer import Call
from djqueue.tasks.compat import Task, TaskContext, TaskResult
from djqueue.tasks.running import OBSERVER
from djqueue.utils import priority as checked_priority

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT = "default"
"""The backend and the queue of a task that names none."""


@dataclass(frozen=True, kw_only=True, init=False)
class DjqueueTask(Task, Generic[P, R]):
    """A task that has the options of a command too; what ``@task`` makes with this backend.

    For a type checker it has the parameters ``P`` of a call, and ``R`` is what is returned at last.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Options of :func:`djqueue.queue_command`, next to those that each task has."""

    def __init__(self, *, options: Mapping[str, Any] | None = None, **given: Any):
        defaults = {"priority": 0, "backend": DEFAULT, "queue_name": DEFAULT, "run_after": None}
        own = {one.name: given.pop(one.name) for one in fields(Task) if one.name in given}
        object.__setattr__(self, "options", {**(options or {}), **given})
        super().__init__(**defaults | own)

    if TYPE_CHECKING:  # the tasks of Django have no types

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]: ...
        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]: ...
        def call(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        backend = self.get_backend()
        if isinstance(backend, TaskDeclarer):
            backend.declare(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> DjqueueTask[P, R]:
        """A copy with other values, and other options: ``send.using(delay=30, unique="queued").enqueue(...)``."""
        given = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(self, **changes, options={**self.options, **options})

    def enqueue_many(self, calls: Calls) -> list[TaskResult[P, R]]:
        """Send many calls, a round trip per thousand. Each is a tuple of positional or a dict of keyword arguments."""
        backend = self.get_backend()
        listed = [Call.of(given) for given in calls]
        if isinstance(backend, TaskDeclarer):
            return backend.enqueue_many(self, listed)
        return [self.enqueue(*args, **kwargs) for args, kwargs in listed]

    async def aenqueue_many(self, calls: Calls) -> list[TaskResult[P, R]]:
        """:meth:`enqueue_many` for async code."""
        return cast("list[TaskResult[P, R]]", await sync_to_async(self.enqueue_many)(calls))


class TaskDeclarer:
    """The part of :class:`djqueue.tasks.DjqueueBackend` that its tasks need."""

    def declare(self, task: Task) -> None:
        """Make the command of a task known to this process."""

    def enqueue_many(self, task: Task, calls: list[Call]) -> list[TaskResult]:
        raise NotImplementedError


class TaskDecorator(Protocol):
    """Makes a task of a function; of an ``async`` one, what is awaited is returned."""

    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> DjqueueTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> DjqueueTask[P, R]: ...


class ContextTaskDecorator(Protocol):
    """The same of a function whose first argument is the context, which callers do not give."""

    @overload
    def __call__(self, func: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /) -> DjqueueTask[P, R]: ...
    @overload
    def __call__(self, func: Callable[Concatenate[TaskContext, P], R], /) -> DjqueueTask[P, R]: ...


@overload
def task(func: Callable[P, Coroutine[Any, Any, R]], /) -> DjqueueTask[P, R]: ...
@overload
def task(func: Callable[P, R], /) -> DjqueueTask[P, R]: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = DEFAULT,
    backend: str = DEFAULT,
    takes_context: Literal[False] = False,
    **options: Any,
) -> TaskDecorator: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = DEFAULT,
    backend: str = DEFAULT,
    takes_context: Literal[True],
    **options: Any,
) -> ContextTaskDecorator: ...
def task(func=None, /, *, priority=0, queue_name=DEFAULT, backend=DEFAULT, takes_context=False, **options):
    """Make a function a task of Django, as ``django.tasks.task`` does, with the options of :func:`queue_command` too.

    ``priority`` (−100 to 100), ``queue_name``, ``backend`` and ``takes_context`` are as in Django. All other options
    count if the backend is djqueue's; another one, as in tests, ignores them. Raises TypeError or ValueError for
    options that cannot be.
    """
    if "run_after" in options:
        raise TypeError("run_after is for one call: task.using(run_after=...).enqueue(...), or delay=seconds here.")
    named = {"priority": priority, "queue_name": queue_name, "backend": backend, "takes_context": takes_context}

    def decorate(func: Callable[..., Any]) -> DjqueueTask[..., Any]:
        return DjqueueTask(func=func, **named, options=options)

    return decorate(func) if func is not None else decorate


@overload
def as_task(command: Command[P, Coroutine[Any, Any, R]], backend: str = DEFAULT) -> DjqueueTask[P, R]: ...
@overload
def as_task(command: Command[P, R], backend: str = DEFAULT) -> DjqueueTask[P, R]: ...
def as_task(command: Command[..., Any], backend: str = DEFAULT) -> DjqueueTask[..., Any]:
    """A command as a task of Django: ``send_task = as_task(send)`` next to it, in the module that declares it.

    What it enqueues has the options of the command, and its result has the whole call. Calls of the command itself
    stay as they were. Raises TypeError for what is no command of a function.
    """
    if not isinstance(command, Command) or command.batched or command.inline:
        raise TypeError(f"{command!r} cannot be a task: give a command that queue_command made, without batch.")
    declared = command.declared
    declared.observer = OBSERVER
    priority = checked_priority(command.policy.priority or 0)
    return DjqueueTask(func=declared.func, priority=priority, backend=backend, queue_name=command.policy.queue_name)
