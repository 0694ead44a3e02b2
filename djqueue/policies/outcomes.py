"""How a claim ended, what that makes of the entry, and how long a retry waits."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, cast

from django.dispatch import Signal
from django.utils.module_loading import import_string

from djqueue import conf, signals
from djqueue.backends.entries import Entry, Lease
from djqueue.flow.gates import HOLD_LANE, HOLD_ORDER, HOLD_PAUSE, Gate
from djqueue.messages.failures import errors_of, to_milliseconds, with_error, with_put_off
from djqueue.utils import log_safely, seconds, set_whole, takes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an outcome does to its message, and how it is reported. The defaults are for a message that goes back."""

    name: str = field(kw_only=False)
    verb: str = "release"
    """The method of the queue that settles it."""
    hold: str = ""
    """What waits with the message in an ordered lane."""
    counts: bool = True
    """Whether the start counts as an attempt."""
    counts_failure: bool = False
    """Whether its exception, if there is one, counts as a failure."""
    again: bool = False
    """Whether the command is to run again after the delay: by its backoff, or because it asked for that."""
    final: bool = False
    """Whether the retries are over: the failure is always noted."""
    status: str = "released"
    """The status of a result, and the outcome of a run in tests."""
    signal: Signal = signals.released
    carried: tuple[str, ...] = ("reason",)
    """Arguments of the signal next to the id and the queue: the attempt, and fields of the verdict."""
    level: int = logging.WARNING
    words: str = "was put back"
    """The verb of the log record, whose subject is the command."""


ENDED = ("attempt", "reason")
RAISED = ("attempt", "exception", "reason")


class Outcome(Enum):
    """How a claim ended."""

    effect: Effect

    def __new__(cls, effect: Effect) -> Outcome:
        outcome = object.__new__(cls)
        outcome._value_ = effect.name  # members are pickled by their value
        outcome.effect = effect
        return outcome

    # fmt: off
    DONE = Effect("done", verb="complete", status="done", words="done", level=logging.INFO,
                  signal=signals.completed, carried=("attempt", "value", "seconds"))
    RETRY = Effect("retry", hold=HOLD_ORDER, counts_failure=True, again=True,
                   status="retried", words="is retried",
                   signal=signals.retried, carried=("attempt", "exception", "reason", "delay"))
    """Back in the queue, to be run again: after a failure, or because the command asked for it."""
    EXPIRED = Effect("expired", verb="complete", status="expired", words="expired",
                     signal=signals.expired, carried=ENDED)
    """Gone, as its time to live was over before it began."""
    DISCARDED = Effect("discarded", verb="complete", status="discarded", words="was discarded", level=logging.INFO,
                       signal=signals.discarded, carried=ENDED)
    """Gone, by the command's own word."""
    FAILED = Effect("failed", verb="fail", counts_failure=True, final=True,
                    status="failed", words="failed and went to the failed queue", level=logging.ERROR,
                    signal=signals.failed, carried=RAISED)
    """In the failed queue."""
    RETURNED = Effect("returned", hold=HOLD_ORDER, counts=False, level=logging.DEBUG)
    """Back in the queue; counts as nothing."""
    POSTPONED = Effect("postponed", hold=HOLD_ORDER, counts=False)
    """Back in the queue for a while, as it cannot be run here; counts as nothing, and is noted once."""
    THROTTLED = Effect("throttled", hold=HOLD_LANE, counts=False, again=True, level=logging.INFO)
    """Back in the queue as its command asked for, with all of its lane; counts as nothing."""
    PAUSED = Effect("paused", hold=HOLD_PAUSE, final=True,
                    status="paused", words="failed, and its shard is paused", level=logging.ERROR,
                    signal=signals.paused, carried=RAISED)
    """Back at the head of its lane, which is paused until an operator resumes it. Its failures are forgotten."""
    INTERRUPTED = Effect("interrupted", hold=HOLD_ORDER)
    """Back in the queue while it ran; counts as a start, which has not failed, and is lost if its thread died."""
    # fmt: on


class Verdict(NamedTuple):
    """What is to become of a lease; the one place that acts on it is the pump."""

    outcome: Outcome
    reason: str = ""
    exception: BaseException | None = None
    """What the start failed with. A retry that the command asked for is no failure and has none."""
    delay: float = 0.0
    alone: bool = False
    """Whether its lane goes on while it waits."""
    description: str = ""
    """What ``describe`` says of the call."""
    value: object = None
    seconds: float = 0.0
    """How long it ran."""
    lost: int = 0
    """1 if the process or the thread that ran it was seen to die."""
    keep: float = 0.0
    """For how many seconds its result is kept; 0 if it was not requested."""
    attempts: Sequence[Any] | None = None
    """Of a call through Django's tasks: its attempts, with workers and moments; its result has the whole call."""
    packed: bytes = b""
    """The result as it is kept. It is encoded where it was made: a slow encoding delays no other message."""
    details: str = ""
    """What the history is to keep of the run: its arguments and value, as JSON."""
    max_attempts: int | None = None
    """Of a retry: how many attempts the message may have, by the option or setting that counts for it; None: any."""


def settled(lease: Lease, verdict: Verdict, owner: str = "") -> Lease:
    """The lease as the verdict leaves it: its counts, its delay and its note."""
    entry, effect = lease.entry, verdict.outcome.effect
    changes: dict[str, Any] = {"delay": verdict.delay, "run_at": 0.0, "hold": hold_of(entry, verdict)}
    if not effect.counts:
        changes["attempts"] = entry.attempts - 1
    if effect.counts_failure:
        changes["failures"] = entry.failures + (verdict.exception is not None)
    if verdict.lost:
        changes["lost"] = entry.lost + verdict.lost
    if verdict.outcome is Outcome.PAUSED:
        changes |= {"failures": 0, "lost": 0}  # an operator who resumes its lane means it to begin again
    if verdict.outcome is Outcome.RETURNED and verdict.delay:
        changes["errors"] = with_put_off(entry.errors, entry.attempts - 1)
    is_new = verdict.outcome is Outcome.POSTPONED and _noted_at(entry, verdict.reason) is None
    if is_new or effect.final or verdict.exception is not None:
        at = lease.claimed + verdict.seconds  # the store's clock, as near as we know it
        about: dict[str, Any] = {"reason": verdict.reason, "exception": verdict.exception, "owner": owner}
        about |= {"description": verdict.description, "seconds": verdict.seconds}
        changes["errors"] = with_error(entry.errors, at=at, attempt=entry.attempts, **about)
    return replace(lease, entry=replace(entry, **changes))


def hold_of(entry: Entry, verdict: Verdict) -> str:
    """What is to wait with an entry; "" if its lane goes on. Only a throttled entry holds an unordered lane back.

    If it is not "", no entry that left the lane after it may be begun.
    """
    hold = verdict.outcome.effect.hold
    if not hold or not entry.gate or verdict.alone:
        return ""
    return hold if hold == HOLD_LANE or is_ordered(entry) else ""


def is_ordered(entry: Entry) -> bool:
    return bool(entry.gate) and Gate.read(entry.gate).ordered


def not_now(lease: Lease, reason: str) -> Verdict:
    """The verdict on a message that cannot be run here, for no fault of its own: it is retried, later each time.

    Another consumer may know the command, or the next deploy; the database may come back. When this has been so for
    QUEUE_UNKNOWN_AFTER seconds since it was first noted, the entry goes to the failed queue.
    """
    since = _noted_at(lease.entry, reason)
    waited = 0.0 if since is None else max(0.0, lease.claimed - since)
    if waited > seconds(conf.get("QUEUE_UNKNOWN_AFTER"), "QUEUE_UNKNOWN_AFTER"):
        return Verdict(Outcome.FAILED, reason)
    return Verdict(Outcome.POSTPONED, reason, delay=min(60.0, max(1.0, waited / 4)))


def _noted_at(entry: Entry, reason: str) -> float | None:
    """When a reason was first noted of this start, or None: notes of earlier starts do not count."""
    for record in errors_of(entry.errors):
        at, same = record.get("at"), (record.get("reason"), record.get("attempt")) == (reason, entry.attempts)
        if same and isinstance(at, int | float) and at >= to_milliseconds(entry.created):
            return at
    return None


# ---- How long a failed message waits before it is tried again

Wait = Callable[[int, BaseException | None], float]
"""From the number of failures and the last exception (None: the command asked to retry), the seconds to wait."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow: ``first`` seconds after the first failure, ``factor`` times that after the next, up to ``cap``.

    ``Backoff(first=60)`` waits 60, 120, 240, 480 and 900 seconds. ``first`` and ``cap`` may be timedeltas. Without
    ``first`` the waits are ``2 + factor ** n`` seconds after the n-th failure: 4, 6, 10, 18, … 900. ``jitter`` takes up
    to that part of each wait off, at random: with 0.25 a wait of 8 s is one of 6 to 8 s, so that messages that failed
    together do not return together. Raises TypeError or ValueError for invalid values.
    """

    first: float | timedelta | None = None
    _: KW_ONLY
    factor: float = 2.0
    cap: float | timedelta = 900.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        cap = seconds(self.cap, "Backoff(cap=…)")
        object.__setattr__(self, "cap", cap)
        for name, least, most in (("factor", 1, 1000), ("jitter", 0, 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ValueError(f"Backoff({name}=…) is {value!r}: give a number from {least} to {most}.")
            object.__setattr__(self, name, float(value))
        if self.first is not None:
            first = seconds(self.first, "Backoff(first=…)")
            object.__setattr__(self, "first", first)
            if first > cap:
                raise ValueError(f"Backoff(first=…) is {first:g} s, which is more than cap={cap:g}: give cap too.")

    def __call__(self, failures: int, exception: BaseException | None = None) -> float:
        first, cap = cast("tuple[float | None, float]", (self.first, self.cap))
        n = min(failures, 64)
        whole = min(cap, 2.0 + self.factor**n if first is None else first * self.factor ** (n - 1))
        return whole * (1.0 - self.jitter * random.random()) if self.jitter else whole


@dataclass(frozen=True, slots=True)
class Constant:
    """The same wait every time."""

    seconds: float

    def __call__(self, failures: int, exception: BaseException | None = None) -> float:
        return self.seconds


def backoff_of(value: object) -> Wait:
    """What the option ``backoff`` means: seconds or a timedelta, a Backoff, or a function; False: no wait."""
    if value is False:
        return Constant(0.0)
    if value is True:
        return Backoff()
    if isinstance(value, type):
        raise TypeError(f"backoff is {value!r}: give an instance, as in backoff=Backoff(cap=60).")
    if not callable(value):
        return Constant(seconds(value, "backoff"))
    if not takes(value, 2):
        raise TypeError(f"backoff is {value!r}: give a function of the number of failures and the exception.")
    return value


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What counts for one class of exceptions in ``retry_on``: its ``backoff``, and how many ``max_attempts``.

    ``backoff`` is what the option of that name takes; None leaves it, or the attempts, to the options of the command.
    Raises TypeError or ValueError for invalid values.
    """

    backoff: bool | float | timedelta | Wait | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        if self.backoff is not None:
            object.__setattr__(self, "backoff", backoff_of(self.backoff))
        if self.max_attempts is not None:
            set_whole(self, "max_attempts", "RetryPolicy(max_attempts=…)", least=1)

    @classmethod
    def of(cls, given: Any) -> RetryPolicy:
        """A RetryPolicy, or what a backoff may be. Raises TypeError or ValueError."""
        return given if isinstance(given, RetryPolicy) else cls(given)

    @property
    def wait(self) -> Wait | None:
        """The backoff as a function."""
        return cast("Wait | None", self.backoff)

    def written(self) -> list[Any]:
        """As JSON. Raises ValueError if the backoff has no name."""
        return [None if self.wait is None else written(self.wait), self.max_attempts]

    @classmethod
    def read(cls, value: Any) -> RetryPolicy:
        """The inverse. Raises ImportError, TypeError or ValueError."""
        backoff, most = value
        return cls(None if backoff is None else read(backoff), most)


RetryOn = tuple[type[BaseException], ...] | dict[type[BaseException], RetryPolicy]
"""The exceptions after which a message is tried again, and what counts for each if that differs."""


def policy_for(exception: BaseException, listed: RetryOn) -> RetryPolicy:
    """What counts for an exception: the policy of the first class of its MRO that is listed.

    A group of exceptions that is not listed itself has that of its first exception.
    """
    if isinstance(listed, dict):
        for kind in type(exception).__mro__:
            if kind in listed:
                return listed[kind]
        if isinstance(exception, BaseExceptionGroup):
            return policy_for(exception.exceptions[0], listed)
    return _AS_THE_COMMAND


_AS_THE_COMMAND = RetryPolicy()


def wait_after(backoff: Wait, failures: int, exception: BaseException | None) -> float:
    """The wait in seconds. A function that raises, or returns no valid wait, is logged; then a Backoff is used."""
    try:
        return seconds(backoff(failures, exception), "what backoff() returned")
    except BaseException as error:  # nothing but the command decides what becomes of its message
        log_safely(logger, logging.ERROR, "backoff failed, the usual wait is taken", exc_info=error)
        return Backoff()(failures)


def written(backoff: Wait) -> Any:
    """As JSON: seconds, the fields of a Backoff, or the dotted path of a function. Raises ValueError if it has none."""
    if isinstance(backoff, Constant):
        return backoff.seconds
    return asdict(backoff) if type(backoff) is Backoff else path_of(backoff, "backoff")


def read(value: Any) -> Wait:
    """The inverse. Raises ImportError, TypeError or ValueError."""
    if isinstance(value, dict):
        return Backoff(**value)
    return import_string(value) if isinstance(value, str) else Constant(float(value))


def path_of(thing: Any, name: str) -> str:
    """The dotted path of a class or function of a module. Raises ValueError that names the option."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module and qualname.isidentifier():
        with suppress(ImportError):
            if import_string(f"{module}.{qualname}") is thing:
                return f"{module}.{qualname}"
    raise ValueError(f"{name} is {thing!r}: in using() it must be of a module's top level, to travel by its name.")
