"""Sliding windows: how many may leave in an interval, and how evenly. What was spent of one is in ``rates``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from djqueue.utils import seconds, set_whole

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
        """The window in whole numbers: limit, span, 1 for moderate + 2 for elastic, buffer, and µs of margin."""
        return [self.limit, self.span, self.moderate + 2 * self.elastic, self.buffer, self._margin]

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
