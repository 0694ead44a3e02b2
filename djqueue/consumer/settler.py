"""Hands verdicts to the queues, as many at a time as have gathered."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from djqueue import signals
from djqueue.backends.base import BaseQueue, Claimed, Lease
from djqueue.consumer.in_flight import Held, InFlight
from djqueue.consumer.loop import FIRST_PAUSE, Loop, PerServer, Starvation, how_to_log, pause_after, recycle_connections
from djqueue.messages.failures import text_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.history import is_kept, record_of
from djqueue.running.settle import announce, proof_of, settle_alike
from djqueue.utils import clock, log_safely

logger = logging.getLogger(__name__)

DONE = Outcome.DONE
BATCH = 1000  # verdicts per flush
IDLE = 3600.0  # seconds


class Completed:
    """Messages of one queue that are done, with nothing else to settle: a fetcher completes them with its claim."""

    def __init__(self, queue: BaseQueue):
        self.queue = queue
        self.waiting: deque[Held] = deque()
        self.awaited = False
        """Whether a fetcher is about to take them; otherwise the settler does."""
        self.taken = 0.0
        """When a fetcher took some, or would have (monotonic)."""
        self.refused: list[Held] = []
        """Those that the leases do not hold any more, as the store answered."""

    def take(self) -> list[Held]:
        """Take up to a thousand of them, from any thread."""
        taken: list[Held] = []
        with suppress(IndexError):
            while len(taken) < BATCH:
                taken.append(self.waiting.popleft())
        return taken


class Settler(Loop):
    """One thread settles for all workers, except what fetchers settle with their claims.

    Workers never wait for the store, and batches form by themselves: verdicts gather while a flush is on its way.
    A verdict that could not be settled is tried again; its lease is extended meanwhile.
    """

    def __init__(self, alias: str, in_flight: InFlight, owner: str = "", opened: Callable[[], None] = lambda: None):
        super().__init__(f"djqueue-settler-{alias}")
        self._in_flight = in_flight
        self._owner = owner
        self._opened = opened
        """Called when an entry of a lane was settled: entries that wait in that lane may be claimed now."""
        self._lock = threading.Lock()
        self._pending: dict[tuple[int, str], PendingVerdicts] = {}
        self._completed: dict[int, Completed] = {}

    def __len__(self) -> int:
        apart = sum(len(pending.waiting) for pending in list(self._pending.values()))
        return apart + sum(len(completed.waiting) for completed in list(self._completed.values()))

    def completed(self, queue: BaseQueue) -> Completed:
        """What is done of a queue, for the fetcher that claims from it."""
        if (completed := self._completed.get(id(queue))) is None:
            completed = self._completed.setdefault(id(queue), Completed(queue))
        return completed

    def add(self, held: Held, verdict: Verdict) -> None:
        """Add a verdict, from any thread. The first one counts: a message may have been handed back while it ran."""
        with self._lock:
            if held.verdict is not None:
                return
            held.verdict = verdict
        if verdict.outcome is DONE and not verdict.keep and not signals.completed.receivers:
            completed = self._completed.get(id(held.queue)) or self.completed(held.queue)
            completed.waiting.append(held)
            if not completed.awaited:
                self.wake()
        else:
            held.ended = clock()
            self._pending_of(held.queue, verdict.outcome.effect.verb).waiting.append(held)
            self.wake()

    def _pending_of(self, queue: BaseQueue, verb: str) -> PendingVerdicts:
        key = id(queue), verb
        if (pending := self._pending.get(key)) is None:
            pending = self._pending.setdefault(key, PendingVerdicts(queue, verb, self._owner))
        return pending

    @property
    def starves(self) -> bool:
        return super().starves or any(lane.starvation.lasts for lane in list(self._pending.values()))

    def tick(self) -> float:
        for completed in list(self._completed.values()):
            if not completed.awaited and completed.waiting:
                self._pending_of(completed.queue, DONE.effect.verb).waiting.extend(completed.take())
        pauses = [pending.flush(self._done) for pending in list(self._pending.values())]
        is_more = any(one.waiting and not one.awaited for one in list(self._completed.values()))
        return 0 if is_more else min([IDLE, *pauses])

    def _done(self, batch: list[Held]) -> None:
        self._in_flight.drop(batch)
        if any(held.lease.entry.gate for held in batch):
            self._opened()

    def settle_all(self) -> None:
        """Settle what is done from now on: no fetcher does."""
        for completed in list(self._completed.values()):
            completed.awaited = False
        self.wake()

    # ---- with the claim of a fetcher

    def exchange(self, completed: Completed, limit: int, lease: float, owner: str, ahead: int) -> Claimed:
        """Settle what is done of a queue and claim from it, in one round trip where the backend can."""
        queue, batch = completed.queue, completed.take()
        completed.taken = time.monotonic()
        pairs = [(held.lease, held) for held in batch]
        records = records_of(queue, batch, owner) if batch else []
        history = [records] if records else []  # only a backend that has the feature gets some
        try:
            applied, claimed = queue.exchange([lease for lease, _ in pairs], limit, lease, owner, ahead, *history)
        except BaseException:
            for held in batch:
                held.in_doubt = True
            self._settle_apart(queue, batch)
            raise
        if len(applied) < len(pairs):
            ours = {proof_of(lease) for lease in applied}
            completed.refused += [held for lease, held in pairs if proof_of(lease) not in ours]
            pairs = [(lease, held) for lease, held in pairs if proof_of(lease) in ours]
        if pairs:
            self._in_flight.drop([held for _, held in pairs], completed.taken)  # what opened by that was claimed
        if signals.completed.receivers:
            announce(queue, [(lease, held.verdict) for lease, held in pairs if held.verdict is not None], applied)
        return claimed

    def settle_refused(self, completed: Completed) -> None:
        """Settle what is held by another lease by now, or by another consumer, which is then reported."""
        if completed.refused:
            refused, completed.refused = completed.refused, []
            self._settle_apart(completed.queue, refused)

    def _settle_apart(self, queue: BaseQueue, batch: Sequence[Held]) -> None:
        self._pending_of(queue, DONE.effect.verb).waiting.extend(batch)
        self.wake()


def records_of(queue: BaseQueue, batch: Sequence[Held], owner: str) -> list[bytes]:
    """A record of each message for the history of its queue; none if it keeps no history."""
    if not is_kept(queue):
        return []
    return [
        record_of(held.lease, verdict, owner, (held.ended or (held.began or held.since) + verdict.seconds) - held.since)
        for held in batch
        if (verdict := held.verdict) is not None  # all have one
    ]


class RunLimit:
    """How many messages may still be claimed and run; None is no bound. Safe to use from any thread."""

    def __init__(self, limit: int | None = None):
        self._left = self._unrun = math.inf if limit is None else limit
        self._lock = threading.Lock()
        self.count = 0
        """How many have been run, or a few less: without the lock two threads may count as one."""

    def take(self, wanted: int) -> int:
        """Take as many as are wanted and left; give back those that are not used."""
        with self._lock:
            taken = int(min(wanted, self._left))
            self._left -= taken
        return taken

    def give(self, count: int) -> None:
        with self._lock:
            self._left += count

    def ran(self) -> None:
        self.count += 1
        if self._unrun < math.inf:
            with self._lock:
                self._unrun -= 1

    @property
    def spent(self) -> bool:
        """Whether all have been run; a claim that is on its way may yet give some back."""
        return self._unrun <= 0


class Settlers(PerServer[Settler]):
    """The settlers of a consumer, and the other steps after a worker has finished a message."""

    def __init__(
        self,
        servers: Sequence[Sequence[BaseQueue]],
        settler_for: Callable[[Sequence[BaseQueue]], Settler],
        run_limit: RunLimit,
        seen_through: Callable[[Held], None],
    ):
        super().__init__(servers, settler_for)
        self._run_limit = run_limit
        self._seen_through = seen_through

    def __len__(self) -> int:
        return sum(map(len, self.loops))

    def add(self, held: Held, verdict: Verdict) -> None:
        self.of(held.queue).add(held, verdict)

    def finish(self, held: Held, verdict: Verdict) -> None:
        """Settle a message that a worker has run, or must not begin. From any thread, which it does not end."""
        try:
            if verdict.outcome is DONE and held.lease.begun:  # its command was not seen through when it began
                self._seen_through(held)
            if verdict.outcome.effect.counts:
                self._run_limit.ran()
            else:
                self._run_limit.give(1)
            self.of(held.queue).add(held, verdict)
        except BaseException as error:
            log_safely(logger, logging.ERROR, "A message could not be finished", exc_info=error)


class PendingVerdicts:
    """The verdicts of one queue that need one verb. A store that is out of reach delays no other queue."""

    def __init__(self, queue: BaseQueue, verb: str, owner: str):
        self.waiting: deque[Held] = deque()
        self.starvation = Starvation()
        self._queue = queue
        self._verb = verb
        self._owner = owner
        self._failures = 0
        self._not_before = 0.0

    def flush(self, done: Callable[[list[Held]], None]) -> float:
        """Settle the waiting verdicts, unless the store failed just now; seconds until a flush is worth while again."""
        while self.waiting and clock() >= self._not_before:
            # Smaller after each failure: a verdict that the store can never take must not delay the others.
            size = min(max(1, BATCH >> self._failures), len(self.waiting))
            batch = [self.waiting[number] for number in range(size)]  # each waits until it is settled, whatever fails
            finished = [(held.lease, held.verdict) for held in batch if held.verdict is not None]  # all have one
            doubtful = {proof_of(held.lease): held for held in batch if held.in_doubt}
            try:
                was_applied = partial(_was_applied, doubtful)
                records = () if self._verb == "release" else records_of(self._queue, batch, self._owner)
                late = settle_alike(self._queue, self._verb, finished, self._owner, was_applied, records)
            except BaseException as error:
                self._put_off(batch, error)
            else:
                for _ in batch:  # first: the answer of the store is final, whatever fails here
                    self.waiting.popleft()
                self._failures = 0
                self.starvation.end()
                if late:
                    _note_lost(batch, late)
                # Entries that this consumer now holds by another lease, which must be settled too.
                pairs = zip(finished, batch, strict=True)
                again = [held for (lease, _), held in pairs if held.lease.token != lease.token]
                self.waiting += again
                done([held for held in batch if held not in again] if again else batch)
        return max(0.0, self._not_before - clock()) if self.waiting else IDLE

    def _put_off(self, batch: list[Held], error: BaseException) -> None:
        recycle_connections()
        for held in batch:
            held.in_doubt = True
        self.waiting.rotate(-len(batch))
        self._failures += 1
        pause = FIRST_PAUSE if self.starvation.add(error) else pause_after(self._failures)
        self._not_before = clock() + pause
        level, shown = how_to_log(error, self._failures)
        text = "%s() of %d messages of %s failed: %s; trying again in %.1f s"
        why = text_of(error).rstrip(".")
        log_safely(logger, level, text, self._verb, len(batch), self._queue.alias, why, pause, exc_info=shown)


def _note_lost(batch: Sequence[Held], late: Sequence[Lease]) -> None:
    proofs = {proof_of(lease) for lease in late}
    for held in batch:
        if proof_of(lease := held.lease) in proofs:
            held.lose(lease)


def _was_applied(doubtful: Mapping[tuple[str, object], Held], lease: Lease) -> bool:
    """Whether the verdict was sent before, and no other process can have held the entry since."""
    held = doubtful.get(proof_of(lease))
    return held is not None and not held.lapsed(clock())
