"""What a project registers for one queue, or for all of them."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Registrations(Generic[T]):
    """Objects in the order in which they were registered, each for the queue of an alias, or (None) for all queues."""

    def __init__(self) -> None:
        self._all: list[tuple[str | None, T]] = []  # replaced and never changed, so that nobody needs to lock to read
        self._lock = threading.RLock()

    def register(self, one: T, queue_name: str | None = None) -> None:
        with self._lock:
            self._all = [*self._all, (queue_name, one)]

    def clear(self, queue_name: str | None = None) -> None:
        """Forget those of one queue; without a name, all of them."""
        with self._lock:
            self._all = [pair for pair in self._all if queue_name not in (None, pair[0])]

    def of(self, queue_name: str) -> list[T]:
        """Those that serve the queue of that alias."""
        return [one for alias, one in self._all if alias in (None, queue_name)]
