"""The report of queues: how much is in each, how fast it goes, who serves it, and what is paused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.exceptions import QueueError
from djqueue.operations.consumers import consumers_of, serving
from djqueue.operations.pausing import each_once, pause_of, pauses_of
from djqueue.operations.queues import asking
from djqueue.operations.rates import HOUR, QueueRates, queue_rates
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running.consumers import GONE, ConsumerRecord
from djqueue.running.pauses import COMMAND, QUEUE, Pause
from djqueue.running.shared import shared_stores
from djqueue.words import NONE

OLD, TOO_OLD = 60.0, 600.0
"""Seconds of waiting for a consumer after which a message stands out, and stands out more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A queue as it was read."""

    queue: BaseQueue
    stats: QueueStats | None
    """None if it cannot be asked."""
    problem: str
    """Why it, or its store of facts, cannot be asked."""
    servers: Sequence[ConsumerRecord]
    """The live consumers that serve it."""
    gone: Sequence[ConsumerRecord]
    """Consumers that served it, and have not reported for a while."""
    pauses: Sequence[Pause]
    """The pauses of all queues."""
    rates: QueueRates | None
    """What came in and was done lately; None if that is not known."""

    @property
    def alias(self) -> str:
        return self.queue.alias

    @property
    def keeps_facts(self) -> bool:
        return "facts" in self.queue.features


@report_row
class QueueRow:
    """A queue in the report of queues; None is what is not known."""

    queue: str = column("queue", Kind.QUEUE, key=True)
    backend: str = column()
    """Where it is."""
    ready: int | None = column("ready", Kind.COUNT)
    delayed: int | None = column("delayed", Kind.COUNT)
    running: int | None = column("running", Kind.COUNT)
    failed: int | None = column("failed", Kind.COUNT, bad=0)
    done: int | None = column("done", Kind.NUMBER)
    entered: float | None = column("in/s", Kind.RATE, in_json=False)
    """Messages per second that came in since the last update, and below that were done."""
    ended: float | None = column("done/s", Kind.RATE, in_json=False)
    enqueued_per_minute: float | None = column("in/min", Kind.RATE)
    """In the last five minutes, as the other rates are."""
    done_per_minute: float | None = column("done/min", Kind.RATE)
    failed_per_minute: float | None = column("failed/min", Kind.RATE, bad=0)
    time_to_drain: float | None = column("drain", Kind.SECONDS)
    oldest: float | None = column("oldest", Kind.SECONDS, warning=OLD, bad=TOO_OLD)
    """Seconds that the longest waiting ready message has been due."""
    consumers: int | None = column("consumers", Kind.NUMBER)
    """How many live ones serve it; None if its consumers cannot report."""
    pause: Pause | None = column("paused", Kind.PAUSE, optional=True)
    problem: str = column("problem", Kind.PROSE, optional=True, bad=0, in_json=False)
    """Why it cannot be asked, or that nothing serves it."""
    note: str = column("note", Kind.PROSE, optional=True, in_json=False)
    """What its throttle allows, and what cannot be shown of the queue."""
    retried_per_minute: float | None = column(kind=Kind.RATE)
    paused_commands: Sequence[Pause] = column()
    capped: int | None = column(kind=Kind.NUMBER)
    """The number at which counting stopped."""
    keeps_facts: bool = False
    """Whether it can be paused."""

    @property
    def conditions(self) -> dict[str, str]:
        """The filter that selects its messages."""
        return {"queue": self.queue}

    @classmethod
    def of(cls, one: Seen, since: tuple[float | None, float | None] = (None, None), note: str = "") -> QueueRow:
        """The row of a queue; ``since`` has the rates since the last update."""
        queue, counts, lately = one.queue, one.stats, one.rates
        is_heard = one.keeps_facts and not queue.store.is_local and not one.problem
        return cls(
            queue=queue.alias,
            backend=queue.describe(),
            ready=getattr(counts, "ready", None),
            delayed=getattr(counts, "delayed", None),
            running=getattr(counts, "leased", None),
            failed=getattr(counts, "failed", None),
            done=getattr(counts, "done", None),
            entered=since[0],
            ended=since[1],
            enqueued_per_minute=getattr(lately, "enqueued", None),
            done_per_minute=getattr(lately, "done", None),
            failed_per_minute=getattr(lately, "failed", None),
            time_to_drain=getattr(lately, "time_to_drain", None),
            oldest=getattr(counts, "oldest", None),
            consumers=len(one.servers) if is_heard else None,
            pause=pause_of(queue, one.pauses, QUEUE, queue.alias),
            problem=_problem(one, is_heard),
            note=note,
            retried_per_minute=getattr(lately, "retried", None),
            paused_commands=[each for each in one.pauses if each.kind == COMMAND and each.queue in ("", queue.alias)],
            capped=getattr(counts, "capped", None),
            keeps_facts=one.keeps_facts,
        )


def _problem(one: Seen, is_heard: bool) -> str:
    return one.problem or ("no consumer serves it" if is_heard and not one.servers else "")


def seen(queues: Iterable[BaseQueue], period: str = HOUR) -> list[Seen]:
    """These queues, with their rates of a period. Each store is asked by itself, as another one may be unreachable."""
    asked = [(queue, *_stats(queue)) for queue in queues]
    known = around(there := [queue for queue, stats, _ in asked if stats is not None])
    rates = _rates([queue for queue in there if queue.alias not in known.problems], period)
    paused = each_once(known.pauses)
    return [
        Seen(
            queue,
            stats,
            problem or known.problems.get(queue.alias, ""),
            serving(queue, known.consumers),
            [one for one in known.consumers if one.state == GONE and queue.alias in one.queues],
            paused,
            rates.get(queue.alias),
        )
        for queue, stats, problem in asked
    ]


def _stats(queue: BaseQueue) -> tuple[QueueStats | None, str]:
    try:
        with asking(queue):
            return queue.stats(), ""
    except QueueError as error:
        return None, str(error)


def _rates(queues: Sequence[BaseQueue], period: str) -> dict[str, QueueRates]:
    """How many messages came in and were done lately, by alias."""
    found: dict[str, QueueRates] = {}
    for shared in shared_stores(queues):
        with suppress(Exception):  # whatever its client raises: it answered just now
            found |= {one.queue: one for one in queue_rates([queue.alias for queue in shared.queues], period)}
    return found


class Around(NamedTuple):
    """What consumers and operators have written into the stores of some queues."""

    consumers: list[ConsumerRecord]
    """A consumer that serves queues of two stores is in it twice."""
    pauses: list[Pause]
    problems: dict[str, str]
    """Why a store cannot be asked, by the aliases of its queues."""


def around(queues: Sequence[BaseQueue]) -> Around:
    """Each store is asked by itself, as another one may be unreachable."""
    found = Around([], [], {})
    for shared in shared_stores(queues):
        try:
            with asking(shared.queues[0]):
                found.consumers.extend(consumers_of(shared))
                found.pauses.extend(pauses_of(shared))
        except QueueError as error:
            found.problems.update(dict.fromkeys((queue.alias for queue in shared.queues), str(error)))
    return found


def places(rows: Iterable[QueueRow]) -> list[str]:
    """Where the queues are stored, with a line for each place."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.backend or NONE, []).append(row.queue)
    return [f"{', '.join(aliases)}: {place}" for place, aliases in found.items()]
