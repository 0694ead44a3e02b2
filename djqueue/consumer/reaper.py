"""Keeps our leases alive, and gives back those of workers that died."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from itertools import groupby

from djqueue.backends.base import BaseQueue
from djqueue.consumer.holdings import Held, Holdings, clock
from djqueue.consumer.loop import Loop

logger = logging.getLogger(__name__)

REAP_BATCH = 100
PRUNE_EVERY = 60.0  # seconds


class Heart(Loop):
    """Extends every lease that we have held for a quarter of its time, in one round trip per queue."""

    def __init__(self, holdings: Holdings, lease_of: Callable[[BaseQueue], float], shortest: float):
        super().__init__("djqueue-heart")
        self._holdings = holdings
        self._lease_of = lease_of
        self._beat = shortest / 4

    def tick(self) -> float:
        now = clock()
        stale = [held for held in self._holdings if not held.lost and now - held.touched >= self._beat]
        for _, group in groupby(sorted(stale, key=_by_queue), key=_by_queue):
            self._touch(list(group), now)
        return self._beat / 2

    def _touch(self, stale: list[Held], now: float) -> None:
        queue = stale[0].queue
        touched = queue.touch([held.lease for held in stale], self._lease_of(queue))
        ours = {(lease.entry.id, lease.token) for lease in touched}
        for held in stale:
            held.touched = now
            if (held.lease.entry.id, held.lease.token) not in ours and held in self._holdings:
                held.lost = True
                extra = {"message_id": held.lease.entry.id, "command": held.lease.entry.label, "queue": queue.alias}
                logger.warning("The lease of message %s is lost", held.lease.entry.id, extra=extra)


class Reaper(Loop):
    """Makes expired leases claimable again, and sweeps what is forgotten by now.

    Every consumer does it for all; doing it twice is harmless. It comes back when the next lease that it knows of may
    expire, and after a quarter of a lease at the latest, so that a shorter one of somebody else is seen too.
    """

    def __init__(self, queues: Sequence[BaseQueue], longest: float):
        super().__init__("djqueue-reaper")
        self._queues = queues
        self._longest = longest / 4
        self._pruned = 0.0

    def tick(self) -> float:
        pause = min(self._reap(queue) for queue in self._queues)
        if time.monotonic() - self._pruned > PRUNE_EVERY:
            self._prune()
        return min(pause, self._longest * random.uniform(0.8, 1.0))  # jitter: not all consumers at once

    def _reap(self, queue: BaseQueue) -> float:
        reaped = queue.reap(REAP_BATCH)
        if reaped.count:
            logger.warning("%d leases of %s ran out: their workers died or lost touch", reaped.count, queue.alias)
        return 0.05 if reaped.count >= REAP_BATCH else max(0.05, reaped.next)

    def _prune(self) -> None:
        for queue in self._queues:
            queue.store.prune()
        self._pruned = time.monotonic()


def _by_queue(held: Held) -> int:
    return id(held.queue)
