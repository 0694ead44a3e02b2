"""Running what is due in the thread of a test."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from types import NoneType
from typing import Any

from asgiref.sync import async_to_sync
from django.utils.asyncio import async_unsafe

from djqueue import signals
from djqueue.backends.base import BaseQueue, Lease
from djqueue.consumer.scheduler import Scheduler
from djqueue.exceptions import CommandFailed
from djqueue.policies.outcomes import Outcome, Verdict, settled
from djqueue.running.context import Control
from djqueue.running.executor import BEHIND, batch_of, execute_batch, why_not
from djqueue.running.handlers import HandlerSlot
from djqueue.running.settle import settle
from djqueue.testing.assertions import Enqueued, commit, one_command, refuse_eager
from djqueue.testing.clock import VirtualClock, the_clock
from djqueue.testing.crashes import dies
from djqueue.utils import whole
from djqueue.wiring import queues as all_queues

OWNER = "run_due"
LIMIT = 10_000
LOST = "lost"
JUDGED = (Exception, SystemExit, CancelledError, NoneType)
"""The exceptions of a command. Others are meant for the test runner: KeyboardInterrupt, ``pytest.fail()``."""


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a message, and how it ended."""

    message: Enqueued = field(repr=False)
    id: str
    command: str
    """The command's name."""
    queue_name: str
    """The alias of its queue."""
    attempt: int
    """The number of the attempt, from 1."""
    outcome: str
    """``done``, ``retried``, ``failed`` (it is in the failed queue), ``expired``, ``discarded``; ``released``: its
    command is unknown here, say, or was throttled; ``paused``: its shard waits at it until it is resumed;
    ``lost``: the worker died, and the message is delivered again."""
    value: Any = None
    """What the command returned."""
    exception: BaseException | None = None
    """The exception that it raised, unless that was Retry or Discard."""
    reason: str = ""
    """Why it was not done."""
    delay: float = 0.0
    """Seconds after which it comes again, if it does."""

    @property
    def args(self) -> tuple:
        """The positional arguments, decoded at each use."""
        return self.message.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, decoded at each use."""
        return self.message.kwargs

    @property
    def done(self) -> bool:
        """Whether it ran to its end, and the queue knows."""
        return self.outcome == Outcome.DONE.effect.status

    @property
    def failed(self) -> bool:
        """Whether it is in the failed queue now."""
        return self.outcome == Outcome.FAILED.effect.status


@async_unsafe("run_due() runs commands in this thread. In an async test: await sync_to_async(run_due)(...)")
def run_due(
    until: float | timedelta | datetime | None = None,
    *,
    queues: Iterable[str] | None = None,
    deliveries: int = 1,
    periodic: bool = False,
    raise_errors: bool = False,
    limit: int = LIMIT,
) -> list[Run]:
    """Run all due messages in this thread, and what becomes due by that, as a consumer would; all attempts in order.

    ``queues`` are aliases, all by default. Messages are judged, settled and signalled as in production: a failed one is
    in the failed queue afterwards. With ``raise_errors`` the exception of the first that goes there is raised then.

    ``until`` (seconds or a timedelta from now, or a datetime) lets time pass, from one due moment to the next, as
    :func:`virtual_time` does. Within such a block it moves that clock; outside, the next call begins at the present
    again. With ``periodic`` schedules come due too; one that was never looked at begins now.

    ``deliveries`` is how often a successful message is run before the queue knows, as if workers died just then: a
    command that passes may be run by at-least-once queues.

    In a TestCase its transaction counts as committed: ``transaction.on_commit`` callbacks run first, and after each
    message. A command that breaks the transaction, by an error of the database, is undone in it.

    Raises RuntimeError after ``limit`` attempts and while ``QUEUE_ALWAYS_EAGER`` is on, NotSupported for ``until`` with
    queues that are not in memory, SynchronousOnlyOperation in async code.
    """
    refuse_eager()
    if isinstance(queues, str):
        raise TypeError(f"run_due(queues={queues!r}): give a list of aliases.")
    served = [all_queues[alias] for alias in queues or all_queues]
    worker = Worker(served, whole(deliveries, "deliveries", least=1), raise_errors, whole(limit, "limit", least=1))
    if periodic:
        worker.scheduler = Scheduler(served)
    if until is None:
        worker.drain()
    else:
        with the_clock([queue.alias for queue in served]) as clock:
            worker.work(clock, clock.left(until))
    return worker.runs


class Worker:
    """A consumer without threads."""

    def __init__(self, served: Sequence[BaseQueue], deliveries: int, raise_errors: bool, limit: int):
        self._queues, self._deliveries, self._raise_errors, self._limit = served, deliveries, raise_errors, limit
        self.scheduler: Scheduler | None = None
        self.runs: list[Run] = []

    def work(self, clock: VirtualClock, seconds: float) -> None:
        """Run all messages that are due within ``seconds``, each at its time."""
        end = clock() + seconds
        while (pause := self.drain()) <= end - clock():
            clock.move(pause)
        clock.move(max(0.0, end - clock()))

    def drain(self) -> float:
        """Run due messages until none is left; seconds until there may be more."""
        before, pauses = len(self.runs), [0.0]
        scheduled = self._scheduled()
        while min(pauses) == 0:
            commit()
            pauses = [self._step(queue) for queue in self._queues]
        if len(self.runs) > before:
            for queue in self._queues:
                signals.emit(signals.empty, queue.alias, queue_name=queue.alias)
        return min(*pauses, scheduled)

    def _scheduled(self) -> float:
        if self.scheduler is None:
            return inf
        self.scheduler.refresh()
        return self.scheduler.follow()

    def _step(self, queue: BaseQueue) -> float:
        """Run one message, a run or a batch, or give back messages of dead workers; seconds until there may be more."""
        claimed = queue.claim(1, queue.lease, OWNER, begin=False)
        rest = list(claimed)
        while rest:
            size = batch_of(rest)
            batch, rest = rest[:size], rest[size:]
            verdicts = self._serve(queue, batch)
            if rest and (untried := why_not(batch, verdicts, rest[0]) if verdicts else BEHIND) is not None:
                settle(queue, [(lease, untried) for lease in rest], OWNER)
                break
        reaped = queue.reap()
        return 0.0 if claimed or reaped.count else min(claimed.retry_after, reaped.next)

    def _serve(self, queue: BaseQueue, batch: Sequence[Lease]) -> list[Verdict]:
        """Run and settle the messages that run together; their verdicts, none if the worker died with them."""
        if dies("claimed", queue, batch):
            self._lose(queue, batch)
            return []
        queue.begin(batch)
        ended = self._delivered(queue, batch)
        if dies("ran", queue, batch):
            self._lose(queue, *zip(*ended, strict=True))
            return []
        reports = not dies("settled", queue, batch)
        for lease, verdict in ended:
            self._settle(queue, lease, verdict, reports)
        return [verdict for _, verdict in ended]

    def _settle(self, queue: BaseQueue, lease: Lease, verdict: Verdict, reports: bool) -> None:
        effect = verdict.outcome.effect
        if reports:
            settle(queue, [(lease, verdict)], OWNER)
        else:
            getattr(queue, effect.verb)([settled(lease, verdict, OWNER)])
        self._note(queue, lease, verdict, effect.status)
        if (self._raise_errors and effect.final) or not isinstance(verdict.exception, JUDGED):
            raise verdict.exception or CommandFailed(verdict.reason)

    def _delivered(self, queue: BaseQueue, batch: Sequence[Lease]) -> list[tuple[Lease, Verdict]]:
        """The leases and verdicts of the last delivery, after all ``deliveries`` of these messages."""
        ended = self._run(queue, batch)
        for _ in range(self._deliveries - 1):
            done = [(lease, verdict) for lease, verdict in ended if verdict.outcome is Outcome.DONE]
            if done:
                self._lose(queue, *zip(*done, strict=True))
                again = {lease.entry.id: (lease, verdict) for lease, verdict in self._run(queue, _again(done))}
                ended = [again.get(lease.entry.id, (lease, verdict)) for lease, verdict in ended]
        return ended

    def _run(self, queue: BaseQueue, batch: Sequence[Lease]) -> list[tuple[Lease, Verdict]]:
        slot = HandlerSlot(async_to_sync(_ended))
        with one_command():
            verdicts = execute_batch(queue, batch, [Control(queue, lease) for lease in batch], slot)
            slot.release()
        commit()
        return list(zip(batch, verdicts, strict=True))

    def _lose(self, queue: BaseQueue, batch: Sequence[Lease], verdicts: Sequence[Verdict] = ()) -> None:
        """Note that the worker died with these leases."""
        for lease, verdict in zip(batch, verdicts or [Verdict(Outcome.RETURNED)] * len(batch), strict=True):
            self._note(queue, lease, verdict, LOST)

    def _note(self, queue: BaseQueue, lease: Lease, verdict: Verdict, outcome: str) -> None:
        entry, end = lease.entry, (verdict.value, verdict.exception, verdict.reason, verdict.delay)
        message = Enqueued.of(queue, entry, entry.run_at or entry.created)
        self.runs.append(Run(message, entry.id, entry.command, queue.alias, entry.attempts, outcome, *end))
        if len(self.runs) >= self._limit:
            raise RuntimeError(
                f"run_due() has run {self._limit} messages and is not at the end. Does a command enqueue itself, or "
                "ask for ever to be run again? If not, give a higher limit."
            )


def _again(done: Sequence[tuple[Lease, Verdict]]) -> list[Lease]:
    """The leases as another claim would give them."""
    return [
        replace(lease, entry=replace(lease.entry, lost=lease.entry.lost + 1, attempts=lease.entry.attempts + 1))
        for lease, _ in done
    ]


async def _ended(coroutine: Coroutine) -> Any:
    """Await it in the loop of ``async_to_sync``, where the ORM works in the test's thread, on its connection."""
    return await coroutine
