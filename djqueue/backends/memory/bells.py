"""What rings in a process when work may have come to a queue in its memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from djqueue.backends.bells import Bell, Waker


class Ringer:
    """Rings the bells of one queue that are armed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: set[Waker] = set()
        self.rings = 0
        """How often it has rung."""

    def ring(self) -> None:
        with self._lock:  # so that no bell is closed meanwhile
            self.rings += 1
            for waker in self._armed:
                waker.wake()

    def arm(self, waker: Waker) -> int:
        """Wake this one too from now on; how often it has rung until then."""
        with self._lock:
            self._armed.add(waker)
            return self.rings

    def disarm(self, waker: Waker) -> None:
        with self._lock:
            self._armed.discard(waker)


class MemoryBell(Bell):
    """Armed for the first time, it says that something may have come."""

    is_heard = True

    def __init__(self, ringers: Sequence[Ringer]):
        self._ringers, self._waker = ringers, Waker()
        self._heard: int | None = None
        """How often they had rung when this thread last asked its queues."""

    def fileno(self) -> int | None:
        return self._waker.fileno()

    def arm(self) -> bool:
        return self._heard != sum(ringer.arm(self._waker) for ringer in self._ringers)

    def disarm(self) -> None:
        for ringer in self._ringers:
            ringer.disarm(self._waker)
        self._waker.clear()
        self._heard = sum(ringer.rings for ringer in self._ringers)

    def hear(self) -> bool:
        self._waker.clear()
        return True

    def close(self) -> None:
        for ringer in self._ringers:
            ringer.disarm(self._waker)
        self._ringers = ()
        self._waker.close()
