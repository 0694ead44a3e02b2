"""The records of a history: what became of a message, as one line of text that is cheap to make."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.history import MOMENT, bounds
from djqueue.messages.failures import kind_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.registry import Runnable
from djqueue.running.attempts import NOBODY, Attempt, why_cancelled
from djqueue.running.describing import arguments_of, result_of
from djqueue.utils import json_object, log_safely, plain

logger = logging.getLogger(__name__)

CANCELLED = "cancelled"
STATUSES = ("done", "failed", "expired", "discarded", CANCELLED)
"""How a message ends."""
LONGEST_ERROR = 200
"""Characters of the class of an exception, or of the reason of what ended without one."""


class Ended(NamedTuple):
    """What became of a message. Moments are epoch seconds by the clock of its queue's store."""

    status: str = ""
    """done, failed, expired, discarded or cancelled."""
    command: str = ""
    worker: str = ""
    """The consumer that ran it last: host, process and a random part."""
    attempts: int = 0
    """How often it was begun."""
    enqueued: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    seconds: float = 0.0
    """How long its end took to run; 0 if it ended without another run: it expired, was cancelled, or was lost."""
    error: str = ""
    """The class of the exception that it failed with, or why it ended without one."""
    call: str = ""
    """The call with its arguments, if QUEUE_HISTORY asks for them; sensitive ones are masked."""
    value: str = ""
    """The ``repr`` of what it returned, if QUEUE_HISTORY asks for it."""


def is_kept(queue: BaseQueue) -> bool:
    """Whether a queue keeps a history."""
    return "history" in queue.features and bounds() is not None


def record_of(lease: Lease, verdict: Verdict, owner: str = "", elapsed: float | None = None) -> bytes:
    """The record of a message that has ended, ``elapsed`` seconds after its claim if that is known; b"" if none can be.

    Made for every message, so moments are written as whole microseconds, and words that repeat are made once.
    """
    entry, ran = lease.entry, verdict.seconds
    ended = lease.claimed + (ran if elapsed is None else elapsed)
    try:
        if verdict.outcome is Outcome.DONE and not verdict.details:  # as nearly all are
            form = _form("done", owner, entry.command)
            return form % (ended * 1e6, entry.attempts, entry.created * 1e6, ran * 1e6, b"")
        form, why = _form(verdict.outcome.effect.status, owner, entry.command), b""
        if verdict.exception is not None or verdict.reason or verdict.details:
            why = _why(verdict)
        begun = entry.attempts - (verdict.outcome is Outcome.EXPIRED)  # by a claim, and it never ran
        return form % (ended * 1e6, begun, entry.created * 1e6, ran * 1e6, why)
    except Exception as error:  # of an entry that was written by hand; what became of it counts more
        text = "No record of message %s can be made"
        log_safely(logger, logging.ERROR, text, plain(entry.id), exc_info=error)
        return b""


def record_of_cancelled(queue: BaseQueue, entry: Entry, attempts: Sequence[Attempt]) -> bytes:
    """The record of a message that is cancelled while it waits; b"" if its queue keeps no history."""
    if not is_kept(queue):
        return b""
    worker = attempts[-1].worker if attempts and attempts[-1] != NOBODY else ""
    numbers = queue.now() * 1e6, entry.attempts, entry.created * 1e6, 0
    return _form(CANCELLED, worker, entry.command) % (*numbers, f"{why_cancelled(entry)}\t".encode())


def ended_of(queue: BaseQueue, id: str) -> Ended | None:
    """What became of a message, if its queue has a record of it that can be read."""
    record = queue.history.get(id)
    ended = None if record is None else read(record)
    return ended if ended is not None and ended.status in STATUSES else None


@lru_cache(maxsize=4096)
def _form(status: str, owner: str, command: str) -> bytes:
    """A record with places for its numbers and its last fields."""
    words = "\t".join((_field(owner), _field(command)))
    return b"%%0%dd\t%b\t%%d\t%%d\t%%d\t%b\t%%b" % (MOMENT, status.encode(), words.replace("%", "%%").encode())


def _why(verdict: Verdict) -> bytes:
    error = verdict.reason if verdict.exception is None else kind_of(verdict.exception)
    return f"{_field(error)[:LONGEST_ERROR]}\t{verdict.details}".encode()


def _field(text: str) -> str:
    """Without what ends a field or a line, and what cannot be encoded."""
    return plain(text.replace("\t", " "))


def read(record: bytes) -> Ended:
    """What a record says; without a status if it cannot be read, as any text of a store may be of others."""
    try:
        words = record.decode().split("\t", 8)
        ended, status, attempts, enqueued, ran, owner, command, error, details = [*words, *[""] * (9 - len(words))]
        at, lasted, shown = int(ended) / 1e6, int(ran) / 1e6, _details(details)
        times = int(enqueued) / 1e6, at - lasted, at, lasted
        return Ended(status, plain(command), plain(owner), int(attempts), *times, plain(error), *shown)
    except (ValueError, OverflowError):  # not written by djqueue
        return Ended()


def _details(text: str) -> tuple[str, str]:
    shown = json_object(text)
    return plain(str(shown.get("call", ""))), plain(str(shown.get("value", "")))


def has_details() -> bool:
    """Whether QUEUE_HISTORY asks for arguments or values."""
    asked = bounds()
    return asked is not None and (asked.arguments or asked.value)


def details_of(command: Runnable, args: tuple[Any, ...], kwargs: dict[str, Any], verdict: Verdict) -> str:
    """Arguments and value of a run as JSON, as far as QUEUE_HISTORY asks for them; "" if it does not.

    What is not done has returned no value.
    """
    asked, shown = bounds(), {}
    if asked is not None and asked.arguments:
        shown["call"] = arguments_of(command, args, kwargs)
    if asked is not None and asked.value and verdict.outcome is Outcome.DONE:
        shown["value"] = result_of(command, verdict.value)
    return json.dumps(shown) if shown else ""
