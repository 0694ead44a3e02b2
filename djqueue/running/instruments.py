"""Instruments follow messages through this process: a tracer, or what reports to an error tracker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from typing import Any, NamedTuple

from djqueue.backends.entries import Entry
from djqueue.messages.envelope import Envelope
from djqueue.policies.outcomes import Verdict
from djqueue.running.context import Job
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)


class Lost(NamedTuple):
    """A run in a separate process that died, and so cannot report its end."""

    queue: str
    """The alias of the queue."""
    entry: Entry
    envelope: Envelope
    owner: str
    """The name of the consumer."""
    began: float
    """When it began, in epoch seconds by this machine's clock."""
    how: str
    """How the process ended: an exit code, or the name of a signal."""
    verdict: Verdict


class Instrument:
    """Is notified of each call that is sent, and of each run. What it raises is logged, and changes nothing."""

    namespace = ""
    """The name under which what it sends along is in the metadata of messages."""
    sees_logs = False
    """Whether it sees each record of the log by itself, in any process that it follows messages through."""

    def sent(self, queue: str, command: str, id: str) -> Any:
        """Called where a message is made, with the alias of its queue; returns what JSON can carry, or None."""

    def began(self, jobs: Sequence[Job]) -> None:
        """Called in the context of the run, before the function: for one message, or those of a batch."""

    def ended(self, jobs: Sequence[Job], verdicts: Sequence[Verdict]) -> None:
        """Called in the context of the run, when it is over. The store does not know it yet."""

    def lost(self, run: Lost) -> None:
        """Called instead of ``ended``, in another process than ``began``."""


class Instruments:
    """The instruments of this process, in the order in which they were added."""

    def __init__(self) -> None:
        self.registered: list[Instrument] = []
        """The list is replaced, never changed, so that reading needs no lock."""

    def add(self, instrument: Instrument) -> None:
        """Add it, in the place of one of the same namespace."""
        self.registered = [*self._others(instrument.namespace), instrument]

    def remove(self, namespace: str) -> None:
        self.registered = self._others(namespace)

    def _others(self, namespace: str) -> list[Instrument]:
        return [one for one in self.registered if one.namespace != namespace]

    def sent(self, queue: str, command: str, id: str) -> dict[str, Any]:
        """The metadata of a message, by namespace."""
        values = {one.namespace: _guarded(one.sent, queue, command, id) for one in self.registered}
        return {namespace: value for namespace, value in values.items() if value is not None}

    def began(self, context: Context, jobs: Sequence[Job]) -> None:
        """Report that messages begin; their controls keep the run, to report its end where it is given up."""
        for one in self.registered:
            context.run(_guarded, one.began, jobs)
        run = Run(context, jobs)
        for job in jobs:
            job.control.run = run

    def ended(self, context: Context, jobs: Sequence[Job], verdicts: Sequence[Verdict]) -> None:
        """Report that they have ended, unless that was reported when they were given up."""
        if (run := jobs[0].control.run) is not None:
            run.end(context, verdicts)

    def lost(self, run: Lost) -> None:
        """Report a run whose process died."""
        for one in self.registered:
            _guarded(one.lost, run)


def _guarded(step: Callable[..., Any], *args: Any) -> Any:
    try:
        return step(*args)
    except Exception as error:
        name = getattr(step, "__qualname__", repr(step))
        log_safely(logger, logging.ERROR, "%s() failed", name, exc_info=error)


instruments = Instruments()


class Run:
    """A run of messages that instruments follow, until its end is reported."""

    def __init__(self, context: Context, jobs: Sequence[Job]):
        self._context, self._jobs = context, jobs
        self._is_over = False

    def end(self, context: Context, verdicts: Sequence[Verdict]) -> None:
        """Report its end in a context of the run; only the first end counts."""
        if not self._is_over:
            self._is_over = True
            for one in reversed(instruments.registered):
                context.run(_guarded, one.ended, self._jobs, verdicts)

    def give_up(self, verdict: Verdict) -> None:
        """Report that all of its messages have ended so, though their function goes on, in another thread."""
        self.end(self._context.copy(), [verdict] * len(self._jobs))


class Tick(NamedTuple):
    """A schedule that enqueues a message just now."""

    name: str
    timetable: object
    """Its crontab, interval or function."""


current_tick: ContextVar[Tick | None] = ContextVar("djqueue_tick", default=None)
"""The schedule that the call is made for which is being sent."""
