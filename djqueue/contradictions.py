"""Which options of a command cannot be together, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from djqueue.lanes import USUAL_RUN

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
"""What cannot be together, and why. What would take too many lanes is refused by :func:`djqueue.lanes.plan_of`."""
