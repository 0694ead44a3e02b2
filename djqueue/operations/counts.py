"""The report of queues: how much is in each, how fast it goes, and what is paused."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.operations.rates import QueueRates
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running.pauses import COMMAND, QUEUE, Pause

OLD, TOO_OLD = 60.0, 600.0
"""Seconds that a message has waited for a consumer, from which on that stands out, and stands out more."""


@report_row
class QueueRow:
    """A queue in the report of queues; None is what is not known."""

    queue: str = column("queue", Kind.QUEUE)
    backend: str = column()
    """Where it is."""
    ready: int = column("ready", Kind.COUNT)
    delayed: int | None = column("delayed", Kind.COUNT)
    running: int | None = column("running", Kind.COUNT)
    failed: int | None = column("failed", Kind.COUNT, bad=0)
    done: int | None = column("done", Kind.NUMBER)
    entered: float | None = column("in/s", Kind.RATE, told=False)
    """Messages per second that came in since the last look, and below that were done."""
    ended: float | None = column("done/s", Kind.RATE, told=False)
    done_per_minute: float | None = column("done/min", Kind.RATE)
    """In the last five minutes, as the other rates are."""
    failed_per_minute: float | None = column("failed/min", Kind.RATE, bad=0)
    time_to_drain: float | None = column("drain", Kind.SECONDS)
    oldest: float | None = column("oldest", Kind.SECONDS, warning=OLD, bad=TOO_OLD)
    """Seconds that the longest waiting ready message has been due."""
    pause: Pause | None = column("paused", Kind.PAUSE, optional=True)
    enqueued_per_minute: float | None = column(kind=Kind.RATE)
    retried_per_minute: float | None = column(kind=Kind.RATE)
    paused_commands: Sequence[Pause] = column()
    capped: int | None = column(kind=Kind.NUMBER)
    """The number at which counting stopped."""

    @classmethod
    def of(
        cls,
        queue: BaseQueue,
        stats: QueueStats,
        rates: QueueRates | None,
        pauses: Sequence[Pause],
        since: tuple[float | None, float | None] = (None, None),
    ) -> QueueRow:
        """``since`` has the rates since the last look."""
        return cls(
            queue=queue.alias,
            backend=queue.describe(),
            ready=stats.ready,
            delayed=stats.delayed,
            running=stats.leased,
            failed=stats.failed,
            done=stats.done,
            entered=since[0],
            ended=since[1],
            done_per_minute=getattr(rates, "done", None),
            failed_per_minute=getattr(rates, "failed", None),
            time_to_drain=getattr(rates, "time_to_drain", None),
            oldest=stats.oldest,
            pause=next((one for one in pauses if (one.kind, one.name) == (QUEUE, queue.alias)), None),
            enqueued_per_minute=getattr(rates, "enqueued", None),
            retried_per_minute=getattr(rates, "retried", None),
            paused_commands=[one for one in pauses if one.kind == COMMAND and one.queue in ("", queue.alias)],
            capped=stats.capped,
        )
