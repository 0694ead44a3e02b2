"""The event loop of a worker, on which its async commands run one after the other.

To make one takes as long as five short commands, so it is kept as long as nothing is left on it. What a command leaves
there is cancelled when it ends, as ``asyncio.run`` does: it must not run in the time of another message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Set
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any

from djqueue.consumer.loop import NoEventLoop, at_limits, is_for_want
from djqueue.messages.failures import kind_of
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

LAST = 1.0
"""Seconds within which what is cancelled has to end. What does not is left behind with its loop."""


class ThreadLoop:
    """Belongs to one thread.

    ``is_kept``: whether what is left on it may go on until it is closed, as that of a handler may.
    """

    def __init__(self, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._runner: asyncio.Runner | None = None
        self._attributes: frozenset[str] = frozenset()
        """The names of those that the loop had when it was made: a method that is replaced is one more."""

    def run(self, coroutine: Coroutine) -> None:
        """Run a coroutine to its end. Raises NoEventLoop, and what breaks off the loop."""
        self._tidy()
        runner = self._runner
        if runner is None:
            self._runner = runner = _new_runner(coroutine)
            self._attributes = frozenset(_attributes_of(runner.get_loop()))
        try:
            runner.run(coroutine, context=copy_context())  # else all would share the first one's context
        finally:
            if not self._is_kept and not self._is_as_made(runner.get_loop()):
                self.close()

    def _tidy(self) -> None:
        """Give up a loop with which a function has done something, or whose threads are used up."""
        if self._runner is None or self._is_kept:
            return
        loop = self._runner.get_loop()
        if not self._is_as_made(loop) or _is_used_up(loop):
            self.close()

    def _is_as_made(self, loop: asyncio.AbstractEventLoop) -> bool:
        return len(_attributes_of(loop)) == len(self._attributes) and not _has_more(loop)

    def close(self) -> None:
        """Cancel what is left on the loop, and close it."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        _put_back_methods(runner.get_loop(), self._attributes | {"close"})  # by which libraries know of its end
        try:
            if runner.get_loop().is_closed():
                asyncio.set_event_loop(None)
            else:
                _close(runner)
        except BaseException as error:  # raised by what was left, for which no message answers any more
            log_safely(logger, logging.ERROR, "What an async command left on its event loop failed", exc_info=error)


def leave_running_loop() -> None:
    """Have no event loop run in this thread, though a command left it so: Django would refuse to use a database."""
    asyncio._set_running_loop(None)
    log_safely(logger, logging.ERROR, "A command left an event loop that seems to run in its thread")


def _new_runner(coroutine: Coroutine) -> asyncio.Runner:
    """A runner with its event loop. Raises NoEventLoop, and then closes the coroutine that was to run."""
    runner = asyncio.Runner()
    try:
        Context().run(runner.get_loop)  # the loop keeps the context that it begins in, with its values
    except Exception as error:
        if is_for_want(error) or at_limits():
            _close_unbegun(coroutine)
            raise NoEventLoop(f"no event loop can be made: {kind_of(error)}") from error
        raise
    return runner


def _close_unbegun(coroutine: Coroutine) -> None:
    """Close a coroutine that never began, and those that it would await: Python warns of each."""
    frame = getattr(coroutine, "cr_frame", None)
    given = [] if frame is None else [one for one in frame.f_locals.values() if isinstance(one, CoroutineType)]
    coroutine.close()
    for one in given:
        _close_unbegun(one)


def _attributes_of(loop: asyncio.AbstractEventLoop) -> Collection[str]:
    return getattr(loop, "__dict__", ())


def _put_back_methods(loop: asyncio.AbstractEventLoop, attributes: Set[str]) -> None:
    """Remove what replaces methods of a loop that had these attributes."""
    for name in {*_attributes_of(loop)} - attributes:
        if hasattr(type(loop), name):
            delattr(loop, name)


def _has_more(loop: Any) -> bool:
    """Whether something is left on a loop that stands still, as far as a loop of its kind says so."""
    if loop.is_closed() or asyncio.all_tasks(loop) or loop.get_task_factory() or loop.get_exception_handler():
        return True
    timers = getattr(loop, "_scheduled", ())
    is_due = getattr(loop, "_ready", ()) or any(not timer.cancelled() for timer in timers)
    selector = getattr(loop, "_selector", None)
    waits = selector is not None and len(selector.get_map()) > 1  # the one by which threads wake it
    executor = getattr(loop, "_default_executor", None)
    is_shut_down = getattr(loop, "_executor_shutdown_called", False) or getattr(executor, "_shutdown", False)
    # What is left of an asynchronous generator would run when it is collected, whenever that is.
    return bool(is_due or waits or is_shut_down or getattr(loop, "_asyncgens", ()))


def _is_used_up(loop: Any) -> bool:
    """Whether all threads of the loop still run what commands gave them."""
    executor = getattr(loop, "_default_executor", None)
    return executor is not None and len(executor._threads) - executor._idle_semaphore._value >= executor._max_workers


def _close(runner: asyncio.Runner) -> None:
    loop: Any = runner.get_loop()
    loop.set_exception_handler(None)
    loop.set_task_factory(None)
    if (executor := getattr(loop, "_default_executor", None)) is not None:
        executor.shutdown(wait=False)  # the loop would start a thread that waits for it
        loop._default_executor = None
    runner.run(_end(loop))
    if not asyncio.all_tasks(loop):  # it would wait for them
        runner.close()


async def _end(loop: asyncio.AbstractEventLoop) -> None:
    tasks: set[asyncio.Future] = {task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()}
    for task in tasks:
        task.cancel()
    tasks.add(asyncio.ensure_future(loop.shutdown_asyncgens()))
    await asyncio.wait(tasks, timeout=LAST)
