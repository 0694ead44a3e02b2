"""What a thread waits with for work to come to its queues: a descriptor of the store that ``poll()`` watches."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress

from djqueue.utils import clock

ARM_EVERY = 1.0
"""Seconds after which a thread that waits arms its bell again, which checks its connection."""


class Bell:
    """What rings when work may have come, for one thread that waits in ``poll()``; it belongs to that thread.

    A ring is a hint: one may be lost, and one may bring nothing. This base class never rings, so its queues are polled.
    """

    is_heard: bool = False
    """Whether it rings at all: if so an idle consumer asks only once a second, in case a ring was lost."""

    def fileno(self) -> int | None:
        """A descriptor that is readable once it has rung; None: there is none now. It may change from call to call."""
        return None

    def arm(self) -> bool:
        """Be ready to ring. True: ask the store now, something may have come before. Raises what the store raises."""
        return False

    def disarm(self) -> None:
        """The thread asks the store now: from here on no ring is taken that others wait for. Never raises."""

    def hear(self) -> bool:
        """Take the ring, once the descriptor is readable; whether the store is worth asking. Raises as ``arm`` does."""
        return False

    def close(self) -> None:
        """Give up what it holds. It may be closed twice, and never raises."""

    def wait(self, seconds: float) -> bool:
        """Wait for this bell alone; False if nothing rang for ``seconds``. Raises as ``arm`` does."""
        end = clock() + seconds
        while not self.arm():
            if (left := end - clock()) <= 0:
                return False
            if self._is_readable(min(left, ARM_EVERY)) and self.hear():
                break
        return True

    def _is_readable(self, seconds: float) -> bool:
        if (descriptor := self.fileno()) is None:
            time.sleep(seconds)
            return False
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(seconds * 1000))


class Waker:
    """A descriptor that any thread makes readable, for one that polls it: an eventfd, or a pipe where there is none."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._reader

    def wake(self) -> None:
        """Make it readable."""
        with suppress(BlockingIOError):  # it is readable
            os.write(self._writer, (1).to_bytes(8, sys.byteorder))

    def clear(self) -> None:
        """Make it unreadable again."""
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it. No thread may use it any more; it may be closed twice."""
        for descriptor in {self._reader, self._writer} - {-1}:
            os.close(descriptor)
        self._reader = self._writer = -1
