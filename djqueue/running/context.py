"""Running one call: the context around it, and the message that it can ask about itself."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from math import inf
from types import CoroutineType
from typing import Any, Self

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.exceptions import TimeLimitExceeded
from djqueue.messages.envelope import Envelope, open_envelope
from djqueue.messages.failures import LONGEST_REASON, text_of
from djqueue.messages.metadata import carriers
from djqueue.policies.policy import Policy
from djqueue.registry import Runnable
from djqueue.running.attempts import Attempt
from djqueue.running.ends import Progress
from djqueue.running.result_store import is_cancelled, report_progress
from djqueue.utils import ChildrenEnd, log_safely, run_in_parent

logger = logging.getLogger(__name__)

Awaiter = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end; a worker thread gives the one of its own event loop."""


WAITS_FOR_ITSELF = "This function runs in the thread that it would wait for: call it without await."


class Control:
    """Answers a running command's questions to its consumer or loop. This one asks the queue, at once.

    A consumer has another one, which asks from other threads, on connections of its own.
    """

    interrupts: tuple[type[BaseException], ...] = ()
    """Exceptions that are meant for the consumer or the loop, not for the message."""
    patience = 1
    """How many times ``max_lost`` starts may be lost while no process saw them end."""
    throttled = False
    """Whether it has a slot in which it is to begin."""
    begins_by = inf
    """The moment by which it must begin, if it is throttled, by :func:`djqueue.utils.clock`."""
    fault: BaseException | None = None
    """What it did to an event loop that it shares, for which it fails however it ends."""
    attempts: Sequence[Attempt] | None = None
    """Of a call through Django's tasks: its attempts, this one too."""
    ends: float | None = None
    """When its consumer gives it up, by :func:`djqueue.utils.clock`; None without a time limit."""
    description = ""
    """What the command says of its call, once it runs."""

    def __init__(self, queue: BaseQueue, lease: Lease | None):
        self.queue = queue
        self.lease = lease
        self._is_lost = False

    @property
    def owner(self) -> str:
        """The name of the consumer, or of the process."""
        return f"{socket.gethostname()}:{os.getpid()}"

    run: Any = None
    """The run that instruments follow, if there are any."""

    @property
    def started(self) -> float:
        """When it begins, by the clock of the store (epoch seconds)."""
        return self.queue.now() if self.lease is None else self.lease.claimed

    @property
    def stopping(self) -> bool:
        """Whether the consumer is about to stop."""
        return False

    @property
    def lease_lost(self) -> bool:
        """Whether another consumer is known to hold the message by now."""
        return self._is_lost

    @property
    def given_up(self) -> bool:
        """Whether the consumer has already decided what becomes of the message."""
        return False

    @property
    def late(self) -> float:
        """The seconds that the message has waited, if it is throttled and that is too long to begin now, else 0."""
        return 0.0

    def defer(self, controls: Sequence[Self], seconds: float) -> bool:
        """Have the throttle count all of these messages from ``seconds`` later on; whether they may begin then."""
        return False

    waited = 0.0
    """Seconds for which it waited for a thread of the consumer: they do not count against its time limit."""
    timeout: asyncio.Timeout | None = None
    """What cancels it at its time limit, if it runs on the event loop of a consumer."""

    def describe(self, description: str) -> None:
        """Called with what the command says of its call, before it runs."""

    def wait(self) -> None:
        """Have its time limit stand still until :meth:`go_on`, while it waits for a thread of the consumer."""

    def go_on(self) -> None:
        """Have its time limit go on, as much later as it waited."""

    def delay(self, seconds: float) -> None:
        """Have its time limit end later, as others have kept the event loop of the consumer busy."""

    def begin(self, policy: Policy) -> None:
        """Called with the options of the message when it is about to run."""
        if policy.lease is not None:
            self.touch(policy.lease)

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel()`` was called on its result."""
        return self.lease is not None and is_cancelled(self.queue, self.lease.entry)

    @property
    def called_off(self) -> bool:
        """Whether it was cancelled in an earlier run, so that it must not run again. Not asked at a first start."""
        return self.cancelled

    def report(self, id: str, progress: Progress) -> None:
        """Report progress to the holders of the result. If the store fails the report is lost, not the work."""
        try:
            report_progress(self.queue, id, progress)
        except Exception as error:
            log_safely(logger, logging.ERROR, "The progress of message %s could not be kept", id, exc_info=error)

    def touch(self, seconds: float) -> bool:
        """Extend the lease to ``seconds`` from now; whether it is still ours."""
        if self.lease is not None:
            self._is_lost = not self.queue.touch([self.lease], seconds)
        return not self.lease_lost


class TooLate(BaseException):
    """A throttled message left its lane too long ago to begin."""


class NoThread(RuntimeError):
    """This process can start no thread in which an async command could use its database."""


class LoopControl(Control):
    """The control in a loop of one's own, where Ctrl-C is meant for the loop: the message goes back."""

    interrupts = (KeyboardInterrupt,)


@dataclass(frozen=True, slots=True)
class CurrentMessage:
    """The message that a running command serves."""

    id: str
    """Unique, and the same at every attempt: an idempotency key for other systems."""
    attempt: int
    """1 at the first start."""
    command: str
    queue_name: str
    """The alias of its queue."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """The values of the producers of metadata, by namespace."""
    time_limit: float | None = None
    """Seconds for which this start may run; None: no limit."""
    control: Control | None = field(default=None, repr=False, compare=False)
    began: float = field(default_factory=time.monotonic, repr=False, compare=False)

    @property
    def stopping(self) -> bool:
        """Whether the consumer wants to stop: a command that can end early should; by ``Retry(after=0)`` it goes on
        in another consumer."""
        return self.control is not None and self.control.stopping

    @property
    def lease_lost(self) -> bool:
        """Whether another process holds the message by now: all that this start still does is done twice."""
        return self.control is not None and self.control.lease_lost

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel()`` was called on its result. In a consumer that is known within a second."""
        return self.control is not None and self.control.cancelled

    @property
    def remaining(self) -> float:
        """Seconds until its time limit; infinity without one, negative when it is over."""
        return inf if self.time_limit is None else self.began + self._waited + self.time_limit - time.monotonic()

    @property
    def _waited(self) -> float:
        return 0.0 if self.control is None else self.control.waited

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress to the holders of the result. In a consumer this takes no time; the newest report counts."""
        if self.control is not None:
            self.control.report(self.id, Progress(done, total, note[:LONGEST_REASON]))

    def touch(self, seconds: float = 60.0) -> bool:
        """Extend the lease to ``seconds`` from now; whether it is still ours. A consumer does so by itself."""
        return self.control is None or self.control.touch(seconds)


@dataclass(slots=True, eq=False)
class Job:
    """A message that runs, or is about to; for a batch command its one argument is the item in the batch."""

    queue: BaseQueue
    entry: Entry
    envelope: Envelope
    command: Runnable
    policy: Policy
    control: Control
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    keep: float = 0.0
    """Seconds for which its result is kept."""
    description: str = ""
    """What ``describe`` says of the call."""
    place: int = 0
    """Its index among the messages that were claimed together."""
    began: float = field(default_factory=time.monotonic)
    _message: CurrentMessage | None = None

    @property
    def message(self) -> CurrentMessage:
        """The message as its command sees it; made when it is first asked for."""
        if self._message is None:
            about = self.queue.alias, self.envelope.metadata, self.policy.time_limit, self.control, self.began
            self._message = CurrentMessage(self.entry.id, self.entry.attempts, self.envelope.command, *about)
        return self._message


_current: ContextVar[Sequence[Job]] = ContextVar("djqueue_current_jobs", default=())


def jobs_of(context: Context | None = None) -> Sequence[Job]:
    """The messages for which code runs, in this context or the given one; empty outside of a command."""
    return _current.get() if context is None else context.get(_current, ())


def current_message() -> CurrentMessage | None:
    """The message that this thread or task is running, the first of a batch; None outside of a command."""
    jobs = _current.get()
    return jobs[0].message if jobs else None


def current_batch() -> list[CurrentMessage]:
    """The messages that this thread or task is running together, in the order of the batch's items."""
    return [job.message for job in _current.get()]


def open_entry(queue: BaseQueue, entry: Entry) -> Envelope:
    """The verified envelope of an entry. Raises InvalidMessage."""
    return open_envelope(
        entry.body,
        id=entry.id,
        queue=queue.base_name,
        accept=conf.get("QUEUE_ACCEPT"),
        max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
    )


def call(
    jobs: Sequence[Job], func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], await_: Awaiter
) -> Any:
    """Call the function of a command for its messages.

    Run it in a context of its own: then nothing that the command activates (language, time zone) outlives it.
    """
    enter(jobs)
    value = run_in_parent(func, *args, **kwargs)
    if isinstance(value, CoroutineType):  # of an async function, or of one that was wrapped
        limits = [job.policy.time_limit for job in jobs if job.policy.time_limit is not None]
        return run_coroutine(await_, with_own_thread(value, min(limits, default=None)))
    return value


def enter(jobs: Sequence[Job]) -> None:
    """Make them the current messages of this context; for several messages the metadata of the first one counts."""
    _current.set(jobs)
    if carriers.registered:
        carriers.consume(jobs[0].envelope.metadata, jobs[0].queue.alias)
    if jobs[0].entry.gate and any(job.control.throttled for job in jobs):
        _begin_in_time([job.control for job in jobs])


async def acall(job: Job, threads: AbstractAsyncContextManager[Any]) -> Any:
    """Call the async function of a command for a message that was entered, with threads for what it calls."""
    async with threads:
        coroutine = run_in_parent(job.command.func, *job.args, **job.kwargs)
        return await in_time(coroutine, job.policy.time_limit, job.control)


def run_coroutine(await_: Awaiter, coroutine: Coroutine) -> Any:
    """What it returns or raises. Neither goes through asyncio, which waits for ever if an exception overrides
    ``__class__``, and sometimes calls a result's repr()."""
    ends: list[tuple[Any, BaseException | None]] = []
    await_(_ended(coroutine, ends))
    [(value, error)] = ends
    if error is None:
        return value
    try:
        raise error
    finally:
        del error, ends


async def _ended(coroutine: Coroutine[Any, Any, Any], ends: list[tuple[Any, BaseException | None]]) -> None:
    try:
        ends.append((await coroutine, None))
    except BaseException as error:
        if type(error) is asyncio.CancelledError:  # the loop's own
            raise
        ends.append((None, error))


def _begin_in_time(controls: Sequence[Control]) -> None:
    """Have throttled messages counted from their start: a busy thread may begin them late. Raises TooLate."""
    seconds = 0.0
    while late := [control for control in controls if control.late]:
        seconds = 2 * max(seconds, *(control.late for control in late))
        if not late[0].defer(late, seconds):
            raise TooLate


async def with_own_thread(coroutine: Coroutine[Any, Any, Any], limit: float | None = None) -> Any:
    """Await it, for up to ``limit`` seconds: a coroutine can be stopped where it waits, unlike a function.

    Django's async ORM works in a thread next to the loop: this call has its own, whose connections end with it.
    """
    async with ThreadSensitiveContext() as context:
        SyncToAsync.context_to_thread_executor[context] = thread = OwnThread()
        try:
            return await in_time(coroutine, limit)
        finally:
            try:
                if thread.is_used:  # else there is no such thread: do not start one
                    await sync_to_async(connections.close_all)()
            finally:  # asgiref would start a thread to wait for this one, and there may be room for none
                SyncToAsync.context_to_thread_executor.pop(context, None)
                thread.shutdown(wait=False)


class OwnThread(Executor):
    """The thread in which one call uses its database, started when it is first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()  # functions of the call may ask from several threads
        self._ident = 0

    @property
    def is_used(self) -> bool:
        return self._pool is not None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises NoThread if it cannot be started. Then the function is not called."""
        if self._ident == threading.get_ident():
            raise RuntimeError(WAITS_FOR_ITSELF)
        with self._starting:
            if self._pool is not None:
                return self._pool.submit(fn, *args, **kwargs)
            pool = ThreadPoolExecutor(1, initializer=self._begin)
            try:
                future = pool.submit(fn, *args, **kwargs)
            except RuntimeError as error:
                raise NoThread(text_of(error)) from error
            self._pool = pool
            return future

    def _begin(self) -> None:
        self._ident = threading.get_ident()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)


async def in_time(coroutine: Coroutine[Any, Any, Any], limit: float | None, control: Control | None = None) -> Any:
    """Await it, for up to ``limit`` seconds, unless its control gives it more. Raises TimeLimitExceeded."""
    if limit is None:
        with ChildrenEnd():
            return await coroutine
    try:
        async with asyncio.timeout(limit) as timeout:
            if control is not None:
                control.timeout = timeout
            with ChildrenEnd():
                return await coroutine
    except TimeoutError as error:
        if timeout.expired():
            raise TimeLimitExceeded(f"it ran for longer than its time_limit of {limit:g} s") from error
        raise
    finally:
        if control is not None:
            control.timeout = None
