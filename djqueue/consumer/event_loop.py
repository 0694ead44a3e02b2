"""An event loop that commands share: what one does to the loop, or to the tasks of another, costs that one alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from functools import partial
from numbers import Real
from types import FrameType
from typing import Any, cast
from weakref import WeakSet, finalize

from djqueue.backends.entries import Entry
from djqueue.consumer.loop import frames_of_threads
from djqueue.consumer.loop_threads import grace
from djqueue.exceptions import EventLoopMisused
from djqueue.messages.failures import errors_of, kind_of, text_of, to_milliseconds
from djqueue.running.attempts import is_moment
from djqueue.running.context import Job, jobs_of
from djqueue.running.executor import INTERRUPTED
from djqueue.utils import end_child, log_safely, plain

logger = logging.getLogger(__name__)

SOON = 1.0  # seconds: a loop that breaks again within this will not go on
MOST_STARTS = 10
"""That many starts may others cancel; the last of them is a failure: a message must not come again for ever."""
HANDLE = asyncio.Handle._run.__code__
"""Where a loop of asyncio runs a callback, or a step of a task."""
STEPS = {"TaskStepMethWrapper", "TaskWakeupMethWrapper", "builtin_function_or_method"}
"""The types of what a loop calls for the next step of a task."""
FINALIZE = finalize.__call__.__code__
READER, WRITER = 0, 1
"""Where the selector of asyncio keeps the handles of a descriptor."""
LED_TO = {"cr_await", "cr_frame", "gi_yieldfrom", "gi_frame", "ag_await", "ag_frame", "f_back"}
"""The attributes by which coroutines, generators and frames lead to others."""
GUARDED = {
    "stop": "it stopped the event loop of the consumer",
    "close": "it closed the event loop of the consumer",
    "set_task_factory": "it replaced the task factory of the consumer's event loop",
    "shutdown_asyncgens": "it closed all async generators of the consumer's event loop",
}
"""Methods of a loop that act on all its commands, and what a command that calls one has done."""


_collecting: list[int] = []
"""The thread in which garbage is collected now, if it is."""


def _note_collection(phase: str, info: object) -> None:
    _collecting[:] = [threading.get_ident()] if phase == "start" else []


def answerable() -> Sequence[Job]:
    """The messages that answer for what is done now: none for a finalizer, which runs in anybody's time."""
    jobs, frame = jobs_of(), sys._getframe(1)
    if jobs and threading.get_ident() in _collecting:
        return ()
    while jobs and frame.f_code is not HANDLE and frame.f_back is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code is FINALIZE:
            return ()
        frame = frame.f_back
    return jobs


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
        found = _context_of(context)
        super().add_done_callback(fn, context=copy_context() if found is None else found)

    def remove_done_callback(self, fn: Any, /) -> int:
        """A message takes away those alone that it has added, and code that serves no message none of a message."""
        by = answerable()
        if by or self.belongs_to() is not None:
            added: list[tuple[Any, Context]] = getattr(self, "_callbacks", None) or []
            fn = _Equal(fn, [callback for callback, context in added if not by or not _are_same(by, jobs_of(context))])
        return super().remove_done_callback(fn)

    def set_name(self, value: object) -> None:
        super().set_name("".join([str(value)]))  # a plain str: others log it, and a derived class may raise then

    def get_stack(self, *, limit: int | None = None) -> list[Any]:
        return [self._shown(frame) for frame in super().get_stack(limit=limit)]

    def _shown(self, value: Any) -> Any:
        """A coroutine or a frame as it is, or as anybody but its message may see it."""
        by, owner = answerable(), self.belongs_to()
        if owner is None or _are_same(by, owner.jobs):
            return value
        return View(value, partial(owner.shared.refuse, by, "it used the coroutine of another message"))


class MessageTask(LoopTask):
    """The task of a message, or of the messages of a batch: others cannot cancel it."""

    jobs: Sequence[Job]
    shared: SharedLoop
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
        if by and by[0] is not self.jobs[0]:
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
        """Have it come again if all its tasks are to be cancelled: it may wait for one of them for ever."""
        if self._lost_tasks and self._is_targeted and not self._is_interrupted and self.may_repeat:
            self._is_interrupted = True  # it may wait for a task whose cancellation leads here again
            self.shared.loop.call_soon_threadsafe(self.interrupt, context=Context())

    def punish(self) -> None:
        """Cancel it, and have all messages come again of which it cancelled a task."""
        super().cancel()
        self._give_up_after_grace()
        for task in self.shared.tasks():
            if task._disturbed_by and task._disturbed_by[0] is self.jobs[0]:
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


def _are_same(some: Sequence[Job], others: Sequence[Job]) -> bool:
    """Whether they are the same messages, or none both times."""
    return some[0] is others[0] if some and others else not some and not others


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
        if owner is None or owner.done() or by and by[0] is owner.jobs[0]:
            return super().cancel(msg)
        if not by:
            owner.lose_a_task()
        elif by[0].control.fault is not None:
            return False
        else:
            owner.disturb(by)
        return super().cancel(msg)


class Descriptors:
    """Guards readers and writers, which asyncio keys by the number of their descriptor alone."""

    def __init__(self, shared: SharedLoop):
        self._shared, self._loop = shared, cast(Any, shared.loop)
        self._own = set(self._loop._selector.get_map())
        """Those of the loop itself."""
        self._files: dict[int, tuple[int, int] | None] = {number: _file_of(number) for number in self._own}
        """The file that each of them meant when it was last added."""

    @property
    def guards(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of methods of the loop."""
        guards: dict[str, Callable[..., Any]] = {
            "add_reader": partial(self._change, READER),
            "add_writer": partial(self._change, WRITER),
            "remove_reader": partial(self._change, READER),
            "remove_writer": partial(self._change, WRITER),
            "_add_reader": partial(self._add, READER),
            "_add_writer": partial(self._add, WRITER),
            "_remove_reader": self._remove,
            "_remove_writer": self._remove,
            "_ensure_fd_no_transport": self._ensure_free,
        }
        return {name: partial(guard, getattr(self._loop, name)) for name, guard in guards.items()}

    def _change(self, slot: int, change: Callable[..., Any], fd: Any, *args: Any) -> Any:
        """Add or remove, unless that takes from another message that runs, or from the loop, what it waits for."""
        number = _number_of(fd)
        key = self._loop._selector.get_map().get(number)
        if key is not None and _file_of(number) == self._files.get(number):
            if number in self._own or self._is_of_another(key.data[slot]):
                raise self._refuse()
        return change(number, *args)

    def _add(self, slot: int, add: Callable[..., Any], fd: Any, *args: Any) -> Any:
        """Add it, in the place of one for a file that was closed: the selector would go on waiting for that."""
        number, selector = _number_of(fd), self._loop._selector
        file, key = _file_of(number), selector.get_map().get(number)
        if key is not None and self._files.get(number) != file:
            selector.unregister(number)
            self._own.discard(number)
            for handle in key.data:
                if handle is not None:
                    handle.cancel()
        elif key is not None:
            held = key.data[slot]
            if number in self._own or self._is_of_another(held) and not _may_take(held._callback, args[0]):
                raise self._refuse()
        self._files[number] = file
        context = _context_of(None)
        return add(number, *args) if context is None else context.run(add, number, *args)

    def _is_of_another(self, handle: Any) -> bool:
        """Whether it was added by a message that runs, but by another one."""
        owner = () if handle is None or handle.cancelled() else jobs_of(handle._context)
        return bool(owner) and not _are_same(answerable(), owner) and self._shared.serves(owner)

    def _refuse(self) -> EventLoopMisused:
        return self._shared.refuse(answerable(), "it changed a file descriptor for which others wait")

    def _remove(self, remove: Callable[..., Any], number: Any) -> Any:
        """Remove it, unless a transport asks for what is not its own: its socket was closed, and the number is of
        another one now."""
        caller, key = sys._getframe(1).f_locals.get("self"), self._loop._selector.get_map().get(number)
        if key is not None and isinstance(caller, asyncio.BaseTransport):
            handles = [handle for handle in key.data if handle is not None]
            if not any(getattr(handle._callback, "__self__", None) is caller for handle in handles):
                return False
        return remove(number)

    def _ensure_free(self, ensure: Callable[..., Any], fd: Any) -> Any:
        """Refuse what a transport uses, but not for one whose socket was closed without it."""
        number, transports = _number_of(fd), self._loop._transports
        if (transport := transports.get(number)) is not None:
            file = _file_of(number)
            if transport._sock is None or transport._sock.fileno() != number or self._files.get(number, file) != file:
                del transports[number]
        return ensure(number)


def _may_take(held: Any, callback: Any) -> bool:
    """Whether both are of one transport, which messages may share, or it is of a transport that closes its pipe in
    the end: that of a subprocess asks for it a while after it was opened."""
    transport = getattr(callback, "__self__", None)
    pipe = getattr(transport, "_pipe", None)
    is_the_same = isinstance(transport, asyncio.BaseTransport) and getattr(held, "__self__", None) is transport
    return is_the_same or bool(getattr(getattr(pipe, "raw", pipe), "closefd", False))


def _number_of(fd: Any) -> int:
    """Asked once, and a plain int: an object may answer otherwise the next time."""
    return int.__int__(fd if isinstance(fd, int) else int(fd.fileno()))


def _file_of(number: int) -> tuple[int, int] | None:
    """What tells one open file or socket from another; None if it is closed."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
            self._turn = self.loop._run_once  # type: ignore[attr-defined]
            guards |= {"_run_once": self._run_once, "call_at": partial(_call_at, self.loop.call_at)}
        if isinstance(self.loop, asyncio.SelectorEventLoop):
            guards |= Descriptors(self).guards
        for name, guard in guards.items():
            setattr(self.loop, name, guard)
        _loops.add(self)
        if _note_collection not in gc.callbacks:
            gc.callbacks.append(_note_collection)

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
            self._restore()

    def _restore(self) -> None:
        """Undo at the end of a turn what a command did to the loop unseen."""
        loop: Any = self.loop
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
        """End the messages of which a task never goes on: what it waits for is over, and no step of it is due."""
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
        context = _context_of(kwargs.pop("context", None))
        task = OwnTask(coroutine, loop=loop, context=context, **kwargs)
        jobs = jobs_of(context)
        task.owner = self._tasks.get(jobs[0]) if jobs else None
        return task


def _waits_for_nothing(task: Any) -> bool:
    waiter = task._fut_waiter
    return waiter is None or issubclass(type(waiter), asyncio.Future) and asyncio.Future.done(waiter)


def _call_soon(call_soon: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
    return call_soon(*args, context=_context_of(context))


def _create_future(create_future: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Any:
    return create_future() if _context_of(None) is None else UnownedFuture(loop=loop)


def _context_of(given: Context | None) -> Context | None:
    """What a finalizer starts runs for no message: that of an asynchronous generator, which closes it, does so."""
    return Context() if given is None and jobs_of() and not answerable() else given


def _call_at(call_at: Callable[..., Any], when: Any, *args: Any, context: Context | None = None) -> Any:
    """A timer that can be compared with all others. Raises TypeError or ValueError; ``call_later`` does so by this."""
    if type(when) is not float:
        if not isinstance(when, Real):
            raise TypeError(f"when is {kind_of(when)}: give a number of seconds, as of loop.time().")
        when = float(when)
    if when != when:
        raise ValueError("when is nan: give a number of seconds, as of loop.time().")
    return call_at(when, *args, context=_context_of(context))


def _end_in_child() -> None:
    for loop in _loops:
        loop.end_in_child()


_loops: WeakSet[SharedLoop] = WeakSet()
os.register_at_fork(after_in_child=_end_in_child)


def _handle_in(frames: Iterable[FrameType]) -> Any:
    """What runs a callback, or a step of a task, in one of these frames."""
    return next((frame.f_locals["self"] for frame in frames if frame.f_code is HANDLE), None)


def _interruptions_of(entry: Entry) -> int:
    """How many starts were cancelled for no fault of the message, since it was put or requeued."""
    since = to_milliseconds(entry.created)
    return sum(
        record.get("reason") == INTERRUPTED and is_moment(at := record.get("at")) and at >= since
        for record in errors_of(entry.errors)
    )


def _named(error: BaseException) -> str:
    return f"{kind_of(error)}: {text_of(error)}" if text_of(error) else kind_of(error)
