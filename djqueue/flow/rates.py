"""Rates: a window and what was spent of it. One record and one text of it, for queues and for commands alike.

The log is exact: it holds every grant that is younger than the window (as Figueiredo and others call it, a *sliding
window log*). Of windows with more than a thousand slots, grants within a thousandth of the window are held to be as
young as the youngest of them: never more than the limit, and no more than a thousandth of the slots lost.

Pure functions of a rate, and of the time in µs. Redis has them as ``scripts/rates.lua``, which reads the same text.
Spacing and elasticity are as in Scrapy Cluster's throttled queue, except the clock: there it is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from djqueue.flow.windows import Window

LIMITED, SPACED = "limited", "spaced"
FINEST = 1000
"""The most grants of one window that are kept apart, if its limit is higher."""
CLAIMED_FOR = 60_000_000
"""µs, or two windows if that is less, for which the stricter of two windows holds after its last use."""
PAIR = "%016d %010d "
"""A grant in the text of a rate: its moment and its number."""
PAIR_LENGTH = 28


class Rate(NamedTuple):
    """A window and what was spent of it."""

    window: Window
    grants: tuple[tuple[int, int], ...] = ()
    """Moment (µs) and number of each, the oldest first."""
    last: int = 0
    """The moment of the last one; of moderated windows only."""
    warm: int = 0
    """How many were granted so far; of elastic windows only."""
    asked: int = 0
    """When a user last asked with this window, µs."""
    is_fixed: bool = False
    """Whether the window was set while it was in use; then it holds, whatever the settings of its users."""

    def written(self) -> str:
        """The rate as text: ten numbers (the last is the sum of the grants), "|", and the grants."""
        total = sum(number for _, number in self.grants)
        head = (*self.window.written(), self.asked, int(self.is_fixed), self.last, self.warm, total)
        return f"{' '.join(map(str, head))}|{PAIR * len(self.grants) % (*chain(*self.grants),)}"

    @classmethod
    def read(cls, text: str) -> Rate:
        """The inverse of :meth:`written`. Raises ValueError if the text was changed by hand, or has another format."""
        head, bar, log = text.partition("|")
        limit, span, ways, buffer, margin, asked, fixed, last, warm, total = map(int, head.split(" "))
        numbers = [*map(int, log.split())]
        if not bar or len(log) != PAIR_LENGTH * len(numbers) // 2 or sum(numbers[1::2]) != total:
            raise ValueError(f"{text[:80]!r} is no rate.")
        window = Window.read(limit, span, ways, buffer, margin)
        return cls(window, tuple(zip(numbers[::2], numbers[1::2], strict=True)), last, warm, asked, bool(fixed))


class Capacity(NamedTuple):
    """How many may leave now, and if none: why, and in how many µs one may."""

    free: Any = inf
    """A whole number, or infinity; so is ``wait``."""
    wait: Any = 0
    reason: str = ""


# ---- Spending


def spend(rates: Sequence[Rate], wanted: int, now: int) -> tuple[int, tuple[Rate, ...]]:
    """Let up to ``wanted`` leave at ``now``, as far as each of these rates allows: how many, and the rates then."""
    count = min(wanted, room(rates, now).free)
    return count, tuple(_granted(rate, count, now) for rate in rates) if count else tuple(rates)


def room(rates: Sequence[Rate], now: int) -> Capacity:
    """What they allow: as the one of the fewest; of several that allow none, as the one that takes longest."""
    return min((capacity(rate, now) for rate in rates), key=lambda one: (one.free, -one.wait), default=Capacity())


def capacity(rate: Rate, now: int) -> Capacity:
    """What a rate has left at ``now``."""
    window = rate.window
    if not window.limit:
        return Capacity(0, inf, LIMITED)
    young = _young(rate, now)
    left = window.limit - sum(number for _, number in young)
    if not window.spacing:
        return Capacity(left) if left > 0 else Capacity(0, _until(rate, young, 1 - left, now), LIMITED)
    if window.elastic and rate.warm >= window.limit and left > window.buffer:
        return Capacity(left - window.buffer)
    spaced = max(0, rate.last + window.spacing - now)
    opens = _next(rate, young, left, spaced, now)
    if left <= 0:
        return Capacity(0, max(_until(rate, young, 1 - left, now), opens), LIMITED)
    return Capacity(0, opens, SPACED) if spaced else Capacity(1)


def used(rate: Rate, now: int) -> int:
    """How many of its slots are taken at ``now``."""
    return sum(number for _, number in _young(rate, now))


def _next(rate: Rate, young: Sequence[tuple[int, int]], left: int, spaced: int, now: int) -> int:
    """When spacing lets one leave: at its time, or when enough slots are unused that spacing is given up."""
    missing = rate.window.buffer + 1 - left
    if rate.window.elastic and rate.warm >= rate.window.limit and missing > 0:
        return min(spaced, _until(rate, young, missing, now))
    return spaced


def _until(rate: Rate, young: Sequence[tuple[int, int]], missing: int, now: int) -> int:
    """µs until ``missing`` grants are too old to count."""
    for at, number in young:
        missing -= number
        if missing <= 0:
            return at + rate.window.span - now
    return 0


def _young(rate: Rate, now: int) -> Sequence[tuple[int, int]]:
    since = now - rate.window.span
    first = next((place for place, (at, _) in enumerate(rate.grants) if at > since), len(rate.grants))
    return rate.grants[first:]


def _granted(rate: Rate, number: int, now: int) -> Rate:
    """The rate after ``number`` have left at ``now``; what is too old is gone."""
    young, grain = _young(rate, now), _grain(rate)
    count = number
    if young and young[-1][0] // grain == now // grain:
        *young, (_, same) = young
        count += same
    warm = rate.warm + number if rate.window.elastic else 0
    return rate._replace(grants=(*young, (now, count)), last=now if rate.window.spacing else 0, warm=warm)


# ---- Grants that were not used, or count from another moment on


def returned(rate: Rate, number: int, at: int) -> Rate:
    """The rate without ``number`` of what was granted at ``at``: it did not leave after all.

    Only that grant is made smaller: if a younger one were, it would be forgotten before its time.
    """
    kept = _without(rate, number, at)
    last = rate.last if rate.last != at else (kept[-1][0] if kept else 0)
    warm = max(0, rate.warm - number) if rate.window.elastic else 0
    return rate._replace(grants=tuple(kept), last=last, warm=warm)


def moved(rate: Rate, number: int, at: int, to: int, now: int) -> Rate | None:
    """The rate if ``number`` of what was granted at ``at`` count from ``to`` on; None if they do not count any more.

    Until then, other entries may have left in their place.
    """
    grain = _grain(rate)
    if sum(had for moment, had in _young(rate, now) if moment // grain == at // grain) < number:
        return None
    grants = sorted([*_without(rate, number, at), (to, number)])
    return rate._replace(grants=tuple(grants), last=to if rate.last == at else rate.last)


def _without(rate: Rate, number: int, at: int) -> list[tuple[int, int]]:
    """The grants without ``number`` of those of a moment."""
    kept, grain = [], _grain(rate)
    for moment, had in rate.grants:
        back = min(number, had) if moment // grain == at // grain else 0
        number -= back
        if had > back:
            kept.append((moment, had - back))
    return kept


def _grain(rate: Rate) -> int:
    """µs within which grants are held to be of one moment."""
    return max(1, rate.window.span // FINEST) if rate.window.limit > FINEST else 1


# ---- Its window, which two users may set differently


def under(rate: Rate, window: Window) -> Rate:
    """The rate by another window: its grants count by this one."""
    return rate._replace(window=window, last=rate.grants[-1][0] if rate.grants and window.spacing else rate.last)


def agreed(rate: Rate | None, window: Window, now: int) -> Rate:
    """The rate as it holds for a user with this window; what was spent counts.

    A window that was set while it was in use holds for all; else the stricter of two, as long as it is in use.
    """
    if rate is None:
        return Rate(window, asked=now)
    if rate.window == window:
        return rate._replace(asked=now)
    is_in_use = now - rate.asked < min(CLAIMED_FOR, 2 * rate.window.span)
    if rate.is_fixed or is_in_use and rate.window.rank < window.rank:
        return rate
    return under(rate, window)._replace(asked=now)


def fixed(rate: Rate | None, window: Window, now: int) -> Rate:
    """The rate after its window is set for all users; earlier grants count."""
    return under(rate or Rate(window), window)._replace(asked=now, is_fixed=True)


def expires_at(rate: Rate) -> int:
    """The moment (µs) from which on what was spent does not matter: two windows after the last grant."""
    return rate.grants[-1][0] + 2 * rate.window.span if rate.grants else 0
