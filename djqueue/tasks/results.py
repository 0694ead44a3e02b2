"""What Django is given of a task: what became of its message, or how far it is."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, cast

from asgiref.sync import sync_to_async

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry
from djqueue.backends.entries import DONE, FAILED
from djqueue.enqueueing.command import Command
from djqueue.exceptions import (
    CommandCancelled,
    CommandExpired,
    CommandFailed,
    CommandLost,
    Discard,
    InvalidMessage,
    StoreError,
    UnknownCommand,
)
from djqueue.messages.codecs import Arguments
from djqueue.messages.envelope import Envelope, made_at
from djqueue.policies.policy import LOST, TASK
from djqueue.registry import registry
from djqueue.running import finding
from djqueue.running.context import open_entry
from djqueue.running.ends import CANCELLED, DISCARDED, EXPIRED, RUNNING, STATUSES, End, of_last
from djqueue.running.finding import failed, held, readable, with_attempts
from djqueue.tasks.compat import Task, TaskError, TaskResult, TaskResultStatus, normalize_json, task_backends
from djqueue.throttle import unthrottled

ID = re.compile(r"[0-9a-f]{32}")
"""What the id of a message looks like."""
REFRESHED = tuple(one.name for one in fields(TaskResult) if one.name not in ("task", "id", "args", "kwargs", "backend"))
"""What may change of a result."""
LAST = 253_402_214_400.0
"""Epoch seconds: the last day that a calendar has in every time zone."""
ENDS = {EXPIRED: CommandExpired, DISCARDED: Discard, CANCELLED: CommandCancelled}
"""The exceptions that stand for an end without one, by its status."""


PLACES = (readable, with_attempts(held), readable, with_attempts(failed), with_attempts(held))
"""Where a message may be; it may end, or be requeued, between two of them. The history has no call to show."""
STATUS = {
    **dict.fromkeys(STATUSES, TaskResultStatus.FAILED),
    DONE: TaskResultStatus.SUCCESSFUL,
    RUNNING: TaskResultStatus.RUNNING,
}
"""How Django calls it. All other messages wait."""


def find(queue: BaseQueue, id: str) -> End | None:
    """What a queue and its store know of a message; None if they know nothing."""
    return finding.find(queue, id, PLACES)


def search(turns: Sequence[Sequence[BaseQueue]], id: str) -> tuple[BaseQueue, End] | None:
    """The first queue that knows a message, one turn of queues after the other, and what it knows; None if none does.

    Raises StoreError if it is in none of the queues that can be reached, and some cannot.
    """
    errors: list[StoreError] = []
    for some in (together for queues in turns for together in _of_one_server(queues, errors)):
        try:
            for queue in some if len(some) == 1 else some[0].holders(some, id):
                if (end := find(queue, id)) is not None:
                    return queue, end
        except StoreError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return None


def _of_one_server(queues: Sequence[BaseQueue], errors: list[StoreError]) -> list[list[BaseQueue]]:
    """Queues, those together that can be asked together; the errors of others are added to the list."""
    groups: dict[Hashable, list[BaseQueue]] = {}
    for queue in map(unthrottled, queues):
        try:
            groups.setdefault((type(queue), queue.server), []).append(queue)
        except StoreError as error:  # of a cluster, whose client asks it at once
            errors.append(error)
    return [*groups.values()]


# ---- as Django has it


class ResultSource:
    """The part of :class:`djqueue.tasks.DjqueueBackend` that its results need."""

    def result_of(self, task: Task, result_id: str) -> TaskResult:
        """What is known of a call of a task, whose queue is asked first."""
        raise NotImplementedError


class QueuedResult(TaskResult):
    """A result that knows where to ask: the queue of its task comes first, and seldom another one after it."""

    __slots__ = ()

    def refresh(self) -> None:
        backend = self.task.get_backend()
        if not isinstance(backend, ResultSource):  # the settings have changed
            return super().refresh()
        fresh = backend.result_of(self.task, self.id)
        for name in REFRESHED:
            object.__setattr__(self, name, getattr(fresh, name))

    async def arefresh(self) -> None:
        await sync_to_async(self.refresh)()


def task_result(
    queue: BaseQueue, end: End, envelope: Envelope | None = None, call: Arguments | None = None
) -> TaskResult:
    """The result of a message; what is not given is read from its body: the envelope, and the call."""
    assert end.entry is not None
    envelope = envelope or _opened(queue, end.entry)
    call = call or _arguments_of(envelope)
    task = _task_of(envelope, queue, end.entry)
    try:
        return _made(task, end.entry.id, end, call)
    except (TypeError, ValueError):  # an argument of a command may be any object
        return _made(task, end.entry.id, end, _in_words(call))


def _made(task: Task, id: str, end: End, call: Arguments) -> TaskResult:
    """Raises TypeError or ValueError for arguments that JSON cannot have."""
    starts = [one.started for one in end.begun if one.started is not None]
    first = moment_of(starts[0]) if starts else None
    result = QueuedResult(
        task=task,
        id=id,
        status=STATUS.get(end.status, TaskResultStatus.READY),
        enqueued_at=enqueued_at(id),
        started_at=first,
        finished_at=moment_of(end.ended) if end.ended else None,
        last_attempted_at=moment_of(starts[-1]) if len(starts) > 1 else first,
        args=list(call[0]),
        kwargs=call[1],
        backend=task.backend,
        errors=task_errors(end),
        worker_ids=[one.worker for one in end.begun],
    )
    if end.status == DONE:
        object.__setattr__(result, "_return_value", end.value)
    return result


def task_errors(end: End) -> list[TaskError]:
    """One error for each attempt that failed, and one for an end that no exception brought."""
    errors = [_error(record) for record in end.errors if record.get("exception")]
    if end.status in ENDS:
        errors.append(_of_class(ENDS[end.status], end.reason))
    elif end.status == FAILED and not of_last(end.errors, "exception"):
        errors.append(_of_class(_class_of(end.reason), end.reason))
    return errors


def _error(record: dict[str, Any]) -> TaskError:
    return TaskError(exception_class_path=str(record["exception"]), traceback=str(record.get("traceback") or ""))


def _class_of(reason: str) -> type[Exception]:
    """The exception that stands for a failure without one."""
    if reason.startswith(LOST):
        return CommandLost
    return UnknownCommand if reason.startswith("unknown command") else CommandFailed


def _of_class(kind: type[Exception], reason: str) -> TaskError:
    path = f"{kind.__module__}.{kind.__qualname__}"
    return TaskError(exception_class_path=path, traceback=f"{path}: {reason}\n")


def enqueued_at(id: str) -> datetime | None:
    """When a call was enqueued, by the clock of its caller: known before the store has it, and the same ever after."""
    made = made_at(id)
    return None if made is None else moment_of(made)


def moment_of(seconds: float) -> datetime:
    """Epoch seconds, cut to the calendar, as Django has moments: aware in UTC, or naive and local without USE_TZ."""
    if not 0.0 <= seconds <= LAST:
        seconds = LAST if seconds > LAST else 0.0  # NaN is neither less nor more
    return datetime.fromtimestamp(seconds, UTC if conf.of_django("USE_TZ") else None)


def _opened(queue: BaseQueue, entry: Entry) -> Envelope | None:
    try:
        return open_entry(queue, entry)
    except InvalidMessage:
        return None


def _arguments_of(envelope: Envelope | None) -> Arguments:
    """None if they cannot be read any more."""
    if envelope is None:
        return (), {}
    try:
        return envelope.arguments()
    except Exception:  # of the database too: what a command was given may be gone
        return (), {}


def _in_words(call: Arguments) -> Arguments:
    """A call with texts in place of what JSON cannot have."""
    args, kwargs = call
    return tuple(map(_as_json, args)), {name: _as_json(value) for name, value in kwargs.items()}


def _as_json(value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError):
        return str(value)


# ---- the task of a message


def _task_of(envelope: Envelope | None, queue: BaseQueue, entry: Entry) -> Task:
    """The task that a message is a call of; a placeholder if its function is gone."""
    name = entry.command if envelope is None else envelope.command
    declared = None if envelope is None else _declared(name)  # what is not signed imports nothing
    backend, queue_name = _named(envelope, declared, queue)
    run_after = moment_of(entry.run_at) if entry.run_at else None
    return _unchecked(declared or _placeholder(name), (entry.priority, backend, queue_name, run_after))


def _declared(name: str) -> Task | None:
    """The task of a command of this process, or a task of its function. What is unknown is looked for."""
    try:
        command = cast(Command, registry.find(name))
    except UnknownCommand:
        return None
    return command.origin or _of_function(command.func)


def _named(envelope: Envelope | None, declared: Task | None, queue: BaseQueue) -> tuple[str, str]:
    """The alias of the backend and the name of the queue by which a message was sent."""
    sent = None if envelope is None else envelope.options.get(TASK)
    if sent is None:
        return (_first_backend(), queue.alias) if declared is None else (declared.backend, declared.queue_name)
    return str(sent[0]), str(sent[1])


def _first_backend() -> str:
    return next(iter(task_backends.settings), "default")


CHANGES = ("priority", "backend", "queue_name", "run_after")
_changes_of = attrgetter(*CHANGES)


def _unchecked(task: Task, changes: tuple[int, str, str, datetime | None]) -> Task:
    """A copy of a task that is not validated: settings may have changed since it was sent."""
    if _changes_of(task) == changes:
        return task
    copy, values = object.__new__(type(task)), dict(zip(CHANGES, changes, strict=True))
    for one in fields(task):
        object.__setattr__(copy, one.name, values.get(one.name, getattr(task, one.name)))
    return copy


def _placeholder(name: str) -> Task:
    """The task of a function that there is no more: its results can be read, and it cannot run."""

    def gone(*args: Any, **kwargs: Any) -> None:
        raise UnknownCommand(f"{name} is gone: it was renamed or removed since the task was enqueued.")

    gone.__module__, _, gone.__name__ = name.rpartition(".")
    gone.__qualname__ = gone.__name__
    return _of_function(gone)


def _of_function(func: Any) -> Task:
    task = object.__new__(Task)
    plain = {"func": func, "priority": 0, "backend": _first_backend(), "queue_name": "default", "run_after": None}
    for name, value in {**plain, "takes_context": False}.items():
        object.__setattr__(task, name, value)
    return task
