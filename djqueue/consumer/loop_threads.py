"""The threads in which async commands call functions: those of the database, and those of ``asyncio.to_thread``."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Self

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from djqueue import conf
from djqueue.consumer.database_connections import check_connections
from djqueue.consumer.loop import FIRST_PAUSE, Member, Starvation
from djqueue.running.context import WAITS_FOR_ITSELF, Control
from djqueue.utils import log_safely, seconds

logger = logging.getLogger(__name__)

COMMON = min(32, (os.cpu_count() or 1) + 4)
"""How many functions ``asyncio.to_thread`` runs at a time, as in any event loop."""

_user: ContextVar[User | None] = ContextVar("djqueue_user_of_threads", default=None)


class LoopThreads:
    """The threads of an event loop. Used from the thread of the loop alone, but for what counts and shows them.

    A function that still runs when its message has ended and the grace is over is left behind with its thread, and
    another thread takes its place.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, starvation: Starvation):
        self.loop = loop
        self.database = Threads("djqueue-coroutines-database", threads, loop, starvation)
        self.common = Threads("djqueue-coroutines-thread", COMMON, loop, starvation)
        loop.set_default_executor(CommonExecutor(self.common))
        for name in ("set_default_executor", "shutdown_default_executor"):
            setattr(loop, name, partial(_refuse, name))

    def user(self, name: str, control: Control | None = None, about: Callable[[], dict[str, Any]] = dict) -> User:
        """The use that one message makes of them: its task enters it. ``about`` is asked for what the log needs."""
        return User(self, name, control, about)

    @property
    def members(self) -> list[CallThread]:
        return [*self.database.members, *self.common.members]

    @property
    def left_behind(self) -> list[CallThread]:
        """The threads that were left behind and still run."""
        return [*self.database.left_behind, *self.common.left_behind]

    @property
    def stuck(self) -> int:
        """How many threads were left behind and still run, if only a new process can go on."""
        kinds = self.database, self.common
        return max((kind.stuck for kind in kinds if kind.stuck >= kind.size), default=0)

    def close(self) -> None:
        self.database.close()
        self.common.close()


def _refuse(name: str, *args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError(
        f"{name}() on the event loop of the consumer: all async commands share its threads. "
        "Give run_in_executor() a ThreadPoolExecutor of your own."
    )


class User(Executor):
    """A message that uses threads. While it waits for one and none works for it, its time limit stands still.

    It is the executor of its functions that use the database. Without a control it runs in a worker, and has a thread
    of its own for the database.
    """

    def __init__(self, threads: LoopThreads, name: str, control: Control | None, about: Callable[[], dict[str, Any]]):
        self.name, self.about = name, about
        self._threads, self._control = threads, control
        self._context: Context | None = None
        """Of its task, while it uses threads: its limits must be set there, as the context says who cancels a task."""
        self.is_over = False
        self._loan: Loan | None = None
        """Its thread of the database."""
        self._loans: set[Loan] = set()
        """Those that have a thread, or wait for one."""

    async def __aenter__(self) -> Self:
        _user.set(self)
        if self._control is not None:
            _use_for_database(self)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Wait, no longer than the grace, until nothing of it runs in a thread of the database."""
        self.is_over, self._context = True, None
        if not self._loans:
            return
        if self._control is not None:
            self._control.wait()  # for good: this wait has a bound of its own
        loop, left = self._threads.loop, grace()
        until = loop.time() + left
        end = None if self._loan is None else self._loan.end()
        if self._loan is not None and end is not None:
            with suppress(asyncio.CancelledError):  # what became of the message is known
                await asyncio.wait([asyncio.wrap_future(end)], timeout=left)
            if not end.done() and error is not None and (where := self._loan.where()):
                error.add_note(f"A function that it called does not end. It is here:\n{where}")
        for loan in self._loans.copy():
            if loan is not self._loan or end is None or not end.done():
                loan.leave_behind_after(until - loop.time())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._loan is None:
            self._loan = self.borrow(self._threads.database)
        return self._loan.submit(fn, *args, **kwargs)

    def borrow(self, threads: Threads, is_for_one: bool = False) -> Loan:
        """A loan of these threads. In the context of the task."""
        if self._context is None and not self.is_over:
            self._context = copy_context()
        return Loan(threads, self, is_for_one)

    def leave_behind(self) -> None:
        """Its message was given up, and that is in the log."""
        self.is_over = True
        for loan in self._loans.copy():
            loan.leave_behind()

    def where(self) -> str:
        """The traceback of a function of it that runs now. From any thread."""
        return next((where for loan in self._loans.copy() if (where := loan.where())), "")

    def note(self, loan: Loan, holds: bool) -> None:
        """A loan has a thread now or waits for one, or neither."""
        (self._loans.add if holds else self._loans.discard)(loan)
        if self._control is None or self._context is None:
            return
        is_waiting = any(one.thread is None for one in self._loans) and not any(one.is_busy for one in self._loans)
        self._context.run(self._control.wait if is_waiting else self._control.go_on)


def _use_for_database(executor: Executor) -> None:
    """Have ``sync_to_async`` in this task, and so Django's async ORM, run its functions by this executor."""
    context = ThreadSensitiveContext()
    SyncToAsync.thread_sensitive_context.set(context)
    SyncToAsync.context_to_thread_executor[context] = executor


def grace() -> float:
    """Seconds that what is cancelled has to end."""
    return seconds(conf.get("QUEUE_TIME_LIMIT_GRACE"), "QUEUE_TIME_LIMIT_GRACE")


class Threads:
    """Up to ``size`` threads, each lent to one :class:`Loan` at a time, and started when it is first needed."""

    def __init__(self, name: str, size: int, loop: asyncio.AbstractEventLoop, starvation: Starvation):
        self.size = size
        self.loop = loop
        self.members: list[CallThread] = []
        self._name, self._numbers, self._starvation = name, count(1), starvation
        self._free: list[CallThread] = []
        self._waiting: deque[Loan] = deque()
        self._left: list[CallThread] = []
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def left_behind(self) -> list[CallThread]:
        return [thread for thread in self._left if thread.is_alive()]

    @property
    def stuck(self) -> int:
        return len(self.left_behind)

    def lend(self, loan: Loan) -> None:
        """Give it a thread, at once or when there is one. None comes any more once the loop ends."""
        self._waiting.append(loan)
        self._hand_out()

    def take_back(self, thread: CallThread) -> None:
        self._free.append(thread)
        self._hand_out()

    def forget(self, loan: Loan) -> None:
        """It waits no more."""
        with suppress(ValueError):
            self._waiting.remove(loan)

    def leave_behind(self, thread: CallThread) -> None:
        """Let this thread end when its function does, and another one take its place."""
        self.members = [one for one in self.members if one is not thread]
        self._left = [*self.left_behind, thread]
        thread.drop_waiting()
        thread.stop()
        self._hand_out()

    def close(self) -> None:
        self._closed = True
        for thread in self.members:
            thread.stop()

    def _hand_out(self) -> None:
        while self._waiting and not self._closed and (thread := self._next()) is not None:
            self._waiting.popleft().take(thread)

    def _next(self) -> CallThread | None:
        if self._free:
            return self._free.pop()
        if len(self.members) >= self.size:
            return None
        thread = CallThread(f"{self._name}-{next(self._numbers)}", self.loop)
        try:
            thread.start()
        except Exception as error:  # the process is at its limits: that is over soon, or another process is needed
            self._starvation.add(error)
            if self._again is None:
                self._again = self.loop.call_later(FIRST_PAUSE, self._try_again)
            return None
        self._starvation.end()
        self.members = [*self.members, thread]
        return thread

    def _try_again(self) -> None:
        self._again = None
        self._starvation.end() if not self._waiting else self._hand_out()


class CommonExecutor(ThreadPoolExecutor):
    """The default executor of the loop: each call has a thread of the common ones while it runs."""

    def __init__(self, threads: Threads):
        super().__init__(1)
        self._common = threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        user = _user.get()
        borrow = partial(Loan, user=None) if user is None else user.borrow
        return borrow(self._common, is_for_one=True).submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """It ends with the loop."""


class Loan(Executor):
    """Runs the functions of a message in one thread, which it has from the first one until the message ends.

    A loan for one call, and what outlives its message, has a thread no longer than a function runs.
    """

    def __init__(self, threads: Threads, user: User | None, is_for_one: bool = False):
        self.thread: CallThread | None = None
        self.is_over = is_for_one
        """Whether the thread goes back as soon as it runs nothing."""
        self._threads, self._user, self._is_for_one = threads, user, is_for_one
        self._calls: list[ThreadCall] = []
        """Those that wait for a thread."""

    @property
    def is_busy(self) -> bool:
        return self.thread is not None and self.thread.is_busy

    def where(self) -> str:
        """The traceback of the function that it runs now, if it runs one."""
        thread = self.thread
        return thread.where() if thread is not None and thread.is_busy else ""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = ThreadCall(self, partial(fn, *args, **kwargs))
        if self.thread is not None:
            if self.thread is threading.current_thread():
                raise RuntimeError(WAITS_FOR_ITSELF)
            self._give(self.thread, call)
            return call.future
        self._calls.append(call)
        call.future.add_done_callback(partial(self._forget, call))
        if len(self._calls) == 1:
            self._threads.lend(self)
            if self.thread is None:
                self._note(True)
        return call.future

    def take(self, thread: CallThread) -> None:
        self.thread, calls, self._calls = thread, self._calls, []
        for call in calls:
            self._give(thread, call)
        self._note(True)

    def end(self) -> Future[Any] | None:
        """Its message has ended. What is done once its thread runs nothing of it; None if that is not waited for."""
        if self._is_for_one or self.thread is None:
            return None
        self.is_over = True
        call = ThreadCall(self, check_connections)
        self.thread.give(call)
        return call.future

    def give_back(self) -> None:
        """Its thread has ended a call, and may be free."""
        if self.thread is not None and not self.is_busy:
            thread, self.thread = self.thread, None
            self._note(False)
            self._threads.take_back(thread)

    def leave_behind_after(self, grace: float) -> None:
        """Leave behind what its thread has to run now, if that has not ended then."""
        if self.thread is not None:
            self._threads.loop.call_later(grace, self._leave_behind_at, self.thread, self.thread.given)

    def _leave_behind_at(self, thread: CallThread, given: int) -> None:
        if self.thread is thread and thread.ended < given and self._user is not None:
            text = "%s is stuck: a function that it called does not end; its thread is left behind. It is here:\n%s"
            log_safely(logger, logging.WARNING, text, self._user.name, thread.where(), extra=self._user.about())
            self.leave_behind()

    def leave_behind(self) -> None:
        """Go on without its thread, if that runs something."""
        self.is_over = True
        if self.thread is None:
            return
        if not self.thread.is_busy:
            self.submit(check_connections)  # then it goes back
            return
        thread, self.thread = self.thread, None
        self._note(False)
        self._threads.leave_behind(thread)

    def _give(self, thread: CallThread, call: ThreadCall) -> None:
        thread.give(call)
        if self._user is not None and self._user.is_over:
            self.leave_behind_after(grace())

    def _forget(self, call: ThreadCall, future: Future[Any]) -> None:
        """A call that waited for a thread was cancelled, or has ended."""
        if future.cancelled() and call in self._calls:
            self._calls.remove(call)
            if not self._calls:
                self._threads.forget(self)
                self._note(False)

    def _note(self, holds: bool) -> None:
        if self._user is not None:
            self._user.note(self, holds)


class ThreadCall:
    """A function that is to run in a thread, and what became of it."""

    def __init__(self, loan: Loan, function: Callable[[], Any]):
        self.future: Future[Any] = Future()
        self._loan, self._function = loan, function

    def run(self) -> Loan | None:
        """The loan whose thread may be free now."""
        if self.future.set_running_or_notify_cancel():
            try:
                value = self._function()
            except StopIteration as error:  # which a future does not take: its task would wait for ever
                self.future.set_exception(RuntimeError(f"the function raised {error!r}"))
            except BaseException as error:
                self.future.set_exception(error)
            else:
                self.future.set_result(value)
        return self._loan if self._loan.is_over else None


class CallThread(Member):
    """Runs functions, one at a time."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop):
        super().__init__(name)
        self.given = self.ended = 0
        """How many functions it was given by the thread of the loop, and how many of these have ended."""
        self._loop = loop
        self._calls: SimpleQueue[ThreadCall | None] = SimpleQueue()

    @property
    def is_busy(self) -> bool:
        return self.ended < self.given

    def duty(self) -> None:
        while (call := self._calls.get()) is not None:
            loan = call.run()
            if loan is not None:
                check_connections()
            self.ended += 1
            if loan is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(loan.give_back)
            del call, loan  # else they would stay in memory until the next one comes
        connections.close_all()

    def give(self, call: ThreadCall) -> None:
        self.given += 1
        self._calls.put(call)

    def drop_waiting(self) -> None:
        """Cancel the functions that it has not begun."""
        with suppress(Empty):
            while True:
                if (call := self._calls.get_nowait()) is not None:
                    call.future.cancel()

    def stop(self) -> None:
        """Let it end after what it was given."""
        self._calls.put(None)
