"""What a queue in memory is built of: a bell for threads that wait, and an entry with its state."""

from __future__ import annotations

import threading

from djqueue.backends.entries import READY, Entry


class Bell:
    """Wakes the threads that sleep beside it. A ring between a thread's last look and its sleep is not missed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings = 0
        self._heard = threading.local()
        self._sleepers: set[threading.Event] = set()

    def ring(self) -> None:
        with self._lock:
            self._rings += 1
            for sleeper in self._sleepers:
                sleeper.set()

    def hear(self) -> bool:
        """Whether it rang since this thread last asked."""
        rings = self._rings
        missed = getattr(self._heard, "rings", 0) != rings
        self._heard.rings = rings
        return missed

    def wake(self, sleeper: threading.Event) -> None:
        with self._lock:
            self._sleepers.add(sleeper)

    def leave(self, sleeper: threading.Event) -> None:
        with self._lock:
            self._sleepers.discard(sleeper)


class Item:
    """An entry and where it stands. Its place, the moment at which it first fell due, is its own unless it is moved."""

    __slots__ = ("at", "begun", "entry", "left", "owner", "place", "rank", "seq", "state", "token")

    def __init__(self, entry: Entry, seq: int, now: float):
        self.entry, self.rank, self.place, self.seq = entry, 0, entry.run_at or now, seq
        self.state, self.at, self.token, self.owner, self.begun = "", 0.0, None, "", True
        self.left: list[str] = []  # the lanes that count it as out

    def key(self) -> tuple:
        return (self.rank, self.place, self.seq) if self.state == READY else (self.at, self.seq)

    def anew(self, seq: int, now: float) -> Item:
        """The same, behind all that is there."""
        self.place, self.seq = now, seq
        return self
