"""Async commands that run together on one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from traceback import StackSummary
from types import FrameType
from typing import Any, cast

from djqueue.backends.entries import log_extra
from djqueue.consumer.event_loop import MessageTask, SharedLoop
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import Member
from djqueue.consumer.loop_threads import LoopThreads, User
from djqueue.messages.failures import release
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.context import Job, jobs_of
from djqueue.running.executor import INTERRUPTED, Begun, broken_off, end_begun, run_begun
from djqueue.utils import clock, log_safely, plain

logger = logging.getLogger(__name__)

BLOCKED = 1.0  # seconds in which the loop is to answer
PULSE, LATE = 0.1, 0.02  # seconds between two looks how late the loop is, and from when on that counts
STALLED = 1.0  # seconds between two searches for tasks that do not go on
ENDING = 0.5  # seconds for the tasks that commands have left behind, when the loop ends
UNBEGUN = 30.0  # seconds for which the loop may be blocked while no message has begun
AGAIN = 1.0  # seconds until a message comes again that something else has ended
LOOK = 0.1  # seconds between two looks whether a message that waits for a place must go back


class Coroutines(Member):
    """The event loop of a consumer: runs up to ``limit`` messages of async commands at a time.

    Each message is a task. It uses the database in a thread of its own, as Django has it, and at most ``threads`` have
    such a thread at a time; others wait for one when they first need it.
    """

    def __init__(self, limit: int, threads: int, finish: Callable[[Message, Verdict], None]):
        super().__init__("djqueue-coroutines")
        self.limit = limit
        self._shared = SharedLoop()
        self.loop = self._shared.loop
        self._places: SimpleQueue[None] = SimpleQueue()
        """As many things as messages may begin. A semaphore, which is written in Python, takes five times as long."""
        for _ in range(limit):
            self.give_place()
        self.threads = LoopThreads(self.loop, threads, self.starvation)
        self._users: dict[Message, User] = {}
        self._left: set[Message] = set()
        """Messages that were given up, and whose coroutines still run."""
        self._finish = finish
        self._asked: float | None = None
        """When the loop was asked for an answer that it has not given yet."""
        self._is_logged = False
        self.is_stuck = False
        """Whether a message blocks the loop for longer than it may: only another process can go on."""
        self.leaves_tasks = True
        """Whether coroutines of commands go on when the loop has ended."""
        self._blamed: Sequence[Job] = ()
        """The messages that block the loop, or with which it died or had to be given up."""
        self._busy: Sequence[Job] = ()
        """The messages whose code ran when that was last asked."""
        self._pulse: asyncio.TimerHandle | None = None
        """Measures how late the loop is, while messages run."""
        self._answers = 0
        self._checked = 0.0
        """When tasks that do not go on were last searched for."""
        self._overdue: tuple[asyncio.TimerHandle, int] | None = None
        """A pulse that did not come, and how many answers had come when that was first noticed."""

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
        self.threads.close()
        self.leaves_tasks = await _cancel_all_others()

    def stop(self) -> None:
        """Cancel what still runs, and end."""
        self._shared.end()

    def take_place(self, recall: Callable[[], str]) -> str:
        """Wait for a place among those that run; or why there is none."""
        while not (has_one := self._has_taken_place()) and not recall():
            pass
        if (reason := recall()) and has_one:
            self.give_place()
        return reason

    def _has_taken_place(self) -> bool:
        try:
            self._places.get(timeout=LOOK)
        except Empty:
            return False
        return True

    def give_place(self) -> None:
        self._places.put(None)

    def start_task(self, message: Message, begun: Begun) -> None:
        """Run a message that has a place. From any thread; one that comes after the end was handed back before."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._start_task, message, begun)

    def _start_task(self, message: Message, begun: Begun) -> None:
        name, jobs = _name(begun.job), [begun.job]
        about = partial(log_extra, message.queue.alias, message.lease.entry)
        self._users[message] = user = self.threads.user(name, begun.control, about)
        ends: list[Verdict] = []
        give_up = partial(self._give_up, message, begun)
        task = self._shared.start(self._run(begun, user, ends), jobs, name, begun.context, give_up)
        if self._pulse is None:
            self._pulse = self.loop.call_later(PULSE, self._beat, context=Context())
        task.add_done_callback(partial(self._ended, message, begun, jobs, ends))

    async def _run(self, begun: Begun, user: User, ends: list[Verdict]) -> None:
        try:
            ends.append(await run_begun(begun, user))
        except GeneratorExit as error:  # of a function in a thread, say: it closes each coroutine on its way
            ends.append(broken_off(begun, error))

    def _ended(
        self, message: Message, begun: Begun, jobs: Sequence[Job], ends: Sequence[Verdict], task: asyncio.Task[Any]
    ) -> None:
        """Finish a message. Not in its task, which may be cancelled before its first step."""
        try:
            verdict = end_begun(begun, _excused(cast(MessageTask, task), ends))
        finally:
            self._shared.forget(jobs)
            del self._users[message]
            if message in self._left:
                self._left.remove(message)
            else:
                self.give_place()
            self._finish(message, verdict)
        if verdict.exception is not None:
            release([verdict.exception])  # now, as its frames may hold much memory

    def _give_up(self, message: Message, begun: Begun, task: MessageTask, why: str) -> None:
        """Finish a message without its task, which does not end."""
        if not task.done() and not begun.control.given_up:
            self._finish(message, end_begun(begun, _broken_off_by_others(task, why)))
            self._leave_behind(message)

    def stack_of(self, message: Message) -> StackSummary:
        """Where the coroutine of a message waits, the innermost frame last. From any thread."""
        task = self._task_of(message)
        return StackSummary.extract(_frames_of(None if task is None else asyncio.Task.get_coro(task)))

    def _task_of(self, message: Message) -> MessageTask | None:
        return next((task for task in self._shared.tasks() if _is_among(message, task.jobs)), None)

    def where_is(self, message: Message) -> str:
        """The traceback of what a message does: in the loop that it blocks, in a thread, or where it waits."""
        if self.is_blocked:
            return self.where()
        user = self._users.get(message)
        return (user.where() if user is not None else "") or "".join(traceback.format_list(self.stack_of(message)))

    def leave_behind(self, message: Message) -> None:
        """Go on without what a message that was given up does here: its place and its threads are free for others."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._leave_behind, message)

    def _leave_behind(self, message: Message) -> None:
        task = self._task_of(message)
        if task is None or message in self._left:
            return
        self._left.add(message)
        self.give_place()
        if (user := self._users.get(message)) is not None:
            user.leave_behind()
        task.interrupt()

    @property
    def stuck(self) -> int:
        """How many coroutines or threads do not end, if only a new process can go on."""
        left = len(self._left)
        return max(self.threads.stuck, left if left >= self.limit else 0, int(self.is_stuck))

    def await_(self, coroutine: Any) -> object:
        """Run a coroutine of another thread on this loop, and wait for it."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # so that none can cancel it
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
        jobs = jobs_of()
        name = _name(jobs[0]) if jobs else "Something"
        awaiting = _await_as(self.threads.user(name), coroutine)
        if jobs:
            own = self._shared.start(awaiting, jobs, name, copy_context(), partial(_give_up_for_thread, future))
            own.add_done_callback(partial(self._ended_for_thread, jobs), context=Context())
            own.add_done_callback(partial(_pass_on, future), context=Context())
        else:
            task = self.loop.create_task(awaiting, name=name)
            task.add_done_callback(partial(_pass_on, future))

    def _ended_for_thread(self, jobs: Sequence[Job], task: asyncio.Task[Any]) -> None:
        """Its message ends in the thread."""
        self._shared.forget(jobs)
        own = cast(MessageTask, task)
        if task.cancelled() and own.is_cancelled_by_others:
            own.excuse(asyncio.CancelledError)

    # ---- A coroutine that blocks stops all of them

    def look(self) -> None:
        """Log what keeps the loop from answering, once; if it does for longer than its lease, no other may wait on."""
        now, asked = clock(), self._asked  # the loop may answer meanwhile
        self._busy = self._shared.runs_now()
        if asked is None:
            self._asked, self._is_logged = now, False
            try:
                self.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                self._asked = None
        elif now - asked > BLOCKED:
            self._blamed = self._busy
            if not self._is_logged:
                self._is_logged = True
                self._log_blocked(now - asked)
            self.is_stuck = self.is_stuck or now - asked > self._patience()
        self._check_timers()

    def _check_timers(self) -> None:
        """A loop that answers, but whose timers do not fire, leaves messages waiting for ever."""
        pulse = self._pulse
        if pulse is None or self.loop.time() < pulse.when() + BLOCKED:
            self._overdue = None
        elif self._overdue is None or self._overdue[0] is not pulse:
            self._overdue = pulse, self._answers
        elif self._answers > self._overdue[1] + 1 and not self.is_stuck:  # it would have come before the second
            self._blamed = self._jobs()  # nothing says who did it, and it must not do so for ever
            self.is_stuck = True
            log_safely(
                logger, logging.CRITICAL, "The event loop of async commands has lost its timers; it cannot go on"
            )

    def _log_blocked(self, since: float) -> None:
        task = asyncio.current_task(self.loop)
        text = "%s blocks the event loop for %.1f s, and with it all async commands. It is here:\n%s"
        name = "Something" if task is None else task.get_name()
        log_safely(logger, logging.WARNING, text, name, since, self.where())

    def _patience(self) -> float:
        """For how many seconds the loop may be blocked."""
        jobs = self._blamed or self._jobs()
        leases = [(job.policy.lease, job.control.lease) for job in jobs]
        return min((own or lease.until - lease.claimed for own, lease in leases if lease is not None), default=UNBEGUN)

    def _jobs(self) -> list[Job]:
        return [job for task in self._shared.tasks() for job in task.jobs]

    @property
    def is_blocked(self) -> bool:
        asked = self._asked
        return asked is not None and clock() - asked > BLOCKED

    def blames(self, message: Message) -> bool:
        """Whether a message blocks the loop, or was on it when it died or had to be given up."""
        return _is_among(message, self._blamed)

    def spares(self, message: Message) -> bool:
        """Whether a message cannot go on because another one blocks the loop."""
        return self.is_blocked and bool(self._blamed) and not self.blames(message)

    def _answer(self) -> None:
        self._asked = None
        self._answers += 1
        self.move()
        if clock() - self._checked > STALLED:
            self._checked = clock()
            self._shared.give_up_stalled()

    def _beat(self) -> None:
        """The time for which a message keeps the loop busy does not count against the limits of others."""
        assert self._pulse is not None  # it is what calls this
        late = self.loop.time() - self._pulse.when()
        tasks = self._shared.tasks()
        for task in tasks if late > LATE else ():
            if not self._busy or task.jobs[0] is not self._busy[0]:
                task.delay(late)
        self._pulse = self.loop.call_later(PULSE, self._beat) if tasks else None


def _name(job: Job) -> str:
    return f"{plain(job.entry.command)} (message {plain(job.entry.id)})"


async def _cancel_all_others() -> bool:
    """Cancel what commands have started and not ended; whether some go on all the same."""
    others = asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
    for task in others:
        task.cancel()
    return bool(others and (await asyncio.wait(others, timeout=ENDING))[1])


async def _await_as(user: User, coroutine: Any) -> object:
    async with user:
        return await coroutine


def _excused(task: MessageTask, ends: Sequence[Verdict]) -> Verdict:
    """What becomes of the message of a task. It comes again if something else than its own code has ended it."""
    if not ends:
        return _broken_off_by_others(task, "cancelled before it began")
    error = ends[0].exception
    is_cancelled = type(error) is asyncio.CancelledError and task.is_cancelled_by_others
    if error is not None and (is_cancelled or issubclass(type(error), task.jobs[0].control.interrupts)):
        return _interrupted(error)
    return ends[0]


def _broken_off_by_others(task: MessageTask, why: str) -> Verdict:
    """It comes again, but not for ever."""
    return _interrupted(asyncio.CancelledError(why)) if task.may_repeat else Verdict(Outcome.FAILED, why)


def _interrupted(error: BaseException) -> Verdict:
    return Verdict(Outcome.INTERRUPTED, INTERRUPTED, error, delay=AGAIN)


def _is_among(message: Message, jobs: Iterable[Job]) -> bool:
    return any(job.queue is message.queue and job.entry.id == message.lease.entry.id for job in jobs)


def _give_up_for_thread(future: Future[Any], task: MessageTask, why: str) -> None:
    """Have the thread go on that waits for a task, which does not end."""
    if not future.done():
        if task.may_repeat:
            task.excuse(asyncio.CancelledError)
        future.set_exception(asyncio.CancelledError(why))


def _pass_on(future: Future[Any], task: asyncio.Task[Any]) -> None:
    """Give the end of a task to the thread that waits for it."""
    if future.done():
        return
    try:
        future.set_result(task.result())
    except BaseException as error:
        future.set_exception(error)


def _frames_of(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """The frames of a coroutine and of those that it awaits; none of one that has ended meanwhile."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        coroutine = coroutine.cr_await
