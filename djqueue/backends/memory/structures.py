"""What a queue in memory is built of: names in order, a bell for threads that wait, and an entry with its state."""

from __future__ import annotations

import heapq
import threading

from djqueue.backends.entries import READY, Entry


class Line:
    """Names in the order of a key, both unique. What left is skipped, and swept once it is the larger part."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple] = {}
        self._heap: list[tuple[tuple, str]] = []

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, name: str, key: tuple) -> None:
        self.keys[name] = key
        heapq.heappush(self._heap, (key, name))
        self._sweep()

    def drop(self, name: str) -> None:
        if self.keys.pop(name, None) is not None:
            self._sweep()

    def first(self) -> str | None:
        """The name that stands first, or None."""
        while self._heap and not self._stands(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def after(self, key: tuple | None, limit: int) -> list[str]:
        """Up to ``limit`` names behind a key, in order; looks at every name."""
        behind = ((own, name) for name, own in self.keys.items() if key is None or own > key)
        return [name for _, name in heapq.nsmallest(limit, behind)]

    def _stands(self, place: tuple[tuple, str]) -> bool:
        return self.keys.get(place[1]) == place[0]

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self.keys):
            self._heap = [(key, name) for name, key in self.keys.items()]
            heapq.heapify(self._heap)


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
