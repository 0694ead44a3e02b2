"""Async commands that run together on one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from math import inf
from traceback import StackSummary
from types import FrameType
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from djqueue.consumer.database_connections import mend_connections
from djqueue.consumer.event_loop import SharedLoop
from djqueue.consumer.in_flight import Held
from djqueue.consumer.loop import Member
from djqueue.exceptions import TimeLimitExceeded
from djqueue.messages.failures import release
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.context import Job, jobs_of
from djqueue.running.executor import Begun, end_begun, run_begun
from djqueue.utils import clock, plain, tell

logger = logging.getLogger(__name__)

BLOCKED = 1.0  # seconds in which the loop is to answer
LOOK = 0.1  # seconds between two looks whether a message that waits for a place must go back


class Coroutines(Member):
    """The event loop of a consumer: runs up to ``limit`` messages of async commands at a time.

    Each message is a task. It uses the database in a thread of its own, as Django has it, and at most ``threads`` have
    such a thread at a time; others wait for one when they first need it.
    """

    def __init__(self, limit: int, threads: int, finish: Callable[[Held, Verdict], None]):
        super().__init__("djqueue-coroutines")
        self.limit = limit
        self._shared = SharedLoop()
        self.loop = self._shared.loop
        self._places = threading.Semaphore(limit)
        self._threads = DatabaseThreads(threads)
        self._finish = finish
        self._asked: float | None = None
        """When the loop was asked for an answer that it has not given yet."""
        self._is_told = False
        self.is_stuck = False
        """Whether a message blocks the loop for longer than it may: only another process can go on."""
        self._blamed: Sequence[Job] = ()
        """The messages that block the loop, or with which it died."""

    def duty(self) -> None:
        try:
            self._shared.run()
            self.loop.run_until_complete(self._end())
        except BaseException:
            self._blamed = self._jobs()
            raise
        finally:
            self.loop.close()

    async def _end(self) -> None:
        tasks = self._shared.tasks()
        for task in tasks:
            task.interrupt()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        self._threads.close()

    def stop(self) -> None:
        """Cancel what still runs, and end."""
        self._shared.end()

    def take_place(self, recall: Callable[[], str]) -> str:
        """Wait for a place among those that run; or why there is none."""
        while not (has_one := self._places.acquire(timeout=LOOK)) and not recall():
            pass
        if (reason := recall()) and has_one:
            self.give_place()
        return reason

    def give_place(self) -> None:
        self._places.release()

    def start_task(self, held: Held, begun: Begun) -> None:
        """Run a message that has a place. From any thread; one that comes after the end was handed back before."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._start_task, held, begun)

    def _start_task(self, held: Held, begun: Begun) -> None:
        name = f"{plain(held.lease.entry.command)} (message {plain(held.lease.entry.id)})"
        ends: list[Verdict] = []
        jobs = [begun.job]
        task = self._shared.start(self._run(begun, ends), jobs, name, begun.context)
        task.add_done_callback(partial(self._ended, held, begun, jobs, ends))

    async def _run(self, begun: Begun, ends: list[Verdict]) -> None:
        with self._threads.for_this_task() as thread:
            ends.append(await run_begun(begun))
            if thread.is_used:
                await sync_to_async(mend_connections)()

    def _ended(
        self, held: Held, begun: Begun, jobs: Sequence[Job], ends: Sequence[Verdict], task: asyncio.Task[Any]
    ) -> None:
        """Finish a message. Not in its task, which may be cancelled before its first step."""
        verdict = ends[0] if ends else Verdict(Outcome.INTERRUPTED, "cancelled before it began")
        try:
            verdict = end_begun(begun, verdict)
        finally:
            self._shared.forget(jobs)
            self.give_place()
            self._finish(held, verdict)
        if verdict.exception is not None:
            release([verdict.exception])  # now, as its frames may hold much memory

    def stack_of(self, held: Held) -> StackSummary:
        """Where the coroutine of a message waits, the innermost frame last. From any thread."""
        task = next((task for task in self._shared.tasks() if _is_among(held, task.jobs)), None)
        return StackSummary.extract(_frames_of(None if task is None else task.get_coro()))

    def await_(self, coroutine: Any) -> object:
        """Run a coroutine of another thread on this loop, and wait for it."""
        future: Future[Any] = Future()
        try:
            self.loop.call_soon_threadsafe(self._start_for_thread, coroutine, future)
        except RuntimeError:  # the loop is closed, for no fault of the messages
            coroutine.close()
            for job in jobs_of():
                job.control.interrupts = (BaseException,)
            raise
        return future.result()

    def _start_for_thread(self, coroutine: Any, future: Future[Any]) -> None:
        """In a copy of the context of the thread."""
        task: asyncio.Task[Any]
        if jobs := jobs_of():
            task = self._shared.start(coroutine, jobs, plain(jobs[0].entry.command), copy_context())
            task.add_done_callback(lambda task: self._shared.forget(jobs))
        else:
            task = self.loop.create_task(coroutine)
        task.add_done_callback(partial(_pass_on, future))

    # ---- A coroutine that blocks stops all of them

    def look(self) -> None:
        """Log what keeps the loop from answering, once; if it does for longer than its lease, no other may wait on."""
        now = clock()
        if self._asked is None:
            self._asked, self._is_told = now, False
            self.loop.call_soon_threadsafe(self._answer)
        elif self.is_blocked:
            self._blamed = self._shared.runs_now()
            if not self._is_told:
                self._is_told = True
                self._tell_blocked(now - self._asked)
            self.is_stuck = self.is_stuck or now - self._asked > self._patience()

    def _tell_blocked(self, since: float) -> None:
        task = asyncio.current_task(self.loop)
        text = "%s blocks the event loop for %.1f s, and with it all async commands. It is here:\n%s"
        name = "Something" if task is None else task.get_name()
        tell(logger, logging.WARNING, text, name, since, self.where())

    def _patience(self) -> float:
        """For how many seconds the loop may be blocked."""
        jobs = self._blamed or self._jobs()
        leases = [(job.policy.lease, job.control.lease) for job in jobs]
        return min((own or lease.until - lease.claimed for own, lease in leases if lease is not None), default=inf)

    def _jobs(self) -> list[Job]:
        return [job for task in self._shared.tasks() for job in task.jobs]

    @property
    def is_blocked(self) -> bool:
        return self._asked is not None and clock() - self._asked > BLOCKED

    def blames(self, held: Held) -> bool:
        """Whether a message blocks the loop, or was on it when it died."""
        return _is_among(held, self._blamed)

    def spares(self, held: Held) -> bool:
        """Whether a message cannot go on because another one blocks the loop."""
        return self.is_blocked and bool(self._blamed) and not self.blames(held)

    def _answer(self) -> None:
        """The time for which one message blocked the loop does not count against the limits of others."""
        if self.is_blocked and not self.is_stuck:
            for task in self._shared.tasks():
                if self._blamed and task.jobs[0] is not self._blamed[0]:
                    task.excuse(TimeLimitExceeded)
        self._asked = None
        self.move()


def _is_among(held: Held, jobs: Iterable[Job]) -> bool:
    return any(job.queue is held.queue and job.entry.id == held.lease.entry.id for job in jobs)


def _pass_on(future: Future[Any], task: asyncio.Task[Any]) -> None:
    """Give the end of a task to the thread that waits for it."""
    try:
        future.set_result(task.result())
    except BaseException as error:
        future.set_exception(error)


def _frames_of(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """The frames of a coroutine and of those that it awaits; none of one that has ended meanwhile."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        coroutine = coroutine.cr_await


# ---- The threads in which async commands use the database


class DatabaseThreads:
    """A number of threads, each lent to one task at a time. Used from the thread of the event loop alone."""

    def __init__(self, count: int):
        self._free = [ThreadPoolExecutor(1, f"djqueue-coroutines-database-{number}") for number in range(1, count + 1)]
        self._all = [*self._free]
        self._waiting: deque[LentThread] = deque()

    @contextmanager
    def for_this_task(self) -> Iterator[LentThread]:
        """Have ``sync_to_async`` in this task, and so Django's async ORM, use a thread of these."""
        context, thread = ThreadSensitiveContext(), LentThread(self)
        SyncToAsync.thread_sensitive_context.set(context)
        SyncToAsync.context_to_thread_executor[context] = thread  # type: ignore[assignment]
        try:
            yield thread
        finally:
            del SyncToAsync.context_to_thread_executor[context]
            thread.give_back()

    def lend(self, thread: LentThread) -> None:
        """Give it a thread, at once or when another task gives one back."""
        if self._free:
            thread.take(self._free.pop())
        else:
            self._waiting.append(thread)

    def take_back(self, executor: ThreadPoolExecutor) -> None:
        if self._waiting:
            self._waiting.popleft().take(executor)
        else:
            self._free.append(executor)

    def forget(self, thread: LentThread) -> None:
        with suppress(ValueError):
            self._waiting.remove(thread)

    def close(self) -> None:
        for executor in self._all:
            executor.submit(connections.close_all)
            executor.shutdown(wait=False)


class LentThread(Executor):
    """Runs the synchronous functions of one task in one thread, from when there is one."""

    def __init__(self, threads: DatabaseThreads):
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.is_used = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.append((future, partial(fn, *args, **kwargs)))
        if self._executor is not None:
            self._executor.submit(self._call)
        elif not self.is_used:
            self.is_used = True
            self._threads.lend(self)
        return future

    def take(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        for _ in [*self._calls]:
            executor.submit(self._call)

    def give_back(self) -> None:
        if self._executor is not None:
            self._threads.take_back(self._executor)
        elif self.is_used:
            self._threads.forget(self)

    def _call(self) -> None:
        future, call = self._calls.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)
