"""The one reader of what became of a message: the places that may know it, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.exceptions import NoResult
from djqueue.running import history, result_store
from djqueue.running.attempts import UNKNOWN, Attempt, attempts_of, is_moment
from djqueue.running.ends import RUNNING, End, of_record

Place = Callable[[BaseQueue, str], End | None]
"""What a place knows of the message of an id; None if it knows nothing."""


def kept(queue: BaseQueue, id: str) -> End | None:
    """From its result. That of a failure counts no more once the message is back in its queue.

    Raises NoResult if there is a result that cannot be trusted or read.
    """
    end = result_store.end_of(queue, id)
    return None if end is not None and end.status == FAILED and held(queue, id) is not None else end


def readable(queue: BaseQueue, id: str) -> End | None:
    """:func:`kept`; a result that cannot be trusted or read counts as none."""
    try:
        return kept(queue, id)
    except NoResult:
        return None


def held(queue: BaseQueue, id: str) -> End | None:
    """From its queue: it waits, or it runs."""
    record = queue.find(id) if "inspect" in queue.features else None
    return None if record is None else of_record(record)


def failed(queue: BaseQueue, id: str) -> End | None:
    """From the failed queue."""
    there = queue.failed
    record = there.find(id) if there is not None and "inspect" in there.features else None
    return None if record is None else of_record(record, FAILED)


def recorded(queue: BaseQueue, id: str) -> End | None:
    """From the history of its queue, if that has a record of it that can be read."""
    record = queue.history.get(id)
    end = None if record is None else history.read(record)
    return end if end is not None and end.is_over else None


PLACES: Sequence[Place] = (kept, held, failed, recorded)
"""What is signed comes first, then what may still change. The history has no more than a line of what has ended."""
UNTIL_KEPT: Sequence[Place] = (held, failed, recorded)
"""Where a message is, or what became of it, while there is no result."""
FOR_OPERATORS: Sequence[Place] = (recorded, readable)
"""What has ended. The history comes first, as it says who ran it."""


def find(queue: BaseQueue, id: str, places: Sequence[Place] = PLACES) -> End | None:
    """What the first place that knows a message says of it; None if none does. Raises NoResult, as :func:`kept` does.

    Each place is a round trip. The message may move on between two of them.
    """
    for place in places:
        if (end := place(queue, id)) is not None:
            return end
    return None


# ---- with its attempts


def with_attempts(place: Place) -> Place:
    """A place that adds who began each attempt, and when, to what an entry says."""

    def ask(queue: BaseQueue, id: str) -> End | None:
        end = place(queue, id)
        if end is None or end.entry is None:
            return end
        begun = attempts_of(queue, end.entry, end.attempts)
        if end.status == RUNNING and begun:
            begun[-1] = _current(queue, end, begun)
        return replace(end, begun=begun)

    return ask


def _current(queue: BaseQueue, end: End, begun: Sequence[Attempt]) -> Attempt:
    """The attempt that runs. Until it is noted, it is taken to have begun when its lease did.

    If that cannot be, as its lease is not of the usual length, it is taken to have begun when it could begin at the
    earliest: it was due, and the attempt before was over.
    """
    noted, due = begun[-1], 0.0 if end.entry is None else end.entry.run_at
    if noted.worker != UNKNOWN and noted.worker == (end.worker or noted.worker):
        return noted
    known = [end.enqueued, due, *(error.get("at") for error in end.errors), *(one.started for one in begun[:-1])]
    now = queue.now()
    earliest = min(now, max((at for at in known if is_moment(at)), default=now))
    leased = end.at - queue.lease
    return Attempt(end.worker or UNKNOWN, leased if earliest <= leased <= now else earliest)
