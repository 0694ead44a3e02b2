"""The attempts at a call through Django's tasks: who began each, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

from djqueue.backends.base import BaseQueue, Entry, Fact
from djqueue.messages.failures import errors_of

T = TypeVar("T")

KEPT = 7 * 86_400.0
"""Seconds for which it is noted who began an attempt."""
MOST = 100
"""How many attempts of one message are shown: the first one and the latest."""
UNKNOWN = "unknown"
"""The worker of an attempt that was not noted: it was over at once, or its process was killed."""
TOO_LARGE = 1e300
"""A number of seconds with which no more can be calculated."""


class Attempt(NamedTuple):
    """One attempt at a message."""

    worker: str
    started: float | None
    """Epoch seconds; None: not known."""


NOBODY = Attempt(UNKNOWN, None)


def note(queue: BaseQueue, begun: Iterable[tuple[Entry, Attempt]]) -> None:
    """Keep who began attempts that are not over. The number of the attempt is that of its entry."""
    queue.store.put_many([Fact(_key(entry.id, entry.attempts), json.dumps(one).encode(), KEPT) for entry, one in begun])


def attempts_of(queue: BaseQueue, entry: Entry, count: int) -> list[Attempt]:
    """The attempts at a message to show, of ``count``, as far as the store and the errors of the entry know them.

    Attempts from before the message was requeued do not count.
    """
    if count < 1:
        return []
    numbers = shown(range(1, count + 1))
    known = _failed(entry) | _noted(queue, entry, numbers)
    return [known.get(number, NOBODY) for number in numbers]


def why_cancelled(entry: Entry) -> str:
    """What is shown of a message that is cancelled while it waits."""
    return "cancelled before its next attempt" if entry.attempts else "cancelled before it ran"


def shown(all_of_them: Sequence[T]) -> list[T]:
    """The first one and the latest, if there are more than :data:`MOST`: a message may be tried without end."""
    few = len(all_of_them) <= MOST
    return [*all_of_them] if few else [all_of_them[0], *all_of_them[1 - MOST :]]


def _noted(queue: BaseQueue, entry: Entry, numbers: Sequence[int]) -> dict[int, Attempt]:
    if "facts" not in queue.features:
        return {}
    found = queue.store.get_many([_key(entry.id, number) for number in numbers])
    return {
        number: one
        for number, value in zip(numbers, found, strict=True)
        if value is not None and (one := _read(value)) is not None and _counts(entry, one.started)
    }


def _failed(entry: Entry) -> dict[int, Attempt]:
    """What the errors of an entry say of attempts that raised."""
    known = {}
    for record in errors_of(entry.errors):
        number, at, ran = (record.get(name) for name in ("attempt", "at", "seconds"))
        if record.get("exception") and isinstance(number, int) and is_moment(at) and _counts(entry, at):
            started = at - ran if is_moment(ran) else at
            known[number] = Attempt(str(record.get("consumer") or UNKNOWN), max(started, entry.created))
    return known


def is_moment(value: object) -> TypeGuard[float]:
    """Whether a value, which anybody may have written, is a number of seconds."""
    return isinstance(value, int | float) and abs(value) < TOO_LARGE


def _counts(entry: Entry, at: float | None) -> bool:
    """Whether it was since the message was put, or requeued; moments of errors are cut to milliseconds."""
    return at is None or at >= entry.created - 0.001


def _read(value: bytes) -> Attempt | None:
    """None for what :func:`note` did not write."""
    try:
        worker, started = json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return None
    return Attempt(str(worker), started) if started is None or is_moment(started) else None


def written(attempts: Iterable[Attempt]) -> list[list[Any]]:
    """As plain lists, for a result."""
    return [list(one) for one in attempts]


def _key(id: str, number: int) -> str:
    return f"attempt:{id}:{number}"
