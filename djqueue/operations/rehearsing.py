"""Rehearsals: a message runs here in transactions that are rolled back, and what it did is captured."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import django
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core import mail
from django.db import connections, transaction
from django.test.utils import override_settings

from djqueue.backends.base import BaseQueue, Entry
from djqueue.enqueueing.on_commit import outermost, registered, savepoints_of
from djqueue.enqueueing.producer import sent_by
from djqueue.exceptions import QueueError
from djqueue.messages.failures import begin_at_the_command
from djqueue.registry import registry
from djqueue.running.context import Control, Job, open_entry
from djqueue.running.describing import arguments_of, result_of
from djqueue.running.ends import Progress
from djqueue.running.executor import judged, note_attempts, policy_of, run_here
from djqueue.running.handlers import BatchRunnable
from djqueue.wiring import queues as all_queues

OUTBOX = "django.core.mail.backends.locmem.EmailBackend"


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that was sent to a database."""

    database: str
    """Its alias."""
    sql: str
    """Without its parameters."""
    seconds: float


@dataclass(slots=True)
class Rehearsal:
    """What a message did when it ran here; all is undone, except what went to other systems."""

    id: str
    queue: str
    """The alias of its queue."""
    call: str
    """The call as code; sensitive arguments are masked."""
    outcome: str = "done"
    """``done``, or what a consumer would make of the exception: ``retried``, ``failed``, ``discarded``, …"""
    reason: str = ""
    """Why it was not done."""
    value: str = ""
    """The ``repr`` of what it returned; masked if all of its command is sensitive."""
    traceback: str = ""
    """From the command on; "" if nothing was raised."""
    seconds: float = 0.0
    """How long it ran."""
    queries: list[Query] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    """The mail that it would have sent: ``ann@example.com: Receipt``."""
    enqueued: list[str] = field(default_factory=list)
    """The messages that it would have enqueued: ``shop.commands.resize (default)``."""
    callbacks: list[str] = field(default_factory=list)
    """The names of other functions that were to be called when the transaction commits."""


def rehearse(
    queue: BaseQueue,
    entry: Entry,
    on_error: Callable[[BaseException], object] = lambda error: None,
    databases: Sequence[str] | None = None,
) -> Rehearsal:
    """Run a message of a queue here, in transactions that are rolled back, and capture what it did.

    ``databases`` are aliases, all by default; statements to others are refused. Mail and the messages that it enqueues
    are held back. Requests to other systems, files, and what threads do that it starts are not undone. ``on_error`` is
    called with its exception, before anything is undone.

    Raises InvalidMessage, UnknownCommand; QueueError if there is no database that could be rolled back.
    """
    job = _job_of(queue, replace(entry, attempts=entry.attempts + 1))
    seen = Rehearsal(entry.id, queue.alias, arguments_of(job.command, *job.envelope.arguments()))
    with _undone(databases or _databases(), seen):
        began = time.monotonic()
        try:
            seen.value = result_of(job.command, run_here(job, async_to_sync(_ended)))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            begin_at_the_command(error)
            on_error(error)
            verdict = judged(job.policy, error, job.entry)
            seen.outcome, seen.reason = verdict.outcome.effect.status, verdict.reason
            seen.traceback = "".join(traceback.format_exception(error))
        finally:
            seen.seconds = time.monotonic() - began
    return seen


def _job_of(queue: BaseQueue, entry: Entry) -> Job:
    envelope = open_entry(queue, entry)
    command = registry.find(envelope.command)
    policy, control = policy_of(command, envelope), RehearsalControl(queue, None)
    note_attempts(queue, entry, policy, control)
    args, kwargs = envelope.arguments()  # reads model instances
    if command.batched:
        args, kwargs = (cast(BatchRunnable, command).item(args, kwargs),), {}
    return Job(queue, entry, envelope, command, policy, control, args, kwargs)


async def _ended(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await the result in the loop of ``async_to_sync``, so that the ORM uses this thread and its transactions."""
    return await coroutine


class RehearsalControl(Control):
    """The control of a rehearsed command: there is no lease, and nothing it reports is kept."""

    def report(self, id: str, progress: Progress) -> None:
        pass

    @property
    def cancelled(self) -> bool:
        return False


# ---- What is captured, and undone


@contextmanager
def _undone(databases: Sequence[str], seen: Rehearsal) -> Iterator[None]:
    """A block whose changes to databases are rolled back, and whose mail and messages are held back."""
    if not databases:
        raise QueueError("There is no database that could be rolled back, so nothing can be rehearsed.")
    with ExitStack() as stack:
        for alias in databases:
            stack.enter_context(_rolled_back(alias, seen))
        for alias in _databases():
            wrapper = partial(_query, alias, seen) if alias in databases else partial(_refuse, alias)
            stack.enter_context(connections[alias].execute_wrapper(wrapper))
        for queue in [all_queues[alias] for alias in all_queues]:
            stack.callback(setattr, queue, "on_commit", queue.on_commit)
            queue.on_commit = databases[0]  # what is sent waits for a commit that never comes
        stack.enter_context(_mail_held_back(seen))
        yield


def _databases() -> list[str]:
    """The aliases of databases that can be rolled back."""
    return [alias for alias in connections if connections[alias].vendor != "unknown"]  # it is the dummy backend


@contextmanager
def _rolled_back(alias: str, seen: Rehearsal) -> Iterator[None]:
    connection = connections[alias]
    with outermost(alias):
        before = savepoints_of(connection)
        try:
            yield
        finally:
            for _, callback, *_ in registered(connection, before):
                sent = [f"{entry.command} ({queue.alias})" for queue, entry in sent_by(callback)]
                seen.enqueued += sent
                seen.callbacks += [] if sent else [_name_of(callback)]
            transaction.set_rollback(True, using=alias)


def _query(alias: str, seen: Rehearsal, execute: Callable, sql: str, *given: Any) -> Any:
    began = time.monotonic()
    try:
        return execute(sql, *given)
    finally:
        seen.queries.append(Query(alias, str(sql), time.monotonic() - began))


def _refuse(alias: str, *given: Any) -> Any:
    raise QueueError(f"The database {alias!r} is not rolled back, so a rehearsal must not use it.")


def _name_of(callback: Callable) -> str:
    func = callback.func if isinstance(callback, partial) else callback
    name = getattr(func, "__qualname__", "")
    return f"{func.__module__}.{name}" if name else repr(func)


@contextmanager
def _mail_held_back(seen: Rehearsal) -> Iterator[None]:
    """A block whose mail goes to ``mail.outbox``, as in tests."""
    earlier = getattr(mail, "outbox", [])
    mailers = getattr(settings, "MAILERS", None) if django.VERSION >= (6, 1) else None
    held = {"EMAIL_BACKEND": OUTBOX} if mailers is None else {"MAILERS": dict.fromkeys(mailers, {"BACKEND": OUTBOX})}
    mail.outbox = []
    try:
        with override_settings(**held):
            yield
    finally:
        seen.mails += [f"{', '.join(one.recipients())}: {one.subject}" for one in mail.outbox]
        mail.outbox = earlier
