"""The clocks of the stores, by which front ends say how long ago something was."""

from __future__ import annotations

import time
from collections.abc import Hashable

from djqueue.backends.base import BaseQueue
from djqueue.wiring import queues as all_queues


class Clocks:
    """The time now, as the store of a queue has it; each store is asked once."""

    def __init__(self) -> None:
        self._ahead: dict[Hashable, float] = {}
        """By how many seconds each clock is ahead of that of this machine."""

    def now(self, alias: str) -> float:
        """By the clock of a queue; the first one stands for an alias that there is not."""
        aliases = [*all_queues]
        queue = all_queues[alias if alias in aliases else aliases[0]]
        if queue.server not in self._ahead:
            self._ahead[queue.server] = _ahead(queue)
        return time.time() + self._ahead[queue.server]


def _ahead(queue: BaseQueue) -> float:
    try:
        return queue.now() - time.time()
    except Exception:  # whatever its client raises: what else is shown says so
        return 0.0
