"""Decisions about messages. They return values and act on nothing; time comes in as an argument.

A command's options make a :class:`Plan` when it is declared: in which lane an entry waits, by what gate, and in
which parent lane. A call's arguments choose the lane. Lanes are named after their command: ``app.commands.send`` holds
its calls, ``app.commands.send:42`` the calls whose key is 42, and ``app.commands.send*`` is the parent of the latter if
all of them share a limit. ``throttle:api`` is the parent of the lanes of all commands that share the throttle of this
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from djqueue import conf
from djqueue.backends.entries import Entry, Lease
from djqueue.backends.guards import DebounceGuard, Guard, OnceGuard, UniqueGuard
from djqueue.exceptions import Discard, Fail, Retry, Throttled, TimeLimitExceeded
from djqueue.flow.gates import Gate
from djqueue.flow.limits import MOST, USUAL_RUN, Batch, Throttle
from djqueue.flow.windows import Window
from djqueue.messages.codecs import Arguments
from djqueue.messages.failures import LONGEST_REASON, kind_of, text_of
from djqueue.messages.fingerprint import fingerprint
from djqueue.policies.options import NEEDS, OPTIONS, PARTS, PER_CALL, TRAVELS, WHOLES, changes_of, refuse_contradictions
from djqueue.policies.outcomes import Backoff, Outcome, RetryOn, Verdict, Wait, is_ordered, policy_for, wait_after
from djqueue.utils import seconds

LONGEST = 200
"""Characters of a lane's name; of a longer one the end is hashed."""
Key = Callable[..., Any] | int | str
"""A function of a call's arguments, or what it would return for all of them."""


# ---- from options to a plan


class Plan(NamedTuple):
    """What a command's options set for the lanes of its calls."""

    key: Key | None
    """The key that its lanes differ by; None: it has one lane."""
    gate: Gate
    """The gate of each lane."""
    batch: Batch | None
    parent_gate: Gate | None
    """The gate of their parent lane, if they share a limit."""
    shared: str
    """The name of the throttle that they share with other commands; without one they share among themselves."""
    each: bool
    """Whether only the lanes of one key share that limit."""


def plan_of(
    shard: Key | None,
    concurrency: int | None,
    throttles: Sequence[Throttle],
    batch: Batch | None,
    key_of_concurrency: Key | None,
    max_run: int,
) -> Plan | None:
    """The plan that options make; None: no lane. Raises ValueError for what would take more than two levels."""
    if shard is None and not (concurrency or throttles or batch):
        return None
    key = _one_key(shard, throttles, key_of_concurrency if concurrency else None)
    named = _one_name([throttle for throttle in throttles if throttle.name is not None])
    most = concurrency or 0
    wide = Gate(concurrency=0 if key_of_concurrency else most, windows=_own_windows(throttles, keyed=False))
    narrow = Gate(
        ordered=shard is not None,
        max_run=1 if shard is None or batch or throttles else max_run,  # each start asks its window
        concurrency=most if key_of_concurrency else 0,
        windows=_own_windows(throttles, keyed=True),
    )
    if key is None:
        gate, parent_gate = replace(narrow, concurrency=wide.concurrency, windows=wide.windows), None
    else:
        gate, parent_gate = narrow, None if wide == Gate() else wide
    if named:
        if parent_gate is not None:
            raise ValueError(THREE_LEVELS.format(name=named[0].name))
        parent_gate = Gate(windows=tuple(one.measure for one in named))
    # Where a limit of concurrency counts the entries of a run, a run is one entry.
    if parent_gate is not None and (batch or not parent_gate.concurrency):
        parent_gate = replace(parent_gate, max_run=MOST)
    shared = (named[0].name or "") if named else ""
    return Plan(key, gate, batch, parent_gate, shared, each=bool(named) and named[0].key is not None)


THREE_LEVELS = (
    "a call waits in a lane, which can be within one other: with limits for each key there can be one for the command "
    "(concurrency= or throttle= without key) or the throttle named {name!r}, not both. Give the limits of the command "
    "to that throttle as further windows of its name, or leave out what is for each key."
)
TWO_KEYS = (
    "a call waits in one lane, but {names} say different keys for it. Give all of them the same function (define it "
    "once, by name), or leave out the key of those that may be for the whole command."
)
TWO_NAMES = (
    "throttles of different names, {names}: a call can share one with other commands. Give one of them no name, or "
    "both windows one name, with one key or without."
)
ONE_NAME_TWO_KEYS = (
    "throttles of one name, {name!r}, whose keys differ: one of them has key= and another has none. Give all of them "
    "the same function, or none of them a key."
)
KEY_OF_ITS_SHARD = (
    "a shard runs one at a time: concurrency= with the same key adds nothing. Leave out key= to bound the command as a "
    "whole, or leave out concurrency=."
)


def _one_key(shard: Key | None, throttles: Sequence[Throttle], key_of_concurrency: Key | None) -> Key | None:
    """The key that all options with a key agree on. Raises ValueError."""
    said = [("shard=", shard), ("key= (of concurrency=)", key_of_concurrency)]
    said += [(f"Throttle({one.limit}, {one.window:g}, key=…)", one.key) for one in throttles]
    keys = [(name, key) for name, key in said if key is not None]
    if any(key != keys[0][1] for _, key in keys):
        raise ValueError(TWO_KEYS.format(names=" and ".join(name for name, _ in keys)))
    if shard is not None and key_of_concurrency:
        raise ValueError(KEY_OF_ITS_SHARD)
    return keys[0][1] if keys else None


def _one_name(named: list[Throttle]) -> list[Throttle]:
    """The throttles that are shared with other commands. Raises ValueError unless all have one name and key."""
    if len({one.name for one in named}) > 1:
        raise ValueError(TWO_NAMES.format(names=" and ".join(repr(one.name) for one in named)))
    if len({one.key for one in named}) > 1:  # two functions were refused before
        raise ValueError(ONE_NAME_TWO_KEYS.format(name=named[0].name))
    return named


def _own_windows(throttles: Sequence[Throttle], keyed: bool) -> tuple[Window, ...]:
    return tuple(one.measure for one in throttles if one.name is None and (one.key is not None) == keyed)


def disagreement(one: Plan | None, other: Plan | None) -> str:
    """How two plans that share a throttle by its name differ in it; nothing if they do not, or share none."""
    if one is None or other is None or not one.shared or one.shared != other.shared:
        return ""
    said = []
    for plan in (one, other):
        windows = " and ".join(sorted(map(str, plan.parent_gate.windows if plan.parent_gate else ())))
        said.append(f"{windows} for each key" if plan.each else windows)
    return " and ".join(said) if said[0] != said[1] else ""


# ---- from a call to its place


class Placement(NamedTuple):
    """Where an entry waits; twice nothing for one that waits in no lane."""

    lane: str = ""
    gate: str = ""


NO_LANE = Placement()


def placed(plan: Plan, name: str, call: Arguments) -> Placement:
    """The lane of a call of the command of that name, and its gate as text."""
    prefix, parent = conf.get("QUEUE_LANE_PREFIX"), ""
    key = None if plan.key is None else asked(plan.key, call, name)
    if key is None and plan.key is not None:  # free of what is for each key
        plan = plan._replace(gate=Gate(), parent_gate=None if plan.each else plan.parent_gate)
        if plan.parent_gate is None and not plan.batch:
            return NO_LANE
    text = None if key is None else key_text(key)
    if plan.parent_gate and plan.shared:
        parent = _short(f"{prefix}throttle:{plan.shared}", text if plan.each else None)
    elif plan.parent_gate:
        parent = _short(f"{prefix}{name}*", None)
    size = plan.batch.limit if plan.batch else plan.gate.max_run
    return Placement(_short(prefix + name, text), _written(plan.gate, plan.parent_gate, parent, plan.batch, size))


def asked(key: Key, call: Arguments, name: str) -> object:
    """A key of a call of a command: a fixed one, or what its function returns. An error of it names the command."""
    args, kwargs = call
    try:
        return key(*args, **kwargs) if callable(key) else key
    except Exception as error:
        error.add_note(f"In a function that says the shard or the key of a call of {name}.")
        raise


def key_text(key: object) -> str:
    """A key as a part of a lane's name: itself if it is a number or a text that can be read, else a digest."""
    text = str(key) if isinstance(key, int | str) and not isinstance(key, bool) else ""
    return text if text and text.isprintable() else fingerprint(key)


def _short(name: str, key: str | None) -> str:
    whole = name if key is None else f"{name}:{key}"
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 33]}~{fingerprint(whole)}"


@lru_cache(4096)
def _written(gate: Gate, parent_gate: Gate | None, parent: str, batch: Batch | None, run: int) -> str:
    wait: Any  # a number: a batch makes one of a timedelta
    least, wait = (batch.min_size, batch.timeout) if batch else (1, 0.0)
    return replace(
        gate, max_run=run, min_batch=min(least, run), batch_timeout=wait, parent=parent, parent_gate=parent_gate
    ).written()


# ---- The decisions


WINDOWS = 10
"""The number of windows after which an extended debounce runs, unless max_wait is given."""
LEAST_WAIT = 0.1
"""Seconds that pass at least before the start that a command asks for: none of them can keep a worker busy alone."""
_USUAL_BACKOFF = Backoff()
LOST = "worker died"
"""How the reason begins of a message that failed because its workers died."""
ALONE = 0
"""The patience where what was lost once runs alone in its consumer: when the consumer died, nothing else ran."""
MOST_ALONE = 2
"""Starts that may be lost there, unless the command's own ``max_lost`` says more."""
TASK = "task"
"""The field of a policy that travels and is no option."""

PerCall = float | Any
"""A number, or a function that is asked for one at each call: what reads it later finds a number."""


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
    retry_on: RetryOn | None = None
    backoff: Wait = _USUAL_BACKOFF
    debounce: PerCall | None = None
    debounce_key: Callable[..., Any] | None = None
    always_delay: bool = False
    extend: bool = False
    max_wait: float | None = None
    merge: Callable[..., Any] | None = None
    unique: str | float | None = None
    unique_key: Callable[..., Any] | None = None
    key: Callable[..., Any] | None = None
    """For debounce, unique and concurrency where they have no key of their own."""
    shard: Callable[..., Any] | int | str | None = None
    failure_policy: str = "block"
    max_run: int = USUAL_RUN
    idle_timeout: float | None = None
    """None: QUEUE_IDLE_TIMEOUT; see :attr:`idle_seconds`."""
    concurrency: int | None = None
    concurrency_key: Callable[..., Any] | None = None
    throttle: tuple[Throttle, ...] = ()
    batch: Batch | None = None
    lease: float | None = None
    time_limit: float | None = None
    timeout_action: str | None = None
    """``"retry"``, ``"fail"`` or ``"discard"``; None: by ``retry_on``."""
    result_ttl: float | None = None
    serializer: str | None = None
    models: str | None = None
    describe: Callable[..., Any] | None = None
    sensitive: tuple[str, ...] | bool = ()
    """The names of parameters whose values are shown as ``***``; True: of all."""
    task: tuple[str, str] | None = None
    """Of a call through Django's tasks: the alias of the backend and the name of the queue there. Its result then
    has the whole call: arguments, attempts, moments."""

    needs: frozenset[str] = field(init=False, repr=False, compare=False)
    """What a backend must be able to do for this policy."""
    guarded: bool = field(init=False, repr=False, compare=False)
    """Whether there is a condition under which a call counts."""
    asks: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The options that are functions, to be asked at each call."""
    plan: Plan | None = field(init=False, repr=False, compare=False)
    """What it makes of lanes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "guarded", bool(self.debounce or self.unique))
        needs = [need for name, need, asks in NEEDS if asks(getattr(self, name))]
        object.__setattr__(self, "needs", frozenset(needs))
        object.__setattr__(self, "asks", tuple(name for name in PER_CALL if callable(getattr(self, name))))
        key_of_concurrency = self.concurrency_key or self.key
        plan = plan_of(self.shard, self.concurrency, self.throttle, self.batch, key_of_concurrency, self.max_run)
        object.__setattr__(self, "plan", plan)

    @classmethod
    def of(cls, **given: Any) -> Policy:
        """A policy from the options of a decorator. Raises TypeError or ValueError that names the option."""
        return cls().using(**given)

    def using(self, **given: Any) -> Policy:
        """A changed copy. Raises TypeError or ValueError that names the option."""
        changes = changes_of(given)
        changed = replace(self, **(self._without_parts(changes) | changes))
        refuse_contradictions(changed, changed.used(), given)
        return changed

    def used(self) -> set[str]:
        values = zip(_DEFAULTS, _values(self), _DEFAULTS.values(), strict=True)
        return {name for name, value, usual in values if value is not usual and value != usual}

    def _without_parts(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The defaults of options that count no more, because what they are a part of is taken back."""
        if None not in changes.values():
            return {}
        taken = {name for name in WHOLES & changes.keys() if changes[name] is None and getattr(self, name) is not None}
        left = self.used() - changes.keys() | {name for name, value in changes.items() if value != _DEFAULTS[name]}
        reset: dict[str, Any] = {}
        for part in PARTS:
            if taken & part.part_of and left.isdisjoint(part.part_of | part.requires):
                reset[part.name] = _DEFAULTS[part.name]
                left.discard(part.name)
        return reset

    def unsupported(self, features: frozenset[str]) -> str:
        """The features that are needed and that a backend lacks, with the options that need them."""
        asking: dict[str, list[str]] = {}
        for name, need, asks in NEEDS:
            if asks(getattr(self, name)):
                asking.setdefault(need, []).append(f"{name}=")
        return ", ".join(f"{need} ({', '.join(asking[need])})" for need in sorted(self.needs - features))

    # ---- at the call

    def resolved(self, now: Callable[[], float]) -> Policy:
        """The policy with numbers for options that are functions: each is called once. Raises as :meth:`using` does.

        ``now`` is called only if it matters: it may be a round trip.
        """
        policy = self.using(**{name: self._answer(name) for name in self.asks}) if self.asks else self
        if policy.run_at and policy.ttl is not None and policy.run_at - now() >= policy.ttl:
            raise ValueError("run_after is later than ttl: the call would have expired when it is due.")
        return policy

    def _answer(self, name: str) -> object:
        try:
            return getattr(self, name)()
        except Exception as error:
            error.add_note(f"In the function that is the option {name}.")
            raise

    def condition(self, name: str, arguments: Mapping[str, object], identity: object) -> Guard:
        """The condition of one call: ``identity`` is what :attr:`guard_key` made of its arguments, if there is one."""
        same = identity if self.guard_key else None if self.merge else arguments
        key = f"{name}:{fingerprint(same)}"
        if self.debounce:
            return DebounceGuard(f"debounce:{key}", self.debounce, self.always_delay, self.extend, self._longest_wait)
        if isinstance(self.unique, float):
            return OnceGuard(f"once:{key}", self.unique)
        return UniqueGuard(f"unique:{key}", running=self.unique == "running")

    @property
    def guard_key(self) -> Callable[..., Any] | None:
        """For debounce or unique: the function of the arguments that makes calls equal; None: all arguments."""
        return (self.debounce_key if self.debounce else self.unique_key) or self.key

    @property
    def _longest_wait(self) -> float:
        """For how long calls can be postponed: at most until one window before they expire."""
        debounce: Any = self.debounce
        longest = debounce * WINDOWS if self.max_wait is None else self.max_wait
        return longest if self.ttl is None else min(longest, max(debounce, self.ttl - debounce))

    def beside(self, declared: Policy) -> dict[str, Any]:
        """The fields in which it differs from another."""
        return {name: getattr(self, name) for name in _DEFAULTS if getattr(self, name) != getattr(declared, name)}

    def overrides(self, declared: Policy) -> dict[str, Any]:
        """The options of this call that the consumer needs, where they differ from the command's options; as JSON."""
        if bool(self.batch) != bool(declared.batch):
            raise ValueError("batch= says how the function is called: give it where the command is declared.")
        for name in ("describe", "sensitive"):
            if getattr(self, name) != getattr(declared, name):
                raise ValueError(f"{name}= says how all calls are shown: give it where the command is declared.")
        changed = (name for name in TRAVELS if getattr(self, name) != getattr(declared, name))
        carried = {name: TRAVELS[name][0](getattr(self, name)) for name in changed}
        return carried if self.task == declared.task else carried | {TASK: self.task}

    # ---- at the run

    def with_overrides(self, carried: Mapping[str, Any]) -> Policy:
        """The policy of one message. Raises ImportError, TypeError or ValueError."""
        changes: dict[str, Any] = {} if TASK not in carried else {TASK: _task(carried[TASK])}
        for name in carried.keys() & TRAVELS.keys():
            value = TRAVELS[name][1](carried[name])
            changes |= {name: None} if value is None else OPTIONS[name](value)
        return replace(self, **changes)

    def reject(self, lease: Lease, patience: int = 1) -> Verdict | None:
        """A verdict for an entry that must not be started once more, or None.

        ``patience`` is how many times ``max_lost`` starts may be lost while no process saw them end, or ALONE.
        """
        entry = lease.entry
        if entry.lost and entry.lost >= self._most_unseen(patience):
            return self._failed(entry, _lost(entry.lost))
        ttl, waited = self.ttl, lease.claimed - entry.created
        # A function was asked at the call: a message that carries no answer is older than the function.
        if ttl is not None and not callable(ttl) and waited > ttl:
            return Verdict(Outcome.EXPIRED, f"its ttl of {ttl:g} s is over: it came {waited:.1f} s ago")
        return None

    def _most_unseen(self, patience: int) -> int:
        """How many starts may be lost while no process saw them end. It is never more if only one may be lost."""
        if patience == ALONE:
            return self.max_lost or min(MOST_ALONE, self.most_lost)
        return self.most_lost * (patience if self.most_lost > 1 else 1)

    def suspects(self, entry: Entry) -> bool:
        """Whether a start of an entry must be made where it can kill nothing else.

        Once two were lost, or if only one more may be: of a first loss most are innocent.
        """
        return entry.lost >= min(2, max(1, self.most_lost - 1))

    def judge_loss(self, entry: Entry, how: str) -> Verdict:
        """What it means that the process in which an entry ran alone has died; ``how`` is an exit code, or a signal."""
        lost = entry.lost + 1
        reason = f"{_lost(lost)}; the last one ended by {how}"
        if lost >= self.most_lost:
            return self._failed(entry, reason)._replace(lost=1)
        return self._again(reason, wait_after(self.backoff, lost, None))._replace(lost=1)

    def on_exception(self, exception: BaseException, entry: Entry) -> Verdict:
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
                return self._failed(entry, exception.reason[:LONGEST_REASON], exception)
        reason = f"{kind_of(exception)}: {text_of(exception)}"[:LONGEST_REASON]
        failures = entry.failures + 1
        action = self.timeout_action if isinstance(exception, TimeLimitExceeded) else None
        if action == "discard":
            return Verdict(Outcome.DISCARDED, reason)
        is_retried = _is_of(raised, self.retried) if action is None else action == "retry"
        own = policy_for(raised, (action is None and self.retry_on) or ())
        most = own.max_attempts or self.most_attempts
        if not is_retried or failures >= most:
            return self._failed(entry, reason, exception)
        return self._again(reason, wait_after(own.wait or self.backoff, failures, exception), exception, most)

    def _retry_as_asked(self, asked: Retry, entry: Entry) -> Verdict:
        most = conf.get("QUEUE_MAX_STARTS")
        if most is not None and entry.attempts >= most:
            return self._failed(entry, f"it asked to be run again at attempt {entry.attempts}", asked)
        if asked.after is None:
            delay = wait_after(self.backoff, entry.attempts, asked.__cause__)
        else:
            delay = seconds(asked.after, "Retry(after=…)")
        reason = asked.reason[:LONGEST_REASON] or "asked to be run again"
        return self._again(reason, max(LEAST_WAIT, delay), most=most)

    def _throttled(self, asked: Throttled, entry: Entry) -> Verdict:
        """Its start counts as nothing, so all that a backoff can go by is how often it failed before."""
        if asked.retry_after is None:
            delay = wait_after(self.backoff, entry.failures + 1, asked)
        else:
            delay = seconds(asked.retry_after, "Throttled(retry_after=…)")
        reason = f"throttled: {asked.reason}" if asked.reason else "throttled"
        return Verdict(Outcome.THROTTLED, reason[:LONGEST_REASON], delay=max(LEAST_WAIT, delay))

    def _again(
        self, reason: str, delay: float, exception: BaseException | None = None, most: int | None = None
    ) -> Verdict:
        alone = self.failure_policy == "skip"
        return Verdict(Outcome.RETRY, reason, exception, delay, alone, max_attempts=most)

    def _failed(self, entry: Entry, reason: str, exception: BaseException | None = None) -> Verdict:
        """The verdict of a failed message: FAILED, or PAUSED if its shard is to wait for an operator."""
        pauses = self.failure_policy == "pause" and is_ordered(entry)
        return Verdict(Outcome.PAUSED if pauses else Outcome.FAILED, reason, exception)

    @property
    def retried(self) -> tuple[type[BaseException], ...]:
        """The exceptions after which a message is tried again."""
        return tuple(conf.get("QUEUE_RETRY_ON") if self.retry_on is None else self.retry_on)

    @property
    def idle_seconds(self) -> float:
        """For how many seconds without messages a worker keeps a shard whose handler it has."""
        if self.idle_timeout is not None:
            return self.idle_timeout
        return seconds(conf.get("QUEUE_IDLE_TIMEOUT"), "QUEUE_IDLE_TIMEOUT")

    @property
    def most_lost(self) -> int:
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


def _task(carried: Any) -> tuple[str, str]:
    alias, queue_name = carried
    return str(alias), str(queue_name)


def _lost(count: int) -> str:
    return f"{LOST}: {count} attempts never reported"


def _sole(exception: BaseException) -> BaseException:
    while isinstance(exception, BaseExceptionGroup) and len(exception.exceptions) == 1:
        exception = exception.exceptions[0]
    return exception


def _is_of(exception: BaseException, listed: tuple[type[BaseException], ...]) -> bool:
    if isinstance(exception, BaseExceptionGroup) and not isinstance(exception, listed):
        return all(_is_of(one, listed) for one in exception.exceptions)
    return isinstance(exception, listed)


_DEFAULTS = {one.name: one.default for one in fields(Policy) if one.init}
_values = attrgetter(*_DEFAULTS)
