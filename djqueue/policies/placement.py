"""Where the entry of a call waits: in which lane, by what gate, and within which other lane.

A command's options make a :class:`Plan` when it is declared; a call's arguments make a lane of that. Lanes are named
after their command: ``app.commands.send`` holds its calls, ``app.commands.send:42`` those whose key is 42, and
``app.commands.send*`` is what the latter are within if all of them share a limit. ``throttle:api`` is what the calls of
all commands are within that share the throttle of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from djqueue import conf
from djqueue.flow.gates import Gate
from djqueue.flow.limits import MOST, Batch, Throttle
from djqueue.flow.windows import Window
from djqueue.messages.fingerprint import fingerprint

LONGEST = 200
"""Characters of a lane's name; of a longer one the end is hashed."""
Key = Callable[..., Any] | int | str
"""A function of a call's arguments, or what it would return for all of them."""


# ---- from options to a plan


class Plan(NamedTuple):
    """What a command's options say of the lanes of its calls."""

    key: Key | None
    """What tells its lanes apart; None: it has one."""
    gate: Gate
    """Of such a lane."""
    batch: Batch | None
    outer: Gate | None
    """Of what its lanes are within, if they share anything."""
    shared: str
    """The name of the throttle that they share with other commands; without one they share among themselves."""
    each: bool
    """Whether what they share there is shared by those of one key only."""


def plan_of(
    shard: Key | None,
    concurrency: int | None,
    throttles: Sequence[Throttle],
    batch: Batch | None,
    key_of_concurrency: Key | None,
    run: int,
) -> Plan | None:
    """The plan that options make; None: no lane. Raises ValueError for what would take more than two levels."""
    if shard is None and not (concurrency or throttles or batch):
        return None
    key = _one_key(shard, throttles, key_of_concurrency if concurrency else None)
    own = [throttle for throttle in throttles if throttle.name is None]
    named = _one_name([throttle for throttle in throttles if throttle.name is not None])
    most = concurrency or 0
    wide = Gate(most=0 if key_of_concurrency else most, windows=_windows(own, keyed=False))
    narrow = Gate(
        ordered=shard is not None,
        run=1 if shard is None or batch or throttles else run,  # each start asks its window
        most=most if key_of_concurrency else 0,
        windows=_windows(own, keyed=True),
    )
    if key is None:
        gate, outer = replace(narrow, most=wide.most, windows=wide.windows), None
    else:
        gate, outer = narrow, None if wide == Gate() else wide
    if named:
        if outer is not None:
            raise ValueError(THREE_LEVELS.format(name=named[0].name))
        outer = Gate(windows=tuple(one.measure for one in named))
    if outer is not None and (batch or not outer.most):  # where runs count by their entries, they are of one
        outer = replace(outer, run=MOST)
    shared: Any  # a text: those that are named have a name
    shared, each = (named[0].name, named[0].key is not None) if named else ("", False)
    return Plan(key, gate, batch, outer, shared, each)


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
    """Those that are shared with other commands, which are all of one name. Raises ValueError."""
    if len({one.name for one in named}) > 1:
        raise ValueError(TWO_NAMES.format(names=" and ".join(repr(one.name) for one in named)))
    if len({one.key for one in named}) > 1:  # two functions were refused before
        raise ValueError(ONE_NAME_TWO_KEYS.format(name=named[0].name))
    return named


def _windows(throttles: list[Throttle], keyed: bool) -> tuple[Window, ...]:
    return tuple(one.measure for one in throttles if (one.key is not None) == keyed)


def disagreement(one: Plan | None, other: Plan | None) -> str:
    """How two plans that share a throttle by its name differ in it; nothing if they do not, or share none."""
    if one is None or other is None or not one.shared or one.shared != other.shared:
        return ""
    ours, theirs = _shared_budget(one), _shared_budget(other)
    return f"{ours} and {theirs}" if ours != theirs else ""


def _shared_budget(plan: Plan) -> str:
    outer: Any = plan.outer  # there is one, as it is shared
    windows = " and ".join(sorted(map(str, outer.windows)))
    return f"{windows} for each key" if plan.each else windows


# ---- from a call to its place


class Place(NamedTuple):
    """Where an entry waits; twice nothing for one that waits in no lane."""

    lane: str = ""
    gate: str = ""


NOWHERE = Place()


def placed(plan: Plan | None, name: str, call: tuple[tuple, Mapping[str, Any]]) -> Place:
    """The lane of a call of the command of that name, and its gate as text."""
    if plan is None:
        return NOWHERE
    prefix = conf.get("QUEUE_LANE_PREFIX")
    key = None if plan.key is None else _asked(plan.key, call, name)
    if key is None and plan.key is not None:  # free of what is for each key
        plan = plan._replace(gate=Gate(), outer=None if plan.each else plan.outer)
        if plan.outer is None and not plan.batch:
            return NOWHERE
    text = None if key is None else key_text(key)
    within = _outer_name(plan, prefix, name, text) if plan.outer else ""
    size = plan.batch.size if plan.batch else plan.gate.run
    return Place(_short(prefix + name, text), _written(plan.gate, plan.outer, within, plan.batch, size))


def _asked(key: Key, call: tuple[tuple, Mapping[str, Any]], name: str) -> object:
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


def _outer_name(plan: Plan, prefix: str, name: str, text: str | None) -> str:
    if plan.shared:
        return _short(f"{prefix}throttle:{plan.shared}", text if plan.each else None)
    return _short(f"{prefix}{name}*", None)


def _short(name: str, key: str | None) -> str:
    whole = name if key is None else f"{name}:{key}"
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 33]}~{fingerprint(whole)}"


@lru_cache(4096)
def _written(gate: Gate, outer: Gate | None, within: str, batch: Batch | None, run: int) -> str:
    wait: Any  # a number: a batch makes one of a timedelta
    least, wait = (batch.least, batch.wait) if batch else (1, 0.0)
    return replace(gate, run=run, least=min(least, run), wait=wait, within=within, outer=outer).written()
