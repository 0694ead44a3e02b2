"""Decisions about messages. They return values and act on nothing; time comes in as an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.module_loading import import_string

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.backends.guards import AnyGuard, Debounce, Guard, Unique
from djqueue.exceptions import Discard, Fail, Retry, Throttled
from djqueue.flow.limits import USUAL_RUN, Batch, Throttle
from djqueue.messages.failures import LONGEST_REASON, kind_of, text_of
from djqueue.messages.fingerprint import fingerprint
from djqueue.policies import backoff
from djqueue.policies.backoff import Backoff, Wait, path_of, wait_after
from djqueue.policies.options import OPTIONS, changes_of, refuse_contradictions
from djqueue.policies.outcomes import Outcome, Verdict, is_ordered
from djqueue.policies.placement import Plan, placed, plan_of
from djqueue.utils import seconds, whole

WINDOWS = 10
"""After so many windows an extended debounce runs, unless max_wait says otherwise."""
LEAST_WAIT = 0.1
"""Seconds that pass at least before the start that a command asks for: none of them can keep a worker busy alone."""
_USUAL_BACKOFF = Backoff()

PerCall = float | Callable[[], Any]
"""A number, or a function that is asked for one at each call."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The options of a command, checked."""

    queue_name: str = conf.DEFAULT_ALIAS
    priority: int | None = None
    """None: QUEUE_DEFAULT_PRIORITY."""
    delay: PerCall = 0.0
    run_at: float = 0.0
    ttl: PerCall | None = None
    max_attempts: int | None = None
    max_lost: int | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    backoff: Wait = _USUAL_BACKOFF
    debounce: PerCall | None = None
    always_delay: bool = False
    extend: bool = False
    max_wait: float | None = None
    merge: Callable | None = None
    unique: str | float | None = None
    key: Callable | None = None
    shard: Callable | int | str | None = None
    on_failure: str = "block"
    run: int = USUAL_RUN
    linger: float | None = None
    """None: QUEUE_WORKER_EMPTY_LIMIT times QUEUE_WORKER_EMPTY_PAUSE; see :attr:`lingers`."""
    concurrency: int | None = None
    throttle: tuple[Throttle, ...] = ()
    batch: Batch | None = None
    lease: float | None = None
    time_limit: float | None = None
    result_ttl: float | None = None
    codec: str | None = None
    models: str | None = None

    needs: frozenset[str] = field(init=False, repr=False, compare=False)
    """What a backend must be able to do for this policy."""
    guarded: bool = field(init=False, repr=False, compare=False)
    """Whether there is a condition under which a call counts."""
    asks: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The options that are functions, to be asked at each call."""
    plan: Plan | None = field(init=False, repr=False, compare=False)
    """What it makes of lanes."""

    def __post_init__(self) -> None:
        """What follows from the options is asked several times per message."""
        object.__setattr__(self, "guarded", bool(self.debounce or self.unique))
        object.__setattr__(self, "needs", frozenset(name for name, asks in _NEEDS.items() if asks(self)))
        object.__setattr__(self, "asks", tuple(name for name in _PER_CALL if callable(getattr(self, name))))
        plan = plan_of(self.shard, self.concurrency, self.throttle, self.batch, self.key, self.run)
        object.__setattr__(self, "plan", plan)

    @classmethod
    def of(cls, **given) -> Policy:
        """A policy from the options of a decorator. Raises TypeError or ValueError that names the option."""
        return cls().using(**given)

    def using(self, **given) -> Policy:
        """A changed copy. Raises TypeError or ValueError that names the option."""
        changes = changes_of(given)
        changed = replace(self, **(self._without_ways(changes) | changes))
        refuse_contradictions(changed, given)
        return changed

    def _without_ways(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What counts no more when an option is taken back: the ways to do what it says."""
        taken = [
            name for name in _WAYS if name in changes and changes[name] is None and getattr(self, name) is not None
        ]
        ways = {way: value for name in taken for way, value in _WAYS[name].items()}
        if taken and not any(changes.get(name, getattr(self, name)) for name in _KEYED):
            ways["key"] = None
        return ways

    def lacking(self, cannot: frozenset[str]) -> str:
        """What a backend cannot do that is needed, with the options that ask for it."""
        usual = Policy()
        asking = {
            need: [f"{name}=" for name in _ASKING[need] if getattr(self, name) != getattr(usual, name)]
            for need in self.needs
        }
        return ", ".join(f"{need} ({', '.join(asking[need])})" for need in sorted(self.needs & cannot))

    # ---- at the call

    def resolved(self, now: Callable[[], float]) -> Policy:
        """With numbers for those options that are functions: each is called once. Raises as :meth:`using` does.

        ``now`` is asked only if it matters: it may be a round trip.
        """
        policy = self.using(**{name: getattr(self, name)() for name in self.asks}) if self.asks else self
        if policy.run_at and policy.ttl is not None and policy.run_at - now() >= policy.ttl:
            raise ValueError("run_after is later than ttl: the call would have expired when it is due.")
        return policy

    def admit(self, data: bytes, id: str, label: str, call: tuple[tuple, dict] = ((), {})) -> Entry:
        """The entry that a call becomes. Raises what a function of its arguments does that says its shard or key."""
        lane, gate = placed(self.plan, label, call)
        priority = conf.get("QUEUE_DEFAULT_PRIORITY") if self.priority is None else self.priority
        return Entry(data, id, priority, self.run_at, self.delay, lane, label=label, gate=gate)

    def guard(self, name: str, arguments: Mapping[str, object], identity: object) -> AnyGuard:
        """The condition of one call: ``identity`` is what the option ``key`` made of its arguments, if it is given."""
        same = identity if self.key else None if self.merge else arguments
        key = f"{name}:{fingerprint(same)}"
        if self.debounce:
            return Debounce(f"debounce:{key}", self.debounce, self.always_delay, self.extend, self._longest_wait)
        if isinstance(self.unique, float):
            return Guard(f"once:{key}", self.unique)
        return Unique(f"unique:{key}", running=self.unique == "running")

    @property
    def _longest_wait(self) -> float:
        """For how long calls can be postponed: a window less than until they expire."""
        longest = self.debounce * WINDOWS if self.max_wait is None else self.max_wait
        return longest if self.ttl is None else min(longest, max(self.debounce, self.ttl - self.debounce))

    def carried(self, declared: Policy) -> dict[str, Any]:
        """What the consumer must know of this call's options, where they differ from those of its command; as JSON."""
        if bool(self.batch) != bool(declared.batch):
            raise ValueError("batch= says how the function is called: give it where the command is declared.")
        changed = (name for name in _CARRIED if getattr(self, name) != getattr(declared, name))
        return {name: _CARRIED[name][0](getattr(self, name)) for name in changed}

    # ---- at the run

    def carrying(self, carried: Mapping[str, Any]) -> Policy:
        """The policy of one message. Raises ImportError, TypeError or ValueError."""
        changes: dict[str, Any] = {}
        for name in carried.keys() & _CARRIED.keys():
            value = _CARRIED[name][1](carried[name])
            changes |= {name: None} if value is None else OPTIONS[name](value)
        return replace(self, **changes)

    def refuse(self, lease: Lease, patience: int = 1) -> Verdict | None:
        """A verdict for an entry that must not be started once more, or None.

        ``patience``: who runs what was lost in a process of its own sees what kills it, and bears that many times as
        many lost starts that nobody saw; but if one may be lost, no more than that.
        """
        entry = lease.entry
        if entry.lost and entry.lost >= self._most_unseen(patience):
            return self._dead(entry, _lost(entry.lost))
        ttl, waited = self.ttl, lease.claimed - entry.created
        # A function was asked at the call: a message that carries no answer is older than the function.
        if ttl is not None and not callable(ttl) and waited > ttl:
            return Verdict(Outcome.EXPIRED, f"its ttl of {ttl:g} s is over: it came {waited:.1f} s ago")
        return None

    def _most_unseen(self, patience: int) -> int:
        return self.most_lost * patience if self.most_lost > 1 else self.most_lost

    def suspects(self, entry: Entry) -> bool:
        """Whether a start of an entry is to be made where it can kill nothing else.

        Once two were lost, or if only one more may be: of a first loss most are innocent.
        """
        return entry.lost >= min(2, max(1, self.most_lost - 1))

    def judge_loss(self, entry: Entry, how: str) -> Verdict:
        """What it means that the process in which an entry ran alone has died; ``how`` is an exit code, or a signal."""
        lost = entry.lost + 1
        reason = f"{_lost(lost)}; the last one ended by {how}"
        if lost >= self.most_lost:
            return replace(self._dead(entry, reason), lost=1)
        return replace(self._again(reason, wait_after(self.backoff, lost, None)), lost=1)

    def judge(self, exception: BaseException, entry: Entry) -> Verdict:
        """What an exception of a start means. A group of one means what that means, unless it is listed itself."""
        raised, exception = exception, _sole(exception)
        match exception:
            case Retry():
                return self._retry_as_asked(exception, entry)
            case Discard():
                return Verdict(Outcome.DISCARDED, exception.reason[:LONGEST_REASON])
            case Throttled():
                return self._throttled(exception, entry)
            case Fail():
                return self._dead(entry, exception.reason[:LONGEST_REASON], exception)
        reason = f"{kind_of(exception)}: {text_of(exception)}"[:LONGEST_REASON]
        failures = entry.failures + 1
        if not _is_of(raised, self.retried) or failures >= self.most_attempts:
            return self._dead(entry, reason, exception)
        return self._again(reason, wait_after(self.backoff, failures, exception), exception)

    def _retry_as_asked(self, asked: Retry, entry: Entry) -> Verdict:
        most = conf.get("QUEUE_MAX_STARTS")
        if most is not None and entry.attempts >= most:
            return self._dead(entry, f"it asked to be run again at its start number {entry.attempts}", asked)
        if asked.after is None:
            delay = wait_after(self.backoff, entry.attempts, asked.__cause__)
        else:
            delay = seconds(asked.after, "Retry(after=…)")
        return self._again(asked.reason[:LONGEST_REASON] or "asked to be run again", max(LEAST_WAIT, delay))

    def _throttled(self, asked: Throttled, entry: Entry) -> Verdict:
        """Its start counts as nothing, so all that a backoff can go by is how often it failed before."""
        if asked.retry_after is None:
            delay = wait_after(self.backoff, entry.failures + 1, asked)
        else:
            delay = seconds(asked.retry_after, "Throttled(retry_after=…)")
        reason = f"throttled: {asked.reason}" if asked.reason else "throttled"
        return Verdict(Outcome.THROTTLED, reason[:LONGEST_REASON], delay=max(LEAST_WAIT, delay))

    def _again(self, reason: str, delay: float, exception: BaseException | None = None) -> Verdict:
        return Verdict(Outcome.RETRY, reason, exception, delay, alone=self.on_failure == "skip")

    def _dead(self, entry: Entry, reason: str, exception: BaseException | None = None) -> Verdict:
        """The end of a message, unless its shard is to wait for somebody who looks at it."""
        parks = self.on_failure == "park" and is_ordered(entry)
        return Verdict(Outcome.PARKED if parks else Outcome.DEAD, reason, exception)

    @property
    def retried(self) -> tuple[type[BaseException], ...]:
        """The exceptions after which a message is tried again."""
        return tuple(conf.get("QUEUE_RETRY_ON")) if self.retry_on is None else self.retry_on

    @property
    def lingers(self) -> float:
        """For how many seconds of emptiness a worker keeps to a shard whose handler it has."""
        if self.linger is not None:
            return self.linger
        pause = seconds(conf.get("QUEUE_WORKER_EMPTY_PAUSE"), "QUEUE_WORKER_EMPTY_PAUSE")
        return pause * whole(conf.get("QUEUE_WORKER_EMPTY_LIMIT"), "QUEUE_WORKER_EMPTY_LIMIT", least=0)

    @property
    def most_lost(self) -> int:
        """How many starts may be lost."""
        return self.max_lost or self.max_attempts or conf.get("QUEUE_MAX_LOST")

    @property
    def most_attempts(self) -> int:
        """How many failed starts a message may have."""
        return self.max_attempts or conf.get("QUEUE_MAX_ATTEMPTS")

    @property
    def keeps_result(self) -> float:
        """For how many seconds results are kept; 0: not at all."""
        kept = self.result_ttl or conf.get("QUEUE_RESULT_TTL")
        return seconds(kept, "QUEUE_RESULT_TTL") if kept else 0.0


def _lost(count: int) -> str:
    return f"worker died: {count} starts never reported"


def _sole(exception: BaseException) -> BaseException:
    while isinstance(exception, BaseExceptionGroup) and len(exception.exceptions) == 1:
        exception = exception.exceptions[0]
    return exception


def _is_of(exception: BaseException, listed: tuple[type[BaseException], ...]) -> bool:
    if isinstance(exception, BaseExceptionGroup) and not isinstance(exception, listed):
        return all(_is_of(one, listed) for one in exception.exceptions)
    return isinstance(exception, listed)


_PER_CALL = ("delay", "ttl", "debounce")
_WAYS: dict[str, dict[str, Any]] = {
    "debounce": {"always_delay": False, "extend": False, "max_wait": None, "merge": None},
    "shard": {"on_failure": "block", "run": USUAL_RUN},
    "concurrency": {},
}
"""The options that others are ways of, and what these are without."""
_KEYED = ("debounce", "unique", "concurrency")

_NEEDS: dict[str, Callable[[Policy], Any]] = {
    "priority": lambda policy: policy.priority,
    "inspect": lambda policy: isinstance(policy.unique, str) or policy.extend or policy.merge,
    "shards": lambda policy: policy.shard is not None,
    "lanes": lambda policy: policy.concurrency or policy.throttle or policy.batch or policy.on_failure != "block",
    "facts": lambda policy: policy.guarded or policy.result_ttl,
}
"""The abilities of a backend that options ask for."""
_ASKING = {
    "priority": ("priority",),
    "inspect": ("unique", "extend", "merge"),
    "shards": ("shard",),
    "lanes": ("concurrency", "throttle", "batch", "on_failure"),
    "facts": ("debounce", "unique", "result_ttl"),
}
"""Those options."""


def _same(value: Any) -> Any:
    return value


def _paths(classes: tuple[type, ...] | None) -> list[str] | None:
    return None if classes is None else [path_of(one, "retry_on") for one in classes]


def _classes(paths: list[str] | None) -> tuple[type, ...] | None:
    return None if paths is None else tuple(map(import_string, paths))


_CARRIED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(
        ("ttl", "max_attempts", "max_lost", "lease", "time_limit", "result_ttl", "on_failure"), (_same, _same)
    ),
    "retry_on": (_paths, _classes),
    "backoff": (backoff.written, backoff.read),
}
"""The options that count at the run, and how a message carries them."""
