"""What Django is given of a task: from its message, from the record of its end, or from the failed queue."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple, cast

from asgiref.sync import sync_to_async

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Record
from djqueue.backends.entries import LEASED
from djqueue.enqueueing.command import Command
from djqueue.exceptions import (
    CommandCancelled,
    CommandExpired,
    CommandFailed,
    CommandLost,
    Discard,
    InvalidMessage,
    NoResult,
    StoreError,
    UnknownCommand,
)
from djqueue.messages.codecs import Arguments
from djqueue.messages.envelope import Envelope, made_at
from djqueue.messages.failures import errors_of
from djqueue.policies.policy import LOST, TASK
from djqueue.registry import registry
from djqueue.running.attempts import UNKNOWN, Attempt, attempts_of, is_moment
from djqueue.running.context import open_entry
from djqueue.running.result_store import CALL, CANCELLED, DONE, FAILED, end_of
from djqueue.tasks.compat import Task, TaskError, TaskResult, TaskResultStatus, normalize_json, task_backends
from djqueue.throttle import unthrottled

ID = re.compile(r"[0-9a-f]{32}")
"""What the id of a message looks like."""
REFRESHED = tuple(one.name for one in fields(TaskResult) if one.name not in ("task", "id", "args", "kwargs", "backend"))
"""What may change of a result."""
LAST = 253_402_214_400.0
"""Epoch seconds: the last day that a calendar has in every time zone."""
ENDS = {"expired": CommandExpired, "discarded": Discard, CANCELLED: CommandCancelled}
"""The exceptions that stand for an end without one, by its status."""


class MessageStatus(NamedTuple):
    """All that is known of a message."""

    queue: BaseQueue
    entry: Entry
    status: TaskResultStatus
    attempts: Sequence[Attempt]
    errors: Sequence[dict[str, Any]]
    ended: str = ""
    """How it ended: the status of its result."""
    reason: str = ""
    finished: float | None = None
    """Epoch seconds."""
    value: object = None


def find(queue: BaseQueue, id: str) -> MessageStatus | None:
    """What a queue and its store know of a message; None if they know nothing."""
    for look in (_of_end, _of_record, _of_end, _of_failed, _of_record):  # it may end, or be requeued, between two looks
        if (known := look(queue, id)) is not None:
            return known
    return None


def search(turns: Sequence[Sequence[BaseQueue]], id: str) -> MessageStatus | None:
    """What the first queue that knows a message says of it, one turn of queues after the other; None if none knows it.

    Raises StoreError if it is in none of the queues that can be reached, and some cannot.
    """
    errors: list[StoreError] = []
    for some in (together for queues in turns for together in _of_one_server(queues, errors)):
        try:
            for queue in some if len(some) == 1 else some[0].holders(some, id):
                if (known := find(queue, id)) is not None:
                    return known
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


def _of_end(queue: BaseQueue, id: str) -> MessageStatus | None:
    """From the record of its end. One of a failure counts no more once the message was requeued."""
    try:
        end = end_of(queue, id)
    except NoResult:  # there is one, which cannot be read
        return None
    if end is None or (end["status"] == FAILED and _record(queue, id) is not None):
        return None
    call = end.get(CALL) or {}
    kept = {name: call[name] for name in ("body", "created", "priority", "run_at") if name in call}
    entry = Entry(**{"body": b"", **kept, "id": id})
    status = TaskResultStatus.SUCCESSFUL if end["status"] == DONE else TaskResultStatus.FAILED
    attempts = [Attempt(*one) for one in call.get("attempts", ())]
    how = end["status"], end.get("reason", ""), call.get("finished"), end.get("value")
    return MessageStatus(queue, entry, status, attempts, end.get("errors") or (), *how)


def _of_record(queue: BaseQueue, id: str) -> MessageStatus | None:
    """From the queue: it waits, or it runs."""
    record = _record(queue, id)
    if record is None:
        return None
    entry, runs = record.entry, record.state == LEASED
    attempts = attempts_of(queue, entry, entry.attempts)
    if runs and attempts:
        attempts[-1] = _current(queue, record, attempts)
    status = TaskResultStatus.RUNNING if runs else TaskResultStatus.READY
    return MessageStatus(queue, entry, status, attempts, errors_of(entry.errors))


def _current(queue: BaseQueue, record: Record, attempts: Sequence[Attempt]) -> Attempt:
    """The attempt that runs. Until it is noted, it is taken to have begun when its lease did.

    If that cannot be, as its lease is not of the usual length, it is taken to have begun when it could begin at the
    earliest: it was due, and the attempt before was over.
    """
    noted, entry = attempts[-1], record.entry
    if noted.worker != UNKNOWN and noted.worker == (record.owner or noted.worker):
        return noted
    ended = [error.get("at") for error in errors_of(entry.errors)]
    known = [entry.created, entry.run_at, *ended, *(one.started for one in attempts[:-1])]
    now = queue.now()
    earliest = min(now, max((at for at in known if is_moment(at)), default=now))
    leased = record.at - queue.lease
    return Attempt(record.owner or UNKNOWN, leased if earliest <= leased <= now else earliest)


def _of_failed(queue: BaseQueue, id: str) -> MessageStatus | None:
    """From the failed queue, if no record of its end is kept."""
    if queue.failed is None or "inspect" not in queue.failed.features:
        return None
    record = queue.failed.find(id)
    if record is None:
        return None
    entry = record.entry
    records = errors_of(entry.errors)
    at, reason = (records[-1].get(name) if records else None for name in ("at", "reason"))
    attempts = attempts_of(queue, entry, entry.attempts)
    finished = at if isinstance(at, int | float) else None
    return MessageStatus(queue, entry, TaskResultStatus.FAILED, attempts, records, FAILED, str(reason or ""), finished)


def _record(queue: BaseQueue, id: str) -> Record | None:
    return queue.find(id) if "inspect" in queue.features else None


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


def task_result(known: MessageStatus, envelope: Envelope | None = None, call: Arguments | None = None) -> TaskResult:
    """The result of a message; what is not given is read from its body: the envelope, and the call."""
    envelope = envelope or _opened(known.queue, known.entry)
    call = call or _arguments_of(envelope)
    try:
        return _made(known, envelope, call)
    except (TypeError, ValueError):  # an argument of a command may be any object
        return _made(known, envelope, _in_words(call))


def _made(known: MessageStatus, envelope: Envelope | None, call: Arguments) -> TaskResult:
    """Raises TypeError or ValueError for arguments that JSON cannot have."""
    entry = known.entry
    task = _task_of(envelope, known.queue, entry)
    starts = [one.started for one in known.attempts if one.started is not None]
    first = moment_of(starts[0]) if starts else None
    errors = task_errors(known.errors, known.ended, known.reason)
    result = QueuedResult(
        task=task,
        id=entry.id,
        status=known.status,
        enqueued_at=enqueued_at(entry.id),
        started_at=first,
        finished_at=None if known.finished is None else moment_of(known.finished),
        last_attempted_at=moment_of(starts[-1]) if len(starts) > 1 else first,
        args=list(call[0]),
        kwargs=call[1],
        backend=task.backend,
        errors=errors,
        worker_ids=[one.worker for one in known.attempts],
    )
    if known.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", known.value)
    return result


def task_errors(records: Sequence[dict[str, Any]], ended: str = "", reason: str = "") -> list[TaskError]:
    """One error for each attempt that failed, and one for an end that no exception brought."""
    errors = [_error(record) for record in records if record.get("exception")]
    if ended in ENDS:
        errors.append(_of_class(ENDS[ended], reason))
    elif ended == FAILED and not (records and records[-1].get("exception")):
        errors.append(_of_class(_class_of(reason), reason))
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
