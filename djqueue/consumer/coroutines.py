"""Async commands that run together on one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from traceback import StackSummary
from types import FrameType
from typing import Any

from djqueue.backends.entries import log_extra
from djqueue.consumer.in_flight import Held
from djqueue.consumer.loop import Member
from djqueue.consumer.loop_threads import LoopThreads, User
from djqueue.messages.failures import release
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.context import current_message
from djqueue.running.executor import Begun, run_begun
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
        self.loop = asyncio.new_event_loop()
        self._places = threading.Semaphore(limit)
        self.threads = LoopThreads(self.loop, threads, self.starvation)
        self._users: dict[Held, User] = {}
        self._left: set[Held] = set()
        """Messages that were given up, and whose coroutines still run."""
        self._finish = finish
        self._tasks: dict[asyncio.Task[None], Held] = {}
        self._asked: float | None = None
        """When the loop was asked for an answer that it has not given yet."""
        self._is_told = False
        self.is_stuck = False
        """Whether a message that is to end blocks the loop: only another process can go on."""

    def duty(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self._end())
        finally:
            self.loop.close()

    async def _end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        self.threads.close()

    def stop(self) -> None:
        """Cancel what still runs, and end."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)

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
        name = _name(held.lease.entry.command, held.lease.entry.id)
        task = self.loop.create_task(self._run(held, begun), name=name, context=begun.context)
        self._tasks[task] = held
        task.add_done_callback(self._tasks.pop)

    async def _run(self, held: Held, begun: Begun) -> None:
        verdict = Verdict(Outcome.INTERRUPTED, "the consumer stopped while it ran")
        try:
            verdict = await self._verdict(held, begun)
        finally:
            if held not in self._left:
                self.give_place()
            self._left.discard(held)
            self._finish(held, verdict)

    async def _verdict(self, held: Held, begun: Begun) -> Verdict:
        entry = held.lease.entry
        name = _name(entry.command, entry.id)
        self._users[held] = user = self.threads.user(name, begun.control, log_extra(held.queue.alias, entry))
        try:
            verdict = await run_begun(begun, user)
        finally:
            del self._users[held]
        if verdict.exception is not None:
            release([verdict.exception])  # now, as its frames may hold much memory
        return verdict

    def stack_of(self, held: Held) -> StackSummary:
        """Where the coroutine of a message waits, the innermost frame last. From any thread."""
        task = next((task for task, one in self._tasks.copy().items() if one is held), None)
        return StackSummary.extract(_frames_of(None if task is None else task.get_coro()))

    def where_is(self, held: Held) -> str:
        """The traceback of what a message does: in the loop that it blocks, in a thread, or where it waits."""
        if self.is_blocked:
            return self.where()
        user = self._users.get(held)
        return (user.where() if user is not None else "") or "".join(traceback.format_list(self.stack_of(held)))

    def leave_behind(self, held: Held) -> None:
        """Go on without what a message that was given up does here: its place and its threads are free for others."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._leave_behind, held)

    def _leave_behind(self, held: Held) -> None:
        task = next((task for task, one in self._tasks.items() if one is held), None)
        if task is None or held in self._left:
            return
        self._left.add(held)
        self.give_place()
        if (user := self._users.get(held)) is not None:
            user.leave_behind()
        task.cancel()

    @property
    def stuck(self) -> int:
        """How many coroutines or threads do not end, if only a new process can go on."""
        left = len(self._left)
        return max(self.threads.stuck, left if left >= self.limit else 0, int(self.is_stuck))

    def await_(self, coroutine: Any) -> object:
        """Run a coroutine of another thread on this loop, and wait for it."""
        message = current_message()
        user = self.threads.user("Something" if message is None else _name(message.command, message.id))
        return asyncio.run_coroutine_threadsafe(_await_as(user, coroutine), self.loop).result()

    # ---- A coroutine that blocks stops all of them

    def look(self) -> None:
        """Log which message keeps the loop from answering, once."""
        now = clock()
        if self._asked is None:
            self._asked, self._is_told = now, False
            self.loop.call_soon_threadsafe(self._answer)
        elif self.is_blocked and not self._is_told:
            self._is_told = True
            task = asyncio.current_task(self.loop)
            text = "%s blocks the event loop for %.1f s, and with it all async commands. It is here:\n%s"
            name = "Something" if task is None else task.get_name()
            tell(logger, logging.WARNING, text, name, now - self._asked, self.where())

    @property
    def is_blocked(self) -> bool:
        return self._asked is not None and clock() - self._asked > BLOCKED

    def _answer(self) -> None:
        self._asked = None
        self.move()


def _name(command: str, id: str) -> str:
    return f"{plain(command)} (message {plain(id)})"


async def _await_as(user: User, coroutine: Any) -> object:
    async with user:
        return await coroutine


def _frames_of(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """The frames of a coroutine and of those that it awaits; none of one that has ended meanwhile."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        coroutine = coroutine.cr_await
