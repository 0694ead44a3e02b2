"""What became of a message as a line of the history: unsigned, of every message, and cheap to make."""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from typing import Any

from djqueue.backends.base import BaseQueue, Lease
from djqueue.backends.history import MOMENT, bounds
from djqueue.messages.failures import kind_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.registry import Runnable
from djqueue.running.describing import arguments_of, result_of
from djqueue.running.ends import End, attempts_begun
from djqueue.utils import json_object, log_safely, plain

logger = logging.getLogger(__name__)

LONGEST_ERROR = 200
"""Characters of the class of an exception, or of the reason of what ended without one."""


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
        why = verdict.reason if verdict.exception is None else kind_of(verdict.exception)
        about = _why(why, verdict.details) if why or verdict.details else b""
        form = _form(verdict.outcome.effect.status, owner, entry.command)
        return form % (ended * 1e6, attempts_begun(lease, verdict), entry.created * 1e6, ran * 1e6, about)
    except Exception as error:  # of an entry that was written by hand; what became of it counts more
        text = "No record of message %s can be made"
        log_safely(logger, logging.ERROR, text, plain(entry.id), exc_info=error)
        return b""


def record_of_end(end: End) -> bytes:
    """The record of a message that has ended without a lease."""
    numbers = end.ended * 1e6, end.attempts, end.enqueued * 1e6, end.seconds * 1e6
    return _form(end.status, end.worker, end.command) % (*numbers, _why(end.reason))


@lru_cache(maxsize=4096)
def _form(status: str, owner: str, command: str) -> bytes:
    """A record with places for its numbers and its last fields."""
    words = "\t".join((_field(owner), _field(command)))
    return b"%%0%dd\t%b\t%%d\t%%d\t%%d\t%b\t%%b" % (MOMENT, status.encode(), words.replace("%", "%%").encode())


def _why(reason: str, details: str = "") -> bytes:
    return f"{_field(reason)[:LONGEST_ERROR]}\t{details}".encode()


def _field(text: str) -> str:
    """Without what ends a field or a line, and what cannot be encoded."""
    return plain(text.replace("\t", " "))


def read(record: bytes) -> End:
    """What a record says; without a status if it cannot be read, as any text of a store may be of others."""
    try:
        words = record.decode().split("\t", 8)
        ended, status, attempts, enqueued, ran, owner, command, error, details = [*words, *[""] * (9 - len(words))]
        at, lasted, shown = int(ended) / 1e6, int(ran) / 1e6, _details(details)
        times = int(enqueued) / 1e6, at - lasted, at, lasted
        return End(status, plain(command), plain(owner), int(attempts), *times, plain(error), *shown)
    except (ValueError, OverflowError):  # not written by djqueue
        return End()


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
