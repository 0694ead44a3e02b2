"""What happened to messages lately, for operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.operations.filters import is_named
from djqueue.operations.paging import MOST_LOOKED_AT, SIZE
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running.history import STATUSES, Ended, read

PAGE, LARGEST_PAGE = 10_000, 100_000
"""Records per call, after a first one for as many as are shown. Each page is twice as large as the one before, as a
backend may read all records for each."""


class Row(NamedTuple):
    """What happened to one message."""

    queue: BaseQueue
    id: str
    ended: Ended
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
    about: str = column("error", optional=True, told=False)
    """What it failed with, its call and what it returned, as far as they are kept."""
    enqueued: float = column(kind=Kind.MOMENT)
    began: float = column(kind=Kind.MOMENT)
    error: str = column()
    call: str = column()
    value: str = column()

    @classmethod
    def of(cls, row: Row, shows_call: bool = True) -> EndedMessage:
        """The row of a message; ``shows_call`` says whether its arguments and its result may be seen."""
        one = row.ended
        call, value = (one.call, one.value) if shows_call else ("", "")
        about = " · ".join(filter(None, [one.error, call, f"returned {value}" if value else ""]))
        return cls(
            *(row.id, row.queue.alias, one.command, one.status, one.ended, one.seconds, one.attempts, one.worker),
            *(about, one.enqueued, one.began, one.error, call, value),
        )


def ended_messages(queue: BaseQueue, first: int = PAGE, before: str = "") -> Iterator[Row]:
    """What happened to the messages of a queue, newest first, after the cursor ``before``.

    ``first`` are read at once, as usually no more are wanted.
    """
    page, size = queue.history(min(first, PAGE), before), PAGE
    while page:
        yield from (Row(queue, row.id, read(row.record), row.cursor) for row in page)
        page, size = queue.history(size, page[-1].cursor), min(2 * size, LARGEST_PAGE)


class Look(NamedTuple):
    """A part of the history of messages."""

    rows: Sequence[Row]
    next: str
    """The cursor after the last checked record; "" if that was all."""


def latest(
    queue: BaseQueue,
    status: str = "",
    command: str = "",
    before: str = "",
    size: int = SIZE,
    most: int = MOST_LOOKED_AT,
) -> Look:
    """Up to ``size`` messages that ended, newest first; at most ``most`` are checked."""
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
