"""Tasks on the event loop that commands share, and which message answers for what is done there."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from types import FrameType
from typing import Any, Protocol
from weakref import finalize

from djqueue.backends.entries import Entry
from djqueue.consumer.loop_threads import grace
from djqueue.exceptions import EventLoopMisused
from djqueue.messages.failures import errors_of, to_milliseconds
from djqueue.running.attempts import is_moment
from djqueue.running.context import Job, jobs_of
from djqueue.running.executor import INTERRUPTED
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

MOST_STARTS = 10
"""That many starts may others cancel; the last of them is a failure: a message must not come again for ever."""
HANDLE = asyncio.Handle._run.__code__
"""Where a loop of asyncio runs a callback, or a step of a task."""
FINALIZE = finalize.__call__.__code__
LED_TO = {"cr_await", "cr_frame", "gi_yieldfrom", "gi_frame", "ag_await", "ag_frame", "f_back"}
"""The attributes by which coroutines, generators and frames lead to others."""


_collecting: list[int] = []
"""The thread in which garbage is collected now, if it is."""


def note_collection(phase: str, info: object) -> None:
    _collecting[:] = [threading.get_ident()] if phase == "start" else []


def answerable() -> Sequence[Job]:
    """The messages that answer for what is done now: none for a finalizer, which runs in anybody's time."""
    jobs = jobs_of()
    if not jobs or (_collecting and threading.get_ident() in _collecting):
        return ()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (code := frame.f_code) is not HANDLE:
        if code.co_name == "__del__" or code is FINALIZE:
            return ()
        frame = frame.f_back
    return jobs


def are_same(some: Sequence[Job], others: Sequence[Job]) -> bool:
    """Whether they are the same messages, or none both times."""
    return some[0] is others[0] if some and others else not some and not others


def context_of(given: Context | None) -> Context | None:
    """What a finalizer starts runs for no message: that of an asynchronous generator, which closes it, does so."""
    return Context() if given is None and jobs_of() and not answerable() else given


class GuardedLoop(Protocol):
    """The part of the shared loop that its tasks and descriptors need."""

    loop: asyncio.AbstractEventLoop

    def tasks(self) -> Sequence[MessageTask]: ...
    def serves(self, jobs: Sequence[Job]) -> bool: ...
    def accuse(self, jobs: Sequence[Job], deed: str) -> EventLoopMisused: ...
    def refuse(self, jobs: Sequence[Job], deed: str) -> EventLoopMisused: ...


class View:
    """What a message sees of a coroutine or a frame of another one, and of those that it leads to."""

    def __init__(self, shown: Any, refuse: Callable[[], Exception]):
        self._shown, self._refuse = shown, refuse

    def __getattr__(self, name: str) -> Any:
        if name in ("close", "send", "throw", "clear"):
            raise self._refuse()
        if name == "f_locals":
            return {}  # by what they hold it could do the same
        value = getattr(self._shown, name)
        return View(value, self._refuse) if name in LED_TO and value is not None else value


class LoopTask(asyncio.Task[Any]):
    """A task on the loop. Its coroutine is run by the loop alone."""

    def belongs_to(self) -> MessageTask | None:
        """The task of the message that has started it."""
        raise NotImplementedError

    def get_coro(self) -> Any:
        return self._shown(super().get_coro())

    def add_done_callback(self, fn: Any, /, *, context: Context | None = None) -> None:
        if context is None and (context := context_of(None)) is None:
            context = copy_context()
        super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Any, /) -> int:
        """A message removes only those that it has added; code that serves no message removes none of a message."""
        by = answerable()
        if by or self.belongs_to() is not None:
            added: list[tuple[Any, Context]] = getattr(self, "_callbacks", None) or []
            fn = _Equal(fn, [callback for callback, context in added if not by or not are_same(by, jobs_of(context))])
        return super().remove_done_callback(fn)

    def set_name(self, value: object) -> None:
        super().set_name("".join([str(value)]))  # a plain str: others log it, and a derived class may raise then

    def get_stack(self, *, limit: int | None = None) -> list[Any]:
        return [self._shown(frame) for frame in super().get_stack(limit=limit)]

    def _shown(self, value: Any) -> Any:
        """A coroutine or a frame as it is, or as anybody but its message may see it."""
        by, owner = answerable(), self.belongs_to()
        if owner is None or are_same(by, owner.jobs):
            return value
        return View(value, partial(owner.shared.refuse, by, "it used the coroutine of another message"))


class MessageTask(LoopTask):
    """The task of a message, or of the messages of a batch: others cannot cancel it."""

    jobs: Sequence[Job]
    shared: GuardedLoop
    context: Context
    give_up: Callable[[MessageTask, str], None]
    """Ends its message without it, unless it has ended, and says why."""
    _own_cancels = 0
    """How often the message has cancelled this task and not taken it back, as ``asyncio.timeout`` does."""
    _disturbed_by: Sequence[Job] = ()
    _lost_tasks = _is_targeted = _is_interrupted = False
    """Whether code that serves no message has cancelled tasks that this one started, or has tried to cancel it; and
    whether it was interrupted for that."""

    def belongs_to(self) -> MessageTask:
        return self

    def cancel(self, msg: Any = None) -> bool:
        by = answerable()
        if by and not are_same(by, self.jobs):
            self.shared.accuse(by, "it cancelled the task of another message")
            return False
        if not by:
            text = "%s is not cancelled: who asks for it serves no message"
            log_safely(logger, logging.ERROR, text, self.get_name())
            self._is_targeted = True
            self._repeat_if_broken()
            return False
        self._own_cancels += 1
        return super().cancel(msg)

    def uncancel(self) -> int:
        self._own_cancels = max(0, self._own_cancels - 1)
        return super().uncancel()

    @property
    def is_cancelled_by_others(self) -> bool:
        """Whether nothing that it did itself explains that it ended with ``CancelledError``."""
        return not self._own_cancels and self.may_repeat

    def interrupt(self) -> bool:
        """Cancel it for no fault of its message, which comes again unless it ends well within the grace."""
        self.excuse(BaseException)
        self._give_up_after_grace()
        return super().cancel()

    def _give_up_after_grace(self) -> None:
        why = "it did not end when it was cancelled"
        self.shared.loop.call_later(grace(), self.give_up, self, why, context=Context())

    def excuse(self, error: type[BaseException]) -> None:
        """Have the run count as interrupted, not as failed, if it ends by this."""
        for job in self.jobs:
            if error not in job.control.interrupts:
                job.control.interrupts = (*job.control.interrupts, error)

    def disturb(self, by: Sequence[Job]) -> None:
        """Another message cancels a task that this one started, which may raise an error of its own by that."""
        self._disturbed_by = by
        if self.may_repeat:
            self.excuse(asyncio.CancelledError)
            self.excuse(Exception)

    def lose_a_task(self) -> None:
        """Code that serves no message cancels a task that this one started: a client's own thread may."""
        self._lost_tasks = True
        if self.may_repeat:
            self.excuse(asyncio.CancelledError)
            self.excuse(Exception)
        self._repeat_if_broken()

    def _repeat_if_broken(self) -> None:
        """Have it called again if all its tasks shall be cancelled: it may wait for one of them for ever."""
        if self._lost_tasks and self._is_targeted and not self._is_interrupted and self.may_repeat:
            self._is_interrupted = True  # it may wait for a task whose cancellation leads here again
            self.shared.loop.call_soon_threadsafe(self.interrupt, context=Context())

    def punish(self) -> None:
        """Cancel it, and have each message come again that lost a task by this."""
        super().cancel()
        self._give_up_after_grace()
        for task in self.shared.tasks():
            if are_same(task._disturbed_by, self.jobs):
                task.interrupt()

    def delay(self, seconds: float) -> None:
        """Have its time limit end later."""
        for job in self.jobs:
            self.context.run(job.control.delay, seconds)

    @property
    def may_repeat(self) -> bool:
        """Whether it may come again for no fault of its own."""
        return all(_interruptions_of(job.entry) < MOST_STARTS - 1 for job in self.jobs)


class UnownedFuture(asyncio.Future):
    """What a finalizer makes: what is called when it is done runs for no message."""

    def add_done_callback(self, fn: Any, /, *, context: Context | None = None) -> None:
        super().add_done_callback(fn, context=Context() if context is None else context)


class _Equal:
    """Equal to what an object is equal to, but for some callbacks: ``mock.ANY`` is equal to all of them."""

    def __init__(self, wanted: Any, kept: Sequence[Any]):
        self._wanted, self._kept = wanted, kept

    def __eq__(self, other: object) -> bool:
        return not any(other is one for one in self._kept) and bool(other == self._wanted)

    __hash__ = None  # type: ignore[assignment]


class OwnTask(LoopTask):
    """A task that a command started. Others may cancel it, as it may be of a client that they share."""

    owner: MessageTask | None = None

    def belongs_to(self) -> MessageTask | None:
        return self.owner

    def cancel(self, msg: Any = None) -> bool:
        by, owner = answerable(), self.owner
        if owner is None or owner.done() or are_same(by, owner.jobs):
            return super().cancel(msg)
        if not by:
            owner.lose_a_task()
        elif by[0].control.fault is not None:
            return False
        else:
            owner.disturb(by)
        return super().cancel(msg)


def _interruptions_of(entry: Entry) -> int:
    """How many starts were cancelled for no fault of the message, since it was put or requeued."""
    since = to_milliseconds(entry.created)
    return sum(
        record.get("reason") == INTERRUPTED and is_moment(at := record.get("at")) and at >= since
        for record in errors_of(entry.errors)
    )
