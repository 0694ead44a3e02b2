"""The clocks of the stores, by which front ends say how long ago something was."""

from __future__ import annotations

import time
from collections.abc import Hashable

from djqueue.backends.base import BaseQueue
from djqueue.wiring import queues as all_queues


class Clocks:
    """The current time of the store of a queue; each store is asked once."""

    def __init__(self) -> None:
        self._ahead: dict[Hashable, float] = {}
        """By how many seconds each clock is ahead of that of this machine."""

    def now(self, alias: str) -> float:
        """The time by the clock of a queue; an unknown alias gets the clock of the first queue."""
        aliases = [*all_queues]
        queue = all_queues[alias if alias in aliases else aliases[0]]
        if queue.server not in self._ahead:
            self._ahead[queue.server] = _ahead(queue)
        return time.time() + self._ahead[queue.server]


def _ahead(queue: BaseQueue) -> float:
    try:
        return queue.now() - time.time()
    except Exception:  # whatever its client raises: the rest of the output says so
        return 0.0
