"""The queues as the pages see them: what each counts, who serves it, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.messages.failures import text_of
from djqueue.operations import queues
from djqueue.operations.consumers import consumers_of, serving
from djqueue.operations.pausing import pauses_of
from djqueue.operations.queues import chosen
from djqueue.operations.rates import QueueRates, queue_rates
from djqueue.running.consumers import ConsumerRecord
from djqueue.running.pauses import QUEUE, Pause
from djqueue.running.shared import shared_stores
from djqueue.throttle import ThrottledQueue
from djqueue.words import counted

FEATURES = {
    "inspect": "list its messages",
    "lanes": "show lanes",
    "history": "keep a history",
    "facts": "be paused, nor tell who serves it and what is done in a minute",
}
"""What a page needs of a queue, and how it says that a queue cannot."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A queue as it was seen."""

    queue: BaseQueue
    stats: QueueStats | None
    """None if it cannot be asked."""
    problem: str
    """Why it cannot be asked."""
    servers: Sequence[ConsumerRecord]
    """The live consumers that serve it."""
    pause: Pause | None
    rates: QueueRates | None
    """What came in and was done lately; None if that is not known."""
    throttle: str
    """What its throttle allows, how much of that is used, and whether it holds up messages now; "" without one."""

    @property
    def alias(self) -> str:
        return self.queue.alias

    @property
    def cannot(self) -> list[str]:
        """What it cannot show, in words."""
        return [words for feature, words in FEATURES.items() if feature not in self.queue.features]

    @property
    def capacity(self) -> int:
        """How many messages its consumers run at a time."""
        return sum(one.threads + one.coroutines for one in self.servers)

    @property
    def is_local(self) -> bool:
        """Whether only the process that holds it can see it."""
        return "facts" in self.queue.features and self.queue.store.is_local


def able(feature: str) -> tuple[list[BaseQueue], list[BaseQueue]]:
    """The queues that have a feature, and the others."""
    return queues.able(chosen(None), feature)


def seen() -> list[Seen]:
    """All queues."""
    asked = [(queue, *_stats(queue)) for queue in chosen(None)]
    known = around(there := [queue for queue, stats, _ in asked if stats is not None])
    rates = _rates([queue for queue in there if queue.alias not in known.problems])
    return [
        Seen(
            queue,
            stats,
            problem or known.problems.get(queue.alias, ""),
            serving(queue, known.consumers),
            pause_of(queue, known.pauses, QUEUE, queue.alias),
            rates.get(queue.alias),
            _throttle(queue, stats),
        )
        for queue, stats, problem in asked
    ]


def _stats(queue: BaseQueue) -> tuple[QueueStats | None, str]:
    try:
        return queue.stats(), ""
    except Exception as error:  # whatever its client raises
        return None, text_of(error)


def _rates(queues: Sequence[BaseQueue]) -> dict[str, QueueRates]:
    """What came in and was done lately, by alias. Each store is asked by itself, as another one may be away."""
    found: dict[str, QueueRates] = {}
    for shared in shared_stores(queues):
        with suppress(Exception):  # whatever its client raises: it answered just now
            found |= {one.queue: one for one in queue_rates([queue.alias for queue in shared.queues])}
    return found


class Around(NamedTuple):
    """What consumers and operators have said in the stores of some queues."""

    consumers: list[ConsumerRecord]
    """A consumer that serves queues of two stores is in it twice."""
    pauses: list[Pause]
    problems: dict[str, str]
    """Why a store cannot be asked, by the aliases of its queues."""


def around(queues: Sequence[BaseQueue]) -> Around:
    """Each store is asked by itself, as another one may be away."""
    found = Around([], [], {})
    for shared in shared_stores(queues):
        try:
            found.consumers.extend(consumers_of(shared))
            found.pauses.extend(pauses_of(shared))
        except Exception as error:  # whatever its client raises
            found.problems.update(dict.fromkeys((queue.alias for queue in shared.queues), text_of(error)))
    return found


def pause_of(queue: BaseQueue, known: Sequence[Pause], kind: str, name: str) -> Pause | None:
    """What holds up a queue, or a command in it, of the pauses that are known; None for nothing."""
    return next((one for one in known if (one.kind, one.name) == (kind, name) and one.queue in ("", queue.alias)), None)


def _throttle(queue: BaseQueue, stats: QueueStats | None) -> str:
    if not isinstance(queue, ThrottledQueue) or stats is None:
        return ""
    try:
        grant = queue.store.shared.acquire(queue.rate_limit, 0)  # uses up nothing
        used = queue.store.shared.used(queue.rate_limit)
    except Exception as error:
        return text_of(error)
    told = f"{grant.window}, {used:,} used"
    if not grant.reason:
        return told
    return f"{told}: throttled" + (f" for {grant.retry_after:.0f} s" if grant.retry_after < inf else "")


def left_out(others: Sequence[BaseQueue], feature: str) -> str:
    """Says which queues a page leaves out, and why; "" if none."""
    if not others:
        return ""
    names = ", ".join(f"{one.alias} ({type(one.unthrottled).__name__})" for one in others)
    return f"Left out: {counted(len(others), 'queue')} whose backend cannot {FEATURES[feature]}: {names}."
