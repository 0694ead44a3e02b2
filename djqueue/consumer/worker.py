"""A thread that runs what the pool hands it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import takewhile
from math import inf
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.backends.entries import log_extra
from djqueue.consumer.holdings import Held
from djqueue.consumer.member import Member
from djqueue.consumer.starvation import is_for_want
from djqueue.messages.failures import kind_of, release
from djqueue.policies.outcomes import Outcome, Verdict, hold_of
from djqueue.running.executor import BEHIND, are_apart, batch_of, execute, execute_batch
from djqueue.running.handlers import Binding
from djqueue.utils import clock, tell

if TYPE_CHECKING:
    from djqueue.consumer.pool import Pool

logger = logging.getLogger(__name__)

BEGUN_BY_HAND: dict[str, Callable[[Any], bool]] = {
    "postgresql": lambda link: link.info.transaction_status != 0,
    "sqlite": lambda link: link.in_transaction,
}
"""Whether there is a transaction of which Django does not know, by vendor; the driver of MySQL cannot tell."""
LOOK = 0.1  # seconds between two looks whether the process is at its limits still
MENDED = 1.0  # seconds for which a connection that was mended after a command is as good before the next one
MOST_TRIES = 10
"""Starts after which what cannot even be run is put aside."""
LAPSED = Verdict(Outcome.UNTRIED, "its lease ran out before it was begun")


class Worker(Member):
    """Runs one unit at a time, for ever."""

    def __init__(self, pool: Pool, number: int):
        super().__init__(f"djqueue-worker-{number}")
        self.number = number
        self.unit: list[Held] = []
        """What it has in hands: what it runs, and what comes after that."""
        self.binding = Binding(self._await)
        """The handler that it keeps, if it does."""
        self.mail: SimpleQueue[list[Held]] = SimpleQueue()
        """What comes for the shard of that handler; nothing, if others need the worker more."""
        self.tied: Hashable = None
        """The shard for which it has mail."""
        self._pool = pool
        self._runner: asyncio.Runner | None = None
        self._mended = -inf
        """When the latest command began after which connections were mended."""
        self.finished = 0

    def duty(self) -> None:
        while (unit := self._pool.next(self)) is not None and self._serve(unit):
            self._recover(unit)
            unit.clear()  # or it would be kept until the next one comes
        self.part()
        if self._runner is not None:
            self._runner.close()
        connections.close_all()

    def where(self) -> str:
        """What it is doing just now, as a traceback tells it."""
        frame = _frames().get(self.ident)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def part(self) -> None:
        """Keep no handler any more."""
        if self.binding.shard is not None:
            self.binding.release()
            mend_connections()

    def _serve(self, unit: list[Held]) -> bool:
        """Run a unit and finish each of it as it ends; whether this thread was not left behind meanwhile."""
        self.unit = list(unit)
        for held in unit:
            held.worker = self
        for held, verdict in self._verdicts(unit):
            if not self._pool.let_go(self, held):
                return False
            try:
                self._pool.finish(held, verdict)
            except BaseException as error:  # nothing may end the thread
                tell(logger, logging.ERROR, "A message could not be finished", exc_info=error)
        return True

    def _verdicts(self, unit: list[Held]) -> Iterator[tuple[Held, Verdict]]:
        """What becomes of each, as they end; of the rest too, if it is not to be begun."""
        if len(unit) == 1:
            yield unit[0], self._begin(unit)[0]
            return
        begun = 0
        while begun < len(unit):
            batch = self._next_batch(unit[begun:])
            verdicts = self._begin(batch)
            begun += len(batch)
            untried = self._why_not(batch, verdicts, unit[begun:]) if begun < len(unit) else None
            yield from zip(batch, verdicts, strict=True)
            if untried is not None:
                yield from ((held, untried) for held in unit[begun:])
                return

    def _next_batch(self, rest: list[Held]) -> list[Held]:
        return rest if len(rest) == 1 else rest[: batch_of([held.lease for held in rest])]

    def _begin(self, batch: Sequence[Held]) -> list[Verdict]:
        """Run what is to run at once, as far as it is surely still ours."""
        now = clock()
        for held in batch:
            held.began = now
        ours = [*takewhile(lambda held: not held.lapsed(now), batch)]
        verdicts = self._execute(ours) if ours else []
        for verdict in verdicts:
            if verdict.exception is not None:
                release([verdict.exception])  # now, as it may have held much
        return verdicts + [LAPSED] * (len(batch) - len(ours))

    def _recover(self, unit: Sequence[Held]) -> None:
        """After a failure let nothing live on for it, and begin nothing while this process is at its limits."""
        for held in unit:
            if held.verdict is not None and held.verdict.outcome is not Outcome.DONE:
                break
        else:
            return
        failures = _failures([held.verdict for held in unit if held.verdict is not None])
        release(failures)  # the frames that have ended since
        if any(map(is_for_want, failures)):
            gc.collect()
        while self.starvation.look():
            time.sleep(LOOK)

    def _why_not(self, batch: Sequence[Held], verdicts: Sequence[Verdict], rest: Sequence[Held]) -> Verdict | None:
        """Why what is behind in its unit is not begun."""
        if reason := self._pool.recall():
            return Verdict(Outcome.UNTRIED, reason)
        if _failures(verdicts) and self.starvation.look():
            return Verdict(Outcome.UNTRIED, "this process is at its limits")
        pairs = zip(batch, verdicts, strict=True)
        if any(held.lost or hold_of(held.lease.entry, verdict) for held, verdict in pairs):
            return BEHIND
        if are_apart(batch[-1].lease.entry, rest[0].lease.entry):
            return Verdict(Outcome.UNTRIED, "a batch is of one priority, and a higher one may have come")
        return None

    def _execute(self, batch: Sequence[Held]) -> list[Verdict]:
        first, controls = batch[0], [self._pool.control(held) for held in batch]
        if first.began - self._mended > MENDED:
            mend_connections()
        try:
            if len(batch) == 1:
                isolate = self._pool.isolate
                isolated = isolate(first, controls[0]) if isolate is not None and first.suspect else None
                return [isolated or execute(first.queue, first.lease, self._await, controls[0], self.binding)]
            return execute_batch(first.queue, [held.lease for held in batch], controls, self.binding)
        except BaseException as error:  # not the command's, which execute() judges; nothing may end the thread
            extra = log_extra(first.queue.alias, first.lease.entry)
            tell(logger, logging.ERROR, "A message could not be run", exc_info=error, extra=extra)
            return [_not_run(held, error) for held in batch]
        finally:
            mend_connections()
            self._mended = first.began
            self._pool.keep(self)

    def _await(self, coroutine: Coroutine) -> object:
        """Async commands of one thread share an event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            Context().run(self._runner.get_loop)  # it keeps the context that it begins in, and what is carried there
        return self._runner.run(coroutine, context=copy_context())  # else they would share that of the first


def _frames() -> dict[int, FrameType]:
    """Of all threads. Without a garbage collection meanwhile, in which older Pythons deadlock (CPython gh-106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _not_run(held: Held, error: BaseException) -> Verdict:
    """Again, but not for ever, unless this process is at its limits."""
    reason = f"could not be run: {kind_of(error)}"
    if held.lease.entry.attempts >= MOST_TRIES and not is_for_want(error):
        return Verdict(Outcome.DEAD, reason)
    return Verdict(Outcome.HANDED_BACK, reason, delay=1.0)


def _failures(verdicts: Sequence[Verdict]) -> list[BaseException]:
    return [verdict.exception for verdict in verdicts if verdict.exception is not None]


def mend_connections() -> None:
    """Around every command what Django does around every request: no connection that is broken or too old.

    Nor does one stay in a transaction that a command has left open.
    """
    for connection in connections.all(initialized_only=True):
        try:
            _mend(connection)
        except Exception:
            tell(logger, logging.WARNING, "A database connection is broken, and is replaced", exc_info=True)
            with suppress(Exception):
                connection.close()


def _mend(connection: BaseDatabaseWrapper) -> None:
    if connection.in_atomic_block:
        connection.close()
        del connections[connection.alias]  # Django holds a connection closed within atomic() to be broken
    else:
        connection.close_if_unusable_or_obsolete()
        if _is_begun_by_hand(connection):
            connection.close()


def _is_begun_by_hand(connection: BaseDatabaseWrapper) -> bool:
    tells = BEGUN_BY_HAND.get(connection.vendor)
    return tells is not None and connection.connection is not None and tells(connection.connection)
