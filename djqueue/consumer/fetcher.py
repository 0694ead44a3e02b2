"""The fetcher: how many messages to claim, from which queue, and when; suspects alone."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from djqueue import signals
from djqueue.backends.base import BaseQueue, Claimed
from djqueue.consumer.control import note_cancelled
from djqueue.consumer.in_flight import Held, InFlight, units_of
from djqueue.consumer.loop import FailureBackoff, Loop, is_for_want
from djqueue.consumer.pool import Pool
from djqueue.consumer.settler import RunLimit, Settlers
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.utils import clock

HORIZON = 0.05  # seconds of work that may wait in our hands
MOST_AHEAD = 200


class Pace:
    """The pauses of an idle poller: ``delay``, then each ``backoff`` times the last, up to ``longest`` (seconds)."""

    def __init__(self, delay: float = 0.1, backoff: float = 1.15, longest: float = 1.0):
        self._delay, self._backoff, self.longest = min(delay, longest), backoff, longest
        self._current = self._delay

    def next(self) -> float:
        current = self._current
        self._current = min(self.longest, current * self._backoff)
        return current

    def reset(self) -> None:
        """There was work: begin again with the shortest pause."""
        self._current = self._delay


class Prefetch:
    """How many entries to hold beyond those that run: what the pool was seen to finish within the horizon.

    Work that takes long is not claimed ahead at all, so a short one never waits here behind a long one for more than
    the horizon, unless its nature has just changed.
    """

    def __init__(self, pool: Pool):
        self._pool = pool
        self._at: float | None = None
        self._finished = 0
        self._rate = 0.0

    def measure(self, now: float) -> int:
        """Look at the pool; how many to hold. ``now`` is monotonic seconds."""
        finished = self._pool.finished
        if self._at is not None and now > self._at:
            passed = now - self._at
            weight = 1 - math.exp(-passed / HORIZON)
            self._rate += weight * ((finished - self._finished) / passed - self._rate)
        self._at, self._finished = now, finished
        return min(MOST_AHEAD, int(self._rate * HORIZON))


class Quarantine:
    """An entry that was lost once is a *suspect*: it may be what killed its worker.

    It is claimed alone, so that no neighbour waits in our hands while it runs, and only one suspect of this process
    runs at a time. So no innocent entry is lost with the guilty one more than once.
    """

    def __init__(self, in_flight: InFlight):
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._suspect: Held | None = None
        self.cautious = False
        """Whether suspects were met in company: the next claim takes one entry only."""

    @property
    def occupied(self) -> bool:
        """Until the suspect is settled: if the next one kills the process, it must not count as lost with that."""
        return self._suspect is not None and self._suspect in self._in_flight

    @property
    def awaited(self) -> bool:
        """Whether a suspect waits for all else that we hold."""
        return self.occupied and self._suspect is not None and self._suspect.began is None

    def admit(self, suspect: Held) -> bool:
        with self._lock:
            if self.occupied:
                return False
            self._suspect = suspect
            return True

    def since(self) -> float:
        """When the latest suspect was claimed."""
        return 0.0 if self._suspect is None else self._suspect.since

    def alone(self) -> bool:
        """Whether all else that we hold is running: what waits, or is not settled yet, would be lost with it."""
        others = (held for held in self._in_flight if held is not self._suspect)
        return all(held.began is not None and held.verdict is None for held in others)


NAP_SLICE = 0.5  # seconds: how late a stop may be noticed
STALE = 1.0  # seconds after which work that nobody began goes back to the queue
SUSPECT_WAIT = 0.05  # seconds that other work waits for a suspect to end
SUSPECT_PAUSE = 1.0  # most seconds that a suspect waits for another one, or for what else we hold to be settled
LOOK = 0.002  # seconds between two looks at what others do
PRESENTLY = 0.01  # seconds: what may be had after so many is there, but in the hands of somebody who also claims
UNANSWERED = 1.0  # seconds: who is that slow to fail is away, and so are the others of its server
UNSETTLED = 500  # verdicts waiting for the store above which nothing more is claimed: a kill would repeat them


@dataclass(slots=True)
class Hands:
    pool: Pool
    in_flight: InFlight
    settlers: Settlers
    run_limit: RunLimit
    quarantine: Quarantine | None
    """Keeps what a worker has died with apart from all else; None if it runs in a process of its own."""
    owner: str
    lease: float | None = None


class Fetcher(Loop):
    """Feeds one pool from queues that share a connection."""

    def __init__(self, queues: Sequence[BaseQueue], hands: Hands, pace: Pace, strict: bool = False):
        super().__init__(f"djqueue-fetcher-{queues[0].alias}")
        self._queues = list(queues)
        self._alone = {id(queue): FailureBackoff(f"claim() of {queue.alias}") for queue in queues}
        """Of queues that fail while others of this fetcher answer."""
        self._hands = hands
        self._pace = pace
        self._strict = strict
        self._prefetch = Prefetch(hands.pool)
        self._ahead = self._idle = 0
        self._roused = threading.Event()
        self.dry: float | None = None
        """When the latest claim began, if it found nothing (monotonic); None if it found something."""

    def tick(self) -> float:
        limit = self._hands.run_limit.take(self._wanted())
        if limit <= 0:
            self._await_room()
            return 0
        began = time.monotonic()
        self._roused.clear()
        claims = self._claim(limit)
        if any(claims):
            self.dry = None
            self._pace.reset()
            return 0
        again = min(claimed.retry_after for claimed in claims)
        if not again and not self._idle:  # there is something, and it is not to wait for a worker
            self._await_room()
            return 0
        failing = [failure_backoff.left for failure_backoff in self._alone.values() if failure_backoff.count]
        if again > PRESENTLY and not failing:
            if self.dry is None:
                for queue in self._queues:
                    signals.emit(signals.empty, queue.alias, queue_name=queue.alias)
            self.dry = began
        # Queues that wake us while nothing is in our hands need no looking at, but for a bell that was lost.
        sleeps = not len(self._hands.in_flight) and all(queue.notifies for queue in self._queues)
        pause = self._pace.longest if sleeps else self._pace.next()
        self._nap(min([pause, *failing]), again)
        return 0

    def rouse(self) -> None:
        """Have it ask now: a lane may have opened."""
        self._roused.set()

    def on_stop(self) -> None:
        """Some backends have received in their sleep what nobody has claimed yet."""
        for queue in self._queues:
            with suppress(Exception):
                queue.close()

    def _wanted(self) -> int:
        pool = self._hands.pool
        pool.room.clear()
        self._ahead, self._idle = self._prefetch.measure(time.monotonic()), pool.idle
        if (quarantine := self._hands.quarantine) is not None and (quarantine.occupied or quarantine.cautious):
            return self._idle if quarantine.occupied else min(1, self._idle)
        if pool.waiting > self._ahead // 2 or len(self._hands.settlers) > UNSETTLED:
            return 0
        return self._idle + self._ahead - pool.waiting

    def _await_room(self) -> None:
        if self._hands.pool.room.wait(0.1):
            return
        waiting_since = clock() - STALE
        if any(
            held.began is None and held.verdict is None and not held.behind and held.since < waiting_since
            for held in self._hands.in_flight
        ):
            self.hand_back("every worker is busy")

    def hand_back(self, reason: str) -> None:
        """Give back what no worker has begun; it counts as nothing and keeps its place."""
        for unit in self._hands.pool.take_back():
            self._put_back(unit, reason)

    def _claim(self, limit: int) -> list[Claimed]:
        claims: list[Claimed] = []
        failed: list[tuple[BaseQueue, Exception]] = []
        hands, ahead = self._hands, max(0, limit - self._idle)
        try:
            for queue in [one for one in self._queues if not self._alone[id(one)].left] or list(self._queues):
                asked = clock()
                try:
                    claims.append(queue.claim(limit, hands.lease or queue.lease, hands.owner, ahead, begin=False))
                except Exception as error:
                    failed.append((queue, error))
                    if clock() - asked > UNANSWERED:
                        break
                else:
                    self._alone[id(queue)].end()
                    if claims[-1]:
                        break  # the others have their turn at the next tick
        finally:
            surplus = self._pay(sum(map(len, claims)) - limit)
        self._pass_over(failed, claims)
        if claims[-1]:
            self._had_its_turn(queue)
            self._take(queue, claims[-1], asked, surplus)
        for _, reason in failed:
            if is_for_want(reason):  # that is no trouble of the queue: this process is at its limits
                raise reason
        return claims

    def _pass_over(self, failed: list[tuple[BaseQueue, Exception]], claims: list[Claimed]) -> None:
        """One that fails holds up no other; if none answers it is the store, and that is told once."""
        for queue, error in failed:
            self._had_its_turn(queue)
            if claims and not is_for_want(error):
                self._alone[id(queue)].add(error)
        if not claims:
            raise failed[0][1]

    def _pay(self, more: int) -> int:
        """A run is one unit and several messages: what they cost beyond what was taken; how many are too many."""
        if more <= 0:
            self._hands.run_limit.give(-more)
            return 0
        return more - self._hands.run_limit.take(more)

    def _had_its_turn(self, queue: BaseQueue) -> None:
        """It is asked last from now on; those that had nothing keep their places."""
        if not self._strict:
            self._queues.remove(queue)
            self._queues.append(queue)

    def _take(self, queue: BaseQueue, claimed: Claimed, asked: float, surplus: int) -> None:
        taken = self._hands.in_flight.take(queue, claimed, asked)
        held = self._without_begun(taken)
        surplus -= len(taken) - len(held)
        if surplus > 0:
            self._untried(held[-surplus:], "the limit is reached")
            del held[-surplus:]
        else:
            self._hands.run_limit.give(-surplus)
        note_cancelled(queue, held)
        if self.stopped:
            self._put_back(held, "the consumer stops")
        elif self._hands.quarantine is None:
            self._submit(held)
        elif any(one.suspect for one in held):
            self._take_suspects(held, self._hands.quarantine)
        else:
            self._hands.quarantine.cautious = False
            self._submit(held)

    def _without_begun(self, held: list[Held]) -> list[Held]:
        """But for what comes again although it runs here, or has ended and the store does not know: that was away.

        It goes on under the new lease; what is behind it in its lane comes later.
        """
        if all(one.lease.entry.attempts == 1 for one in held):
            return held
        again = self._hands.in_flight.resume(held)
        if not again:
            return held
        rest = units_of([one for one in held if one not in again])
        behind = [unit for unit in rest if any(one.lease.run == unit[0].lease.run != "" for one in again)]
        self._untried([one for unit in behind for one in unit], "what is before it runs")
        return [one for unit in rest if unit not in behind for one in unit]

    def _submit(self, held: list[Held]) -> None:
        self._hands.pool.submit(units_of(held), low_water=self._ahead // 2)

    def _take_suspects(self, held: list[Held], quarantine: Quarantine) -> None:
        if not quarantine.occupied and (len(held) > 1 or self._hands.pool.waiting):
            quarantine.cautious = True
            self.hand_back("a suspect is claimed alone")
            self._put_back(held, "a suspect is claimed alone")
        elif len(held) == 1 and quarantine.admit(held[0]):
            self._await(quarantine.alone, SUSPECT_PAUSE)
            self._submit(held)
            self._await(lambda: not quarantine.occupied, SUSPECT_WAIT)
        else:
            pause = min(SUSPECT_PAUSE, clock() - quarantine.since())
            self._put_back([one for one in held if one.suspect], "another suspect runs", pause)
            self._submit([one for one in held if not one.suspect])

    def _await(self, condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until and not self._stopped.wait(LOOK):
            pass

    def _put_back(self, held: list[Held], reason: str, delay: float = 0.0) -> None:
        self._untried(held, reason, delay)
        self._hands.run_limit.give(len(held))

    def _untried(self, held: list[Held], reason: str, delay: float = 0.0) -> None:
        for one in held:
            self._hands.settlers.add(one, Verdict(Outcome.RETURNED, reason, delay=delay))

    def _nap(self, pause: float, again: float) -> None:
        """Sleep in the store's way, in slices, so that a stop is noticed; not past what is due in ``again`` seconds."""
        first, *others = self._queues
        beside = [queue for queue in others if queue.connection_key == first.connection_key]
        due = time.monotonic() + again
        until = min(due, time.monotonic() + pause)
        while not (self.stopped or self._roused.is_set()) and (left := until - time.monotonic()) > 0:
            if first.notifies:  # also when a lane opens
                woken = first.wait_until(due - time.monotonic(), min(left, NAP_SLICE), beside)
            else:
                woken = self._roused.wait(min(left, NAP_SLICE))
            if woken:
                return
