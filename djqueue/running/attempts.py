"""The attempts at a call through Django's tasks: who began each, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple, TypeGuard

from djqueue.backends.base import BaseQueue, Entry, Fact
from djqueue.messages.failures import errors_of

KEPT = 7 * 86_400.0
"""Seconds for which it is noted who began an attempt."""
MOST = 100
"""How many attempts of one message are looked up: the latest."""
UNKNOWN = "unknown"
"""The worker of an attempt that nobody noted: it was over at once, or its process was killed."""


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
    """The first ``count`` attempts at a message, as far as the store and the errors of the entry tell of them.

    Attempts from before the message was requeued do not count.
    """
    known = _failed(entry) | _noted(queue, entry, count)
    return [known.get(number, NOBODY) for number in range(1, count + 1)]


def _noted(queue: BaseQueue, entry: Entry, count: int) -> dict[int, Attempt]:
    numbers = range(max(1, count - MOST + 1), count + 1)
    if not numbers or "facts" not in queue.features:
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
        if record.get("exception") and isinstance(number, int) and _is_moment(at) and _counts(entry, at):
            started = at - ran if _is_moment(ran) else at
            known[number] = Attempt(str(record.get("consumer") or UNKNOWN), max(started, entry.created))
    return known


def _is_moment(value: object) -> TypeGuard[float]:
    """Whether a value, which anybody may have written, is a number of seconds."""
    return isinstance(value, int | float) and isfinite(value)


def _counts(entry: Entry, at: float | None) -> bool:
    """Whether it was since the message was put, or requeued; moments of errors are rounded."""
    return at is None or at >= entry.created - 0.001


def _read(value: bytes) -> Attempt | None:
    """None for what :func:`note` did not write."""
    try:
        worker, started = json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return None
    return Attempt(str(worker), started) if started is None or _is_moment(started) else None


def written(attempts: Iterable[Attempt]) -> list[list[Any]]:
    """As plain lists, for a result."""
    return [list(one) for one in attempts]


def _key(id: str, number: int) -> str:
    return f"attempt:{id}:{number}"
