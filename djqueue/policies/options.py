"""The options of a command, one descriptor for each: what it may be, what it becomes, needs, requires and excludes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypedDict

from django.utils.module_loading import import_string

from djqueue.flow.limits import Batch, Concurrency, Debounce, Throttle, Unique, merging, up_to
from djqueue.hints import hint
from djqueue.policies.outcomes import Backoff, RetryOn, RetryPolicy, Wait, backoff_of, path_of, read, written
from djqueue.utils import flag, function, is_exception, moment, near_and_all, priority, seconds, whole

Duration = float | timedelta
Check = Callable[[Any, str], Any]
"""Makes a field's value of what was given for the option of that name. Raises TypeError or ValueError that names it."""
Travels = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""How a value is written as JSON, and how it is read."""
Rule = tuple[Callable[[Any, Set[str]], Any], str]
"""Whether a policy contradicts itself, by its options and the names of the options in use; and the reason."""


class OneCallOptions(TypedDict, total=False):
    """The options of commands that are given one call at a time, for type checkers."""

    queue_name: str
    priority: int
    delay: Duration | Callable[[], Duration]
    run_after: datetime
    ttl: Duration | Callable[[], Duration] | None
    max_attempts: int
    retries: int
    max_lost: int
    retry_on: Iterable[type[BaseException]] | Mapping[type[BaseException], bool | Duration | Wait | RetryPolicy] | None
    backoff: bool | Duration | Backoff | Wait
    debounce: Duration | Callable[[], Duration] | Debounce | None
    always_delay: bool
    extend: bool
    max_wait: Duration
    merge: Callable[[Any, Any], Any]
    unique: bool | Literal["queued", "running"] | Duration | Unique | None
    key: Callable[..., Any]
    shard: Callable[..., Any] | int | str | None
    failure_policy: Literal["block", "skip", "pause"]
    max_run: int
    idle_timeout: Duration | None
    concurrency: int | Concurrency | None
    throttle: Throttle | list[Throttle] | tuple[Throttle, ...] | None
    lease: Duration
    time_limit: Duration | None
    timeout_action: Literal["retry", "fail", "discard"] | None
    result_ttl: Duration | None
    serializer: Literal["pickle", "json"]
    models: Literal["pickle", "reference"]
    describe: Callable[..., object] | None
    sensitive: Iterable[str] | str | bool


class CommandOptions(OneCallOptions, total=False):
    """The options of ``queue_command`` and ``using``, for type checkers."""

    batch: int | bool | Batch | None


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command and all its effects. A policy has a field of its name, unless ``target`` is set."""

    name: str
    check: Check
    _: KW_ONLY
    target: str = ""
    """The field of the policy that it sets, if that has another name."""
    also: dict[str, Any] = field(default_factory=dict)
    """Further fields that it sets, to these values."""
    value: tuple[type, Callable[[Any], dict[str, Any]]] | None = None
    """A class whose objects set all of it, and the fields that such an object becomes; its ``key`` is a field too."""
    or_none: bool = False
    """Whether it may be None, and stays None."""
    per_call: bool = False
    """Whether it may be a function of no arguments, which is called once per call."""
    travels: Travels | None = None
    """If it counts at the run: how a call that changes it writes it into its message, as JSON, and how it is read."""
    needs: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    """The features of a backend that it may need, each with the values for which it does."""
    part_of: Set[str] = frozenset()
    """Options that it refines: when they are taken back, it goes back to its default."""
    requires: Set[str] = frozenset()
    """The options one of which it requires, if they differ from ``part_of``."""
    alone: str = ""
    """Why it is refused without any of them."""
    excludes: dict[str, str] = field(default_factory=dict)
    """The fields that must be at their defaults together with it, each with the reason."""
    outlives: str = ""
    """Why it must be shorter than ``ttl``."""
    rules: tuple[Rule, ...] = ()
    """What else it is refused for when it is in use."""
    instead: str = ""
    """An option with the same meaning in another form: one of the two may be given."""

    def __call__(self, value: Any) -> dict[str, Any]:
        """The fields of a policy that a value becomes. Raises TypeError or ValueError that names the option."""
        if self.value is not None and isinstance(value, self.value[0]):
            return self.value[1](value)
        if not ((self.or_none and value is None) or (self.per_call and callable(value))):
            value = self.check(value, self.name)
        if self.value is not None and value is None:
            return {self.name: None, own_key(self.name): None}
        return {self.target or self.name: value, **self.also}

    @property
    def fields(self) -> set[str]:
        return {self.target or self.name, *self.also, *((own_key(self.name),) if self.value else ())}

    def contradictions(self) -> Iterator[Rule]:
        if self.alone:
            yield lambda policy, used: used.isdisjoint(self.requires or self.part_of), self.alone
        for other, reason in self.excludes.items():
            yield partial(_is_beside, other), reason
        if self.outlives:
            yield partial(_outlives, self.name), self.outlives
        yield from self.rules


def own_key(name: str) -> str:
    """The field of a policy that has the ``key`` of the value of an option."""
    return f"{name}_key"


def _is_beside(other: str, policy: Any, used: Set[str]) -> bool:
    return other in used


def _outlives(name: str, policy: Any, used: Set[str]) -> bool:
    ttl, value = policy.ttl, getattr(policy, name)
    return isinstance(ttl, float) and isinstance(value, float) and value >= ttl


# ---- What each may be


def _alias(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} is {value!r}: give an alias of QUEUES.")
    return value


def _exceptions(value: object, name: str) -> RetryOn:
    if isinstance(value, type):
        value = (value,)
    elif isinstance(value, Iterable) and not isinstance(value, str | dict):
        value = tuple(value)
    if not isinstance(value, tuple | dict) or not all(map(is_exception, value)):
        raise TypeError(
            f"{name} is {value!r}: give a list of exception classes, or a dictionary with the backoff of each."
        )
    if isinstance(value, tuple):
        return value
    return {listed: _retry_policy(rule, f"{name}[{listed.__qualname__}]") for listed, rule in value.items()}


def _retry_policy(value: object, name: str) -> RetryPolicy:
    try:
        return RetryPolicy.of(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _retry_on_written(given: RetryOn | None) -> Any:
    if isinstance(given, dict):
        return {path_of(one, "retry_on"): rule.written() for one, rule in given.items()}
    return None if given is None else [path_of(one, "retry_on") for one in given]


def _retry_on_read(paths: Any) -> RetryOn | None:
    if isinstance(paths, dict):
        return {import_string(path): RetryPolicy.read(rule) for path, rule in paths.items()}
    return None if paths is None else tuple(map(import_string, paths))


def _unique(value: object, name: str) -> str | float | None:
    if value is None or value is False:
        return None
    if value is True:
        return "running"
    if isinstance(value, str):
        if value not in ("queued", "running"):
            raise ValueError(f"{name} is {value!r}: give 'queued', 'running' or True, or a time.")
        return value
    return seconds(value, name, least=0.001)


_UNTIL: dict[object, str] = {"started": "queued", "finished": "running"}


def _of_debounce(value: Debounce) -> dict[str, Any]:
    ways = {name: getattr(value, name) for name in ("always_delay", "extend", "max_wait", "merge")}
    return {"debounce": value.seconds, "debounce_key": value.key, **ways}


def _shard(value: object, name: str) -> Callable[..., Any] | int | str | None:
    if value is not None and not callable(value) and (isinstance(value, bool) or not isinstance(value, int | str)):
        raise TypeError(f"{name} is {value!r}: give a function of the arguments, or a whole number or a text.")
    return value


def _throttles(value: object, name: str) -> tuple[Throttle, ...]:
    throttles = () if value is None else (value,) if isinstance(value, Throttle) else value
    if not isinstance(throttles, list | tuple) or not all(isinstance(one, Throttle) for one in throttles):
        raise TypeError(f"{name} is {value!r}: give Throttle(limit, window), or a list of such.")
    return tuple(throttles)


def _batch(value: Any, name: str) -> Batch | None:
    if value is None or value is False:
        return None
    return value if isinstance(value, Batch) else Batch() if value is True else Batch(value)


def _describe(value: object, name: str) -> Callable[..., Any] | None:
    if value is not None and not callable(value):
        raise TypeError(
            f"{name} is {value!r}: give a function of the arguments that returns a short text, as in "
            "lambda order, **_: f'order {order}'."
        )
    return value


def _sensitive(value: Any, name: str) -> tuple[str, ...] | bool:
    names = (value,) if isinstance(value, str) else () if value is None or value is False else value
    if names is True:
        return True
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(one, str) for one in names):
        raise TypeError(f"{name} is {value!r}: give the names of parameters, or True for all of them.")
    return tuple(names)


def _one_of(*choices: str) -> Check:
    def check(value: object, name: str) -> str:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}.")
        return choices[choices.index(value)]  # itself, for what equals it: a member of TextChoices, say

    return check


# ---- The options


def _is_short(policy: Any, used: Set[str]) -> bool:
    return isinstance(policy.debounce, float) and policy.max_wait < policy.debounce


def _merges_across_lanes(policy: Any, used: Set[str]) -> bool:
    return bool(policy.plan) and callable(policy.plan.key) and policy.plan.key != policy.guard_key


_AS_IT_IS: Travels = (lambda value: value, lambda value: value)
_PATHS: Travels = (_retry_on_written, _retry_on_read)
_count = partial(whole, least=1)
_time = partial(seconds, least=0.001)
_WAY = "{} is a way to debounce: give debounce=seconds as well."
_DUE = "debounce decides when a call is due: it excludes delay and run_after."
_ONE_LANE = (
    "merge lets one call stand for several, which may wait in different lanes: give key the same function as shard or "
    "the throttle, or leave one out."
)
_EITHER = "debounce and unique exclude each other: each decides whether a call counts. Give one of them."

# fmt: off
_ALL = (
    Option("queue_name", _alias),
    Option("priority", priority, needs={"priority": bool}),
    Option("delay", seconds, per_call=True, also={"run_at": 0.0}, instead="run_after",
           outlives="delay is not shorter than ttl: calls would expire before they are due."),
    Option("run_after", moment, target="run_at", also={"delay": 0.0}),
    Option("ttl", _time, or_none=True, per_call=True, travels=_AS_IT_IS),
    Option("max_attempts", _count, travels=_AS_IT_IS),
    Option("retries", lambda value, name: whole(value, name, least=0) + 1,
           target="max_attempts", instead="max_attempts"),
    Option("max_lost", _count, travels=_AS_IT_IS),
    Option("retry_on", _exceptions, or_none=True, travels=_PATHS),
    Option("backoff", lambda value, name: backoff_of(value), travels=(written, read)),
    Option("debounce", _time, value=(Debounce, _of_debounce), or_none=True, per_call=True, needs={"facts": bool},
           excludes={"delay": _DUE, "run_at": _DUE, "unique": _EITHER},
           outlives="debounce is not shorter than ttl: calls could expire before they are due."),
    Option("always_delay", flag, part_of={"debounce"}, alone=_WAY.format("always_delay")),
    Option("extend", flag, needs={"inspect": bool}, part_of={"debounce"}, alone=_WAY.format("extend")),
    Option("max_wait", seconds, or_none=True, part_of={"debounce"}, requires={"extend"},
           alone="max_wait bounds extend=True: give both, or neither.",
           outlives="max_wait is not shorter than ttl: calls could be postponed until they expire.",
           rules=((_is_short, "max_wait is shorter than debounce: a call would be due before its window is over."),)),
    Option("merge", merging, needs={"inspect": bool}, part_of={"debounce"},
           alone="merge collects debounced calls: give debounce=seconds as well.",
           rules=((_merges_across_lanes, _ONE_LANE),)),
    Option("unique", _unique, needs={"inspect": lambda value: isinstance(value, str), "facts": bool},
           value=(Unique, lambda value: {"unique": _UNTIL.get(value.until, value.until), "unique_key": value.key})),
    Option("key", function, part_of={"debounce", "concurrency"}, requires={"debounce", "unique", "concurrency"},
           alone="key says which calls are the same: give debounce, unique or concurrency."),
    Option("shard", _shard, needs={"shards": lambda value: value is not None}),
    Option("max_run", up_to, part_of={"shard"},
           alone="max_run says how many of a shard go together: give shard as well.",
           excludes={"batch": "batch says how many go together, in a shard too: leave out max_run."}),
    Option("idle_timeout", seconds, or_none=True),
    Option("concurrency", _count, or_none=True, needs={"lanes": bool},
           value=(Concurrency, lambda value: {"concurrency": value.limit, "concurrency_key": value.key})),
    Option("throttle", _throttles, needs={"lanes": bool}),
    Option("batch", _batch, needs={"lanes": bool}),
    Option("failure_policy", _one_of("block", "skip", "pause"), travels=_AS_IT_IS,
           needs={"lanes": lambda value: value != "block"}, part_of={"shard"},
           alone="failure_policy says what becomes of a shard: give shard as well."),
    Option("lease", partial(seconds, least=0.1), travels=_AS_IT_IS),
    Option("time_limit", _time, or_none=True, travels=_AS_IT_IS),
    Option("timeout_action", _one_of("retry", "fail", "discard"), or_none=True, travels=_AS_IT_IS,
           part_of={"time_limit"},
           alone="timeout_action says what becomes of a message whose time_limit is over: give time_limit too."),
    Option("result_ttl", _time, or_none=True, travels=_AS_IT_IS, needs={"facts": bool}),
    Option("serializer", _one_of("pickle", "json")),
    Option("models", _one_of("pickle", "reference")),
    Option("describe", _describe),
    Option("sensitive", _sensitive),
)
# fmt: on
OPTIONS: dict[str, Option] = {option.name: option for option in _ALL}
"""The options by their names. Their defaults are the defaults of the fields of a policy."""
PER_CALL = tuple(option.name for option in _ALL if option.per_call)
TRAVELS = {option.name: option.travels for option in _ALL if option.travels}
NEEDS = tuple((option.name, feature, asks) for option in _ALL for feature, asks in option.needs.items())
PARTS = tuple(option for option in _ALL if option.part_of)
KEYED = frozenset(option.name for option in _ALL if option.value)
"""The options whose values can have a key of their own; ``key`` is for values without one."""
WHOLES = frozenset(name for option in PARTS for name in option.part_of)


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Raises TypeError for names that are not among the known options."""
    for name in sorted(name for name in given if name not in known):
        if said := hint(name, "option"):
            raise TypeError(f"Unknown option {name!r}: {said}.")
        raise TypeError(f"Unknown option {name!r}; {near_and_all(name, sorted(known))}")


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a policy that options set. Raises TypeError or ValueError that names the option."""
    refuse_unknown(given, OPTIONS)
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if OPTIONS[name].instead in given:
            raise ValueError(f"{name} and {OPTIONS[name].instead} exclude each other: give one of them.")
        new = OPTIONS[name](value)
        if OPTIONS[name].value and (twice := sorted(new.keys() & given.keys() - {name})):
            raise ValueError(f"{twice[0]} is an argument of {type(value).__name__}: give it there alone.")
        changes |= new
    return changes


# ---- Options that cannot be together, and why

IDLE_TIMEOUT = (
    "idle_timeout is for how long a worker keeps the object of a BatchCommand: give it in the options of such a class."
)
"""Of other commands nothing is kept, and a worker keeps an object for calls of all options."""
CONTRADICTIONS: dict[str, tuple[Rule, ...]] = {
    option.name: rules for option in _ALL if (rules := tuple(option.contradictions()))
}
"""What a policy is refused for, by the option. :func:`djqueue.policies.policy.plan_of` refuses too many lanes."""


def refuse_contradictions(policy: Any, used: Set[str], given: dict[str, Any]) -> None:
    """Raises ValueError with the reason if two options of a policy conflict; ``given`` are its last ones."""
    if given.get("retries") and not policy.retried:
        raise ValueError(
            "retries without retry_on retries nothing: list exceptions, as in retry_on=[OSError], "
            "or in the setting QUEUE_RETRY_ON."
        )
    if given.get("key") and used & KEYED and not any(name in used and own_key(name) not in used for name in KEYED):
        raise ValueError(
            "key is for debounce, unique and concurrency where they have no key of their own, and here each has one: "
            "leave it out."
        )
    for name, rules in CONTRADICTIONS.items():
        for contradicts, reason in rules if name in used else ():
            if contradicts(policy, used):
                raise ValueError(reason)
