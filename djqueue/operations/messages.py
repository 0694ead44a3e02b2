"""Messages for operators, in any state: what is known about them, and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, TypedDict, Unpack

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Record
from djqueue.backends.entries import DELAYED, DONE, FAILED, LEASED
from djqueue.exceptions import NotSupported
from djqueue.messages.envelope import readdressed
from djqueue.messages.failures import errors_of
from djqueue.operations.actions import record
from djqueue.operations.reports import Kind, column, report_row
from djqueue.registry import registry
from djqueue.results import Cancelled, Result
from djqueue.running.context import open_entry
from djqueue.running.ends import RUNNING, WAITING, End, of_last, of_record
from djqueue.running.executor import policy_of
from djqueue.running.finding import FOR_OPERATORS, Place, failed, find, held
from djqueue.utils import slices
from djqueue.wiring import queues
from djqueue.words import cut

STATES = (*WAITING, RUNNING, FAILED)
"""Those of what is in a queue. What is done is only in the history, or has a result: it is found by its whole id."""
CHUNK = 500
"""Messages that are changed at a time."""
LONGEST_WHAT = 200
"""Characters of the ids that are recorded."""
UNTIL_MOVED = 60.0
"""Seconds for which a message that is moved waits where it goes, so that it is not run in two queues."""


@report_row
class MessageRow:
    """A message that waits, runs or has failed. Moments are epoch seconds by the clock of its queue's store."""

    id: str = column("id", Kind.ID, key=True)
    queue: str = column("queue", Kind.QUEUE)
    """The alias of its queue."""
    command: str = column("command", Kind.COMMAND)
    """The command's name, as its entry says; what is signed decides what runs."""
    state: str = column("state", Kind.STATE)
    """``ready``, ``delayed``, ``running`` or ``failed``."""
    created: float = column("age", Kind.AGE)
    due: float | None = column("due", Kind.MOMENT, optional=True)
    """When it is due, if it is delayed."""
    at: float = column(kind=Kind.MOMENT)
    """When it is or was due, when its lease runs out, or when it failed."""
    attempts: int = column("attempts", Kind.NUMBER)
    priority: int = column("priority", Kind.NUMBER, optional=True)
    lane: str = column("lane", Kind.LANE, optional=True)
    about: str = column("about", optional=True, in_json=False)
    """Who runs it, what it was about, and why it failed last."""
    failures: int = column(kind=Kind.NUMBER)
    """Attempts that raised an exception."""
    lost: int = column(kind=Kind.NUMBER)
    """Attempts that never reported an end, as their worker died."""
    consumer: str = column(kind=Kind.NAME)
    """The consumer that holds it, if it runs."""
    bytes: int = column(kind=Kind.NUMBER)
    """The size of its body."""
    exception: str = column(kind=Kind.COMMAND)
    """The dotted name of what the last attempt that failed raised; "" if none did."""
    reason: str = column()
    """Why the last attempt failed, if one did."""
    description: str = column()
    """What the command's ``describe`` said of the call at the last attempt that failed."""
    end: End = field(repr=False, compare=False)
    """What became of it, or how far it is."""
    entry: Entry = field(repr=False, compare=False)

    @classmethod
    def of(cls, queue: BaseQueue, record: Record, state: str = "") -> MessageRow:
        """The message of a record, of the failed queue if its state is ``failed``."""
        return cls.of_end(queue, of_record(record, state), record.entry)

    @classmethod
    def of_end(cls, queue: BaseQueue, end: End, entry: Entry) -> MessageRow:
        """A message by what is known of it. What is done has no more than an empty body."""
        state, said = end.status, _described(end.errors)
        by = f"by {end.worker}" if end.worker else ""
        return cls(
            id=entry.id,
            queue=queue.alias,
            command=entry.command,
            state=state,
            created=entry.created,
            due=end.at if state == DELAYED else None,
            at=end.ended if end.is_over else end.at,
            attempts=entry.attempts,
            priority=entry.priority,
            lane=entry.lane,
            about=" · ".join(filter(None, [by, said, end.reason])),
            failures=entry.failures,
            lost=entry.lost,
            consumer=end.worker,
            bytes=len(entry.body),
            exception=of_last(end.errors, "exception"),
            reason=end.reason,
            description=said,
            end=end,
            entry=entry,
        )


def failed_queue(queue: BaseQueue) -> BaseQueue:
    """The failed queue of a queue that is not a failed queue itself."""
    assert queue.failed is not None
    return queue.failed


def find_message(queue: BaseQueue, id: str, states: Sequence[str] = STATES) -> MessageRow | None:
    """The message of that id, if it is in one of these states."""
    places: list[Place] = [held] if {*states} & {*WAITING, RUNNING} else []
    places += [failed] if FAILED in states else []
    places += FOR_OPERATORS if DONE in states else ()
    end = find(queue, id, places)
    if end is None or end.status not in states:
        return None
    entry = end.entry or Entry(b"", id, command=end.command, created=end.enqueued, attempts=end.attempts)
    return MessageRow.of_end(queue, end, entry)


# ---- What its entry says about failed attempts


def last_error(entry: Entry, key: str) -> str:
    """A value of the last error that an entry carries; "" if there is none."""
    return of_last(errors_of(entry.errors), key)


def _described(errors: Sequence[dict[str, Any]]) -> str:
    """What the command's ``describe`` last said about the call; "" for nothing."""
    said = (str(error.get("description") or "") for error in reversed(errors))
    return next(filter(None, said), "")


def about(entry: Entry) -> str:
    """What a message was about, if its command described it, and why it failed; "" if neither is known."""
    errors = errors_of(entry.errors)
    return " · ".join(filter(None, [_described(errors), of_last(errors, "reason")]))


# ---- What can be done with them: each returns with how many it was done, and may be done again


class ActionOptions(TypedDict, total=False):
    """What an action may take besides its messages."""

    by: str
    """Who does it, for the record; the user of this process by default."""
    what: str
    """What it is done to, in words, for the record; by default the ids, as far as a line has them."""
    progress: Callable[[int], object]
    """Called after each batch with how many were checked."""
    done: Callable[[int], object]
    """Called after each batch with how many of it were changed: that is known then, if a later batch fails."""


def cancel(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    """Cancel waiting messages, so that result and history say so; ask running ones to stop."""

    def change(some: list[str]) -> int:
        [id] = some
        return Result(id, queue_name=queue.alias).cancel() in (Cancelled.WAITING, Cancelled.RUNNING)

    return in_batches(queue, "cancel", ids, change, options, size=1)


def remove(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    """Delete waiting or failed messages, without a trace."""
    return in_batches(queue, "remove", ids, lambda some: queue.remove(some) + failed_queue(queue).remove(some), options)


def run_now(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    """Make delayed messages due now."""
    return in_batches(queue, "run now", ids, queue.promote, options)


def reprioritise(queue: BaseQueue, ids: Iterable[str], priority: int, **options: Unpack[ActionOptions]) -> int:
    """Give waiting messages another priority. Raises TypeError or ValueError for an invalid one."""
    return in_batches(
        queue, f"reprioritise to {priority}", ids, lambda some: queue.reprioritise(some, priority), options
    )


def requeue(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    """Put failed messages back into their queue, as if they were new."""
    return in_batches(queue, "requeue", ids, queue.requeue, options)


def move(queue: BaseQueue, ids: Iterable[str], to: str, **options: Unpack[ActionOptions]) -> int:
    """Move waiting messages to the queue of another alias, behind its messages, with their counts and delays.

    Each message is verified, and signed for its new queue. It is put there first, and begins there once it is gone
    from here; if this process dies in between, it runs in both. Raises InvalidMessage, UnknownCommand, NotSupported.
    """
    [_] = without_target([queue], to)
    there = queues[to]

    def change(some: list[str]) -> int:
        found = queue.find(some[0])
        return found is not None and _moved(queue, there, found)

    return in_batches(queue, f"move to {to}", ids, change, options, size=1)


def without_target(sources: Sequence[BaseQueue], to: str) -> list[BaseQueue]:
    """The given queues except the queue of an alias. Raises ValueError if none is left."""
    there = queues[to]
    others = [one for one in sources if (one.base_name, one.server) != (there.base_name, there.server)]
    if not others:
        raise ValueError(f"{to!r} is the queue in which they wait.")
    return others


def in_batches(
    queue: BaseQueue,
    action: str,
    ids: Iterable[str],
    change: Callable[[list[str]], int],
    options: ActionOptions,
    size: int = CHUNK,
) -> int:
    """Change ``size`` at a time, and record it, even if only a part could be done."""
    done, seen, first = 0, 0, ""
    on_done, progress = options.get("done"), options.get("progress")
    try:
        for some in slices(ids, size):
            done += (now := change(some))
            seen, first = seen + len(some), cut(f"{first} {' '.join(some)}".strip(), LONGEST_WHAT)
            if on_done is not None:
                on_done(now)
            if progress is not None:
                progress(seen)
    finally:
        if done:
            record(queue, action, options.get("what") or first, done, options.get("by", ""))
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
