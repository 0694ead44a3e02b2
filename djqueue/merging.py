"""Debounced calls whose arguments are collected: a call that is refused goes into the one that waits."""

from __future__ import annotations

import logging
from collections.abc import Callable

from djqueue.backends.base import BaseQueue, Debounce, Entry
from djqueue.backends.guards import Mark
from djqueue.exceptions import EncodeError, InvalidMessage, MessageTooLarge, QueueError
from djqueue.messages.envelope import Message
from djqueue.running import open_entry
from djqueue.utils import tell

logger = logging.getLogger(__name__)

TRIES = 100
"""So often others may come between before it is an error."""

Arguments = tuple[tuple, dict]
Merge = Callable[[Arguments, Arguments], Arguments]
"""Makes of the arguments that wait and those of the new call those that stand for both."""


def put_or_merge(
    queue: BaseQueue, entry: Entry, guard: Debounce, merge: Merge, encode: Callable[[Message], bytes]
) -> bool:
    """Put the entry, or else change the one that waits for it; whether it was put. Nothing is lost between the two:
    whichever fails because of somebody else is tried again. Raises QueueError if that never ends."""
    for _ in range(TRIES):
        if queue.put([entry], [guard])[0]:
            return True
        try:
            if _merged(queue, entry, guard, merge, encode):
                return False
        except InvalidMessage as error:
            text = "%s: the waiting call cannot be read, so this one is put beside it"
            tell(logger, logging.ERROR, text, entry.label, exc_info=error, extra={"message_id": entry.id})
            return queue.put([entry])[0]
    raise QueueError(f"{entry.label}: others changed the waiting call {TRIES} times in a row; this one was not put.")


def _merged(queue: BaseQueue, entry: Entry, guard: Debounce, merge: Merge, encode: Callable[[Message], bytes]) -> bool:
    """Whether the entry that waits could be changed: not if it has begun meanwhile, or somebody else changed it."""
    mark = queue.store.get(guard.key)
    record = None if mark is None else queue.find(Mark.read(mark).id)
    if record is None:
        return False
    waits = open_entry(queue, record.entry)
    if waits.command != entry.label:  # marks are not signed: nobody's message is to become another's
        raise InvalidMessage(f"its mark names a call of {waits.command}")
    args, kwargs = merge(waits.arguments(), open_entry(queue, entry).arguments())  # as they were at the call
    message = Message(waits.id, waits.queue, waits.command, args, kwargs, waits.metadata, waits.options)
    try:
        data = encode(message)
    except (EncodeError, MessageTooLarge) as error:
        error.add_note("That is what merge= made of the waiting call and the new one.")
        raise
    return queue.amend(waits.id, record.entry.data, data)
