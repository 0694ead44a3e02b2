"""Makes expired leases claimable again, and enforces time limits and the bounds of failed queues."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from operator import attrgetter

from djqueue import conf, signals
from djqueue.backends.base import BaseQueue
from djqueue.backends.history import bounds_of
from djqueue.consumer.coroutines import Coroutines
from djqueue.consumer.in_flight import Message
from djqueue.consumer.locks import LockFile, lock_files
from djqueue.consumer.loop import LONGEST_PAUSE, Loop, alike, alone, run_all
from djqueue.consumer.rates import Sampler
from djqueue.running.reporting import log_started
from djqueue.utils import clock, log_safely, seconds, whole

logger = logging.getLogger(__name__)

REAP_BATCH = 100
PATIENCE = 1.0  # seconds: a look that is late by no more than this does not count as late
LATE_TIMES = 3  # in a row: after these a late look is usual here, and the reaper does not wait any more
SPEAKING = 1.0  # seconds that other consumers need to reach a store that is back
PRUNE_EVERY = 60.0  # seconds
PRUNE_BATCH = 1000
SWEEP_EVERY = 15.0  # seconds, also before the first sweep: it is not urgent, and a start has other things to do
SWEEP_BATCH = 2500
LOOK = 0.5  # seconds between two looks for time limits that are over
LASTS = 1.0  # seconds after which the log says that a message has started


class Reaper(Loop):
    """Makes expired leases and those of the dead claimable again, sweeps, keeps the failed queues in bounds, samples.

    Every consumer does it for all; doing it twice is harmless. It looks at a queue again when the next lease that it
    knows of may expire, and after a quarter of the queue's lease at the latest: a lease that another process took
    meanwhile has not expired then, unless it is shorter.

    If a check is late by half a lease, the store was unreachable, or this process stood still: holders may have been
    unable to extend or settle their leases, so it waits one pause for them first, up to three times.
    """

    def __init__(self, queues: Sequence[BaseQueue], lease_of: Callable[[BaseQueue], float]):
        super().__init__(f"djqueue-reaper-{queues[0].alias}")
        self._queues = queues
        self._lease_of = lease_of
        self._due: dict[int, float] = {}
        """The moment of the next look at each queue (monotonic)."""
        self._by: dict[int, tuple[float, int]] = {}
        """The latest moment for it by the clock of the store; how many times in a row the look was later."""
        self._pruned, self._swept = 0.0, time.monotonic()
        self._vacuum_at: dict[int, float] = {}
        """When each queue is vacuumed next (monotonic)."""
        self._ahead: dict[int, float] = {}
        """By how much the clock of a queue's store is ahead of ours, if it has one."""
        self._sampler = Sampler()

    def tick(self) -> float:
        pause = run_all(self._queues, self._look)
        run_all(lock_files(self._queues), self._reclaim)
        now = time.monotonic()
        duties: list[Callable[[BaseQueue], None]] = []
        if now - self._pruned > PRUNE_EVERY:
            self._pruned = now
            duties += [self._prune, self._trim, self._trim_results, self._trim_history]
        if now - self._swept > SWEEP_EVERY:
            self._swept = now
            duties += [self._sweep, self._sample]
        run_all([partial(duty, queue) for queue in self._queues for duty in duties], self._do)
        return min(pause, SWEEP_EVERY, run_all(self._queues, self._vacuum))

    def _do(self, duty: Callable[[], None]) -> None:
        self.move()
        duty()

    def _look(self, queue: BaseQueue) -> float:
        self.move()
        left = self._due.get(id(queue), 0.0) - time.monotonic()
        if left <= 0:
            answer, error = alone(partial(self._reap, queue, self._lease_of(queue)))
            left = SWEEP_EVERY if answer is None else answer
            if error is not None:
                log_safely(logger, logging.ERROR, "%s: %s", queue.alias, error, extra={"queue": queue.alias})
            self._due[id(queue)] = time.monotonic() + left
        return left

    def _reap(self, queue: BaseQueue, lease: float) -> float:
        by, times = self._by.get(id(queue), (inf, 0))
        reaped, patience = queue.reap(REAP_BATCH, by), max(PATIENCE, lease / 2)
        if is_late := reaped.now > by:
            left = min(LONGEST_PAUSE, reaped.now - by + patience) + SPEAKING
            text = "%s: the store or this process stood still; leases that ran out are given back in %.1f s"
            log_safely(logger, logging.INFO, text, queue.alias, left, extra={"queue": queue.alias})
        else:
            longest = lease / 4 * random.uniform(0.8, 1.0)  # jitter: not all consumers at once
            left = min(longest, 0.05 if reaped.count >= REAP_BATCH else max(0.05, reaped.next))
        if reaped.count:
            text = "%s: %d leases ran out; their workers died or lost touch"
            about = {"event": "reaped", "queue": queue.alias, "count": reaped.count}
            log_safely(logger, logging.WARNING, text, queue.alias, reaped.count, extra=about)
        if reaped.now:
            self._ahead[id(queue)] = reaped.now - clock()
        times = times + 1 if is_late else 0
        self._by[id(queue)] = (inf if times >= LATE_TIMES else reaped.now + left + patience), times
        return left

    def _reclaim(self, lock: LockFile) -> None:
        """Give back at once what a consumer held, if it is dead. Its file stays if its queue cannot be asked now."""
        self.move()
        with lock.held_if_free() as is_dead:
            if is_dead:
                alone(partial(self._give_back, lock))

    def _give_back(self, lock: LockFile) -> None:
        """The file goes when a look finds nothing more: the store may still be at work on the last claim."""
        queue, count = lock.queue, 0
        while not self.stopped and (back := queue.reclaim(lock.consumer, REAP_BATCH)):
            count += back
            self.move()
        if count:
            text = "%s: consumer %s is dead; messages that it held and that came back: %d"
            about = {"event": "reclaimed", "queue": queue.alias, "count": count}
            log_safely(logger, logging.WARNING, text, queue.alias, lock.consumer, count, extra=about)
        elif not self.stopped:
            lock.remove()

    def _prune(self, queue: BaseQueue) -> None:
        while not self.stopped and queue.store.prune(PRUNE_BATCH) >= PRUNE_BATCH:
            self.move()

    def _trim_results(self, queue: BaseQueue) -> None:
        """Results beyond QUEUE_MAX_RESULTS go before their time is over."""
        most = conf.get("QUEUE_MAX_RESULTS")
        if most is None or "facts" not in queue.features:
            return
        count = whole(most, "QUEUE_MAX_RESULTS", least=1)
        while not self.stopped and queue.store.trim_results(count, PRUNE_BATCH) >= PRUNE_BATCH:
            self.move()

    def _vacuum(self, queue: BaseQueue) -> float:
        self.move()
        left = self._vacuum_at.get(id(queue), 0.0) - time.monotonic()
        if left <= 0:
            left = queue.vacuum()
            self._vacuum_at[id(queue)] = time.monotonic() + left
        return left

    def _trim_history(self, queue: BaseQueue) -> None:
        """Without QUEUE_HISTORY no record stays."""
        if "history" in queue.features:
            kept = bounds_of(conf.get("QUEUE_HISTORY"))
            count, age = (0, 0.0) if kept is None else (kept.count, kept.age)
            queue.history.trim(count, age)

    def _sweep(self, queue: BaseQueue) -> None:
        """Sweep a queue; reap its failed queue too, as no consumer claims from that regularly."""
        queue.sweep(SWEEP_BATCH)
        if queue.failed is not None:
            queue.failed.reap(REAP_BATCH)
            queue.failed.sweep(SWEEP_BATCH)

    def _sample(self, queue: BaseQueue) -> None:
        """Keep how much is in a queue, for its rates."""
        if "facts" in queue.features and (ahead := self._ahead.get(id(queue))) is not None:
            self._sampler.look(queue, clock() + ahead)

    def _trim(self, queue: BaseQueue) -> None:
        most, age = conf.get("QUEUE_MAX_ERRORS"), conf.get("QUEUE_MAX_ERROR_AGE")
        if queue.failed is None or (most is None and age is None):
            return
        # A 0 that is meant as "no bound" must not empty the failed queue.
        most = None if most is None else whole(most, "QUEUE_MAX_ERRORS", least=1)
        age = None if age is None else seconds(age, "QUEUE_MAX_ERROR_AGE", least=1.0)
        dropped, more = 0, True
        try:
            while more and not self.stopped:
                count = queue.failed.trim(most, age, PRUNE_BATCH)
                dropped, more = dropped + count, count >= PRUNE_BATCH
                self.move()
        finally:  # the dropped entries are reported even if the store is unreachable by now
            if dropped:
                text = "%s: %d entries left the failed queue, beyond QUEUE_MAX_ERRORS or QUEUE_MAX_ERROR_AGE"
                log_safely(logger, logging.WARNING, text, queue.alias, dropped, extra={"queue": queue.alias})
                signals.emit(signals.errors_dropped, queue.alias, queue_name=queue.alias, count=dropped)


class TimeLimits(Loop):
    """Ends overdue runs. No exception can be thrown into a function: its message is settled, its thread left behind."""

    def __init__(
        self,
        messages: Callable[[], Sequence[Message]],
        give_up: Callable[[Message], None],
        coroutines: Coroutines | None = None,
    ):
        super().__init__("djqueue-timelimits")
        self._coroutines = coroutines
        self._messages = messages
        """Returns what is in flight."""
        self._give_up = give_up
        self._announced: set[Message] = set()
        """Those of which the log says that they have started."""

    def tick(self) -> float:
        if self._coroutines is not None:
            self._coroutines.look()
        now, running = clock(), [message for message in self._messages() if message.is_running]
        run_all([one for one in running if _is_overdue(one, now)], self._give_up)
        self._announced.intersection_update(running)
        self._log_what_lasts(running, now)
        return LOOK

    def _log_what_lasts(self, running: Sequence[Message], now: float) -> None:
        """Log that what has run for a second has started: of what is over before, its end says enough."""
        lasting = [one for one in running if one not in self._announced and now - (one.began or now) > LASTS]
        for together in alike(lasting, attrgetter("worker", "began")):
            first, entries = together[0], [message.lease.entry for message in together]
            about = {"worker": "" if first.worker is None else first.worker.name}
            control = first.control
            if control is not None and control.description and len(together) == 1:
                about["description"] = control.description
            self._announced.update(together)
            log_started(logging.INFO, first.queue.alias, entries, now - (first.began or now), **about)


def _is_overdue(message: Message, now: float) -> bool:
    control = message.control
    return control is not None and control.ends is not None and control.ends <= now
