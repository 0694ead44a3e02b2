"""Debounced calls whose arguments are collected: a call that is refused goes into the one that waits."""

from __future__ import annotations

from collections.abc import Callable

from djqueue.backends.base import BaseQueue, Debounce, Entry
from djqueue.backends.guards import Mark
from djqueue.exceptions import QueueError
from djqueue.message import Message
from djqueue.running import open_entry

TRIES = 100
"""So often others may come between before it is an error."""

Merge = Callable[[tuple[tuple, dict]], tuple[tuple, dict]]
"""Makes of the arguments that wait those that stand for this call too."""


def put_or_merge(
    queue: BaseQueue, entry: Entry, guard: Debounce, merge: Merge, encode: Callable[[Message], bytes]
) -> bool:
    """Put the entry, or else change the one that waits for it; whether it was put. Nothing is lost between the two:
    whichever fails because of somebody else is tried again. Raises QueueError if that never ends."""
    for _ in range(TRIES):
        if queue.put([entry], [guard])[0]:
            return True
        if _merged(queue, guard, merge, encode):
            return False
    raise QueueError(f"{entry.label}: others changed the waiting call {TRIES} times in a row; this one was not put.")


def _merged(queue: BaseQueue, guard: Debounce, merge: Merge, encode: Callable[[Message], bytes]) -> bool:
    """Whether the entry that waits could be changed: not if it has begun meanwhile, or somebody else changed it."""
    mark = queue.store.get(guard.key)
    record = None if mark is None else queue.find(Mark.read(mark).id)
    if record is None:
        return False
    waits = open_entry(queue, record.entry)
    args, kwargs = merge(waits.arguments())
    message = Message(waits.id, waits.queue, waits.command, args, kwargs, waits.metadata, waits.options)
    return queue.amend(waits.id, record.entry.data, encode(message))
