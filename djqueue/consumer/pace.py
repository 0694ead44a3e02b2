"""How fast to ask, how far ahead, and how much in all."""

from __future__ import annotations

import math
import threading

from djqueue.consumer.pool import Pool

HORIZON = 0.05  # seconds of work that may wait in our hands
MOST_AHEAD = 200


class Pace:
    """The pauses of an idle poller: ``delay``, then each ``backoff`` times the last, up to ``longest`` (seconds)."""

    def __init__(self, delay: float = 0.1, backoff: float = 1.15, longest: float = 1.0):
        self._delay, self._backoff, self.longest = min(delay, longest), backoff, longest
        self._current = self._delay

    def next(self) -> float:
        """The pause to make now."""
        current = self._current
        self._current = min(self.longest, current * self._backoff)
        return current

    def reset(self) -> None:
        """There was work: begin again with the shortest pause."""
        self._current = self._delay


class Prefetch:
    """How many entries to hold beyond those that run: what the pool was seen to finish within the horizon.

    Work that takes long is not claimed ahead at all, so a short one never waits here behind a long one for more than
    the horizon, unless its nature has just changed.
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
            weight = 1 - math.exp(-passed / HORIZON)
            self._rate += weight * ((finished - self._finished) / passed - self._rate)
        self._at, self._finished = now, finished
        return min(MOST_AHEAD, int(self._rate * HORIZON))


class Budget:
    """How many messages may still be claimed and run; None is no bound. Safe to use from any thread."""

    def __init__(self, limit: int | None = None):
        self._left = self._unrun = math.inf if limit is None else limit
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """As many of those wanted as are left; what is not used must be given back."""
        with self._lock:
            taken = int(min(wanted, self._left))
            self._left -= taken
        return taken

    def give(self, count: int) -> None:
        with self._lock:
            self._left += count

    def ran(self) -> None:
        """One has been run to its end."""
        with self._lock:
            self._unrun -= 1

    @property
    def spent(self) -> bool:
        """Whether all have been run; a claim that is on its way may yet give back what it took."""
        return self._unrun <= 0
