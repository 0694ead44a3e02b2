"""How often an idle consumer asks, how far ahead it claims, and how many messages in all."""

from __future__ import annotations

import math
import threading
from math import exp

from djqueue.consumer.pool import Pool

HORIZON = 0.05
"""Seconds of work that may wait in this process: longer than a claim takes, shorter than anybody notices."""
QUICK = 0.0025
"""Seconds: units that take less are settled many at a time."""
MOST_AHEAD = 400
"""Messages that may wait here at most: a kill repeats what of them has ended and is not settled."""


class Pace:
    """The pauses of an idle poller: ``delay``, then each ``backoff`` times the last, up to ``longest`` (seconds)."""

    def __init__(self, delay: float = 0.1, backoff: float = 1.15, longest: float = 1.0):
        self._delay, self._backoff, self.longest = min(delay, longest), backoff, longest
        self._current = self._delay
        self._due = -math.inf

    def next(self) -> float:
        current = self._current
        self._current = min(self.longest, current * self._backoff)
        return current

    def left(self, now: float) -> float:
        """Seconds until it is time to ask. What happens for another reason meanwhile leaves the rhythm as it is."""
        if now >= self._due:
            self._due = now + self.next()
        return self._due - now

    def reset(self) -> None:
        """There was work: begin again with the shortest pause."""
        self._current, self._due = self._delay, -math.inf


class Prefetch:
    """How many entries to hold beyond the running ones: as many as the pool was seen to finish within the horizon.

    Long work is not claimed ahead at all, so a short message never waits here behind a long one for more than the
    horizon, unless the kind of work has just changed.
    """

    def __init__(self, pool: Pool):
        self._pool = pool
        self._at: float | None = None
        self._finished = 0
        self._rate = 0.0

    def measure(self, now: float) -> int:
        """Look at the pool; how many to hold. ``now`` is monotonic seconds."""
        finished = self._pool.finished
        if self._at is not None and now > self._at:
            passed = now - self._at
            weight = 1 - exp(-passed / HORIZON)
            self._rate += weight * ((finished - self._finished) / passed - self._rate)
        self._at, self._finished = now, finished
        return min(MOST_AHEAD, int(self._rate * HORIZON))

    @property
    def is_quick(self) -> bool:
        """Whether each thread finishes more than 400 units a second."""
        return self._rate * QUICK > len(self._pool.workers)


class RunLimit:
    """How many messages may still be claimed and run; None is no bound. Safe to use from any thread."""

    def __init__(self, limit: int | None = None):
        self._left = self._unrun = math.inf if limit is None else limit
        self._lock = threading.Lock()
        self.count = 0
        """How many have been run."""

    def take(self, wanted: int) -> int:
        """Take as many as are wanted and left; give back those that are not used."""
        with self._lock:
            taken = int(min(wanted, self._left))
            self._left -= taken
        return taken

    def give(self, count: int) -> None:
        with self._lock:
            self._left += count

    def ran(self, count: int) -> None:
        with self._lock:
            self.count += count
            self._unrun -= count

    @property
    def spent(self) -> bool:
        """Whether all have been run; a claim that is on its way may yet give some back."""
        return self._unrun <= 0
