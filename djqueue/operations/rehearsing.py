"""Rehearsals: a message is run here, with its arguments, and what it did to databases, queues and mail is undone."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

from asgiref.sync import async_to_sync
from django.core import mail
from django.db import connections, transaction
from django.test.utils import override_settings

from djqueue import signals
from djqueue.backends.base import BaseQueue, Entry
from djqueue.backends.entries import FAILED
from djqueue.enqueueing.producer import OnceCommitted, encoded, sent_by
from djqueue.exceptions import QueueError
from djqueue.messages.codecs import Arguments
from djqueue.messages.envelope import Envelope, Message
from djqueue.messages.failures import begin_at_the_command
from djqueue.operations import messages
from djqueue.operations.actions import record
from djqueue.operations.messages import failed_queue
from djqueue.policies.policy import Policy
from djqueue.registry import Runnable, registry
from djqueue.running.context import Control, Job, open_entry
from djqueue.running.describing import arguments_of, result_of
from djqueue.running.executor import judged, note_attempts, policy_of, run_here
from djqueue.running.handlers import BatchRunnable
from djqueue.running.result_store import Progress
from djqueue.utils import near
from djqueue.wiring import queues as all_queues

OUTBOX = "django.core.mail.backends.locmem.EmailBackend"


class Query(NamedTuple):
    """A statement that was sent to a database."""

    database: str
    """The alias of the database."""
    sql: str
    """Without its parameters."""
    seconds: float


class Mail(NamedTuple):
    """A mail that would have been sent."""

    to: Sequence[str]
    subject: str


class Sent(NamedTuple):
    """A message that would have been enqueued."""

    queue: str
    """The alias of the queue."""
    command: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a message did when it was run here. All of it is undone but what went to other systems."""

    id: str
    queue: str
    """The alias of its queue."""
    call: str
    """The call as code; sensitive arguments are masked."""
    outcome: str
    """``done``, or what a consumer would make of the exception: ``retried``, ``failed``, ``discarded``, …"""
    reason: str
    """Why it was not done."""
    value: str
    """The ``repr`` of what it returned; masked if all of its command is sensitive."""
    exception: BaseException | None
    seconds: float
    """How long it ran."""
    queries: Sequence[Query]
    mails: Sequence[Mail]
    sent: Sequence[Sent]
    callbacks: Sequence[str]
    """The names of other functions that were to be called when the transaction commits."""

    @property
    def traceback(self) -> str:
        """From the command on; "" if nothing was raised."""
        return "" if self.exception is None else "".join(traceback.format_exception(self.exception))


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a message, to be run here."""

    queue: BaseQueue
    entry: Entry
    envelope: Envelope
    command: Runnable
    policy: Policy
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_changed: bool = False
    """Whether it has other arguments than the message."""

    @classmethod
    def of(cls, queue: BaseQueue, entry: Entry, changes: Mapping[str, Any] | None = None) -> Call:
        """The call of an entry of a queue, or of its failed queue, with some arguments changed, by their names.

        Raises InvalidMessage, UnknownCommand; TypeError for arguments that the command does not take.
        """
        envelope = open_entry(queue, entry)
        command = registry.find(envelope.command)
        arguments = envelope.arguments()  # reads model instances
        args, kwargs = _changed(command, arguments, changes) if changes else arguments
        return cls(queue, entry, envelope, command, policy_of(command, envelope), args, kwargs, bool(changes))

    def encoded(self) -> bytes:
        """The message, signed anew. Raises EncodeError, MessageTooLarge."""
        one, call = self.envelope, (self.args, self.kwargs)
        return encoded(Message(one.id, one.queue, one.command, *call, one.metadata, one.options), self.policy)


def _changed(command: Runnable, call: Arguments, changes: Mapping[str, Any]) -> Arguments:
    """A call with other arguments. Raises TypeError for what the command does not take."""
    if command.batched:
        raise TypeError(f"{command.name} is a batch command, whose arguments cannot be changed one by one.")
    bound = command.bind(call)
    args, kwargs = list(bound.args), dict(bound.kwargs)
    names = [name for name, one in bound.signature.parameters.items() if one.kind is not one.VAR_POSITIONAL]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in bound.signature.parameters.values())
    for name, value in changes.items():
        if name not in names and not takes_any:
            others = near(name, names) if names else "it takes none."
            raise TypeError(f"{command.name} has no argument {name!r}: {others}")
        place = names.index(name) if name in names else len(args)
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value
    command.bind((tuple(args), kwargs))
    return tuple(args), kwargs


# ---- The run


def rehearse(
    call: Call,
    on_error: Callable[[BaseException], object] = lambda error: None,
    databases: Sequence[str] | None = None,
) -> Rehearsal:
    """Run a call here, in transactions of databases (all by default) that are rolled back, and tell what it did.

    Statements to other databases are refused. Mail and the messages that it enqueues are held back. Requests to other
    systems, files, and what threads do that it starts are not undone. ``on_error`` is called with its exception, before
    anything is.
    """
    command, entry = call.command, replace(call.entry, attempts=call.entry.attempts + 1)
    args, kwargs = call.args, call.kwargs
    if command.batched:
        args, kwargs = (cast(BatchRunnable, command).item(args, kwargs),), {}
    control = RehearsalControl(call.queue, None)
    note_attempts(call.queue, entry, call.policy, control)
    job = Job(call.queue, entry, call.envelope, command, call.policy, control, args, kwargs)
    with _undone(_databases() if databases is None else databases) as seen:
        began = time.monotonic()
        value, error = _ran(job, on_error)
        seconds = time.monotonic() - began
    verdict = None if error is None else judged(call.policy, error, entry)
    return Rehearsal(
        id=entry.id,
        queue=call.queue.alias,
        call=arguments_of(command, call.args, call.kwargs),
        outcome="done" if verdict is None else verdict.outcome.effect.status,
        reason="" if verdict is None else verdict.reason,
        value="" if error is not None else result_of(command, value),
        exception=error,
        seconds=seconds,
        queries=seen.queries,
        mails=seen.mails,
        sent=seen.sent,
        callbacks=seen.callbacks,
    )


def _ran(job: Job, on_error: Callable[[BaseException], object]) -> tuple[object, BaseException | None]:
    """What a run returned, or raised."""
    try:
        return run_here(job, async_to_sync(_ended)), None
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        begin_at_the_command(error)
        on_error(error)
        return None, error


async def _ended(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await it in the loop of ``async_to_sync``, where the ORM works in this thread, within its transactions."""
    return await coroutine


class RehearsalControl(Control):
    """Answers a command that is rehearsed: there is no lease, and nothing it reports is kept."""

    def report(self, id: str, progress: Progress) -> None:
        pass

    @property
    def cancelled(self) -> bool:
        return False


@dataclass(slots=True)
class Seen:
    """What a run did."""

    queries: list[Query] = field(default_factory=list)
    mails: list[Mail] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    callbacks: list[str] = field(default_factory=list)

    def query(self, alias: str, execute: Callable, sql: str, params: Any, many: bool, context: dict) -> Any:
        """Send a statement to a database, and note it."""
        began = time.monotonic()
        try:
            return execute(sql, params, many, context)
        finally:
            self.queries.append(Query(alias, str(sql), time.monotonic() - began))

    def callback(self, callback: Callable) -> None:
        """Note a callback that waits for the commit."""
        if isinstance(callback, OnceCommitted):
            self.sent += [Sent(alias, entry.command) for alias, entry in sent_by(callback)]
        else:
            self.callbacks.append(_name_of(callback))


def _name_of(callback: Callable) -> str:
    func = callback.func if isinstance(callback, partial) else callback
    name = getattr(func, "__qualname__", "")
    return f"{func.__module__}.{name}" if name else repr(func)


@contextmanager
def _undone(databases: Sequence[str]) -> Iterator[Seen]:
    """A block whose changes to databases are rolled back, and whose mail and messages are held back."""
    seen = Seen()
    with ExitStack() as stack:
        for alias in _databases():
            if alias in databases:
                stack.enter_context(_rolled_back(alias, seen))
            step = seen.query if alias in databases else _refuse
            stack.enter_context(connections[alias].execute_wrapper(partial(step, alias)))
        for alias in all_queues:
            stack.enter_context(_held_back(all_queues[alias], databases))
        stack.enter_context(_mail_held_back(seen))
        stack.enter_context(_enqueued_is_told())
        yield seen


def _databases() -> list[str]:
    """The aliases of databases that can be rolled back."""
    return [alias for alias in connections if connections[alias].vendor != "unknown"]  # which is the dummy backend


def _refuse(alias: str, *args: Any) -> Any:
    raise QueueError(f"The database {alias!r} is not rolled back, so a rehearsal must not use it.")


@contextmanager
def _rolled_back(alias: str, seen: Seen) -> Iterator[None]:
    block = transaction.atomic(using=alias)
    block._from_testcase = True  # a durable block of the command is the outermost one but for this
    with block:
        before = len(connections[alias].run_on_commit)
        try:
            yield
        finally:
            for _, callback, *_ in connections[alias].run_on_commit[before:]:
                seen.callback(callback)
            transaction.set_rollback(True, using=alias)


@contextmanager
def _held_back(queue: BaseQueue, databases: Sequence[str]) -> Iterator[None]:
    """Have what is sent at once wait for a commit that never comes, unless it is part of such a transaction anyway."""
    was = queue.on_commit
    if databases and was not in databases and queue.database not in databases:
        queue.on_commit = databases[0]
    try:
        yield
    finally:
        queue.on_commit = was


@contextmanager
def _enqueued_is_told() -> Iterator[None]:
    """Have messages that are part of a transaction be told of when it commits, though no receiver is interested."""

    def receiver(**named: object) -> None:
        pass

    signals.enqueued.connect(receiver)
    try:
        yield
    finally:
        signals.enqueued.disconnect(receiver)


@contextmanager
def _mail_held_back(seen: Seen) -> Iterator[None]:
    outbox = getattr(mail, "outbox", None)
    mail.outbox = []
    try:
        with override_settings(EMAIL_BACKEND=OUTBOX):
            yield
    finally:
        seen.mails += [Mail(list(one.recipients()), str(one.subject)) for one in mail.outbox]
        if outbox is None:
            del mail.outbox
        else:
            mail.outbox = outbox


# ---- Afterwards


def put_back(call: Call, state: str, by: str = "") -> bool:
    """Requeue the message of a call that has failed, with the arguments that were changed; whether it was there still.

    A message that waits gets these arguments where it is. Raises EncodeError, MessageTooLarge.
    """
    queue, id = call.queue, call.entry.id
    source = failed_queue(queue) if state == FAILED else queue
    if call.is_changed and not source.amend(id, call.entry.body, call.encoded()):
        return False
    done = messages.requeue(queue, [id], by=by) == 1 if state == FAILED else True
    if call.is_changed:
        record(queue, "change arguments", id, 1, by)
    return done


def as_object(one: Rehearsal) -> dict[str, Any]:
    """A rehearsal, for JSON."""
    known = {name: getattr(one, name) for name in ("id", "queue", "call", "outcome", "seconds")}
    texts = {name: getattr(one, name) or None for name in ("reason", "value", "traceback")}
    did = {name: [each._asdict() for each in getattr(one, name)] for name in ("queries", "mails", "sent")}
    return known | texts | did | {"callbacks": list(one.callbacks)}


def argument(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``; the value is JSON, or else the text itself. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"{text!r} is not of the form name=value.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
