"""The options of a command: what each may be, what it becomes, and which exclude each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from djqueue.flow.limits import USUAL_RUN, Batch, Throttle, up_to
from djqueue.policies.backoff import Backoff, Wait, backoff_of
from djqueue.utils import moment, nearest, priority, seconds, whole

Duration = float | timedelta


class CommandOptions(TypedDict, total=False):
    """The options of ``queue_command`` and ``using``, for type checkers."""

    queue_name: str
    priority: int
    delay: Duration | Callable[[], Duration]
    run_after: datetime
    ttl: Duration | Callable[[], Duration] | None
    max_attempts: int
    retries: int
    max_lost: int
    retry_on: Iterable[type[BaseException]]
    backoff: bool | Duration | Backoff | Wait
    debounce: Duration | Callable[[], Duration] | None
    always_delay: bool
    extend: bool
    max_wait: Duration
    merge: Callable[[Any, Any], Any]
    unique: bool | Literal["queued", "running"] | Duration
    key: Callable[..., Any]
    shard: Callable[..., Any] | int | str | None
    on_failure: Literal["block", "skip", "park"]
    run: int
    linger: Duration | None
    concurrency: int | None
    throttle: Throttle | list[Throttle] | tuple[Throttle, ...] | None
    batch: int | bool | Batch | None
    lease: Duration
    time_limit: Duration | None
    result_ttl: Duration | None
    codec: Literal["pickle", "json"]
    models: Literal["pickle", "reference"]


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a policy that options say. Raises TypeError or ValueError that names the option."""
    for name in sorted(given.keys() - OPTIONS.keys()):
        meant = nearest(name, OPTIONS)
        hint = f"did you mean {meant!r}? There are" if meant else "there are"
        raise TypeError(f"Unknown option {name!r}; {hint}: {', '.join(sorted(OPTIONS))}.")
    for one, other in (("delay", "run_after"), ("retries", "max_attempts")):
        if {one, other} <= given.keys():
            raise ValueError(f"{one} and {other} exclude each other: give one of them.")
    changes: dict[str, Any] = {}
    for name, value in given.items():
        changes |= OPTIONS[name](value)
    return changes


# ---- one by one


def _queue_name(value: object) -> dict:
    if not isinstance(value, str) or not value:
        raise TypeError(f"queue_name is {value!r}: give an alias of QUEUES.")
    return {"queue_name": value}


def _retry_on(value: object) -> dict:
    if isinstance(value, type):
        value = [value]
    if not isinstance(value, list | tuple | set | frozenset) or not all(map(is_exception, value)):
        raise TypeError(f"retry_on is {value!r}: give a list of exception classes.")
    return {"retry_on": tuple(value)}


def is_exception(value: object) -> bool:
    """Whether it is a class of exceptions."""
    return isinstance(value, type) and issubclass(value, BaseException)


def _unique(value: object) -> dict:
    if value is None or value is False:
        return {"unique": None}
    if value is True:
        return {"unique": "running"}
    if isinstance(value, str):
        if value not in ("queued", "running"):
            raise ValueError(f"unique is {value!r}: give 'queued', 'running' or True, or a time.")
        return {"unique": value}
    return {"unique": seconds(value, "unique", least=0.001)}


def _shard(value: object) -> dict:
    if value is not None and not callable(value) and (isinstance(value, bool) or not isinstance(value, int | str)):
        raise TypeError(f"shard is {value!r}: give a function of the arguments, or a whole number or a text.")
    return {"shard": value}


def _throttle(value: object) -> dict:
    throttles = () if value is None else (value,) if isinstance(value, Throttle) else value
    if not isinstance(throttles, list | tuple) or not all(isinstance(one, Throttle) for one in throttles):
        raise TypeError(f"throttle is {value!r}: give Throttle(limit, window), or a list of such.")
    return {"throttle": tuple(throttles)}


def _batch(value: object) -> dict:
    if value is None or value is False:
        return {"batch": None}
    return {"batch": value if isinstance(value, Batch) else Batch() if value is True else Batch(value)}


def _one_of(name: str, *choices: str) -> Callable[[object], dict]:
    def check(value: object) -> dict:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}.")
        return {name: value}

    return check


def _flag(name: str) -> Callable[[object], dict]:
    def check(value: object) -> dict:
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}: give True or False.")
        return {name: value}

    return check


def _function(name: str) -> Callable[[object], dict]:
    def check(value: object) -> dict:
        if value is not None and not callable(value):
            raise TypeError(f"{name} is {value!r}: give a function.")
        return {name: value}

    return check


def _count(name: str, least: int) -> Callable[[object], dict]:
    return lambda value: {name: whole(value, name, least=least)}


def _span(name: str, least: float = 0.0) -> Callable[[object], dict]:
    return lambda value: {name: seconds(value, name, least=least)}


def _span_or_none(name: str, least: float = 0.0) -> Callable[[object], dict]:
    return lambda value: {name: None if value is None else seconds(value, name, least=least)}


def _per_call(check: Callable[[object], dict], name: str) -> Callable[[object], dict]:
    """What may also be a function of no arguments, which is called once per call."""
    return lambda value: {name: value} if callable(value) else check(value)


OPTIONS: dict[str, Callable[[Any], dict]] = {
    "queue_name": _queue_name,
    "priority": lambda value: {"priority": priority(value)},
    "delay": lambda value: _per_call(_span("delay"), "delay")(value) | {"run_at": 0.0},
    "run_after": lambda value: {"run_at": moment(value, "run_after"), "delay": 0.0},
    "ttl": _per_call(_span_or_none("ttl", 0.001), "ttl"),
    "max_attempts": _count("max_attempts", 1),
    "retries": lambda value: {"max_attempts": whole(value, "retries", least=0) + 1},
    "max_lost": _count("max_lost", 1),
    "retry_on": _retry_on,
    "backoff": lambda value: {"backoff": backoff_of(value)},
    "debounce": _per_call(_span_or_none("debounce", 0.001), "debounce"),
    "always_delay": _flag("always_delay"),
    "extend": _flag("extend"),
    "max_wait": _span_or_none("max_wait"),
    "merge": _function("merge"),
    "unique": _unique,
    "key": _function("key"),
    "shard": _shard,
    "on_failure": _one_of("on_failure", "block", "skip", "park"),
    "run": lambda value: {"run": up_to(value, "run")},
    "linger": _span_or_none("linger"),
    "concurrency": lambda value: {"concurrency": None if value is None else whole(value, "concurrency", least=1)},
    "throttle": _throttle,
    "batch": _batch,
    "lease": _span("lease", 0.1),
    "time_limit": _span_or_none("time_limit", 0.001),
    "result_ttl": _span_or_none("result_ttl", 0.001),
    "codec": _one_of("codec", "pickle", "json"),
    "models": _one_of("models", "pickle", "reference"),
}
"""How each option becomes fields of the policy."""


# ---- Options that cannot be together, and why

LINGERS = "linger is for how long a worker keeps the object of a BatchCommand: give it in the options of such a class."
"""Of other commands nothing is kept, and a worker keeps an object for calls of all options."""


def refuse_contradictions(policy: Any, given: dict[str, Any]) -> None:
    """Raises ValueError that says why two options of a policy, the last of which are given, cannot be together."""
    if given.get("retries") and not policy.retried:
        raise ValueError(
            "retries without retry_on retries nothing: list exceptions, as in retry_on=[ConnectionError], "
            "or in the setting QUEUE_RETRY_ON."
        )
    for contradicts, reason in CONTRADICTIONS:
        if contradicts(policy):
            raise ValueError(reason)


def _later_than_ttl(policy: Any, value: Any) -> bool:
    return isinstance(policy.ttl, float) and isinstance(value, float) and value >= policy.ttl


CONTRADICTIONS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda p: p.debounce and (p.delay or p.run_at),
        "debounce decides when a call is due: it excludes delay and run_after.",
    ),
    (lambda p: p.debounce and p.unique, "debounce and unique exclude each other: each decides whether a call counts."),
    (lambda p: p.always_delay and not p.debounce, "always_delay is a way to debounce: give debounce=seconds as well."),
    (lambda p: p.extend and not p.debounce, "extend is a way to debounce: give debounce=seconds as well."),
    (lambda p: p.merge and not p.debounce, "merge collects debounced calls: give debounce=seconds as well."),
    (lambda p: p.max_wait is not None and not p.extend, "max_wait bounds extend=True: give both, or neither."),
    (
        lambda p: p.max_wait is not None and isinstance(p.debounce, float) and p.max_wait < p.debounce,
        "max_wait is shorter than debounce: a call would be due before its window is over.",
    ),
    (
        lambda p: _later_than_ttl(p, p.max_wait),
        "max_wait is not shorter than ttl: calls could be postponed until they expire.",
    ),
    (
        lambda p: p.key and not (p.debounce or p.unique or p.concurrency),
        "key says which calls are the same: give debounce, unique or concurrency.",
    ),
    (
        lambda p: _later_than_ttl(p, p.delay),
        "delay is not shorter than ttl: calls would expire before they are due.",
    ),
    (
        lambda p: _later_than_ttl(p, p.debounce),
        "debounce is not shorter than ttl: calls could expire before they are due.",
    ),
    (
        lambda p: p.merge and p.plan and callable(p.plan.key) and p.plan.key != p.key,
        "merge lets one call stand for several, which may wait in different lanes: give key the same function as shard "
        "or the throttle, or leave one out.",
    ),
    (
        lambda p: p.on_failure != "block" and p.shard is None,
        "on_failure says what becomes of a shard: give shard as well.",
    ),
    (lambda p: p.run != USUAL_RUN and p.shard is None, "run says how many of a shard go together: give shard as well."),
    (
        lambda p: p.run != USUAL_RUN and p.batch,
        "batch says how many go together, in a shard too: leave out run.",
    ),
]
"""Options that cannot be together, and why. :func:`djqueue.policies.placement.plan_of` refuses too many lanes."""
