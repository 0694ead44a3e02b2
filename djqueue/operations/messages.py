"""Messages for operators: which wait, run or have failed, how they are shown, and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import chain
from math import inf
from typing import Any, TypedDict, Unpack

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Record
from djqueue.backends.entries import DELAYED, FAILED, LEASED, READY
from djqueue.exceptions import NotSupported
from djqueue.messages.envelope import readdressed
from djqueue.messages.failures import errors_of
from djqueue.operations import failed
from djqueue.operations.actions import record
from djqueue.operations.failed import CHUNK, LEAST_PART, failed_queue
from djqueue.registry import registry
from djqueue.results import Cancelled, Result
from djqueue.running.context import open_entry
from djqueue.running.executor import policy_of
from djqueue.utils import slices
from djqueue.wiring import queues
from djqueue.words import NONE, short_lane

RUNNING = "running"
WAITING = (READY, DELAYED)
STATES = (*WAITING, RUNNING, FAILED)
MOST_LOOKED_AT = 10_000
"""Messages of each state of a queue among which a part of an id is looked for."""
UNTIL_MOVED = 60.0
"""Seconds for which a message that is moved waits where it goes, so that it is not run in two queues."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that waits, runs or has failed. Moments are epoch seconds by the clock of its queue's store."""

    id: str
    queue: str
    """The alias of its queue."""
    state: str
    """``ready``, ``delayed``, ``running`` or ``failed``."""
    command: str
    """The command's name, as its entry says; what is signed decides what runs."""
    at: float
    """When it is or was due, when its lease runs out, or when it failed."""
    created: float
    priority: int
    attempts: int
    failures: int
    """Attempts that raised an exception."""
    lost: int
    """Attempts that never reported, as their worker died."""
    lane: str
    consumer: str
    """The consumer that holds it, if it runs."""
    bytes: int
    """The size of its body."""
    reason: str
    """Why the last attempt failed, if one did."""
    description: str
    """What the command's ``describe`` said of the call at the last attempt that failed."""
    entry: Entry = field(repr=False, compare=False)

    @classmethod
    def of(cls, queue: BaseQueue, record: Record, state: str = "") -> Message:
        """The message of a record, of the failed queue if its state is ``failed``."""
        entry = record.entry
        state = state or (RUNNING if record.state == LEASED else record.state)
        at = failed.failed_at(record) if state == FAILED else record.at
        counts = entry.priority, entry.attempts, entry.failures, entry.lost
        where = entry.lane, record.owner, len(entry.body)
        said = failed.last(entry, "reason"), failed.description(entry)
        return cls(entry.id, queue.alias, state, entry.command, at, entry.created, *counts, *where, *said, entry)

    @property
    def record(self) -> Record:
        """As its queue, or its failed queue, tells it."""
        return Record(self.entry, LEASED if self.state == RUNNING else self.state, self.at, self.consumer)


# ---- Which messages are there, and which are selected


class Filter(failed.Filter):
    """Which messages an operator asks for: all conditions that were given must hold. False if none was given."""

    arguments = failed.ARGUMENTS | {
        "exception": ("CLASS", failed.wanted_text, "only what failed last with this exception, named in the same way"),
        "lane": (
            "NAME",
            failed.wanted_text,
            "only in this lane, named as list shows it or in full; * stands for any text",
        ),
        "older": ("AGE", failed.ARGUMENTS["older"][1], "only what was enqueued longer ago than 90s, 30m, 12h, 7d, 4w"),
        "newer": ("AGE", failed.ARGUMENTS["newer"][1], "only what was enqueued since"),
    }

    @property
    def lane(self) -> str:
        """The lane that is asked for, as it was given; "" for any."""
        return str(self._asked.get("lane", ""))

    def picks(self, record: Record, now: float) -> bool:
        wanted, lane = self._asked.get("lane"), record.entry.lane
        is_in = wanted is None or fnmatchcase(lane, wanted) or fnmatchcase(short_lane(lane), wanted)
        return is_in and super().picks(record, now)

    def _moment(self, record: Record) -> float:
        return record.entry.created


ANY = Filter({})


def messages_of(
    queue: BaseQueue, states: Iterable[str] = STATES, asked: Filter = ANY, most: float = inf
) -> Iterator[Message]:
    """The messages of a queue in these states that are selected, state by state, each in the order of its queue.

    At most ``most`` of each state are looked at.
    """
    now = queue.now()
    for state in states:
        found = failed.records(queue, most) if state == FAILED else _walked(queue, state, asked, most)
        yield from (Message.of(queue, record, state) for record in found if asked.picks(record, now))


def _walked(queue: BaseQueue, state: str, asked: Filter, most: float) -> Iterator[Record]:
    if state == READY and is_lane(queue, asked.lane):
        return queue.walk_lane(asked.lane, most)
    return queue.walk(LEASED if state == RUNNING else state, most)


def is_lane(queue: BaseQueue, name: str) -> bool:
    """Whether it is the whole name of a lane, of which the queue tells what waits in it without a look at the rest."""
    return bool(name) and "lanes" in queue.features and queue.lane(name) is not None


def find_message(queue: BaseQueue, id: str) -> Message | None:
    """The message of that id, if it waits, runs or has failed."""
    if (record := queue.find(id)) is not None:
        return Message.of(queue, record)
    record = failed_queue(queue).find(id)
    return None if record is None else Message.of(queue, record, FAILED)


def found_by(queues: Sequence[BaseQueue], parts: Iterable[str]) -> dict[str, list[Message]]:
    """The messages whose ids begin or end with each of these texts, or whose last eight characters begin with it.

    A whole id stands for its message alone. None for a text of less than four characters. Parts are looked for among
    the first :data:`MOST_LOOKED_AT` messages of each state.
    """
    found = {part: [one for queue in queues if (one := find_message(queue, part)) is not None] for part in parts}
    left = tuple(part for part, matches in found.items() if not matches and len(part) >= LEAST_PART)
    for one in chain.from_iterable(messages_of(queue, most=MOST_LOOKED_AT) for queue in queues if left):
        for part in left:
            if failed.is_part(part, one.id):
                found[part].append(one)
    return found


# ---- What can be done with them: each returns with how many it was done, and may be done again


class Telling(TypedDict, total=False):
    """What an action may be given beside its messages."""

    by: str
    """Who does it, for the record; the user of this process by default."""
    what: str
    """What it is done with, in words, for the record; by default the id, or how many."""
    progress: Callable[[int], object]
    """Called after each batch with how many were looked at."""
    done: Callable[[int], object]
    """Called after each batch with how many of it were changed: that is known then, if a later batch fails."""


def cancel(queue: BaseQueue, ids: Iterable[str], **told: Unpack[Telling]) -> int:
    """Cancel what waits, so that its result and the history say so; ask what runs to stop."""

    def change(some: list[str]) -> int:
        [id] = some
        return Result(id, queue_name=queue.alias).cancel() in (Cancelled.WAITING, Cancelled.RUNNING)

    return _in_batches(queue, "cancel", ids, change, told, size=1)


def remove(queue: BaseQueue, ids: Iterable[str], **told: Unpack[Telling]) -> int:
    """Delete what waits or has failed, without a trace."""
    return _in_batches(queue, "remove", ids, lambda some: queue.remove(some) + failed_queue(queue).remove(some), told)


def run_now(queue: BaseQueue, ids: Iterable[str], **told: Unpack[Telling]) -> int:
    """Let what is delayed be due now."""
    return _in_batches(queue, "run now", ids, queue.promote, told)


def reprioritise(queue: BaseQueue, ids: Iterable[str], priority: int, **told: Unpack[Telling]) -> int:
    """Give what waits another priority. Raises TypeError or ValueError for what is no priority."""
    return _in_batches(queue, f"reprioritise to {priority}", ids, lambda some: queue.reprioritise(some, priority), told)


def requeue(queue: BaseQueue, ids: Iterable[str], **told: Unpack[Telling]) -> int:
    """Put what has failed back into its queue, as if it were new."""
    return _in_batches(queue, "requeue", ids, queue.requeue, told)


def move(queue: BaseQueue, ids: Iterable[str], to: str, **told: Unpack[Telling]) -> int:
    """Move what waits to the queue of another alias, with its counts and its delay, behind what waits there.

    Each message is verified, and signed for its new queue. It is put there first, and begins there once it is gone
    from here; if this process dies in between, it runs in both. Raises InvalidMessage, UnknownCommand, NotSupported.
    """
    there = queues[to]
    if there.base_name == queue.base_name and there.server == queue.server:
        raise ValueError(f"{to!r} is the queue in which they wait.")

    def change(some: list[str]) -> int:
        found = queue.find(some[0])
        return found is not None and _moved(queue, there, found)

    return _in_batches(queue, f"move to {to}", ids, change, told, size=1)


def _in_batches(
    queue: BaseQueue,
    action: str,
    ids: Iterable[str],
    change: Callable[[list[str]], int],
    told: Telling,
    size: int = CHUNK,
) -> int:
    """Change ``size`` at a time, and record it, even if only a part of it could be done."""
    done, seen, only = 0, 0, ""
    tell_done, progress = told.get("done"), told.get("progress")
    try:
        for some in slices(ids, size):
            done += (now := change(some))
            seen, only = seen + len(some), some[0]
            if tell_done is not None:
                tell_done(now)
            if progress is not None:
                progress(seen)
    finally:
        if done:
            what = told.get("what") or (only if seen == 1 else "messages")
            record(queue, action, what, done, told.get("by", ""))
    return done


def _moved(queue: BaseQueue, there: BaseQueue, record: Record) -> bool:
    entry = _for_queue(queue, there, record.entry)
    later = max(0.0, record.at - queue.now()) if record.state == DELAYED else 0.0
    if record.state == LEASED or not there.put([replace(entry, run_at=0.0, delay=max(later, UNTIL_MOVED))])[0]:
        return False
    if not queue.remove([entry.id]):  # it has begun meanwhile
        there.remove([entry.id])
        return False
    if later < UNTIL_MOVED:
        there.promote([entry.id])
    return True


def _for_queue(queue: BaseQueue, there: BaseQueue, entry: Entry) -> Entry:
    """An entry as another queue may hold it. Raises InvalidMessage, UnknownCommand, NotSupported."""
    envelope = open_entry(queue, entry)
    policy = policy_of(registry.find(envelope.command), envelope)
    if not policy.needs | {"inspect"} <= there.features:
        lacking = policy.unsupported(there.features) or "'inspect', which moving needs"
        raise NotSupported(f"{type(there).__name__} ({there.alias!r}) cannot do: {lacking}.")
    return replace(entry, body=readdressed(envelope, there.base_name, conf.get("QUEUE_MAX_MESSAGE_SIZE")))


# ---- How they are shown


def about(one: Message) -> str:
    """Who runs it, what it was about, and why it failed last."""
    by = f"by {one.consumer}" if one.consumer else ""
    return " · ".join(filter(None, [by, one.description, one.reason])) or NONE


def as_object(one: Message) -> dict[str, Any]:
    """What is known of a message, for JSON."""
    known = {one_field.name: getattr(one, one_field.name) for one_field in fields(one) if one_field.name != "entry"}
    empty = ("lane", "consumer", "reason", "description")
    return {name: None if name in empty and not value else value for name, value in known.items()}


def full_object(one: Message) -> dict[str, Any]:
    """All that is known of it, for JSON, with the errors of its attempts; never the arguments."""
    return as_object(one) | {"errors": errors_of(one.entry.errors)}
