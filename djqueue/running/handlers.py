"""How a batch runs: the handler that a worker keeps while it stays with a shard, and the result of each item."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from typing import Any, Protocol, cast

from djqueue.exceptions import PartialFailure
from djqueue.registry import Runnable
from djqueue.running.context import Awaiter, Job, call, run_coroutine, with_own_thread
from djqueue.utils import log_safely, run_in_parent

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """An object that is started once, used for batch after batch, and stopped once. Its methods may be async."""

    def start(self) -> Any: ...
    def perform(self, *requests: Any) -> Any: ...
    def stop(self) -> Any: ...


class BatchRunnable(Runnable, Protocol):
    """The part of a batch command that running it needs."""

    def item(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def perform(self, items: Sequence[object], lane: str, slot: HandlerSlot) -> Any: ...


class HandlerSlot:
    """At most one handler, of one shard. Belongs to one thread."""

    def __init__(self, await_: Awaiter = asyncio.run, released: Callable[[], object] = lambda: None):
        self.await_ = await_
        self._released = released
        """Called when a handler was stopped."""
        self._handler: Handler | None = None
        self.is_at_work = False
        """Whether a handler does something: what that leaves on an event loop may go on until it was stopped."""
        self.shard: Hashable = None
        """What the handler is kept for; None if there is none."""
        self.idle_timeout = 0.0
        """Seconds for which it is kept while nothing comes for its shard."""

    def bind(self, shard: Hashable, create: Callable[[], Any], idle_timeout: float) -> Handler:
        """The handler of a shard: the one that is kept, or a new one, started. Raises what these two steps raise."""
        if self._handler is None or self.shard != shard:
            self.release()
            self.is_at_work = True
            try:
                handler = self._run(create)
                self._run(handler.start)
            except BaseException:
                self._released()
                raise
            self._handler, self.shard = handler, shard
        self.is_at_work = True
        self.idle_timeout = idle_timeout
        return self._handler

    def release(self) -> None:
        """Stop the handler that is kept. An exception is only logged, as no caller could use it."""
        handler, self._handler = self._handler, None
        self.is_at_work = True
        try:
            if handler is not None:
                copy_context().run(self._run, handler.stop)
        except BaseException as error:  # sys.exit() in a handler must not end the worker
            log_safely(logger, logging.ERROR, "%s.stop() failed", type(handler).__qualname__, exc_info=error)
        finally:
            self.shard, self.is_at_work = None, False
            if handler is not None:
                self._released()

    def _run(self, step: Callable[[], Any]) -> Any:
        value = run_in_parent(step)
        return run_coroutine(self.await_, with_own_thread(value)) if inspect.iscoroutine(value) else value


def results_of(jobs: Sequence[Job], slot: HandlerSlot) -> Sequence[Any]:
    """Run a batch; for each item its result, or the exception that it failed with.

    Raises what makes all of them fail; then no handler is kept.
    """
    command, first = cast(BatchRunnable, jobs[0].command), jobs[0]
    try:
        items = [job.args[0] for job in jobs]
        returned = call(jobs, command.perform, (items, first.entry.lane, slot), {}, slot.await_)
        return _results_of(returned, len(jobs))
    except PartialFailure as failure:
        return _results_but(failure, len(jobs))
    except BaseException:
        slot.release()
        raise
    finally:
        slot.is_at_work = False


def _results_of(returned: object, count: int) -> Sequence[object]:
    """The result of each item, a value or an exception, of what a batch returned. TypeError if that has none."""
    if returned is None:
        return [None] * count
    if isinstance(returned, list | tuple) and len(returned) == count:
        return returned
    found = f"{len(returned)}" if isinstance(returned, list | tuple) else type(returned).__qualname__
    raise TypeError(f"a batch of {count} returned {found}: return None, or a list of {count} results or exceptions")


def _results_but(partial: PartialFailure, count: int) -> Sequence[object]:
    """The result of each item if some failed. Raises ValueError if it names items that are not there."""
    if strange := [index for index in partial.failed if not 0 <= index < count]:
        raise ValueError(f"PartialFailure names the items {strange} of a batch of {count}") from partial
    return [partial.failed.get(index) for index in range(count)]
