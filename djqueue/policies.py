"""Decisions about messages. They return values and act on nothing; time comes in as an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, TypedDict

from django.conf import settings
from django.utils import timezone

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.notes import noted, notes, text_of

_INT32 = range(-(2**31), 2**31)


def seconds(value: object, name: str, *, least: float = 0.0) -> float:
    """A duration in seconds, from a number or a timedelta. Raises TypeError or ValueError that names the argument."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: give seconds or a timedelta.")
    if not least <= value < 10**10:
        raise ValueError(f"{name} is {value!r}: give at least {least:g} seconds.")
    return float(value)


def moment(value: object, name: str) -> float:
    """An absolute time as epoch seconds. Raises TypeError or ValueError that names the argument."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is {value!r}: give a datetime.")
    if timezone.is_naive(value):
        if settings.USE_TZ:
            raise ValueError(f"{name} is the naive {value!r}, while USE_TZ is on: give an aware datetime.")
        value = timezone.make_aware(value)
    return value.timestamp()


class Outcome(Enum):
    """How a claim ended."""

    DONE = "done"
    UNTRIED = "untried"
    """Back in the queue; counts as nothing."""
    NOT_NOW = "not now"
    """Back in the queue for a while, as it cannot be run here; counts as nothing, and is noted once."""
    HANDED_BACK = "handed back"
    """Back in the queue while it ran; counts as a start, neither failed nor lost."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a lease; the one place that acts on it is the Settler."""

    outcome: Outcome
    reason: str = ""
    exception: BaseException | None = None
    delay: float = 0.0
    value: object = None
    seconds: float = 0.0
    """How long it ran."""


class CommandOptions(TypedDict, total=False):
    """The options of ``queue_command`` and ``using``, for type checkers."""

    queue_name: str
    priority: int
    delay: float | timedelta
    run_after: datetime
    max_lost: int
    codec: Literal["pickle", "json"]
    models: Literal["pickle", "reference"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The options of a command, checked."""

    queue_name: str = conf.DEFAULT_ALIAS
    priority: int = 0
    delay: float = 0.0
    run_at: float = 0.0
    max_lost: int | None = None
    codec: str | None = None
    models: str | None = None

    @property
    def needs(self) -> frozenset[str]:
        """What a backend must be able to do for this policy."""
        return frozenset({"priority"}) if self.priority else frozenset()

    def admit(self, data: bytes, id: str, label: str) -> Entry:
        """The entry that a call becomes."""
        return Entry(data, id, self.priority, self.run_at, self.delay, label=label)

    def refuse(self, lease: Lease) -> Verdict | None:
        """A verdict for an entry that must not be started once more, or None."""
        limit = conf.get("QUEUE_MAX_LOST") if self.max_lost is None else self.max_lost
        if lease.entry.lost < limit:
            return None
        return Verdict(Outcome.DEAD, f"worker died: {lease.entry.lost} starts never reported")

    def judge(self, exception: BaseException) -> Verdict:
        """What an exception means."""
        return Verdict(Outcome.DEAD, f"{type(exception).__name__}: {text_of(exception)}", exception)

    @classmethod
    def of(cls, **given) -> Policy:
        """A policy from the options of a decorator. Raises TypeError or ValueError that names the option."""
        return cls().using(**given)

    def using(self, **given) -> Policy:
        """A changed copy. Raises TypeError or ValueError that names the option."""
        unknown = given.keys() - _OPTIONS.keys()
        if unknown:
            raise TypeError(f"Unknown option {sorted(unknown)[0]!r}; there are: {', '.join(sorted(_OPTIONS))}.")
        if {"delay", "run_after"} <= given.keys():
            raise ValueError("delay and run_after exclude each other: give one of them.")
        changes = {}
        for name, value in given.items():
            changes |= _OPTIONS[name](value)
        return replace(self, **changes)


def _queue_name(value: object) -> dict:
    if not isinstance(value, str) or not value:
        raise TypeError(f"queue_name is {value!r}: give an alias of QUEUES.")
    return {"queue_name": value}


def _priority(value: object) -> dict:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"priority is {value!r}: give a whole number.")
    if value not in _INT32:
        raise ValueError(f"priority is {value}: give a 32-bit number.")
    return {"priority": value}


def _max_lost(value: object) -> dict:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"max_lost is {value!r}: give a whole number from 1.")
    return {"max_lost": value}


def _one_of(name: str, *choices: str):
    def check(value: object) -> dict:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}.")
        return {name: value}

    return check


_OPTIONS = {
    "queue_name": _queue_name,
    "priority": _priority,
    "delay": lambda value: {"delay": seconds(value, "delay"), "run_at": 0.0},
    "run_after": lambda value: {"run_at": moment(value, "run_after"), "delay": 0.0},
    "max_lost": _max_lost,
    "codec": _one_of("codec", "pickle", "json"),
    "models": _one_of("models", "pickle", "reference"),
}
"""How each option becomes fields of the policy."""


def not_now(lease: Lease, reason: str) -> Verdict:
    """What cannot be run here, for no fault of its own, waits and is tried again, later each time.

    Another consumer may know the command, or the next deploy; the database may come back. When this has been so for
    QUEUE_UNKNOWN_AFTER seconds since it was first noted, the entry goes to the error queue.
    """
    since = next((record.get("at") for record in notes(lease.entry.note) if record.get("reason") == reason), None)
    waited = max(0.0, lease.claimed - since) if isinstance(since, int | float) else 0.0
    if waited > seconds(conf.get("QUEUE_UNKNOWN_AFTER"), "QUEUE_UNKNOWN_AFTER"):
        return Verdict(Outcome.DEAD, reason)
    return Verdict(Outcome.NOT_NOW, reason, delay=min(60.0, max(1.0, waited / 4)))


def settled(lease: Lease, verdict: Verdict) -> Lease:
    """The lease as the verdict leaves it: its counts, its delay and its note."""
    entry = lease.entry
    changes: dict = {"delay": verdict.delay, "run_at": 0.0}
    if verdict.outcome in (Outcome.UNTRIED, Outcome.NOT_NOW):
        changes["attempts"] = entry.attempts - 1
    if verdict.outcome is Outcome.DEAD:
        changes["failures"] = entry.failures + (verdict.exception is not None)
    if verdict.outcome is Outcome.DEAD or (verdict.outcome is Outcome.NOT_NOW and not _is_noted(entry, verdict)):
        at = lease.claimed + verdict.seconds  # the store's clock, as near as we know it
        about = {"reason": verdict.reason, "exception": verdict.exception}
        changes["note"] = noted(entry.note, at=at, attempt=entry.attempts, **about)
    return replace(lease, entry=replace(entry, **changes))


def _is_noted(entry: Entry, verdict: Verdict) -> bool:
    return any(record.get("reason") == verdict.reason for record in notes(entry.note))
