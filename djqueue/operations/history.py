"""What happened to messages lately, for operators.

The history has a filter and pages of its own. Its records say how and when a message ended, but have no entry with a
lane and errors, which :class:`~djqueue.operations.filters.Filter` reads. They are in one place for each queue, the
newest first, and a backend may read them all for each page; ``paging.page`` walks several places in small steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.operations.filters import is_named
from djqueue.operations.finding import LEAST_PART
from djqueue.operations.paging import MOST_CHECKED, SIZE, is_part
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running.ends import STATUSES, End
from djqueue.running.history import read

LATE = 3600.0
"""Seconds from its end until a message is settled, if its store was unreachable: records come in that order."""
PAGE, LARGEST_PAGE = 10_000, 100_000
"""Records per call, after a first one for as many as are shown. Each page is twice as large as the one before, as a
backend may read all records for each."""


class Row(NamedTuple):
    """What happened to one message."""

    queue: BaseQueue
    id: str
    end: End
    cursor: str = ""
    """Pass this as ``before`` to continue after this row."""


@report_row
class EndedMessage:
    """A message in the report of what has ended."""

    id: str = column("id", Kind.ID, key=True)
    queue: str = column("queue", Kind.QUEUE)
    command: str = column("command", Kind.COMMAND)
    status: str = column("status", Kind.STATE)
    """done, failed, expired, discarded or cancelled."""
    ended: float = column("ended", Kind.MOMENT)
    seconds: float = column("ran", Kind.DURATION)
    """How long its end took to run; 0 if it ended without another run."""
    attempts: int = column("attempts", Kind.NUMBER)
    consumer: str = column("consumer", Kind.NAME, optional=True)
    """The consumer that ran it last."""
    about: str = column("error", optional=True, in_json=False)
    """What it failed with, its call and what it returned, as far as they are kept."""
    enqueued: float = column(kind=Kind.MOMENT)
    began: float = column(kind=Kind.MOMENT)
    error: str = column()
    call: str = column()
    value: str = column()

    @classmethod
    def of(cls, row: Row, shows_call: bool = True) -> EndedMessage:
        """The row of a message; ``shows_call`` says whether its arguments and its result may be seen."""
        one = row.end
        call, value = (one.call, one.returned) if shows_call else ("", "")
        about = " · ".join(filter(None, [one.reason, call, f"returned {value}" if value else ""]))
        return cls(
            *(row.id, row.queue.alias, one.command, one.status, one.ended, one.seconds, one.attempts, one.worker),
            *(about, one.enqueued, one.began, one.reason, call, value),
        )


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which messages that have ended are asked for: all conditions must hold."""

    statuses: Collection[str] = STATUSES
    command: str = ""
    """A pattern for its name, as in any filter."""
    exception: str = ""
    """A pattern for the class of the exception that a message failed with."""
    id: str = ""
    """An id, or a part of one with at least :data:`~djqueue.operations.finding.LEAST_PART` characters."""
    since: float = 0.0
    """The earliest end (epoch seconds, the store's clock)."""

    def picks(self, row: Row) -> bool:
        """Whether a message is selected. A record that cannot be read is not: it has no status."""
        one = row.end
        return (
            one.status in self.statuses
            and one.ended >= self.since
            and (not self.command or is_named(one.command, self.command))
            and (not self.exception or is_named(one.reason, self.exception))
            and (not self.id or row.id == self.id or (len(self.id) >= LEAST_PART and is_part(self.id, row.id)))
        )


ANY = HistoryFilter()


def selected(queue: BaseQueue, wanted: HistoryFilter, first: int) -> Iterator[Row]:
    """All selected messages of a queue, the newest first; ``first`` are read at once."""
    if wanted.id and (record := queue.history.get(wanted.id)) is not None:
        rows = iter([Row(queue, wanted.id, read(record))])
    else:
        rows = ended_messages(queue, first)
    for row in rows:
        if wanted.picks(row):
            yield row
        elif 0 < row.end.ended < wanted.since - LATE:
            return


class HistoryPage(NamedTuple):
    """A page of the history of a queue."""

    rows: Sequence[Row] = ()
    next: str = ""
    """The cursor after the last checked record; "" if that was all."""


def page(
    queue: BaseQueue, wanted: HistoryFilter = ANY, before: str = "", size: int = SIZE, most: int = MOST_CHECKED
) -> HistoryPage:
    """Up to ``size`` selected messages, newest first; at most ``most`` are checked."""
    found: list[Row] = []
    rows = ended_messages(queue, size if wanted == ANY else most, before)
    for checked, row in enumerate(rows, 1):
        if wanted.picks(row):
            found.append(row)
        if len(found) == size or checked == most:
            return HistoryPage(found, row.cursor)
    return HistoryPage(found)


def ended_messages(queue: BaseQueue, first: int = PAGE, before: str = "") -> Iterator[Row]:
    """What happened to the messages of a queue, newest first, after the cursor ``before``.

    ``first`` are read at once, as usually no more are wanted.
    """
    page, size = queue.history.page(min(first, PAGE), before), PAGE
    while page:
        yield from (Row(queue, row.id, read(row.record), row.cursor) for row in page)
        page, size = queue.history.page(size, page[-1].cursor), min(2 * size, LARGEST_PAGE)
