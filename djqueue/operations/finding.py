"""The messages that operators name by their ids, or by parts of ids.

Lanes, consumers and schedules have names that people chose, with rules of their own: a lane may be one that a command
will have (``lanes.problem_of``), part of a consumer's name is enough (``consumers.named``), and so is the last part of
a periodic command's name (``schedules.run_now``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from djqueue.backends.base import BaseQueue, Record
from djqueue.backends.entries import FAILED
from djqueue.operations.errors import OperationError
from djqueue.operations.messages import STATES, MessageRow, find_message
from djqueue.operations.paging import MOST_CHECKED, Selection, first_and_last_failed, is_part, selected_records
from djqueue.operations.queues import asking
from djqueue.words import NONE, moment, number, printable

LEAST_PART = 4
"""The fewest characters of an id (of its start, its end or its short form) that stand for it, if they fit no other."""
AN_ID = f"its id, or {LEAST_PART} or more characters of it: the first, the last, or the first of those that are listed"
MOST_CANDIDATES = 10


class Found(NamedTuple):
    """The messages that were found for texts of ids."""

    matches: Mapping[str, Sequence[MessageRow]]
    are_all: bool
    """Whether all messages were searched, or all texts were whole ids."""

    @property
    def messages(self) -> list[MessageRow]:
        """The messages that are the only match of a text, each once."""
        return list({one.id: one for matches in self.matches.values() if len(matches) == 1 for one in matches}.values())

    @property
    def unclear(self) -> dict[str, Sequence[MessageRow]]:
        """The texts that stand for no message, or for several."""
        return {part: matches for part, matches in self.matches.items() if len(matches) != 1}


def find(queues: Sequence[BaseQueue], parts: Iterable[str], states: Sequence[str] = STATES) -> Found:
    """The messages in these states whose ids begin or end with a text, or whose last eight characters begin with it.

    A whole id stands for its message alone, and is always found. A text of less than four characters stands for none.
    Parts are searched among the first :data:`~djqueue.operations.paging.MOST_CHECKED` messages of each state; of
    failed ones half of these are the last. Raises QueueUnavailable.
    """
    matches: dict[str, list[MessageRow]] = {part: [] for part in parts}
    for queue in queues:
        with asking(queue):
            for part, found in matches.items():
                found += [one for one in [find_message(queue, part, states)] if one is not None]
    left = [part for part, found in matches.items() if not found and len(part) >= LEAST_PART]
    are_all = True
    for queue in queues if left else ():
        for state in (state for state in states if state in STATES):
            searched, is_end = _first(queue, state)
            are_all = are_all and is_end
            for record in searched:
                for part in left:
                    if is_part(part, record.entry.id):
                        matches[part].append(MessageRow.of(queue, record, state))
    return Found(matches, are_all)


def find_one(queues: Sequence[BaseQueue], part: str, states: Sequence[str] = STATES) -> MessageRow:
    """The message that an id, or a part of one, stands for. Raises OperationError unless it is exactly one."""
    found = find(queues, [part], states)
    if found.unclear:
        raise unclear(queues, found, states)
    return found.messages[0]


def find_whole(queues: Sequence[BaseQueue], id: str) -> MessageRow | None:
    """The message of a whole id, in the first queue that has it."""
    return next((one for queue in queues if (one := find_message(queue, id)) is not None), None)


def unclear(queues: Sequence[BaseQueue], found: Found, states: Sequence[str] = STATES) -> OperationError:
    """The error for ids that stand for no message, and for parts of several ids."""
    return OperationError("\n".join(_lines(queues, found, states)))


def _lines(queues: Sequence[BaseQueue], found: Found, states: Sequence[str]) -> Iterator[str]:
    if unknown := [part for part, matches in found.unclear.items() if not matches]:
        where, is_failed = ", ".join(repr(queue.alias) for queue in queues), [*states] == [FAILED]
        head = f"Not {'in the failed queue of' if is_failed else 'waiting, running or failed in'} {where}"
        short = any(len(part) < LEAST_PART for part in unknown)
        hint = f" (a part of an id has at least {LEAST_PART} characters)" if short else ""
        known = "queue_errors list shows the ids" if is_failed else "queue_explain says what became of a message"
        yield f"{head}: {', '.join(unknown)}{hint}; {known}"
        if not found.are_all:
            yield f"{number(MOST_CHECKED)} messages of each state were checked: give the whole id."
    for part, matches in found.unclear.items():
        if matches:
            yield f"{part} is a part of {number(len(matches))} ids, give more of one:"
            yield from (_candidate(one) for one in matches[:MOST_CANDIDATES])
            yield from ["  …"] if len(matches) > MOST_CANDIDATES else []


def _candidate(one: MessageRow) -> str:
    return printable(f"  {one.id}  {one.state}  {moment(one.created)}  {one.command or NONE}")


def _first(queue: BaseQueue, state: str) -> tuple[Sequence[Record], bool]:
    """The records of a state that are searched, and whether these are all."""
    with asking(queue):
        if state == FAILED:
            return first_and_last_failed(queue)
        found = [*islice(selected_records(Selection([queue], [state])), MOST_CHECKED)]
    return found, len(found) < MOST_CHECKED
