"""What happens around a task while it runs: the context that it is given, Django's signals, its return value."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from django.dispatch import Signal
from django.utils.module_loading import import_string

from djqueue import conf
from djqueue.backends.base import Lease
from djqueue.backends.entries import READY
from djqueue.messages.codecs import Arguments
from djqueue.messages.failures import errors_of
from djqueue.policies.outcomes import Verdict, settled
from djqueue.running.context import Job
from djqueue.running.ends import End, of_run
from djqueue.tasks.compat import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from djqueue.tasks.results import STATUS, moment_of, task_errors, task_result
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

_running: ContextVar[tuple[TaskResult, type] | None] = ContextVar("djqueue_running_task", default=None)
"""The result of the task that runs in this context, and the class of its backend."""
FINAL = ("complete", "fail")
"""The verbs that settle a message for good."""


def function_of(task: Task) -> Callable[..., Any]:
    """The function of a task as a command runs it: called with the context first if the task takes that."""
    func = task.func
    if not task.takes_context:
        return func  # type: ignore[no-any-return]

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        return func(_context(), *args, **kwargs)

    @functools.wraps(func)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        return await func(_context(), *args, **kwargs)

    made: Any = arun if inspect.iscoroutinefunction(func) else run
    signature = inspect.signature(func)
    made.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return made  # type: ignore[no-any-return]


def _context() -> TaskContext:
    running = _running.get()
    if running is None:
        raise RuntimeError(
            "A task that takes the context can be called directly only with one: task.func(context, ...)."
        )
    return TaskContext(task_result=running[0])


class TaskObserver:
    """Sends Django's signals of each attempt, and makes JSON of what a task returns."""

    def begun(self, job: Job) -> None:
        result, sender = running = _of_job(job, (job.args, job.kwargs))
        _running.set(running)
        if job.control.lease is None and job.entry.attempts == 1:  # eager mode: its caller has no result yet
            send(task_enqueued, result, sender)
        object.__setattr__(result, "status", TaskResultStatus.RUNNING)
        send(task_started, result, sender)

    def returned(self, value: Any) -> Any:
        """Raises TypeError or ValueError for what cannot be kept as JSON: then the task has failed."""
        if value is None or value is True or value is False:
            return value
        value = normalize_json(value)
        most = conf.get("QUEUE_MAX_MESSAGE_SIZE")
        size = len(json.dumps(value, allow_nan=conf.get("QUEUE_SERIALIZER") != "json"))
        if size > most:
            raise ValueError(f"it returned {size} characters of JSON, QUEUE_MAX_MESSAGE_SIZE allows {most}")
        return value

    def ended(self, job: Job, verdict: Verdict) -> None:
        """Called in the except block of a failure, so that Django's log has its traceback."""
        if verdict.outcome.effect.verb not in FINAL or job.control.given_up:
            return
        try:
            running = _running.get()
            result, sender = running if running and running[0].id == job.entry.id else _of_job(job)
            _end(result, job, verdict)
            send(task_finished, result, sender)
        except BaseException as error:  # nothing but the task decides what becomes of its message
            log_safely(logger, logging.ERROR, "task_finished of %s failed", job.entry.command, exc_info=error)


OBSERVER = TaskObserver()


def send(signal: Signal, result: TaskResult, sender: type) -> None:
    """Send a signal of Django's tasks. A receiver that raises is logged, and changes nothing."""
    signal.send_robust(sender=sender, task_result=result)


def _of_job(job: Job, call: Arguments | None = None) -> tuple[TaskResult, type]:
    """The result of an attempt, and the class of its backend; the call is read from the message if it is not given."""
    begun, errors = job.control.attempts or (), errors_of(job.entry.errors)
    end = End(READY, errors=errors, begun=begun, entry=job.entry)
    result = task_result(job.queue, end, job.envelope, call)
    return result, _sender(result.backend)


def _sender(backend: str) -> type:
    """The class of a backend. Django would make a new backend in the context of each message."""
    params = task_backends.settings.get(backend)
    return BaseTaskBackend if params is None else _class(params["BACKEND"])  # the sender may have had other settings


@functools.lru_cache
def _class(path: str) -> type:
    return import_string(path)  # type: ignore[no-any-return]


def _end(result: TaskResult, job: Job, verdict: Verdict) -> None:
    """Have a result say what became of its task."""
    lease = Lease(job.entry) if job.control.lease is None else job.control.lease
    begun = job.control.attempts or ()
    end = of_run(settled(lease, verdict, job.control.owner), verdict._replace(attempts=begun))
    changes: dict[str, Any] = {"status": STATUS[end.status], "finished_at": moment_of(end.ended)}
    if end.has_value:
        changes["_return_value"] = end.value
    else:
        changes["errors"] = task_errors(end)
    for name, value in changes.items():
        object.__setattr__(result, name, value)
