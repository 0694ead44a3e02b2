"""The selected messages, a page at a time or all. No page walks through a whole queue."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from math import inf
from typing import NamedTuple

from djqueue.backends.base import BaseQueue, Record, walk
from djqueue.backends.entries import DELAYED, FAILED, LEASED, READY
from djqueue.operations.filters import ANY, Filter
from djqueue.operations.messages import RUNNING, STATES, MessageRow, failed_queue
from djqueue.operations.queues import asking
from djqueue.words import SHORT_ID

SIZE = 50
MOST_CHECKED = 5_000
"""Messages that are searched for what was asked for, and lanes of a queue; if that was not all, it is said."""
CHUNK = 500


class Position(NamedTuple):
    """Where a page begins: after a record in one of the searched sources."""

    place: int = 0
    cursor: str = ""

    def __str__(self) -> str:
        return f"{self.place}.{urlsafe_b64encode(self.cursor.encode('utf-8', 'surrogatepass')).decode()}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that ``str`` has written. Raises ValueError for another text."""
        place, _, cursor = text.partition(".")
        try:
            return cls(int(place), urlsafe_b64decode(cursor).decode("utf-8", "surrogatepass"))
        except ValueError:
            raise ValueError(f"{text!r} is no place: give what the last call has said.") from None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of selected messages."""

    messages: Sequence[MessageRow] = ()
    next: Position | None = None
    """Where the next page begins; None if all were checked."""
    checked: int = 0
    is_capped: bool = False
    """Whether the most allowed were checked."""


class Source(NamedTuple):
    """Where messages of one state are."""

    queue: BaseQueue
    state: str
    peek: Callable[[int, str | None], Sequence[Record]]
    """Reads some of them, given how many and a cursor."""
    most: Callable[[], float] = lambda: inf
    """How many are read at most, if all are wanted: a message retried meanwhile may fail again."""


class Selection(NamedTuple):
    """Which messages are asked for: all conditions must hold."""

    queues: Sequence[BaseQueue]
    states: Sequence[str] = STATES
    asked: Filter = ANY
    part: str = ""
    """With which the id begins or ends, or its short form begins."""

    def sources(self) -> list[Source]:
        each = (_sources(queue, state, self.asked) for queue in self.queues for state in self.states)
        return [source for some in each for source in some]

    def picks(self, record: Record, now: Callable[[], float]) -> bool:
        has_part = not self.part or is_part(self.part, record.entry.id)
        return has_part and (not self.asked or self.asked.picks(record, now()))


def is_part(part: str, id: str) -> bool:
    """Whether a text stands for an id: its beginning, its end, or the beginning of its listed end."""
    return id.startswith(part) or id.endswith(part) or id[-SHORT_ID:].startswith(part)


def page(wanted: Selection, begin: Position | None = None, size: int = SIZE, most: int = MOST_CHECKED) -> Page:
    """Up to ``size`` messages, of at most ``most`` checked; state by state, each in the order of its queue."""
    found: list[MessageRow] = []
    checked = 0
    chunk = CHUNK if wanted.asked or wanted.part else min(size, CHUNK)
    for source, record, position in _walk(wanted, begin or Position(), chunk):
        checked += 1
        if record is not None:
            found.append(MessageRow.of(source.queue, record, source.state))
        if len(found) == size or checked == most:
            return Page(found, position, checked, checked == most)
    return Page(found, None, checked)


def selected(wanted: Selection) -> Iterator[MessageRow]:
    """All selected messages, however many must be checked."""
    found = _walk(wanted, Position(), CHUNK)
    return (MessageRow.of(source.queue, record, source.state) for source, record, _ in found if record is not None)


def selected_records(wanted: Selection) -> Iterator[Record]:
    """The same as their queues keep them: to make a :class:`Message` takes as long as to read it."""
    return (record for _, record, _ in _walk(wanted, Position(), CHUNK) if record is not None)


def messages_of(
    queue: BaseQueue, states: Iterable[str] = STATES, asked: Filter = ANY, most: float = inf
) -> Iterator[MessageRow]:
    """The selected messages of a queue in these states, state by state, each in the order of its queue.

    At most ``most`` of each state are checked.
    """
    for state in states:
        walked = _walk(Selection([queue], [state], asked), Position(), CHUNK)
        checked = walked if most == inf else islice(walked, int(most))
        yield from (MessageRow.of(queue, record, state) for _, record, _ in checked if record is not None)


def first_and_last_failed(queue: BaseQueue, most: int = MOST_CHECKED) -> tuple[list[Record], bool]:
    """The records of what has failed, and whether these are all; else they are the half of ``most`` that failed first,
    and the half that failed last."""
    errors, half = failed_queue(queue), most // 2
    first, delayed = [*walk(errors, READY, half)], [*walk(errors, DELAYED, half)]
    last = errors.peek(READY, half + 1, last=True) if len(first) == half else []
    ids = {record.entry.id for record in first}
    are_all = len(delayed) < half and (len(last) <= half or last[half].entry.id in ids)
    found = {record.entry.id: record for record in [*first, *last[:half], *delayed]}
    return list(found.values()), are_all


def is_lane(queue: BaseQueue, name: str) -> bool:
    """Whether it is the whole name of a lane, whose messages a queue finds without reading the rest."""
    return bool(name) and "lanes" in queue.features and queue.lanes.get(name) is not None


def _walk(wanted: Selection, begin: Position, chunk: int) -> Iterator[tuple[Source, Record | None, Position]]:
    """Each record after a position, with its own position; None instead of a record that is not selected."""
    for number, source in enumerate(wanted.sources()):
        after = begin.cursor if number == begin.place else ""
        now = cache(source.queue.now)
        if number < begin.place:
            continue
        with asking(source.queue):
            left = source.most()
        while left > 0:
            with asking(source.queue):
                records = source.peek(int(min(chunk, left)), after or None)
            if not records:
                break
            for record in records:
                yield source, record if wanted.picks(record, now) else None, Position(number, record.cursor)
            after, left = records[-1].cursor, left - len(records)


def _sources(queue: BaseQueue, state: str, asked: Filter) -> list[Source]:
    if state == FAILED:
        errors = failed_queue(queue)
        return [Source(queue, FAILED, partial(errors.peek, own), errors.__len__) for own in (READY, DELAYED)]
    if state == READY and is_lane(queue, asked.lane):
        return [Source(queue, READY, partial(queue.lanes.peek, asked.lane))]
    return [Source(queue, state, partial(queue.peek, LEASED if state == RUNNING else state))]
