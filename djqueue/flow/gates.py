"""Lanes and gates: entries that share a key wait in a *lane*, and its *gate* decides when the first of them may leave.

Order, concurrency, rates and pauses are one mechanism. Everything here is a pure function of the state of
a lane and of the time in µs; memory and the databases use it, Redis has it as ``scripts/gates.lua``.

A lane is in one of four places: *ready* (its first entry may leave), *scheduled* (it becomes ready at a known moment),
*queued* (it waits in its parent lane), or *closed*. :func:`place_of` decides which, after every change. So
entries that may not leave cost a claim nothing, however many they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from djqueue.flow.rates import Rate, expires_at, moved, room, spend, under
from djqueue.flow.windows import Window

LANE_READY, LANE_SCHEDULED, LANE_QUEUED, LANE_CLOSED = "ready", "scheduled", "queued", "closed"

HOLD_ORDER, HOLD_LANE, HOLD_PAUSE = "order", "lane", "pause"
"""What waits with an entry that is released: its own lane until the delay is over, as it keeps an order; the throttled
lane until then, which is its own lane, or the parent if only that has windows; its own lane until an operator
opens it."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The limits on the entries that may leave a lane."""

    ordered: bool = False
    """One run at a time; the next when all of that one is settled."""
    max_run: int = 1
    """How many leave together at most, for one worker. If that is more than 1, or ordered, they are a unit of work."""
    concurrency: int = 0
    """How many may be in flight at once; 0: any number."""
    windows: tuple[Window, ...] = ()
    """Each bounds how many may leave in an interval."""
    min_batch: int = 1
    """A run of fewer waits for more …"""
    batch_timeout: float = 0.0
    """… up to this many seconds after the first of them arrived."""
    parent: str = ""
    """The parent lane, in which it is queued, if it shares a gate with others. A parent has no parent."""
    parent_gate: Gate | None = None
    """The gate of that lane."""

    def __post_init__(self) -> None:
        if self.parent and self.parent_gate is None:
            object.__setattr__(self, "parent_gate", Gate())

    def written(self) -> str:
        """The gate as JSON text, without defaults. Equal gates have equal texts."""
        said = {
            "o": int(self.ordered),
            "r": self.max_run - 1,
            "m": self.concurrency,
            "w": [window.written() for window in self.windows],
            "l": self.min_batch - 1,
            "t": round(self.batch_timeout * 1e6),
            "in": self.parent,
            "by": json.loads(self.parent_gate.written()) if self.parent_gate else None,
        }
        return json.dumps({name: value for name, value in said.items() if value}, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Gate:
        """The inverse of :meth:`written`. Cached: it is called several times for each message, and gates are few.

        A text that cannot be read, as it was written by hand, is UNREADABLE.
        """
        return _read(text)

    @property
    def margin(self) -> float:
        """Seconds after leaving within which an entry must begin, by the windows of its lane and of the parent."""
        windows = (*self.windows, *(self.parent_gate.windows if self.parent_gate else ()))
        return min((window.margin for window in windows if window.margin), default=inf)

    @property
    def counts(self) -> bool:
        """Whether its lane counts what is in flight: unless nothing but a rate holds it up."""
        return not self.windows or self.is_unit or self.concurrency > 0

    @property
    def is_unit(self) -> bool:
        """Whether what leaves together is one unit of work."""
        return self.ordered or self.max_run > 1


UNREADABLE = Gate(ordered=True)
"""One at a time, in order: that breaks no promise of any gate."""
LONGEST_LANE = 255
RATE_UNREADABLE = "its rate cannot be read: an older version wrote it, or it was changed by hand"
"""Why a lane is paused whose rate cannot be read."""


@lru_cache(maxsize=1024)
def _read(text: str) -> Gate:
    try:
        return _gate(json.loads(text))
    except (ArithmeticError, AttributeError, TypeError, ValueError, RecursionError):
        return UNREADABLE


def _gate(said: dict[str, Any]) -> Gate:
    outer = _gate(said["by"]) if "by" in said else None
    if outer is not None and outer.parent:
        raise ValueError("There are two levels and no more.")
    return Gate(
        ordered=bool(said.get("o")),
        max_run=_count(said, "r") + 1,
        concurrency=_count(said, "m"),
        windows=tuple(Window.read(*window) for window in said.get("w", ())),
        min_batch=_count(said, "l") + 1,
        batch_timeout=_count(said, "t") / 1e6,
        parent=_name(said.get("in", "")),
        parent_gate=outer,
    )


def _count(said: dict[str, Any], name: str) -> int:
    value = said.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{name} is {value!r}.")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_LANE or "\0" in value:
        raise ValueError(f"{value!r} is no name of a lane.")
    return value


class Head(NamedTuple):
    """The first entry of a lane."""

    rank: int
    """Minus its priority."""
    at: int
    """When it fell due, µs."""
    waiting: int = 1
    """How many entries wait; with a ``min_batch`` of 1 it may be any number from 1."""
    alone: bool = False
    """Whether it was lost once, and leaves alone."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The state of a lane next to its entries."""

    name: str
    gate: Gate = Gate()
    in_flight: int = 0
    """How many have left and are not settled."""
    turn: int = 0
    """When it was last its turn: a number of the queue that rises."""
    not_before: int = 0
    """It does not open before this, µs; a retry of its first, or a server that asked for patience."""
    paused_reason: str = ""
    """Why it waits for an operator to open it, if it does."""
    rates: tuple[Rate, ...] = ()
    """One for each window of its gate; none as long as nothing was spent of any."""

    def with_gate(self, gate: Gate) -> Lane:
        """The lane under another gate; a window that stays keeps what was spent of it.

        A new window takes the grants of the window in its place, or else of the longest window. It may count too much,
        and never too little, even if producers of two versions change the gate to and fro.
        """
        if gate == self.gate:
            return self
        if not self.rates:
            return replace(self, gate=gate)
        known, longest = {rate.window: rate for rate in self.rates}, max(self.rates, key=lambda rate: rate.window.span)
        others = [*self.rates, *[longest] * len(gate.windows)]
        pairs = zip(gate.windows, others, strict=False)
        return replace(self, gate=gate, rates=tuple(known.get(window) or under(rate, window) for window, rate in pairs))


class Place(NamedTuple):
    """Where a lane is."""

    where: str
    rank: int = 0
    """For a ready or queued lane: minus the priority of its first entry. Lower goes first, then the lower turn."""
    at: int = 0
    """For a scheduled lane: the moment at which to look again, µs."""


def place_of(lane: Lane, head: Head | None, now: int) -> Place:
    """The place of a lane. A closed lane with no head that :func:`is_idle` may be forgotten."""
    if lane.paused_reason:
        return Place(LANE_CLOSED)
    if head is None:
        until = remembered_until(lane)
        return Place(LANE_SCHEDULED, at=until) if not lane.in_flight and until > now else Place(LANE_CLOSED)
    if _is_full(lane):
        return Place(LANE_CLOSED)
    opens = opens_at(lane, head, now)
    if opens > now:
        return Place(LANE_SCHEDULED, at=opens)
    return Place(LANE_QUEUED if lane.gate.parent else LANE_READY, head.rank)


def is_idle(lane: Lane, head: Head | None, now: int) -> bool:
    """Whether nothing would be lost with its record."""
    return head is None and not lane.in_flight and not lane.paused_reason and remembered_until(lane) <= now


def remembered_until(lane: Lane) -> int:
    """Until when its record matters although it is empty."""
    return max([lane.not_before, *map(expires_at, lane.rates)])


def opens_at(lane: Lane, head: Head, now: int) -> int:
    """When its first may leave as far as time decides; not after ``now`` if it may."""
    gathering = head.at + round(lane.gate.batch_timeout * 1e6) if head.waiting < lane.gate.min_batch else 0
    opens: int = max(lane.not_before, gathering, now + room(_rates(lane), now).wait)
    return opens


def leaving(lane: Lane, now: int) -> int:
    """How many may leave at ``now`` in one turn."""
    if lane.paused_reason or _is_full(lane) or lane.not_before > now:
        return 0
    most = lane.gate.concurrency - lane.in_flight if lane.gate.concurrency else inf
    return int(min(lane.gate.max_run, most, room(_rates(lane), now).free))


def left(lane: Lane, number: int, turn: int, now: int) -> Lane:
    """The lane after ``number`` left it at ``now``."""
    _, rates = spend(_rates(lane), number, now)
    return replace(lane, in_flight=lane.in_flight + number, turn=turn, rates=rates)


def deferred(lane: Lane, number: int, at: int, to: int, now: int) -> Lane | None:
    """The lane if ``number`` entries that left it at ``at`` count from ``to`` on; None if its windows forgot them."""
    rates: list[Any] = [moved(rate, number, at, to, now) for rate in _rates(lane)]
    return None if None in rates else replace(lane, rates=tuple(rates))


def settled(lane: Lane, number: int) -> Lane:
    """The lane after ``number`` entries that had left it are settled."""
    return replace(lane, in_flight=max(0, lane.in_flight - number))


def held_by(lane: Lane, how: str) -> str:
    """Which lane an entry of this one holds back. A server's refusal is about the lane that has the windows."""
    gate = lane.gate
    is_outer = how == HOLD_LANE and gate.parent_gate is not None and gate.parent_gate.windows and not gate.windows
    return gate.parent if is_outer else lane.name


def block_until(lane: Lane, until: int) -> Lane:
    """The lane, closed until a moment."""
    return replace(lane, not_before=max(lane.not_before, until))


def stopped(lane: Lane) -> Lane:
    """The lane if what was spent of its windows cannot be read: it begins again when an operator opens it."""
    return replace(lane, paused_reason=RATE_UNREADABLE, rates=())


def is_blocked(lane: Lane, now: int) -> bool:
    """Whether a lane is paused or delayed, so that an operator may open it."""
    return bool(lane.paused_reason) or lane.not_before > now


def resumed(lane: Lane) -> Lane:
    """The lane after an operator has opened it."""
    return replace(lane, paused_reason="", not_before=0)


def _rates(lane: Lane) -> tuple[Rate, ...]:
    return lane.rates or tuple(Rate(window) for window in lane.gate.windows)


def _is_full(lane: Lane) -> bool:
    return (
        lane.in_flight > 0
        if lane.gate.ordered
        else bool(lane.gate.concurrency) and lane.in_flight >= lane.gate.concurrency
    )
