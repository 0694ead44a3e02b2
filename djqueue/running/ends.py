"""What became of a message: one value for all who show it, whatever it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from djqueue.backends.base import Entry, Lease, Record
from djqueue.backends.entries import DELAYED, DONE, FAILED, LEASED, READY
from djqueue.messages.failures import errors_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.attempts import NOBODY, Attempt, is_moment, why_cancelled
from djqueue.utils import value

RUNNING = "running"
WAITING = (READY, DELAYED)
EXPIRED, DISCARDED, CANCELLED = "expired", "discarded", "cancelled"
STATUSES = (DONE, FAILED, EXPIRED, DISCARDED, CANCELLED)
"""How a message ends."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a running command reports. Raises TypeError for what is no number, or no text."""

    done: float
    total: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name, kinds in (("done", (int, float)), ("total", (int, float, type(None))), ("note", str)):
            if not isinstance(getattr(self, name), kinds):
                raise TypeError(f"progress({name}=…) is {getattr(self, name)!r}: give numbers, and a text as the note.")


@value
class End:
    """What became of a message, or how far it is. Moments are epoch seconds by the clock of its queue's store.

    A text is empty, and a number is 0, where it is not known. ``running/finding.py`` says where each is read from.
    """

    status: str = ""
    """How it ended, one of :data:`STATUSES`; or ready, delayed or running. Of a record that cannot be read: ""."""
    command: str = ""
    worker: str = ""
    """The consumer that runs it, or ran it last: host, process and a random part."""
    attempts: int = 0
    """How often it was begun."""
    enqueued: float = 0.0
    began: float = 0.0
    """When its last attempt began."""
    ended: float = 0.0
    seconds: float = 0.0
    """How long its end took to run; 0 if it ended without another run: it expired, was cancelled, or was lost."""
    reason: str = ""
    """Why it ended so, or why its last attempt failed; the history has of an exception only the class."""
    call: str = ""
    """The call with its arguments, if QUEUE_HISTORY asks for them; sensitive ones are masked."""
    returned: str = ""
    """The ``repr`` of what it returned, if QUEUE_HISTORY asks for it."""
    at: float = 0.0
    """When it is or was due, or when its lease runs out, if it has not ended."""
    errors: Sequence[dict[str, Any]] = ()
    """What went wrong at each attempt that failed, oldest first."""
    begun: Sequence[Attempt] = ()
    """Who began which attempt, and when; of calls through Django's tasks."""
    value: Any = None
    has_value: bool = False
    """Whether :attr:`value` is what it returned."""
    progress: Progress | None = None
    """What it last reported, where that was asked for."""
    entry: Entry | None = None
    """The message itself; its body is empty if that is not kept."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended; what has failed may be tried again all the same."""
        return self.status in STATUSES


# ---- made of what is known of a message


def of_record(record: Record, status: str = "") -> End:
    """How far a message is that is in a queue; ``status`` is ``failed`` if that is the failed queue."""
    entry, errors = record.entry, errors_of(record.entry.errors)
    status = status or (RUNNING if record.state == LEASED else record.state)
    return End(
        status=status,
        command=entry.command,
        worker=record.owner,
        attempts=entry.attempts,
        enqueued=entry.created,
        ended=failed_at(record) if status == FAILED else 0.0,
        reason=of_last(errors, "reason"),
        at=0.0 if status == FAILED else record.at,
        errors=errors,
        entry=entry,
    )


def of_run(lease: Lease, verdict: Verdict) -> End:
    """How a message ends by the verdict on it. What became of a call through Django's tasks has all of the call.

    It is taken to have begun with its claim, unless its attempts say when.
    """
    entry, begun, is_done = lease.entry, verdict.attempts or (), verdict.outcome is Outcome.DONE
    began, is_task = lease.claimed, verdict.attempts is not None
    if begun:
        began = max([began, *(one.started for one in begun if one.started is not None)])
    return End(
        status=verdict.outcome.effect.status,
        command=entry.command,
        worker=worker_of(begun),
        attempts=attempts_begun(lease, verdict),
        enqueued=entry.created,
        began=began,
        ended=began + verdict.seconds,
        seconds=verdict.seconds,
        reason=verdict.reason,
        errors=errors_of(entry.errors) if is_task or not is_done else (),
        begun=begun,
        value=verdict.value,
        has_value=is_done,
        entry=entry if is_task else None,
    )


def of_cancelled(entry: Entry, begun: Sequence[Attempt], now: float) -> End:
    """That a message is cancelled while it waits, with the attempts before."""
    return End(
        status=CANCELLED,
        command=entry.command,
        worker=worker_of(begun),
        attempts=entry.attempts,
        enqueued=entry.created,
        began=now,
        ended=now,
        reason=why_cancelled(entry),
        errors=errors_of(entry.errors) if entry.body else (),
        begun=begun,
        entry=entry if entry.body else None,
    )


def attempts_begun(lease: Lease, verdict: Verdict) -> int:
    """How often a message was begun that has ended. A claim counts as an attempt, and what expired then never ran."""
    return lease.entry.attempts - (verdict.outcome is Outcome.EXPIRED)


def worker_of(begun: Sequence[Attempt]) -> str:
    """Who began the last of these attempts; "" if that is not known."""
    return begun[-1].worker if begun and begun[-1] != NOBODY else ""


def failed_at(record: Record) -> float:
    """When a message came into the failed queue (epoch seconds, the store's clock); 0 if that is not known."""
    # For a leased or delayed message, the record has the end of the lease or delay instead.
    if record.state == READY:
        return record.at
    errors = errors_of(record.entry.errors)
    at = errors[-1].get("at") if errors else None
    return at if is_moment(at) else 0.0


def of_last(errors: Sequence[dict[str, Any]], key: str) -> str:
    """A value of the last of some errors; "" if there is none."""
    return str(errors[-1].get(key) or "") if errors else ""
