"""An event loop that commands share: what one does to the loop, or to the tasks of another, costs that one alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from functools import partial
from numbers import Real
from types import FrameType
from typing import Any
from weakref import WeakSet

from djqueue.consumer.loop import frames_of_threads
from djqueue.consumer.loop_descriptors import Descriptors
from djqueue.consumer.loop_tasks import (
    HANDLE,
    LoopTask,
    MessageTask,
    OwnTask,
    UnownedFuture,
    answerable,
    context_of,
    note_collection,
)
from djqueue.exceptions import EventLoopMisused
from djqueue.messages.failures import kind_of, text_of
from djqueue.running.context import Job, jobs_of
from djqueue.utils import end_child, log_safely, plain

logger = logging.getLogger(__name__)

SOON = 1.0  # seconds: a loop that breaks again within this will not go on
STEPS = {"TaskStepMethWrapper", "TaskWakeupMethWrapper", "builtin_function_or_method"}
"""The types of what a loop calls for the next step of a task."""
GUARDED = {
    "stop": "it stopped the event loop of the consumer",
    "close": "it closed the event loop of the consumer",
    "set_task_factory": "it replaced the task factory of the consumer's event loop",
    "shutdown_asyncgens": "it closed all async generators of the consumer's event loop",
}
"""Methods of a loop that act on all its commands, and what a command that calls one has done."""


class SharedLoop:
    """Runs the loop until its end. The context of the code that does something says which message does it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: dict[Job, MessageTask] = {}
        self._ending = self._serves = False
        self._broke = 0.0
        self._thread = 0
        self._executor: Any = None
        self._factory = self._make_task
        self.loop.set_task_factory(self._factory)  # type: ignore[arg-type]
        self._set_handler = self.loop.set_exception_handler
        guards: dict[str, Callable[..., Any]] = {
            "set_exception_handler": self._set_exception_handler,
            "call_soon": partial(_call_soon, self.loop.call_soon),
            "call_soon_threadsafe": partial(_call_soon, self.loop.call_soon_threadsafe),
            "create_future": partial(_create_future, self.loop.create_future, self.loop),
        }
        for name, deed in GUARDED.items():
            guards[name] = partial(self._guard, getattr(self.loop, name), deed)
        if isinstance(self.loop, asyncio.BaseEventLoop):  # others have no such method
            guards["call_soon"] = _call_soon_of(self.loop)
            self._turn = self.loop._run_once  # type: ignore[attr-defined]
            guards |= {"_run_once": self._run_once, "call_at": partial(_call_at, self.loop.call_at)}
        if isinstance(self.loop, asyncio.SelectorEventLoop):
            guards |= Descriptors(self).guards
        for name, guard in guards.items():
            setattr(self.loop, name, guard)
        if isinstance(self.loop, asyncio.BaseEventLoop):
            self.loop.__class__ = _protected(type(self.loop), self._refuse_change)
        _loops.add(self)
        if note_collection not in gc.callbacks:
            gc.callbacks.append(note_collection)

    def run(self) -> None:
        """Run until :meth:`end`, whatever commands raise into the loop. Raises what comes of no command, and again."""
        asyncio.set_event_loop(self.loop)
        self._executor = getattr(self.loop, "_default_executor", None)
        self._thread, self._serves = threading.get_ident(), True
        try:
            while not self._ending:
                try:
                    self.loop.run_forever()
                except BaseException as error:
                    self._go_on_after(error)
        finally:
            self._ending, self._serves = True, False

    def end(self) -> None:
        """Have :meth:`run` return. From any thread."""
        self._ending = True
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop, context=Context())

    def _stop(self) -> None:
        """Stop the loop, unless :meth:`run` has returned: it may have ended meanwhile by itself."""
        if self._serves:
            self.loop.stop()

    def start(
        self,
        coroutine: Coroutine,
        jobs: Sequence[Job],
        name: str,
        context: Context,
        give_up: Callable[[MessageTask, str], None],
    ) -> MessageTask:
        """The task of a message, to be forgotten when it is done. In the thread of the loop."""
        task = MessageTask(coroutine, loop=self.loop, name=name, context=context)
        task.jobs, task.shared, task.context, task.give_up = jobs, self, context, give_up
        self._tasks[jobs[0]] = task
        return task

    def forget(self, jobs: Sequence[Job]) -> None:
        del self._tasks[jobs[0]]

    def serves(self, jobs: Sequence[Job]) -> bool:
        """Whether messages have a task that has not ended."""
        return jobs[0] in self._tasks

    def tasks(self) -> list[MessageTask]:
        """The tasks of all messages that run. From any thread."""
        return [*self._tasks.copy().values()]

    def runs_now(self) -> Sequence[Job]:
        """The messages whose code the loop runs just now, as far as that is known. From another thread."""
        frame = frames_of_threads().get(self._thread)
        handle = _handle_in(frame for frame, _ in traceback.walk_stack(frame)) if frame is not None else None
        return () if handle is None else jobs_of(handle._context)

    def accuse(self, jobs: Sequence[Job], deed: str, cause: BaseException | None = None) -> EventLoopMisused:
        """Have messages fail with an error that says what they did; the error. From any thread."""
        error = EventLoopMisused(f"{deed}: all async commands of a consumer share one event loop")
        error.__cause__ = cause
        task = self._tasks.get(jobs[0])
        if task is None:
            text, entry = "%s (message %s) had ended; then %s", jobs[0].entry
            log_safely(logger, logging.ERROR, text, plain(entry.command), plain(entry.id), error, exc_info=cause)
        elif jobs[0].control.fault is None:
            for job in jobs:
                job.control.fault = error
            self.loop.call_soon_threadsafe(task.punish, context=Context())
        return error

    def refuse(self, jobs: Sequence[Job], deed: str) -> EventLoopMisused:
        """The error to raise instead of a deed: messages fail with it, anything else is logged. From any thread."""
        if jobs:
            return self.accuse(jobs, deed)
        text = "Who serves no message, or a finalizer, is refused what would have harmed async commands: %s"
        log_safely(logger, logging.ERROR, text, deed)
        return EventLoopMisused(f"{deed}: it serves no message")

    def _run_once(self) -> None:
        """One turn of the loop. A command cannot run it from within, nor leave another loop running."""
        if jobs := jobs_of():
            raise self.accuse(jobs, "it ran the event loop of the consumer from within")
        try:
            self._turn()
        finally:
            loop: Any = self.loop
            if not (
                loop._task_factory is self._factory
                and loop._default_executor is self._executor
                and not loop._executor_shutdown_called
                and asyncio.current_task(loop) is None
                and asyncio._get_running_loop() is loop
            ):
                self._restore(loop)

    def _restore(self, loop: Any) -> None:
        """Undo at the end of a turn what a command did to the loop unseen."""
        if asyncio._get_running_loop() is not loop:
            asyncio._set_running_loop(loop)
            self._excuse_all("had another event loop run in this thread")
        if loop._task_factory is not self._factory:
            loop._task_factory = self._factory
            self._excuse_all("replaced the task factory of the event loop")
        if loop._executor_shutdown_called or loop._default_executor is not self._executor:
            loop._executor_shutdown_called, loop._default_executor = False, self._executor
            self._excuse_all("shut down or replaced the default executor of the event loop")
        if (task := asyncio.current_task(loop)) is not None:
            asyncio._leave_task(loop, task)  # type: ignore[attr-defined]
            self._excuse_all("had another task run in this thread")

    def _excuse_all(self, deed: str) -> None:
        log_safely(logger, logging.ERROR, "A command %s; the consumer's loop goes on", deed)
        for task in self.tasks():  # some have failed by it, but not all that they started has ended
            if task.may_repeat:
                task.excuse(Exception)

    def give_up_stalled(self) -> None:
        """End the messages with a task that never goes on: what it waits for is over, and no step of it is due."""
        if not isinstance(self.loop, asyncio.BaseEventLoop):
            return
        callbacks = [handle._callback for handle in [*self.loop._ready]]  # type: ignore[attr-defined]
        due = {id(callback.__self__) for callback in callbacks if kind_of(callback) in STEPS}
        stalled = [task for task in asyncio.all_tasks(self.loop) if id(task) not in due and _waits_for_nothing(task)]
        for task in stalled:
            owner = task.belongs_to() if isinstance(task, LoopTask) else None
            if owner is not None and not owner.done():
                owner.give_up(owner, "a task of it never goes on: what that waited for is over")

    def end_in_child(self) -> None:
        """Have a forked child end where it would return to the loop: it runs no message of its parent."""
        if isinstance(self.loop, asyncio.BaseEventLoop):
            self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop.call_soon(end_child, None)

    def _go_on_after(self, error: BaseException) -> None:
        handle = _handle_in(frame for frame, _ in traceback.walk_tb(error.__traceback__))
        if handle is not None:
            handle.cancel()  # a reader of a file would be called, and break it off, again and again
            if jobs := jobs_of(handle._context):
                deed = f"a task or callback that it started raised {_named(error)} and broke off the event loop"
                self.accuse(jobs, deed, error)
                return
        now = time.monotonic()
        if handle is None and now - self._broke < SOON:
            raise error
        self._broke = now
        log_safely(logger, logging.ERROR, "The event loop of async commands broke off; it goes on", exc_info=error)

    def _guard(self, method: Callable[..., Any], deed: str, *args: Any, **kwargs: Any) -> Any:
        if (jobs := answerable()) or not self._ending:
            raise self.refuse(jobs, deed)
        return method(*args, **kwargs)

    def _refuse_change(self, name: str) -> None:
        if self._serves:
            raise self.refuse(answerable(), f"it replaced {plain(name)}() of the consumer's event loop")

    def _set_exception_handler(self, handler: Callable[..., Any] | None) -> None:
        """It is everybody's, so the message that set it answers for what it raises."""
        context = copy_context() if answerable() else Context()
        self._set_handler(partial(self._handle, handler, context) if callable(handler) else handler)

    def _handle(self, handler: Callable[..., Any], context: Context, loop: Any, about: dict[str, Any]) -> None:
        """Call it in a copy of the context of the message that set it: what it does to the loop is done by that."""
        jobs = jobs_of(context)
        try:
            context.copy().run(handler, loop, about)
        except BaseException as error:
            self._set_handler(None)
            if jobs:
                self.accuse(jobs, f"its exception handler raised {_named(error)} in the event loop", error)
            loop.default_exception_handler(about)

    def _make_task(self, loop: Any, coroutine: Coroutine, **kwargs: Any) -> OwnTask:
        context = context_of(kwargs.pop("context", None))
        task = OwnTask(coroutine, loop=loop, context=context, **kwargs)
        jobs = jobs_of(context)
        task.owner = self._tasks.get(jobs[0]) if jobs else None
        return task


def _protected(kind: type, refuse: Callable[[str], None]) -> type:
    """A class of event loops whose methods cannot be replaced, but for the one by which libraries know of its end."""
    methods = {name for name in dir(kind) if callable(getattr(kind, name))} - {"close"}

    class Protected(kind):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            if name in methods:
                refuse(name)
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            if name in methods:
                refuse(name)
            super().__delattr__(name)

    Protected.__name__ = kind.__name__
    return Protected


def _waits_for_nothing(task: Any) -> bool:
    waiter = task._fut_waiter
    return waiter is None or issubclass(type(waiter), asyncio.Future) and asyncio.Future.done(waiter)


def _call_soon(call_soon: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
    return call_soon(*args, context=context_of(None) if context is None else context)


def _call_soon_of(loop: Any) -> Callable[..., asyncio.Handle]:
    """The guarded ``call_soon`` of a loop of asyncio. It does what that does, as each step of a task is a call."""
    unguarded, add, handle_of = loop.call_soon, loop._ready.append, asyncio.Handle

    def call_soon(callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        if context is None:
            context = context_of(None)
        if loop._debug or loop._closed:
            return unguarded(callback, *args, context=context)
        add(handle := handle_of(callback, args, loop, context))
        return handle

    return call_soon


def _create_future(create_future: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Any:
    return create_future() if context_of(None) is None else UnownedFuture(loop=loop)


def _call_at(call_at: Callable[..., Any], when: Any, *args: Any, context: Context | None = None) -> Any:
    """A timer that can be compared with all others. Raises TypeError or ValueError; ``call_later`` does so by this."""
    if type(when) is not float:
        if not isinstance(when, Real):
            raise TypeError(f"when is {kind_of(when)}: give a number of seconds, as of loop.time().")
        when = float(when)
    if when != when:
        raise ValueError("when is nan: give a number of seconds, as of loop.time().")
    return call_at(when, *args, context=context_of(context))


def _end_in_child() -> None:
    for loop in _loops:
        loop.end_in_child()


_loops: WeakSet[SharedLoop] = WeakSet()
os.register_at_fork(after_in_child=_end_in_child)


def _handle_in(frames: Iterable[FrameType]) -> Any:
    """What runs a callback, or a step of a task, in one of these frames."""
    return next((frame.f_locals["self"] for frame in frames if frame.f_code is HANDLE), None)


def _named(error: BaseException) -> str:
    return f"{kind_of(error)}: {text_of(error)}" if text_of(error) else kind_of(error)
