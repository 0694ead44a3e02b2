"""The threads of a consumer, and the order in which they begin and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from math import inf
from operator import attrgetter
from typing import Protocol

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import log_extra
from djqueue.consumer.announcer import Announcer
from djqueue.consumer.control import ConsumerControl
from djqueue.consumer.coroutines import Coroutines
from djqueue.consumer.counters import Counters
from djqueue.consumer.crew import Crew
from djqueue.consumer.housekeeper import Housekeeper
from djqueue.consumer.in_flight import Message
from djqueue.consumer.isolation import environment_now, is_reachable, run_isolated
from djqueue.consumer.loop import Loop, Member, Options, alike
from djqueue.consumer.maintenance import Reaper, TimeLimits
from djqueue.consumer.observer import ThreadObserver
from djqueue.consumer.operators import ConsumerState, OperatorChannels
from djqueue.consumer.pace import Pace, RunLimit
from djqueue.consumer.pool import Pool
from djqueue.consumer.pump import Pump
from djqueue.consumer.scheduler import Scheduler
from djqueue.consumer.suspects import Suspects
from djqueue.exceptions import TimeLimitExceeded
from djqueue.health import Report
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.policies.policy import ALONE
from djqueue.running.context import Control
from djqueue.running.executor import judged
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
        self.run_limit = RunLimit(limit)
        self._isolates = options.isolate
        self._environment: dict[str, str] = {}
        """For messages that run in a process of their own."""
        self.operators = OperatorChannels(consumer.state)
        self.announcer = Announcer(consumer.counters.add)
        self.crew = crew = Crew(
            consumer.name, consumer.lease_of, self.announcer, self.run_limit, self.operators, options.strict
        )
        self.operators.open(consumer.queues, consumer, crew.messages, self._look_again)
        crew.suspects = Suspects([queue for queue in consumer.queues if not self._has_child(queue)], crew.messages)
        coroutines = options.coroutines, options.threads, crew.finish
        self.coroutines = Coroutines(*coroutines) if options.coroutines else None
        isolate = self._run_isolated if options.isolate else None
        control = partial(ConsumerControl, crew, housekeepers := {})
        workers = crew.finish, control, self._recall, isolate, self.coroutines
        self.pool = crew.pool = Pool(options.threads, *workers)
        self.pool.freed = crew.wake_starving
        servers = alike(consumer.queues, attrgetter("server"))
        self.pumps: list[Pump] = []
        for queues in servers:
            pace = Pace(options.delay, options.backoff, options.longest_pause)
            self.pumps.append(Pump(queues, crew, pace))
        self._housekeepers = [Housekeeper(queues, crew, self.operators.first_of(queues)) for queues in servers]
        for queues, housekeeper in zip(servers, self._housekeepers, strict=True):
            housekeepers.update(dict.fromkeys(map(id, queues), housekeeper))
        crew.patience |= {id(queue): self._patience_for(queue) for queue in consumer.queues}
        self.keepers: list[Loop] = [
            TimeLimits(crew.messages, self._give_up, self.coroutines),
            *self._housekeepers,
            self.announcer,
        ]
        self._stopping = False
        self._claimed_last = inf
        self.duties = Duties(consumer, servers, self.operators)

    @property
    def members(self) -> list[Member]:
        """All threads but those that were left behind."""
        others = [] if self.coroutines is None else [self.coroutines, *self.coroutines.threads.members]
        return [*self.pumps, *self.keepers, *self.duties.loops, *self.pool.workers, *others]

    def details(self) -> Report:
        """How each thread fares."""
        left = [] if self.coroutines is None else self.coroutines.threads.left_behind
        return self._observer.look(self.members, self.crew.messages(), [*self.pool.left_behind, *left])

    @property
    def troubles(self) -> list[str]:
        return [trouble for member in self.members if (trouble := member.trouble)]

    def start(self) -> None:
        if self._drain:
            for housekeeper in self._housekeepers if self.duties.schedulers else ():
                housekeeper.guarded_tick()  # what is paused must be known then
            self.duties.schedule()
        self._environment = environment_now()
        if self.coroutines is not None:
            self.coroutines.start()
        self.pool.start()
        # Pumps last: what a command takes of memory or descriptors must not keep the consumer from starting.
        for member in [*self.keepers, *self.duties.loops, *self.pumps]:
            member.start()

    def _run_isolated(self, message: Message, control: Control) -> Verdict | None:
        return run_isolated(self._environment, message, control)

    def ended(self) -> bool:
        """Whether the limit is reached, or nothing is left to drain."""
        if self.crew.messages():
            return False
        if self.run_limit.spent:
            return True
        changed = [pump.mail.settled_at for pump in self.pumps]
        changed += [scheduler.caught_up for scheduler in self.duties.schedulers]
        return self._drain and all(pump.mail.has_nothing_since(max(changed)) for pump in self.pumps)

    def stop_claiming(self) -> None:
        """Let no pump claim any more; messages that no worker has begun go back."""
        self._stopping = self.operators.state.stopping = True
        for pump in self.pumps:
            pump.mail.stop()
        for scheduler in self.duties.schedulers:
            scheduler.stop()
        _join(self.duties.schedulers)
        until = time.monotonic() + LAST_WORDS
        for pump in self.pumps:
            if pump.is_alive():
                pump.mail.has_stopped.wait(max(0.0, until - time.monotonic()))
        self.pool.close()
        for unit in self.pool.take_back():
            unit[0].mail.take_back(unit, "the consumer stops")
        self._claimed_last = time.monotonic()

    @property
    def running(self) -> list[Message]:
        """What workers have; one of these may be about to begin, or to end."""
        return [message for message in self.crew.messages() if message.final is None and message.end is None]

    @property
    def busy(self) -> bool:
        """Whether a worker runs a message, or keeps a handler that is to stop."""
        return bool(self.running) or self.pool.keeps

    def gauges(self) -> dict[str, float]:
        """How much it can run, and runs, just now."""
        claimed = self.crew.messages()
        running = sum(message.is_running for message in claimed)
        coroutines = 0 if self.coroutines is None else self.coroutines.limit
        room = {"processes": 1, "threads": len(self.pool.workers), "coroutines": coroutines}
        return {**room, "claimed": len(claimed), "running": running}

    @property
    def owes_word(self) -> bool:
        """Whether a begun message is not settled yet, and the pumps can still settle it."""
        can = not any(pump.starves for pump in self.pumps)
        return can and any(message.began is not None for message in self.crew.messages())

    def tick_for_dead_threads(self) -> None:
        """Do one turn for each pump that died; the messages of a dead worker go back as lost."""
        self._take_from_loop()
        lost = self.pool.take_from_dead()
        if time.monotonic() - self._claimed_last >= ON_ITS_WAY:  # waiting ones went back then: no worker gets these
            lost += [message for message in self.running if message.worker is None]
        for message in lost:
            begun = message.began is not None
            outcome = Outcome.INTERRUPTED if begun else Outcome.RETURNED
            self.crew.give_up(message, Verdict(outcome, "its worker died", lost=int(begun)))
        for pump in self.pumps:
            if pump.is_dead:
                pump.mail.is_stopping = True
                pump.guarded_turn()
        if self.announcer.is_dead:
            self.announcer.guarded_tick()

    def _take_from_loop(self) -> None:
        """Give back what runs on an event loop that died or is blocked; what it died of, or who blocks it, is lost."""
        coroutines = self.coroutines
        if coroutines is None or not (coroutines.is_dead or coroutines.is_stuck):
            return
        reason = "the event loop that it ran on died" if coroutines.is_dead else "its event loop had to be given up"
        for message in self.running:
            if (is_lost := coroutines.blames(message)) or message.worker is coroutines:
                self.crew.give_up(message, Verdict(Outcome.INTERRUPTED, reason, lost=int(is_lost)))
        coroutines.stop()  # if it goes on after all, what runs on it must not

    def hand_back_running(self) -> int:
        """Give back all running messages: others may start them now, not when the leases run out. How many."""
        running = self.running
        for message in running:
            begun = message.began is not None or not (message.first is not None or message.awaits_place)
            outcome = Outcome.INTERRUPTED if begun else Outcome.RETURNED
            self.crew.give_up(message, Verdict(outcome, "the consumer stopped while it ran"))
        return len(running)

    def end(self) -> int:
        """Settle the last verdicts, then let the threads go; how many leases could not be settled."""
        until = time.monotonic() + LAST_WORDS
        while (self.crew.messages() or len(self.announcer)) and time.monotonic() < until:
            self.tick_for_dead_threads()
            time.sleep(0.005)
        last: list[Member] = [*self.pumps, *self.keepers, *self.duties.loops]
        for pump in self.pumps:
            pump.end()
        for loop in [*self.keepers, *self.duties.loops]:
            loop.stop()
        self.pool.stop()
        if self.coroutines is not None:
            self.coroutines.stop()
            last.append(self.coroutines)
        _join(last)
        return len(self.crew.messages())

    def abandon(self) -> None:
        """Let the threads go, and wait for none: nothing can be settled."""
        for pump in self.pumps:
            pump.end()
        for member in self.members:
            if isinstance(member, Loop | Coroutines):
                member.stop()
        self.pool.stop()

    def _give_up(self, message: Message) -> None:
        """Settle a message that does not end as failed, and go on with another thread."""
        if message.worker is self.coroutines is not None:
            self._give_up_coroutine(message, self.coroutines)
            return
        left = self.pool.leave_behind(message)
        if left is None:
            return
        worker, unit = left
        for one in unit:
            control = one.control
            if one.began is not None and control is not None and one.policy is not None:
                self._judge_stuck(one, control, clock() - one.began, worker.where())
            else:
                self.crew.give_up(one, Verdict(Outcome.RETURNED, "what ran before it does not end"))
        self.crew.wake_starving()

    def _give_up_coroutine(self, message: Message, coroutines: Coroutines) -> None:
        """Settle a message as failed that blocks its event loop, or does not end when it is cancelled."""
        if coroutines.spares(message):
            return
        control = message.control
        if control is not None and message.began is not None:
            self._judge_stuck(message, control, clock() - message.began - control.waited, coroutines.where_is(message))
        coroutines.leave_behind(message)
        coroutines.is_stuck = coroutines.is_stuck or coroutines.is_blocked

    @property
    def stuck(self) -> int:
        """How many threads run what does not end, if only a new process can go on."""
        coroutines = 0 if self.coroutines is None else self.coroutines.stuck
        return coroutines + (self.pool.stuck if self.pool.is_stuck else 0)

    def _judge_stuck(self, message: Message, control: Control, ran: float, where: str) -> None:
        entry, policy = message.lease.entry, message.policy
        if policy is None:
            return
        error = TimeLimitExceeded(
            f"it ran for {ran:.1f} s, its time_limit is {policy.time_limit or ran:g} s, and does not end"
        )
        error.add_note(f"It is here:\n{where}")
        text = "%s is stuck (message %s): %s; its thread is left behind"
        names = plain(entry.command), plain(entry.id)
        log_safely(logger, logging.WARNING, text, *names, error, extra=log_extra(message.queue.alias, entry))
        verdict = judged(policy, error, entry)._replace(seconds=ran)
        self.crew.give_up(message, verdict._replace(keep=policy.keeps_result, attempts=control.attempts))

    def _recall(self) -> str:
        if self._stopping:
            return "the consumer stops"
        return "a suspect is to run alone" if self.crew.suspects.awaited else ""

    def _has_child(self, queue: BaseQueue) -> bool:
        """Whether messages of a queue can run in a process of their own."""
        return self._isolates and is_reachable(queue)

    def _patience_for(self, queue: BaseQueue) -> int:
        return PATIENCE if self._has_child(queue) else ALONE

    def _look_again(self) -> None:
        """Something was paused or resumed."""
        for pump in self.pumps:
            pump.mail.look_now()
        for scheduler in self.duties.schedulers:
            scheduler.wake()


def _join(threads: Iterable[Member]) -> None:
    until = time.monotonic() + LAST_WORDS
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, until - time.monotonic()))
