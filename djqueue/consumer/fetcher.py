"""The fetcher: how many messages to claim, from which queue, and when; suspects alone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import exp, inf

from djqueue import signals
from djqueue.backends.base import BaseQueue, Claimed
from djqueue.backends.bells import Bell
from djqueue.consumer.control import note_cancelled
from djqueue.consumer.in_flight import Held, InFlight, units_of
from djqueue.consumer.loop import FailureBackoff, Loop, is_for_want, recycle_connections
from djqueue.consumer.operators import OperatorChannels, SilenceLog
from djqueue.consumer.pool import Pool
from djqueue.consumer.settler import Completed, RunLimit, Settlers
from djqueue.policies.outcomes import Outcome, Verdict, hold_of, is_ordered
from djqueue.running.pauses import bring_up
from djqueue.running.reporting import report
from djqueue.utils import clock, log_safely

logger = logging.getLogger(__name__)

HORIZON = 0.05  # seconds of work that may wait in this process
MOST_AHEAD = 800


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
    """How many entries to hold beyond the running ones: as many as the pool was seen to finish within the horizon.

    Long work is not claimed ahead at all, so a short message never waits here behind a long one for more than the
    horizon, unless the kind of work has just changed. Half of it is claimed at a time, while the workers run the other.
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
            weight = 1 - exp(-passed / HORIZON)
            self._rate += weight * ((finished - self._finished) / passed - self._rate)
        self._at, self._finished = now, finished
        return min(MOST_AHEAD, int(self._rate * HORIZON))


class PutOff:
    """Messages of paused commands that went back with a delay: they are due at once when their command is resumed.

    Each process remembers its own. What a process has put off that died, the one who resumes looks for.
    """

    def __init__(self, operators: OperatorChannels):
        self._operators = operators
        self._due: dict[tuple[int, str], dict[tuple[str, str], float]] = {}
        """Of a queue and a command: the lanes that wait, else the ids of messages; when they are due (our clock)."""
        self._queues: dict[int, BaseQueue] = {}

    def add(self, queue: BaseQueue, held: Sequence[Held], delay: float) -> None:
        if "inspect" not in queue.features:
            return
        self._queues[id(queue)] = queue
        due = clock() + delay
        for entry in (one.lease.entry for one in held):
            known = self._due.setdefault((id(queue), held[0].lease.entry.command), {})
            key = (entry.lane, "") if is_ordered(entry) else ("", entry.id)
            known.pop(key, None)  # the latest come last
            known[key] = due
            if len(known) > MOST_PUT_OFF:
                del known[next(iter(known))]

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def promote_resumed(self) -> None:
        """Have messages of commands that are not paused any more be due now, but for those that have come up since.

        Some at a time: claims go on in between. A store that fails is asked again.
        """
        for (own, command), known in list(self._due.items()):
            queue, now = self._queues[own], clock()
            if self._operators.pause_times(queue, command) is None:
                some = list(islice(known, BROUGHT_UP))
                late = [(lane, id) for lane, id in some if known[lane, id] > now]
                bring_up(queue, [id for _, id in late if id], [lane for lane, _ in late if lane])
                for key in some:
                    del known[key]
                if not known:
                    del self._due[own, command]


class Quarantine:
    """Where messages run alone that were lost once and cannot run in a process of their own: *suspects*.

    What kills its process kills nothing else then. Before a suspect is claimed, all other messages of this process end
    and are settled, or SUSPECT_PATIENCE passes: what still runs then runs on. While it runs nothing is claimed.
    """

    def __init__(self, in_flight: InFlight, queues: Sequence[BaseQueue]):
        self._in_flight = in_flight
        self._queues = {id(queue) for queue in queues}
        """The queues whose suspects run here."""
        self._lock = threading.Lock()
        self._suspect: Held | None = None
        self._ended: float | None = None
        """When the suspect was first seen to have ended, until the store has taken that."""
        self._fetcher: Fetcher | None = None
        """The one that has met a suspect: it alone claims, and one entry at most."""
        self._since = 0.0
        """When it met that."""

    def suspects(self, queue: BaseQueue, held: Sequence[Held]) -> list[Held]:
        """Which of these entries of a queue may run only alone."""
        return [one for one in held if one.suspect] if id(queue) in self._queues else []

    @property
    def awaited(self) -> bool:
        """Whether a suspect waits for all other messages of this process."""
        return self._fetcher is not None

    def most(self, fetcher: Fetcher) -> float:
        """How many entries a fetcher may claim now, as far as suspects decide."""
        if self._is_occupied():
            return 0
        if self._fetcher is None:
            return inf
        return int(self._fetcher is fetcher and self._may_begin())

    def await_(self, fetcher: Fetcher) -> None:
        """A fetcher has met a suspect: claim nothing until the other messages of this process have ended."""
        with self._lock:
            if self._fetcher is None or self._fetcher is fetcher:
                self._fetcher, self._since = fetcher, clock()

    def stop_awaiting(self, fetcher: Fetcher, before: float = inf) -> None:
        """A fetcher has claimed after its wait, or cannot claim; unless it has met a suspect again since."""
        with self._lock:
            if self._fetcher is fetcher and self._since < before:
                self._fetcher = None

    def admit(self, suspect: Held) -> bool:
        """Whether a suspect may run now. If so, nothing else is begun until it is settled."""
        with self._lock:
            if self._is_occupied() or not self._may_begin(suspect):
                return False
            self._suspect, self._ended = suspect, None
            return True

    def shuts_out(self, held: Held) -> bool:
        """Whether a message may not begin now as a suspect runs."""
        return self._is_occupied() and held is not self._suspect

    def _is_occupied(self) -> bool:
        """Whether a suspect is not settled: what began now could be lost with it.

        If the store does not take its end, other messages begin all the same after a while.
        """
        suspect = self._suspect
        if suspect is None or suspect not in self._in_flight:
            return False
        if suspect.verdict is None:
            return True
        ended = self._ended
        if ended is None:
            self._ended = ended = clock()
        return clock() - ended < SUSPECT_PATIENCE

    def _may_begin(self, suspect: Held | None = None) -> bool:
        """Whether a suspect may begin: it is alone, or has waited for the others for long enough."""
        is_alone = all(held is suspect for held in self._in_flight)
        return is_alone or (self._fetcher is not None and clock() - self._since > SUSPECT_PATIENCE)


NAP_SLICE = 0.5  # seconds: how late a stop may be noticed
BROUGHT_UP = 200
"""Messages, or lanes, of a resumed command that a fetcher has due now between two claims."""
MOST_PUT_OFF = 50_000
"""Messages of a paused command that a fetcher remembers."""
PUT_OFF_RATE = 200  # a second: of very many messages of paused commands, a fetcher claims no more than about this
SHORTEST_PAUSED, LONGEST_PAUSED = 1.0, 30.0  # seconds that a message of a paused command is put off
LEAST_PAUSED = 0.1  # seconds that it is put off though the pause ends sooner
STALE = 1.0  # seconds after which a message that no worker began goes back to the queue
SUSPECT_PATIENCE = 10.0  # most seconds that a suspect waits for running messages, or these for the end of one to settle
LONGEST_UNSETTLED = 0.05  # seconds for which what is done may wait for the next claim
PRESENTLY = 0.01  # seconds: an entry that can be claimed within this time is there, but another process is claiming it
UNANSWERED = 1.0  # seconds: if a claim takes longer to fail, its server is unreachable, as are its other queues
PRECISELY = 1.0  # seconds by which the moment that is awaited must change to be logged again
UNSETTLED = 500  # verdicts waiting for the store above which nothing more is claimed: a kill would repeat them


@dataclass(slots=True)
class Parts:
    pool: Pool
    in_flight: InFlight
    settlers: Settlers
    run_limit: RunLimit
    quarantine: Quarantine
    owner: str
    lease: float | None = None
    operators: OperatorChannels = field(default_factory=OperatorChannels)


class Fetcher(Loop):
    """Feeds one pool from queues that share a connection."""

    def __init__(self, queues: Sequence[BaseQueue], parts: Parts, pace: Pace, strict: bool = False):
        super().__init__(f"djqueue-fetcher-{queues[0].alias}")
        self._queues = list(queues)
        self._alone = {id(queue): FailureBackoff(f"claim() of {queue.alias}") for queue in queues}
        """The backoff of each queue that fails while other queues of this fetcher answer."""
        self._parts = parts
        self._pace = pace
        self._strict = strict
        self._prefetch = Prefetch(parts.pool)
        self._is_one = len({queue.connection_key for queue in queues}) == 1
        """Whether it has one connection: with several, one that does not answer must not delay the news for others."""
        carried = [queue for queue in queues if queue.settles_with_claim] if self._is_one else []
        self._completed = {id(queue): parts.settlers.of(queue).completed(queue) for queue in carried}
        """What is done of those queues that are settled with a claim."""
        self._put_off = PutOff(parts.operators)
        self._unknown: list[BaseQueue] = []
        """The queues whose pauses are not known."""
        self._silence_log = SilenceLog()
        self._open = self._queues
        """The queues that are not paused, in the order in which they are asked."""
        self._ahead = self._idle = 0
        self._awaited = inf
        """When the next message was said to be due (epoch seconds)."""
        self._is_to_look = threading.Event()
        self._bell, self._rung = Bell(), dict[int, BaseQueue]()
        """What it waits with, and the queues that ring it, by their identity."""
        self.dry: float | None = None
        """When the latest claim began, if it found nothing (monotonic); None if it found something."""
        self._asked = inf
        """When the first queue was asked in this tick."""
        self._answers = False
        """Whether a store has answered the latest claim."""
        self._taken: list[Held] = []
        """What was claimed and is not with the pool yet; it goes back if a step between the two raises."""
        self._unpaid = 0
        """How many of those are not charged to the run limit."""

    def tick(self) -> float:
        self._put_back_untaken()
        self._is_to_look.clear()
        self._note_unknown()
        self._open = [queue for queue in self._queues if self._parts.operators.may_claim(queue)]
        self._await_completed(True)
        try:
            self._tick()
        except BaseException:
            self._answers = False
            self._await_completed(False)
            raise
        self._answers = True  # or it was not to ask
        return 0

    def _note_unknown(self) -> None:
        """Note the queues whose pauses are not known: nothing is claimed from them."""
        unknown = self._parts.operators.unknown_of(self._queues)
        if len(unknown) < len(self._unknown):
            self.dry = None  # first: one that was not asked is asked now
        self._unknown = unknown
        if unknown:
            self._silence_log.note(unknown)

    def found_nothing_since(self, moment: float) -> bool:
        """Whether a claim that began since then (monotonic) found nothing, and all queues are known to be asked."""
        return not self._unknown and (dry := self.dry) is not None and dry >= moment

    @property
    def unanswered(self) -> list[str]:
        """The aliases of the queues whose store did not answer the latest claim, or not yet what is paused."""
        unknown, queues = self._unknown, list(self._queues)
        return [one.alias for one in queues if not self._answers or self._alone[id(one)].count or one in unknown]

    def _await_completed(self, awaited: bool) -> None:
        """Have workers leave what is done for this thread to settle, or else for the settler."""
        for completed in self._completed.values():
            completed.awaited = awaited and completed.queue in self._open
            if completed.waiting and not completed.awaited:
                self._parts.settlers.of(completed.queue).wake()

    def _tick(self) -> None:
        self._put_off.promote_resumed()
        if not self._open:
            self._parts.quarantine.stop_awaiting(self)
            self._rest()
            return
        limit = self._parts.run_limit.take(self._wanted())
        if limit <= 0:
            self._await_room()
            return
        self._asked = inf
        began = clock()
        self._hang_bell()
        self._bell.disarm()
        try:
            claims = self._claim(limit)
        finally:
            self._parts.quarantine.stop_awaiting(self, began)
        self._answers = True  # now, as the rest of a tick may be a long pause
        if any(claims):
            self.dry = None
            self._pace.reset()
            return
        again = min(claimed.retry_after for claimed in claims)
        if not again and not self._idle:  # entries are there, but none shall be claimed that would wait for a worker
            self._await_room()
            return
        failing = [failure_backoff.left for failure_backoff in self._alone.values() if failure_backoff.count]
        if again > PRESENTLY and not failing:
            if self.dry is None:
                for queue in self._open:
                    signals.emit(signals.empty, queue.alias, queue_name=queue.alias)
            self._log_what_is_awaited(claims, again)
            self.dry = self._asked
        # Queues that wake an empty consumer need no polling, except in case a notification was lost.
        sleeps = not len(self._parts.in_flight) and self._is_one and self._bell.is_heard
        pause = self._pace.longest if sleeps else self._pace.next()
        self._await_completed(False)
        self._nap(min([pause, *failing]), again)

    def _log_what_is_awaited(self, claims: Sequence[Claimed], again: float) -> None:
        """Log until when there is nothing to claim, as far as that is known, whenever it has changed."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        due, aliases = time.time() + again, ", ".join(queue.alias for queue in self._open)
        if self.dry is None or not (due == self._awaited or abs(due - self._awaited) < PRECISELY):
            self._awaited = due
            throttled = any(claimed.reason for claimed in claims)
            cause = "the throttle of a queue" if throttled else "a delay, a lane or a throttle"
            until = f"; the next in {again:.1f} s, by {cause}" if again < inf else ""
            about = {"event": "idle", "queue": aliases, **({"delay": again} if again < inf else {})}
            log_safely(logger, logging.DEBUG, "%s: nothing to claim now%s", aliases, until, extra=about)

    def _rest(self) -> None:
        """Claim nothing, as all queues are or may be paused, or this consumer is; look again when that changes."""
        self._await_completed(False)
        self.dry = time.monotonic()
        self._is_to_look.wait(NAP_SLICE)

    def look_now(self) -> None:
        """Claim now: a lane may have opened, or what was paused."""
        self._is_to_look.set()

    def on_stop(self) -> None:
        """Leave what is done to the settler, and close the queues.

        Some backends received entries while they slept, which no claim has taken yet.
        """
        self._await_completed(False)
        self._parts.quarantine.stop_awaiting(self)
        self._put_back_untaken()
        self._bell.close()
        for queue in self._queues:
            with suppress(Exception):
                queue.close()

    def _wanted(self) -> int:
        pool = self._parts.pool
        pool.room.clear()
        self._ahead, self._idle = self._prefetch.measure(time.monotonic()), pool.idle
        if (most := self._parts.quarantine.most(self)) < inf:
            return min(int(most), self._idle)
        if pool.ahead > self._ahead // 2 or len(self._parts.settlers) > UNSETTLED:
            return 0
        half = (self._ahead + 1) // 2  # the store looks for one while the workers run the other
        return self._idle + min(half, self._ahead - pool.ahead)

    def _await_room(self) -> None:
        is_much = sum(len(completed.waiting) for completed in self._completed.values()) > UNSETTLED
        if not is_much and self._parts.pool.room.wait(LONGEST_UNSETTLED):
            return
        self._settle()
        waiting_since = clock() - STALE
        if any(
            held.began is None and held.verdict is None and not held.behind and held.since < waiting_since
            for held in self._parts.in_flight
        ):
            self.hand_back("every worker is busy")

    def _settle(self, but: BaseQueue | None = None) -> None:
        """Settle what is done, except of the queue that is settled with a claim."""
        for completed in self._completed.values():
            if completed.waiting and completed.queue is not but:
                try:
                    self._exchange(completed, 0, 0)
                except Exception:  # the settler tries again, and reports it
                    recycle_connections()
                self._parts.settlers.of(completed.queue).settle_refused(completed)

    def hand_back(self, reason: str) -> None:
        """Give back messages that no worker has begun. That counts as no attempt; they keep their places."""
        for unit in self._parts.pool.take_back():
            self._put_back(unit, reason)

    def _claim(self, limit: int) -> list[Claimed]:
        claims: list[Claimed] = []
        failed: list[tuple[BaseQueue, Exception]] = []
        parts, ahead = self._parts, max(0, limit - self._idle)
        try:
            for queue in [one for one in self._open if not self._alone[id(one)].left] or self._open:
                asked = clock()
                try:
                    claims.append(self._claim_from(queue, limit, ahead))
                except Exception as error:
                    failed.append((queue, error))
                    if clock() - asked > UNANSWERED:
                        break
                else:
                    self._alone[id(queue)].end()
                    if claims[-1]:
                        break  # the other queues are asked at the next tick
        finally:
            surplus = self._pay(sum(map(len, claims)) - limit)
        try:
            self._pass_over(failed, claims)
            if claims[-1]:
                self._had_its_turn(queue)
                self._take(queue, claims[-1], asked, surplus)
                self._settle(but=queue)
        finally:  # behind _take(), by which entries that were claimed again may go on
            for completed in self._completed.values():
                parts.settlers.of(completed.queue).settle_refused(completed)
        for _, reason in failed:
            if is_for_want(reason):  # not the queue's fault: this process is at its limits
                raise reason
        return claims

    def _claim_from(self, queue: BaseQueue, limit: int, ahead: int) -> Claimed:
        if (completed := self._completed.get(id(queue))) is not None:
            claimed = self._exchange(completed, limit, ahead)
            self._asked = min(self._asked, completed.taken)
            return claimed
        parts, self._asked = self._parts, min(self._asked, time.monotonic())
        return queue.claim(limit, parts.lease or queue.lease, parts.owner, ahead, begin=False)

    def _exchange(self, completed: Completed, limit: int, ahead: int) -> Claimed:
        parts, queue = self._parts, completed.queue
        lease = parts.lease or queue.lease
        return parts.settlers.of(queue).exchange(completed, limit, lease, parts.owner, ahead)

    def _pass_over(self, failed: list[tuple[BaseQueue, Exception]], claims: list[Claimed]) -> None:
        """A queue that fails delays no other; if no queue answers, the store is unreachable, which is reported once."""
        for queue, error in failed:
            self._had_its_turn(queue)
            if claims and not is_for_want(error):
                self._alone[id(queue)].add(error)
        if not claims:
            raise failed[0][1]

    def _pay(self, more: int) -> int:
        """Charge the run limit for messages beyond a claim's limit, as a run is several; how many it does not allow."""
        if more <= 0:
            self._parts.run_limit.give(-more)
            return 0
        return more - self._parts.run_limit.take(more)

    def _had_its_turn(self, queue: BaseQueue) -> None:
        """Ask this queue last from now on; queues that had nothing keep their places."""
        if not self._strict:
            self._queues.remove(queue)
            self._queues.append(queue)

    def _take(self, queue: BaseQueue, claimed: Claimed, asked: float, surplus: int) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            about = {"event": "claimed", "queue": queue.alias, "count": len(claimed)}
            log_safely(logger, logging.DEBUG, "%s: claimed %d", queue.alias, len(claimed), extra=about)
        self._unpaid = surplus
        self._taken = self._parts.in_flight.take(queue, claimed, asked)
        held = self._without_begun(self._taken)
        surplus -= len(self._taken) - len(held)
        self._unpaid = 0
        if surplus > 0:
            self._untried(held[-surplus:], "the limit is reached")
            del held[-surplus:]
        else:
            self._parts.run_limit.give(-surplus)
        if self._parts.operators.has_paused_commands(queue):
            held = [one for unit in units_of(held) for one in self._without_paused(queue, unit)]
        note_cancelled(queue, held)
        if self.stopped:
            self._put_back(held, "the consumer stops")
        else:
            self._submit(self._without_suspects(queue, held))
        self._taken = []

    def _put_back_untaken(self) -> None:
        """Give back what was claimed when a step after that raised. That counts as no attempt."""
        if not self._taken:
            return
        self.hand_back("it could not be given to a worker")
        for one in self._taken:
            if one.verdict is None and one.worker is None and one in self._parts.in_flight:
                self._untried([one], "it could not be given to a worker")
                self._parts.run_limit.give(int(self._unpaid <= 0))
                self._unpaid -= 1
        self._taken = []

    def _without_paused(self, queue: BaseQueue, unit: list[Held]) -> list[Held]:
        """The messages of a unit whose commands are not paused. The others go back, and what they hold up in a lane."""
        rest: list[Held] = []
        for place, one in enumerate(unit):
            pause = self._parts.operators.pause_times(queue, one.lease.entry.command)
            if pause is None:
                rest.append(one)
                continue
            paused, left = pause
            delay = max(SHORTEST_PAUSED, min(LONGEST_PAUSED, paused / 4), len(self._put_off) / PUT_OFF_RATE)
            delay = min(delay, max(left, LEAST_PAUSED))
            holds = bool(hold_of(one.lease.entry, Verdict(Outcome.RETURNED, delay=delay)))
            back = unit[place:] if holds else [one]
            self._put_back(back, "its command is paused", delay)
            self._put_off.add(queue, back, delay)
            if holds:
                break
        return rest

    def _without_begun(self, held: list[Held]) -> list[Held]:
        """The leases but for entries that already run here, or ended here unknown to the store, as it was unreachable.

        Such an entry goes on under its new lease; the entries behind it in its lane come later.
        """
        if all(one.lease.entry.attempts == 1 for one in held):
            return held
        again = self._parts.in_flight.resume(held)
        if not again:
            return held
        rest = units_of([one for one in held if one not in again])
        behind = [unit for unit in rest if any(one.lease.run == unit[0].lease.run != "" for one in again)]
        self._untried([one for unit in behind for one in unit], "what is before it runs")
        return [one for unit in rest if unit not in behind for one in unit]

    def _submit(self, held: list[Held]) -> None:
        self._parts.pool.submit(units_of(held), low_water=self._ahead // 2)

    def _without_suspects(self, queue: BaseQueue, held: list[Held]) -> list[Held]:
        """What may begin now: what is before a suspect, or one that is alone. The rest goes back to its place."""
        quarantine = self._parts.quarantine
        suspects = quarantine.suspects(queue, held)
        if suspects and not (len(held) == 1 and quarantine.admit(held[0])):
            quarantine.await_(self)
            place = held.index(suspects[0])
            self._put_back(held[place:], "a suspect is claimed alone")
            held = held[:place]
        if held and quarantine.shuts_out(held[0]):
            self._put_back(held, "a suspect runs alone")
            return []
        return held

    def _put_back(self, held: list[Held], reason: str, delay: float = 0.0) -> None:
        self._untried(held, reason, delay)
        self._parts.run_limit.give(len(held))

    def _untried(self, held: list[Held], reason: str, delay: float = 0.0) -> None:
        for one in held:
            verdict = Verdict(Outcome.RETURNED, reason, delay=delay)
            report(one.queue, one.lease, verdict)
            self._parts.settlers.add(one, verdict)

    def _nap(self, pause: float, again: float) -> None:
        """Sleep as the backend does, in slices, so that a stop is noticed; at most ``again`` seconds."""
        until = time.monotonic() + min(pause, again)
        while not (self.stopped or self._is_to_look.is_set()) and (left := until - time.monotonic()) > 0:
            self.move()
            if self._bell.arm():  # also when a lane opens
                return
            wait = self._is_to_look.wait if self._bell.fileno() is None else self._bell.wait
            if wait(min(left, NAP_SLICE)):
                return

    def _hang_bell(self) -> None:
        """Have the bell ring for the queues that are not paused, as far as they share the connection of the first."""
        first = self._open[0]
        rung = {id(queue): queue for queue in self._open if queue.connection_key == first.connection_key}
        if rung.keys() != self._rung.keys():
            self._bell.close()
            self._rung = rung
            self._bell = first.bell([queue for queue in rung.values() if queue is not first])
