"""What running commands and the holders of their results tell each other, carried beside the commands."""

from __future__ import annotations

import time

from djqueue import conf
from djqueue.consumer.holdings import Held, Holdings, clock
from djqueue.consumer.loop import Loop, each
from djqueue.durations import seconds
from djqueue.policies import Policy
from djqueue.results import Progress, is_cancelled, report_progress
from djqueue.running import Control

EVERY = 0.25  # seconds between two deliveries
IDLE = 3600.0  # seconds


class Courier(Loop):
    """Takes progress to the stores, and asks them whether what runs is cancelled, if its command wants to know.

    On connections of its own: what a command reports within a transaction is seen before that ends, and what it asks
    is not answered from a snapshot.
    """

    def __init__(self, holdings: Holdings):
        super().__init__("djqueue-courier")
        self.stopping = False
        """Whether the consumer wants to stop."""
        self._holdings = holdings
        self._reports: dict[Held, Progress] = {}
        self._watched: set[Held] = set()
        self._delivered = 0.0

    def report(self, held: Held, progress: Progress) -> None:
        """The newest report of each counts."""
        self._reports[held] = progress
        self.wake()

    def watch(self, held: Held) -> None:
        if held not in self._watched:
            self._watched.add(held)
            self.wake()

    def tick(self) -> float:
        left = self._delivered + EVERY - time.monotonic()
        if left > 0:
            return left
        busy = bool(self._reports)
        self.deliver()
        watched = [held for held in self._watched.copy() if held in self._holdings]
        self._watched.intersection_update(watched)
        each(watched, self._ask)
        return EVERY if busy or watched else IDLE

    def farewell(self) -> None:
        self.deliver()

    def deliver(self) -> None:
        """Take what was reported to the stores."""
        self._delivered = time.monotonic()
        each(list(self._reports), self._deliver)

    def _deliver(self, held: Held) -> float:
        report_progress(held.queue, held.lease.entry.id, self._reports.pop(held))
        return IDLE

    def _ask(self, held: Held) -> float:
        held.cancelled = held.cancelled or is_cancelled(held.queue, held.lease.entry.id)
        return EVERY


class HeldControl(Control):
    """What a command in a consumer can ask: it is answered at once, from what the consumer knows."""

    def __init__(self, held: Held, courier: Courier):
        super().__init__(held.queue, held.lease)
        self._held = held
        self._courier = courier

    def begin(self, policy: Policy) -> None:
        self._held.policy = policy
        if policy.time_limit is not None:
            grace = seconds(conf.get("QUEUE_TIME_LIMIT_GRACE"), "QUEUE_TIME_LIMIT_GRACE")
            self._held.ends = clock() + policy.time_limit + grace

    @property
    def stopping(self) -> bool:
        return self._courier.stopping

    @property
    def lease_lost(self) -> bool:
        return self._held.lost

    @property
    def cancelled(self) -> bool:
        self._courier.watch(self._held)
        return self._held.cancelled

    def report(self, id: str, progress: Progress) -> None:
        self._courier.report(self._held, progress)

    def touch(self, seconds: float) -> bool:
        return not self._held.lost  # the heart extends it anyway
