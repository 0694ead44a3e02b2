"""What a pump leaves out of a claim: each filter says what may be run here now, and what goes back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from djqueue.backends.base import BaseQueue
from djqueue.consumer.crew import Crew
from djqueue.consumer.in_flight import Mailbox, Message, units_of
from djqueue.consumer.operators import OperatorChannels
from djqueue.policies.outcomes import Outcome, Verdict, hold_of, is_ordered
from djqueue.running.pauses import bring_up
from djqueue.utils import clock

logger = logging.getLogger(__name__)

BROUGHT_UP = 200
"""Messages, or lanes, of a resumed command that are made due between two claims."""
MOST_PUT_OFF = 50_000
"""Messages of a paused command that a pump remembers."""
PUT_OFF_RATE = 200
"""A second: of very many messages of paused commands, a pump claims no more than about this."""
SHORTEST_PAUSED, LONGEST_PAUSED = 1.0, 30.0
"""Seconds for which a message of a paused command is put off: a quarter of the time for which it has been paused."""
LEAST_PAUSED = 0.1
"""Seconds for which it is put off though the pause ends sooner."""


class Back(NamedTuple):
    """Messages that go back to their queue as if they had not been claimed."""

    messages: Sequence[Message]
    reason: str
    delay: float = 0.0


class Claimer(Protocol):
    """The part of a pump that filters need."""

    mail: Mailbox
    crew: Crew
    put_off: PutOff


Filtered = tuple[list[Message], list[Back]]
Filter = Callable[["Claimer", BaseQueue, list[Message]], Filtered]


def not_stopping(claimer: Claimer, queue: BaseQueue, messages: list[Message]) -> Filtered:
    """Nothing begins in a consumer that stops."""
    return ([], [Back(messages, "the consumer stops")]) if claimer.mail.is_stopping else (messages, [])


def not_paused(claimer: Claimer, queue: BaseQueue, messages: list[Message]) -> Filtered:
    """Messages of commands that are not paused. The others go back, and what they hold up in a lane."""
    if not claimer.crew.operators.has_paused_commands(queue):
        return messages, []
    kept: list[Message] = []
    back: list[Back] = []
    for unit in units_of(messages):
        for place, one in enumerate(unit):
            pause = claimer.crew.operators.pause_times(queue, one.lease.entry.command)
            if pause is None:
                kept.append(one)
                continue
            paused, left = pause
            delay = max(SHORTEST_PAUSED, min(LONGEST_PAUSED, paused / 4), len(claimer.put_off) / PUT_OFF_RATE)
            delay = min(delay, max(left, LEAST_PAUSED))
            holds = bool(hold_of(one.lease.entry, Verdict(Outcome.RETURNED, delay=delay)))
            goes = unit[place:] if holds else [one]
            back.append(Back(goes, "its command is paused", delay))
            claimer.put_off.add(queue, goes, delay)
            if holds:
                break
    return kept, back


def not_suspect(claimer: Claimer, queue: BaseQueue, messages: list[Message]) -> Filtered:
    """What is before a suspect, or one that is alone. The rest goes back to its place."""
    known, back = claimer.crew.suspects, []
    suspects = known.among(queue, messages)
    if suspects and not (len(messages) == 1 and known.admit(messages[0])):
        known.await_(claimer)
        place = messages.index(suspects[0])
        back.append(Back(messages[place:], "a suspect is claimed alone"))
        messages = messages[:place]
    if messages and known.shuts_out(messages[0]):
        back.append(Back(messages, "a suspect runs alone"))
        messages = []
    return messages, back


FILTERS: tuple[Filter, ...] = (not_stopping, not_paused, not_suspect)


class PutOff:
    """Messages of paused commands that went back with a delay: they are due at once when their command is resumed.

    Each process remembers its own. What a process has put off that died, the one who resumes looks for.
    """

    def __init__(self, operators: OperatorChannels):
        self._operators = operators
        self._due: dict[tuple[int, str], dict[tuple[str, str], float]] = {}
        """Of a queue and a command: the lanes that wait, else the ids of messages; when they are due (our clock)."""
        self._queues: dict[int, BaseQueue] = {}

    def add(self, queue: BaseQueue, messages: Sequence[Message], delay: float) -> None:
        if "inspect" not in queue.features:
            return
        self._queues[id(queue)] = queue
        due = clock() + delay
        for entry in (one.lease.entry for one in messages):
            known = self._due.setdefault((id(queue), messages[0].lease.entry.command), {})
            key = (entry.lane, "") if is_ordered(entry) else ("", entry.id)
            known.pop(key, None)  # the latest come last
            known[key] = due
            if len(known) > MOST_PUT_OFF:
                del known[next(iter(known))]

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def promote_resumed(self) -> None:
        """Have messages of commands that are not paused any more be due now, but for those that have come up since.

        Some at a time: claims go on in between. A store that fails is asked again.
        """
        for (own, command), known in list(self._due.items()):
            queue, now = self._queues[own], clock()
            if self._operators.pause_times(queue, command) is None:
                some = list(islice(known, BROUGHT_UP))
                late = [(lane, id) for lane, id in some if known[lane, id] > now]
                bring_up(queue, [id for _, id in late if id], [lane for lane, _ in late if lane])
                for key in some:
                    del known[key]
                if not known:
                    del self._due[own, command]
