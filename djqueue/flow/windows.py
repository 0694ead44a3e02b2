"""Sliding windows: how many may leave now, and when the next may. Pure functions of a log, and of the time in µs.

The log is exact: it holds every grant that is younger than the window (as Figueiredo and others call it, a *sliding
window log*). Of windows with more than a thousand slots, grants within a thousandth of the window are held to be as
young as the youngest of them: never more than the limit, and no more than a thousandth of the slots lost.

Spacing and elasticity are as in Scrapy Cluster's throttled queue, except the clock: there it is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, NamedTuple

from djqueue.utils import seconds, set_whole

LIMITED, SPACED = "limited", "spaced"
FINEST = 1000
"""The most grants of one window that are kept apart, if its limit is higher."""
MARGIN, LEAST_MARGIN, MOST_MARGIN = 0.05, 0.02, 0.25
"""The margin of a window that bounds starts: this part of it; seconds, at least and at most."""


@dataclass(frozen=True, slots=True)
class Window:
    """At most ``limit`` in any interval of ``seconds``; a limit of 0 is a pause.

    With ``moderate`` they are evenly spaced, ``seconds / limit`` apart; that means nothing for a limit of one. With
    ``elastic`` too, once ``limit`` of them were granted, spacing is given up while more than ``buffer`` of the slots of
    the last window are unused. A ``margin`` (seconds) makes the interval longer: an entry that begins within it
    after it left may count by its start. Raises TypeError or ValueError for invalid values.
    """

    limit: int
    seconds: float
    moderate: bool = False
    elastic: bool = False
    buffer: int = 0
    margin: float = 0.0

    def __post_init__(self) -> None:
        set_whole(self, "limit", least=0)
        given = seconds(self.seconds, "window", least=0.001)
        # In whole µs, rounded up: what is written and read again is the same window.
        object.__setattr__(self, "seconds", ceil(round(given * 1e6, 3)) / 1e6)
        set_whole(self, "buffer", "elastic_buffer", least=0)
        if self.elastic and not self.moderate:
            raise ValueError("elastic=True gives up moderation where it falls behind: give moderate=True as well.")
        if self.buffer and not self.elastic:
            raise ValueError("elastic_buffer bounds elastic=True: give both, or neither.")
        if self.limit and self.buffer >= self.limit:
            raise ValueError(f"elastic_buffer is {self.buffer}: with a limit of {self.limit} nothing would be elastic.")

    @property
    def span(self) -> int:
        """Its length in µs, with its margin."""
        return round(self.seconds * 1e6) + self._margin

    @property
    def _margin(self) -> int:
        return round(self.margin * 1e6)

    @property
    def spacing(self) -> int:
        """µs between two grants; 0: none."""
        return -(-self.span // self.limit) if self.moderate and self.limit > 1 else 0

    @property
    def rank(self) -> tuple[float, int, bool, bool, int]:
        """The stricter of two windows has the lower one."""
        return self.limit / self.span, self.limit, not self.moderate, self.elastic, -self.buffer

    def written(self) -> list[int]:
        """The window in whole numbers: limit, span, 1 for moderate + 2 for elastic, buffer; and the µs of a margin."""
        numbers = [self.limit, self.span, self.moderate + 2 * self.elastic, self.buffer]
        return [*numbers, self._margin] if self.margin else numbers

    @classmethod
    def read(cls, limit: int, span: int, ways: int, buffer: int, margin: int = 0) -> Window:
        """The inverse of :meth:`written`."""
        return cls(limit, (span - margin) / 1e6, bool(ways & 1), bool(ways & 2), buffer, margin / 1e6)

    def __str__(self) -> str:
        ways = [name for name in ("moderate", "elastic") if getattr(self, name)]
        buffer = [f"elastic_buffer={self.buffer}"] if self.buffer else []
        return ", ".join([f"{self.limit} per {self.seconds:g} s", *ways, *buffer])


def of_starts(window: Window) -> Window:
    """The window as a bound of starts: entries that begin within the margin after they left keep it."""
    margin = min(MOST_MARGIN, max(LEAST_MARGIN, MARGIN * window.seconds))
    return replace(window, margin=round(margin, 6))


class Log(NamedTuple):
    """What a window remembers."""

    grants: tuple[tuple[int, int], ...] = ()
    """Moment (µs) and number of each, the oldest first."""
    last: int = 0
    """The moment of the last one; of moderated windows only."""
    warm: int = 0
    """How many were granted so far; of elastic windows only."""


class Capacity(NamedTuple):
    """How many may leave now, and if none: why, and in how many µs one may."""

    free: Any = inf
    """A whole number, or infinity; so is ``wait``."""
    wait: Any = 0
    reason: str = ""


def capacity(window: Window, log: Log, now: int) -> Capacity:
    """What a window has left at ``now``."""
    if not window.limit:
        return Capacity(0, inf, LIMITED)
    young = _young(window, log, now)
    left = window.limit - sum(number for _, number in young)
    if not window.spacing:
        return Capacity(left) if left > 0 else Capacity(0, _until(young, 1 - left, window, now), LIMITED)
    if window.elastic and log.warm >= window.limit and left > window.buffer:
        return Capacity(left - window.buffer)
    spaced = max(0, log.last + window.spacing - now)
    opens = _next(window, log, young, left, spaced, now)
    if left <= 0:
        return Capacity(0, max(_until(young, 1 - left, window, now), opens), LIMITED)
    return Capacity(0, opens, SPACED) if spaced else Capacity(1)


def used(window: Window, log: Log, now: int) -> int:
    """How many of its slots are taken at ``now``."""
    return sum(number for _, number in _young(window, log, now))


def _next(window: Window, log: Log, young: Sequence[tuple[int, int]], left: int, spaced: int, now: int) -> int:
    """When spacing lets one leave: at its time, or when enough slots are unused that spacing is given up."""
    missing = window.buffer + 1 - left
    if window.elastic and log.warm >= window.limit and missing > 0:
        return min(spaced, _until(young, missing, window, now))
    return spaced


def _until(young: Sequence[tuple[int, int]], missing: int, window: Window, now: int) -> int:
    """µs until ``missing`` grants are too old to count."""
    for at, number in young:
        missing -= number
        if missing <= 0:
            return at + window.span - now
    return 0


def _young(window: Window, log: Log, now: int) -> Sequence[tuple[int, int]]:
    since = now - window.span
    first = next((place for place, (at, _) in enumerate(log.grants) if at > since), len(log.grants))
    return log.grants[first:]


def granted(window: Window, log: Log, number: int, now: int) -> Log:
    """The log after ``number`` have left at ``now``; what is too old is gone."""
    young, grain = _young(window, log, now), _grain(window)
    if young and young[-1][0] // grain == now // grain:
        *young, (_, same) = young
        number_now = same + number
    else:
        number_now = number
    warm = log.warm + number if window.elastic else 0
    return Log((*young, (now, number_now)), now if window.spacing else 0, warm)


def adopted(window: Window, log: Log) -> Log:
    """The log of another window for this one: its grants count by this window."""
    return log._replace(last=log.grants[-1][0] if log.grants and window.spacing else log.last)


def returned(window: Window, log: Log, number: int, at: int) -> Log:
    """The log without ``number`` of what was granted at ``at``: it did not leave after all.

    Only that grant is made smaller: if a younger one were, it would be forgotten before its time.
    """
    grain = _grain(window)
    left = [(moment, had - number if moment // grain == at // grain else had) for moment, had in log.grants]
    kept = tuple((moment, had) for moment, had in left if had > 0)
    last = log.last if log.last != at else (kept[-1][0] if kept else 0)
    return Log(kept, last, max(0, log.warm - number) if window.elastic else 0)


def moved(window: Window, log: Log, number: int, at: int, to: int, now: int) -> Log | None:
    """The log if ``number`` of what was granted at ``at`` count from ``to`` on; None if they do not count any more.

    Until then, other entries may have left in their place.
    """
    grain = _grain(window)
    if sum(had for moment, had in _young(window, log, now) if moment // grain == at // grain) < number:
        return None
    grants = sorted([*returned(window, log, number, at).grants, (to, number)])
    return Log(tuple(grants), to if log.last == at else log.last, log.warm)


def _grain(window: Window) -> int:
    """µs within which grants are held to be of one moment."""
    return max(1, window.span // FINEST) if window.limit > FINEST else 1


def expires_at(window: Window, log: Log) -> int:
    """The moment (µs) from which on a log does not matter: two windows after the last grant."""
    return log.grants[-1][0] + 2 * window.span if log.grants else 0
