"""What became of messages, for operators: the latest, and what they say of each command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.operations.failed import is_named
from djqueue.running.history import STATUSES, Ended, read

PAGE, LARGEST_PAGE = 10_000, 100_000
"""Records per call, after a first one for as many as are shown. Each page is twice as large as the one before, as a
backend may look at all records for each."""


class Row(NamedTuple):
    """What became of one message."""

    queue: BaseQueue
    id: str
    ended: Ended
    cursor: str = ""
    """Pass this as ``before`` to go on behind this row."""


def ended_messages(queue: BaseQueue, first: int = PAGE, before: str = "") -> Iterator[Row]:
    """What became of the messages of a queue, the newest first, behind the cursor ``before``.

    ``first`` are read at once, as that many are probably all that is wanted.
    """
    page, size = queue.history(min(first, PAGE), before), PAGE
    while page:
        yield from (Row(queue, row.id, read(row.record), row.cursor) for row in page)
        page, size = queue.history(size, page[-1].cursor), min(2 * size, LARGEST_PAGE)


class Look(NamedTuple):
    """Some of what became of messages."""

    rows: Sequence[Row]
    next: str
    """The cursor behind what was looked at; "" if that was all."""


def latest(
    queue: BaseQueue, status: str = "", command: str = "", before: str = "", size: int = 50, most: int = 5_000
) -> Look:
    """Up to ``size`` messages that ended, the newest first, for which ``most`` are looked at."""
    found: list[Row] = []
    looked_at = 0
    for row in ended_messages(queue, most if status or command else size, before):
        looked_at += 1
        if row.ended.status in ([status] if status else STATUSES) and (
            not command or is_named(row.ended.command, command)
        ):
            found.append(row)
        if len(found) == size or looked_at == most:
            return Look(found, row.cursor)
    return Look(found, "")


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """What became of the last messages of a command."""

    command: str
    done: int
    failed: int
    others: int
    """Expired, discarded or cancelled."""
    median: float
    """Seconds of the last attempts that ran: half of them took no longer."""
    most: float
    """Seconds that 95 % of them did not exceed."""
    waited: float
    """Seconds from the call to the beginning of the last attempt, half of which were no longer."""
    last: float
    """When the last of them ended (epoch seconds)."""


def by_command(queue: BaseQueue, sample: int) -> list[CommandCounts]:
    """The last ``sample`` messages of a queue by their commands, the most frequent first."""
    groups: dict[str, list[Ended]] = {}
    for row in islice(ended_messages(queue, sample), sample):
        if row.ended.status in STATUSES:
            groups.setdefault(row.ended.command, []).append(row.ended)
    counted = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [_counts(command, ended) for command, ended in counted]


def _counts(command: str, ended: Sequence[Ended]) -> CommandCounts:
    done, failed = (sum(one.status == status for one in ended) for status in ("done", "failed"))
    ran = [one for one in ended if one.seconds]
    took = [one.seconds for one in ran]
    waited = [max(0.0, one.began - one.enqueued) for one in ran]
    ends = max(one.ended for one in ended)
    counts = done, failed, len(ended) - done - failed
    return CommandCounts(command, *counts, _share(took, 0.5), _share(took, 0.95), _share(waited, 0.5), ends)


def _share(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed; 0 of none."""
    return sorted(values)[ceil(len(values) * share) - 1] if values else 0.0
