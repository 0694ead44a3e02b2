"""Gives up what runs for longer than its time limit and does not end by itself."""

from __future__ import annotations

from collections.abc import Callable

from djqueue.consumer.holdings import Held, Holdings
from djqueue.consumer.loop import Loop, each
from djqueue.utils import clock

LOOK = 0.5  # seconds between two looks


class Warden(Loop):
    """No exception can be thrown into a running function: its message is taken from it, and its thread left behind."""

    def __init__(self, holdings: Holdings, give_up: Callable[[Held], None]):
        super().__init__("djqueue-warden")
        self._holdings = holdings
        self._give_up = give_up

    def tick(self) -> float:
        now = clock()
        late = [held for held in self._holdings.running() if held.ends is not None and held.ends <= now]
        return min(LOOK, each(late, self._end))

    def _end(self, held: Held) -> float:
        self._give_up(held)
        return LOOK
