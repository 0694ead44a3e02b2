"""The history of a queue: a short record of every message that has ended, within the bounds of QUEUE_HISTORY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from djqueue import conf
from djqueue.utils import flag, seconds, whole

MOMENT = 16
"""A record begins with the moment of its end: as many digits, microseconds since the epoch. So records sort by it."""
MOST_AT_ONCE = 1000
"""How many messages one settlement has at most, by which a history may be longer than its bound for a moment."""


class HistoryRow(NamedTuple):
    """The record of one message, as a queue keeps it."""

    id: str
    record: bytes
    """One line of UTF-8 that begins with the moment of the end, of :data:`MOMENT` digits; without NUL."""
    cursor: str
    """Pass this as ``before`` to go on behind this row."""


class BaseHistory:
    """The records of what has ended in one queue. This one keeps none, as that of most backends."""

    def keep(self, ids: Sequence[str], records: Sequence[bytes]) -> None:
        """Keep a record of each id, of messages that ended without a lease. The latest record of an id counts."""

    def get(self, id: str) -> bytes | None:
        """The record of a message that has ended, or None. One that was requeued since may wait or run."""
        return None

    def page(self, limit: int = 100, before: str = "") -> Sequence[HistoryRow]:
        """Up to ``limit`` records, the newest first, behind the cursor ``before``."""
        return []

    def trim(self, count: int, age: float) -> int:
        """Delete what is beyond ``count`` records or older than ``age`` seconds; how many records that were.

        A backend deletes the oldest, as many at once as it does best: of what is within the bounds it keeps half at
        least. Between two calls it may exceed ``count`` by a tenth and :data:`MOST_AT_ONCE`.
        """
        return 0


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What QUEUE_HISTORY says."""

    age: float
    """Seconds for which a record is kept at most."""
    count: int
    """How many records a queue keeps at most."""
    arguments: bool
    """Whether a record has the arguments of the call."""
    value: bool
    """Whether a record has what the command returned."""


_read: tuple[object, HistorySettings | None] = (None, None)


def bounds() -> HistorySettings | None:
    """What QUEUE_HISTORY says, read once as it is asked for at every settlement; None if no history is kept.

    A wrong value keeps none and raises nothing, as messages must be settled all the same: a check warns of it, and
    the reaper.
    """
    global _read
    said, found = _read
    given = conf.get("QUEUE_HISTORY")
    if said is not given:
        found = None
        with suppress(TypeError, ValueError):
            found = bounds_of(given)
        _read = given, found  # in one step: other threads settle meanwhile
    return found


def most_records() -> int:
    """How many records a queue keeps at most, for a backend that bounds its history while it writes."""
    said = bounds()
    return conf.SETTINGS["QUEUE_HISTORY"].default["count"] if said is None else said.count


def bounds_of(given: Mapping[str, Any] | None) -> HistorySettings | None:
    """What a value of QUEUE_HISTORY says; what it leaves out has its default. Raises TypeError or ValueError."""
    if not given:
        return None
    chosen = conf.SETTINGS["QUEUE_HISTORY"].default | given
    return HistorySettings(
        seconds(chosen["age"], "QUEUE_HISTORY['age']", least=1.0),
        whole(chosen["count"], "QUEUE_HISTORY['count']", least=conf.LEAST_HISTORY),
        flag(chosen.get("arguments", False), "QUEUE_HISTORY['arguments']"),
        flag(chosen.get("value", False), "QUEUE_HISTORY['value']"),
    )
