"""Messages a page at a time: what fits on it, and where the next one begins. No page walks through a whole queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from djqueue.backends.base import BaseQueue, Record
from djqueue.backends.entries import DELAYED, FAILED, LEASED, READY
from djqueue.operations.failed import failed_queue
from djqueue.operations.messages import ANY, RUNNING, Filter, Message, is_lane
from djqueue.words import SHORT_ID

SIZE = 50
MOST_LOOKED_AT = 5_000
"""Messages that are looked at for one page."""
CHUNK = 500


class Position(NamedTuple):
    """Where a page begins: behind a record of one of the places that are looked into."""

    place: int = 0
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Messages that are selected."""

    messages: Sequence[Message]
    next: Position | None
    """Where the next page begins; None if all were looked at."""
    looked_at: int


class Place(NamedTuple):
    """Where messages of one state are."""

    queue: BaseQueue
    state: str
    peek: Callable[[int, str | None], Sequence[Record]]
    """Reads a page of them, given its size and a cursor."""


class Selection(NamedTuple):
    """Which messages are asked for: those for which all of it holds."""

    queues: Sequence[BaseQueue]
    states: Sequence[str]
    asked: Filter = ANY
    part: str = ""
    """With which the id begins or ends, or its short form begins."""

    def places(self) -> list[Place]:
        return [place for queue in self.queues for state in self.states for place in _places(queue, state, self.asked)]

    def picks(self, record: Record, now: Callable[[], float]) -> bool:
        id, part = record.entry.id, self.part
        has_part = not part or id.startswith(part) or id.endswith(part) or id[-SHORT_ID:].startswith(part)
        return has_part and (not self.asked or self.asked.picks(record, now()))


def page(wanted: Selection, begin: Position | None = None, size: int = SIZE, most: int = MOST_LOOKED_AT) -> Page:
    """Up to ``size`` messages, for which ``most`` are looked at; state by state, each in the order of its queue."""
    found: list[Message] = []
    looked_at = 0
    chunk = CHUNK if wanted.asked or wanted.part else min(size, CHUNK)
    for message, position in _walk(wanted, begin or Position(), chunk):
        looked_at += 1
        if message is not None:
            found.append(message)
        if len(found) == size or looked_at == most:
            return Page(found, position, looked_at)
    return Page(found, None, looked_at)


def _walk(wanted: Selection, begin: Position, chunk: int) -> Iterator[tuple[Message | None, Position]]:
    """Each message behind a position with its own position; None in the place of one that is not selected."""
    for number, place in enumerate(wanted.places()):
        after = begin.cursor if number == begin.place else ""
        now = cache(place.queue.now)
        while number >= begin.place and (records := place.peek(chunk, after or None)):
            for record in records:
                message = Message.of(place.queue, record, place.state) if wanted.picks(record, now) else None
                yield message, Position(number, record.cursor)
            after = records[-1].cursor


def _places(queue: BaseQueue, state: str, asked: Filter) -> list[Place]:
    if state == FAILED:
        return [Place(queue, FAILED, partial(failed_queue(queue).peek, own)) for own in (READY, DELAYED)]
    if state == READY and is_lane(queue, asked.lane):
        return [Place(queue, READY, partial(queue.peek_lane, asked.lane))]
    return [Place(queue, state, partial(queue.peek, LEASED if state == RUNNING else state))]
