"""The threads of a consumer, and the order in which they begin and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from math import inf
from operator import attrgetter
from typing import Protocol

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import log_extra
from djqueue.consumer.control import ControlChannels
from djqueue.consumer.coroutines import Coroutines
from djqueue.consumer.counters import Counters
from djqueue.consumer.fetcher import Fetcher, Pace, Parts, Quarantine
from djqueue.consumer.in_flight import Held, InFlight
from djqueue.consumer.isolation import environment_now, is_reachable, run_isolated
from djqueue.consumer.loop import Loop, Member, Options, alike
from djqueue.consumer.maintenance import Heartbeat, Reaper, TimeLimits
from djqueue.consumer.observer import ThreadObserver
from djqueue.consumer.operators import ConsumerState, OperatorChannels
from djqueue.consumer.pool import Pool
from djqueue.consumer.scheduler import Scheduler
from djqueue.consumer.settler import RunLimit, Settler, Settlers
from djqueue.exceptions import TimeLimitExceeded
from djqueue.health import Report
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.policies.policy import ALONE, Policy
from djqueue.running.context import Control
from djqueue.running.executor import judged
from djqueue.running.reporting import report
from djqueue.utils import clock, log_safely, plain

logger = logging.getLogger(__name__)

PATIENCE = 5
"""How many times max_lost starts may be lost with the whole consumer, if lost messages run in their own processes."""
ON_ITS_WAY = 1.0  # most seconds between the pool and a worker
LAST_WORDS = 2.0  # seconds to settle the last verdicts at the end; if the store is unreachable the leases run out


class SupervisedConsumer(Protocol):
    """The part of a consumer that its threads need."""

    queues: list[BaseQueue]
    options: Options
    name: str
    state: ConsumerState
    counters: Counters
    has_duties: bool

    @property
    def ran(self) -> int: ...
    def stop(self) -> None: ...
    def lease_of(self, queue: BaseQueue) -> float: ...
    def shortest_lease_of(self, queue: BaseQueue) -> float: ...


class Duties:
    """The threads that one of several processes has for all: they reap, and keep the schedule."""

    def __init__(self, consumer: SupervisedConsumer, servers: list[list[BaseQueue]], operators: OperatorChannels):
        self._consumer = consumer
        self._servers = servers
        self._pauses = operators.is_schedule_paused, operators.are_known
        self._take(takes_over=False)

    @property
    def loops(self) -> list[Loop]:
        return [*self.reapers, *self.schedulers]

    def _take(self, takes_over: bool) -> None:
        """Make the threads, if the consumer has duties."""
        self._has_any, options = self._consumer.has_duties, self._consumer.options
        reaped = self._servers if self._has_any and options.reap else []
        periodic = self._servers if self._has_any and options.periodic else []
        self.reapers = [Reaper(queues, self._consumer.shortest_lease_of) for queues in reaped]
        self.schedulers = [Scheduler(queues, *self._pauses, takes_over) for queues in periodic]

    def follow(self) -> None:
        """Begin with them, or leave them to another process, if that has changed."""
        if self._has_any == self._consumer.has_duties:
            return
        for loop in self.loops:
            loop.stop()  # what it does just now may end: another may do it at the same time
        self._take(takes_over=True)
        if self._consumer.options.drain:
            self.schedule()
        for loop in self.loops:
            loop.start()

    def schedule(self) -> None:
        """Enqueue what is due now: a drain may end before the threads do it."""
        for scheduler in self.schedulers:
            scheduler.guarded_tick()


class Supervisor:
    """The threads of one run of a consumer: makes them, starts and ends them in order."""

    def __init__(self, consumer: SupervisedConsumer, limit: int | None):
        options = consumer.options
        self._drain = options.drain
        self._observer = ThreadObserver(options.stuck_after)
        self.may_end = options.drain or limit is not None
        self.in_flight = InFlight(consumer.counters.add)
        self.run_limit = RunLimit(limit)
        servers = alike(consumer.queues, attrgetter("server"))
        self._isolates = options.isolate
        self._environment: dict[str, str] = {}
        """For messages that run in a process of their own."""
        self.operators = OperatorChannels(consumer.state)
        self.operators.open(consumer.queues, consumer, self.in_flight, self._look_anew)
        self.control_channels = ControlChannels(
            servers, self.in_flight, self._extend, self._patience_for, consumer.name, self.operators
        )
        self.settlers = Settlers(
            servers,
            lambda queues: Settler(queues[0].alias, self.in_flight, consumer.name, self._look_now),
            self.run_limit,
            self.control_channels.saw_through,
        )
        self._quarantine = Quarantine(self.in_flight, [one for one in consumer.queues if not self._has_child(one)])
        self._heartbeats = [Heartbeat(queues, self.in_flight, consumer.lease_of) for queues in servers]
        isolate = self._run_isolated if options.isolate else None
        coroutines = options.coroutines, options.threads, self.settlers.finish
        self.coroutines = Coroutines(*coroutines) if options.coroutines else None
        workers = self.settlers.finish, self.control_channels.control, self._recall, isolate, self.coroutines
        self.pool = Pool(options.threads, *workers)
        shared = self.pool, self.in_flight, self.settlers, self.run_limit, self._quarantine
        parts = Parts(*shared, consumer.name, options.lease, self.operators)
        self.fetchers = _fetchers(consumer, parts)
        self.keepers: list[Loop] = [
            *self._heartbeats,
            TimeLimits(self.in_flight, self._give_up, self.coroutines),
            *self.control_channels.loops,
        ]
        self._stopping = False
        self._claimed_last = inf
        self.duties = Duties(consumer, servers, self.operators)

    @property
    def members(self) -> list[Member]:
        """All threads but those that were left behind."""
        others = [] if self.coroutines is None else [self.coroutines, *self.coroutines.threads.members]
        loops = *self.fetchers, *self.keepers, *self.settlers.loops, *self.duties.loops
        return [*loops, *self.pool.workers, *others]

    def details(self) -> Report:
        """How each thread fares."""
        left = [] if self.coroutines is None else self.coroutines.threads.left_behind
        return self._observer.look(self.members, self.in_flight, [*self.pool.left_behind, *left])

    @property
    def troubles(self) -> list[str]:
        return [trouble for member in self.members if (trouble := member.trouble)]

    def start(self) -> None:
        if self._drain:
            for control_channel in self.control_channels.loops if self.duties.schedulers else ():
                control_channel.guarded_tick()  # what is paused must be known then
            self.duties.schedule()
        self._environment = environment_now()
        if self.coroutines is not None:
            self.coroutines.start()
        self.pool.start()
        # Fetchers last: what a command takes of memory or descriptors must not keep the consumer from starting.
        for loop in [*self.settlers.loops, *self.keepers, *self.duties.loops, *self.fetchers]:
            loop.start()

    def _run_isolated(self, held: Held, control: Control) -> Verdict | None:
        return run_isolated(self._environment, held, control)

    def ended(self) -> bool:
        """Whether the limit is reached, or nothing is left to drain."""
        if len(self.in_flight):
            return False
        if self.run_limit.spent:
            return True
        changed = max([self.in_flight.changed, *(scheduler.caught_up for scheduler in self.duties.schedulers)])
        return self._drain and all(fetcher.found_nothing_since(changed) for fetcher in self.fetchers)

    def stop_claiming(self) -> None:
        """Let no fetcher claim any more; messages that no worker has begun go back."""
        self._stopping = self.operators.state.stopping = True
        for control_channel in self.control_channels.loops:
            control_channel.stopping = True
        claimers = [*self.fetchers, *self.duties.schedulers]
        for loop in claimers:
            loop.stop()
        self.pool.room.set()
        _join(claimers)
        for settler in self.settlers.loops:
            settler.settle_all()
        self.pool.close()
        self.fetchers[0].hand_back("the consumer stops")
        self._claimed_last = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a worker runs a message, or keeps a handler that is to stop."""
        return bool(self.in_flight.running()) or self.pool.keeps

    def gauges(self) -> dict[str, float]:
        """How much it can run, and runs, just now."""
        claimed = list(self.in_flight)
        running = sum(held.began is not None and held.verdict is None for held in claimed)
        coroutines = 0 if self.coroutines is None else self.coroutines.limit
        room = {"processes": 1, "threads": len(self.pool.workers), "coroutines": coroutines}
        return {**room, "claimed": len(claimed), "running": running}

    @property
    def owes_word(self) -> bool:
        """Whether a begun message is not settled yet, and the settlers can still settle it."""
        can = not any(settler.starves for settler in self.settlers.loops)
        return can and any(held.began is not None for held in self.in_flight)

    def tick_for_dead_threads(self) -> None:
        """Do one tick for heartbeats and settlers that died; the messages of a dead worker go back as lost."""
        self._take_from_loop()
        lost = self.pool.take_from_dead()
        if time.monotonic() - self._claimed_last >= ON_ITS_WAY:  # waiting ones went back then: no worker gets these
            lost += [held for held in self.in_flight.running() if held.worker is None]
        for held in lost:
            begun = held.began is not None
            outcome = Outcome.INTERRUPTED if begun else Outcome.RETURNED
            self._put_back(held, Verdict(outcome, "its worker died", lost=int(begun)))
        for loop in [*self._heartbeats, *self.settlers.loops]:
            if loop.is_dead:
                loop.guarded_tick()

    def _take_from_loop(self) -> None:
        """Give back what runs on an event loop that died or is blocked; what it died of, or who blocks it, is lost."""
        coroutines = self.coroutines
        if coroutines is None or not (coroutines.is_dead or coroutines.is_stuck):
            return
        reason = "the event loop that it ran on died" if coroutines.is_dead else "its event loop had to be given up"
        for held in self.in_flight.running():
            if (is_lost := coroutines.blames(held)) or held.worker is coroutines:
                self._put_back(held, Verdict(Outcome.INTERRUPTED, reason, lost=int(is_lost)))
        coroutines.stop()  # if it goes on after all, what runs on it must not

    def hand_back_running(self) -> int:
        """Give back all running messages: others may start them now, not when the leases run out. How many."""
        running = self.in_flight.running()
        for held in running:
            begun = held.began is not None or not (held.behind or held.awaits_place)
            outcome = Outcome.INTERRUPTED if begun else Outcome.RETURNED
            self._put_back(held, Verdict(outcome, "the consumer stopped while it ran"))
        return len(running)

    def _put_back(self, held: Held, verdict: Verdict) -> None:
        self.settlers.add(held, verdict)
        if held.verdict is verdict:  # else it has just ended
            report(held.queue, held.lease, verdict)
            if held.run is not None:
                held.run.give_up(verdict)

    def end(self) -> int:
        """Settle the last verdicts, then let the threads go; how many leases could not be settled."""
        until = time.monotonic() + LAST_WORDS
        while len(self.in_flight) and time.monotonic() < until:
            self.tick_for_dead_threads()
            time.sleep(0.005)
        last: list[Member] = [*self.keepers, *self.duties.loops, *self.settlers.loops]
        for loop in [*self.keepers, *self.duties.loops, *self.settlers.loops]:
            loop.stop()
        self.pool.stop()
        if self.coroutines is not None:
            self.coroutines.stop()
            last.append(self.coroutines)
        _join(last)
        return len(self.in_flight)

    def abandon(self) -> None:
        """Let the threads go, and wait for none: nothing can be settled."""
        for member in self.members:
            if isinstance(member, Loop | Coroutines):
                member.stop()
        self.pool.room.set()
        self.pool.stop()

    def _give_up(self, held: Held) -> None:
        """Settle a message that does not end as failed, and go on with another thread."""
        if held.worker is self.coroutines is not None:
            self._give_up_coroutine(held, self.coroutines)
            return
        left = self.pool.leave_behind(held)
        if left is None:
            return
        worker, unit = left
        for one in unit:
            if one.began is not None and one.policy is not None:
                self._judge_stuck(one, one.policy, clock() - one.began, worker.where())
            else:
                verdict = Verdict(Outcome.RETURNED, "what ran before it does not end")
                report(one.queue, one.lease, verdict)
                self.settlers.finish(one, verdict)

    def _give_up_coroutine(self, held: Held, coroutines: Coroutines) -> None:
        """Settle a message as failed that blocks its event loop, or does not end when it is cancelled."""
        if coroutines.spares(held):
            return
        if held.policy is not None and held.began is not None:
            self._judge_stuck(held, held.policy, clock() - held.began - held.waited, coroutines.where_is(held))
        coroutines.leave_behind(held)
        coroutines.is_stuck = coroutines.is_stuck or coroutines.is_blocked

    @property
    def stuck(self) -> int:
        """How many threads run what does not end, if only a new process can go on."""
        coroutines = 0 if self.coroutines is None else self.coroutines.stuck
        return coroutines + (self.pool.stuck if self.pool.is_stuck else 0)

    def _judge_stuck(self, held: Held, policy: Policy, ran: float, where: str) -> None:
        entry = held.lease.entry
        error = TimeLimitExceeded(
            f"it ran for {ran:.1f} s, its time_limit is {policy.time_limit or ran:g} s, and does not end"
        )
        error.add_note(f"It is here:\n{where}")
        text = "%s is stuck (message %s): %s; its thread is left behind"
        names = plain(entry.command), plain(entry.id)
        log_safely(logger, logging.WARNING, text, *names, error, extra=log_extra(held.queue.alias, entry))
        verdict = judged(policy, error, entry)._replace(seconds=ran)
        verdict = verdict._replace(keep=policy.keeps_result, attempts=held.attempts)
        report(held.queue, held.lease, verdict)
        if held.run is not None:
            held.run.give_up(verdict)
        self.settlers.finish(held, verdict)

    def _recall(self) -> str:
        if self._stopping:
            return "the consumer stops"
        return "a suspect is to run alone" if self._quarantine.awaited else ""

    def _has_child(self, queue: BaseQueue) -> bool:
        """Whether messages of a queue can run in a process of their own."""
        return self._isolates and is_reachable(queue)

    def _patience_for(self, queue: BaseQueue) -> int:
        return PATIENCE if self._has_child(queue) else ALONE

    def _extend(self) -> None:
        for heartbeat in self._heartbeats:
            heartbeat.wake()

    def _look_anew(self) -> None:
        """Something was paused or resumed."""
        self._look_now()
        for scheduler in self.duties.schedulers:
            scheduler.wake()

    def _look_now(self) -> None:
        for fetcher in self.fetchers:
            fetcher.look_now()


def _fetchers(consumer: SupervisedConsumer, parts: Parts) -> list[Fetcher]:
    """One for each connection, or a single one that asks the queues in the order given."""
    options = consumer.options
    together = [consumer.queues] if options.strict else alike(consumer.queues, attrgetter("connection_key"))
    paces = [Pace(options.delay, options.backoff, options.longest_pause) for _ in together]
    return [Fetcher(queues, parts, pace, options.strict) for queues, pace in zip(together, paces, strict=True)]


def _join(threads: Iterable[Member]) -> None:
    until = time.monotonic() + LAST_WORDS
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, until - time.monotonic()))
