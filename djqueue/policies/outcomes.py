"""How a claim ended, and what that makes of the entry."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PARK, Gate
from djqueue.messages.failures import noted, notes
from djqueue.utils import seconds


class Outcome(Enum):
    """How a claim ended."""

    __hash__ = object.__hash__  # that of Enum is a function of Python, and each message looks up its outcome

    DONE = "done"
    RETRY = "retry"
    """Back in the queue, to be run again: after a failure, or because the command asked for it."""
    EXPIRED = "expired"
    """Gone, as its time to live was over before it began."""
    DISCARDED = "discarded"
    """Gone, by the command's own word."""
    DEAD = "dead"
    """In the error queue."""
    UNTRIED = "untried"
    """Back in the queue; counts as nothing."""
    NOT_NOW = "not now"
    """Back in the queue for a while, as it cannot be run here; counts as nothing, and is noted once."""
    THROTTLED = "throttled"
    """Back in the queue as its command asked for, with all of its lane; counts as nothing."""
    PARKED = "parked"
    """Back at the head of its lane, which is shut until somebody opens it. Its failures are forgotten."""
    HANDED_BACK = "handed back"
    """Back in the queue while it ran; counts as a start, which has not failed, and is lost if its thread died."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a lease; the one place that acts on it is the Settler."""

    outcome: Outcome
    reason: str = ""
    exception: BaseException | None = None
    """What the start failed with. A retry that the command asked for is no failure and has none."""
    delay: float = 0.0
    alone: bool = False
    """Whether its lane goes on while it waits."""
    value: object = None
    seconds: float = 0.0
    """How long it ran."""
    lost: int = 0
    """1 if the process or the thread that ran it was seen to die."""
    keep: float = 0.0
    """For how many seconds its result is kept; 0 if nobody asked for it."""
    packed: bytes = field(default=b"", repr=False)
    """The result as it is kept. It is encoded where it was made: what is slow to encode holds up nobody else."""


def settled(lease: Lease, verdict: Verdict, owner: str = "") -> Lease:
    """The lease as the verdict leaves it: its counts, its delay and its note."""
    entry = lease.entry
    changes: dict = {"delay": verdict.delay, "run_at": 0.0, "hold": hold_of(entry, verdict)}
    if verdict.outcome in (Outcome.UNTRIED, Outcome.NOT_NOW, Outcome.THROTTLED):
        changes["attempts"] = entry.attempts - 1
    if verdict.outcome in (Outcome.DEAD, Outcome.RETRY):
        changes["failures"] = entry.failures + (verdict.exception is not None)
    if verdict.lost:
        changes["lost"] = entry.lost + verdict.lost
    if verdict.outcome is Outcome.PARKED:
        changes |= {"failures": 0, "lost": 0}  # who opens its lane means it to begin anew
    if _is_worth_a_note(entry, verdict):
        at = lease.claimed + verdict.seconds  # the store's clock, as near as we know it
        about = {"reason": verdict.reason, "exception": verdict.exception, "owner": owner}
        changes["note"] = noted(entry.note, at=at, attempt=entry.attempts, **about)
    return replace(lease, entry=replace(entry, **changes))


def _is_worth_a_note(entry: Entry, verdict: Verdict) -> bool:
    if verdict.outcome is Outcome.NOT_NOW:
        return _noted_at(entry, verdict.reason) is None
    return verdict.outcome in (Outcome.DEAD, Outcome.PARKED) or verdict.exception is not None


HOLDS = {
    Outcome.RETRY: HOLD_ORDER,
    Outcome.UNTRIED: HOLD_ORDER,
    Outcome.NOT_NOW: HOLD_ORDER,
    Outcome.HANDED_BACK: HOLD_ORDER,
    Outcome.THROTTLED: HOLD_LANE,
    Outcome.PARKED: HOLD_PARK,
}
"""What waits with an entry that comes back to an ordered lane; all but a throttled one leave others alone."""


def hold_of(entry: Entry, verdict: Verdict) -> str:
    """What is to wait with an entry; nothing if its lane goes on.

    If it is anything, nothing that left the lane after it may be begun.
    """
    wanted = entry.gate and not verdict.alone and HOLDS.get(verdict.outcome, "")
    return wanted if wanted and (verdict.outcome is Outcome.THROTTLED or is_ordered(entry)) else ""


def is_ordered(entry: Entry) -> bool:
    """Whether it is in a lane that keeps an order."""
    return bool(entry.gate) and Gate.read(entry.gate).ordered


def not_now(lease: Lease, reason: str) -> Verdict:
    """What cannot be run here, for no fault of its own, waits and is tried again, later each time.

    Another consumer may know the command, or the next deploy; the database may come back. When this has been so for
    QUEUE_UNKNOWN_AFTER seconds since it was first noted, the entry goes to the error queue.
    """
    since = _noted_at(lease.entry, reason)
    waited = 0.0 if since is None else max(0.0, lease.claimed - since)
    if waited > seconds(conf.get("QUEUE_UNKNOWN_AFTER"), "QUEUE_UNKNOWN_AFTER"):
        return Verdict(Outcome.DEAD, reason)
    return Verdict(Outcome.NOT_NOW, reason, delay=min(60.0, max(1.0, waited / 4)))


def _noted_at(entry: Entry, reason: str) -> float | None:
    """When a reason was first noted of this start, or None: what was noted of others counts no more."""
    for record in notes(entry.note):
        at, same = record.get("at"), (record.get("reason"), record.get("attempt")) == (reason, entry.attempts)
        if same and isinstance(at, int | float) and at >= round(entry.created, 3):
            return at
    return None
