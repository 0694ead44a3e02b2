"""The pump: one thread for each server owns all that this process holds there, from the claim until it is settled.

Its turn is a plain function: it collects what workers have ended, extends leases, notes what begins, settles, and
claims. Between two turns it waits in one ``poll()`` for news of the workers and of the store. No code of the project
runs in it: workers make what the store is sent, and the announcer calls signals and handlers of the log.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from operator import attrgetter

from django.db import connections

from djqueue.backends.base import BaseQueue
from djqueue.backends.bells import Bell
from djqueue.consumer.claiming import Claiming
from djqueue.consumer.crew import Crew
from djqueue.consumer.in_flight import Mailbox, Message
from djqueue.consumer.leases import Leases
from djqueue.consumer.loop import FIRST_PAUSE, Member, Slow, alike, recycle_connections
from djqueue.consumer.pace import Pace
from djqueue.consumer.settling import Settling
from djqueue.messages.failures import text_of
from djqueue.running.reporting import report
from djqueue.running.settle import Settlement
from djqueue.utils import clock

logger = logging.getLogger(__name__)

LINGER, LONGEST_LINGER = 0.002, 0.05
"""Seconds between two turns while no worker would stand idle: ends gather, and one call settles them together."""
QUICK_LINGER = 0.02
"""The same with commands that take less than some milliseconds: of these a kill may repeat a few hundred."""
LONGEST_CALL = 5.0
"""Seconds within which a store is to answer, and at most a sixth of the lease: leases outlive two calls that fail."""
LONGEST_WAIT = 60.0
"""Seconds between two turns at most."""


class Pump(Member):
    """Feeds the workers from the queues of one server, and settles what they end. :meth:`turn` does one round."""

    def __init__(self, queues: Sequence[BaseQueue], crew: Crew, pace: Pace):
        super().__init__(f"djqueue-pump-{queues[0].alias}")
        self.crew, self.mail = crew, Mailbox()
        crew.mailboxes.append(self.mail)
        self.settling = Settling(self.mail, crew)
        self.leases = Leases(queues, self.mail, crew, self.settling)
        self._bells = [one.bell(others) for one, *others in alike(queues, attrgetter("connection_key"))]
        self.claiming = Claiming(self.name, queues, self.mail, crew, self.settling, self._bells)
        self.pace = pace
        self._rings = True
        """Whether the bells work: one that failed is polled instead, for a while."""
        self._watched: dict[int, Bell] = {}
        self._poller = select.poll()
        self._poller.register(self.mail.fileno(), select.POLLIN)
        self._is_over = False
        self._linger = LINGER
        self._has_collected = False
        """Whether something had ended before the latest turn."""
        self.leases_first = False
        """Whether leases come first in the next turn, and nothing is claimed, as a call failed late."""

    @property
    def starves(self) -> bool:
        """Whether one of its calls has failed for too long, always as this process was at its limits."""
        return super().starves or self.settling.starves or self.leases.starves or self.claiming.starves

    @property
    def failures(self) -> int:
        """How many times in a row no queue has answered a claim."""
        return self.claiming.failures

    @property
    def unanswered(self) -> list[str]:
        """The aliases of the queues whose store did not answer the latest claim, or not yet what is paused."""
        return self.claiming.unanswered

    def end(self) -> None:
        """Let no further turn begin. From any thread."""
        self._is_over = True
        self.mail.wake()

    def duty(self) -> None:
        try:
            with ExitStack() as serving:
                lease = min(map(self.crew.lease_of, self.claiming.queues))
                for queue in self.claiming.queues:
                    serving.enter_context(queue.deadline(min(LONGEST_CALL, lease / 6)))
                while not self._is_over:
                    self.move()
                    if (pause := self.guarded_turn()) > 0:
                        self._wait(pause)
        finally:
            for bell in self._bells:
                bell.close()
            connections.close_all()

    def guarded_turn(self) -> float:
        """A turn; what it raises by a fault of djqueue or for want of memory is logged, and it is tried again."""
        try:
            pause = self.turn(clock())
        except Exception as error:
            recycle_connections()
            self.starvation.add(error)
            text, why = "%s failed: %s; trying again in %.1f s", text_of(error).rstrip(".")
            self.crew.announcer.log(logger, logging.ERROR, text, self.name, why, FIRST_PAUSE, exc_info=error)
            return FIRST_PAUSE
        self.starvation.end()
        return pause

    def turn(self, now: float) -> float:
        """One round; the seconds until the next one is due. ``now`` is a moment of :func:`djqueue.utils.clock`."""
        leases_first, self.leases_first = self.leases_first, False
        try:
            self.claiming.return_untaken()
            self._collect()
            if self.leases.keep(now):
                self.claiming.hand_back_stale(now)
            if leases_first or self.mail.is_stopping:
                self.settling.settle_all()
            else:
                self.settling.settle_apart()
                self.claiming.claim()
                if self.claiming.is_found:
                    self.pace.reset()
                self.settling.settle_late()
        except Slow:
            self.leases_first = True
        if self.mail.is_stopping:
            self.claiming.stop()
        return self._pause()

    def _collect(self) -> None:
        """Take over what has ended, what is given up, and what no worker has taken."""
        mail, run_limit, ran = self.mail, self.crew.run_limit, 0
        while mail.back:
            self.claiming.put_back(*mail.back[0])
            mail.back.popleft()
        self._has_collected = bool(mail.outbox)
        while mail.outbox:
            message, end = mail.outbox[0]
            if message.final is None and mail.holds(message):
                self.settling.add(message, end)
                if end.verdict.outcome.effect.counts:
                    ran += 1
                else:
                    run_limit.give(1)
                if end is not message.end:
                    run = None if (control := message.control) is None else control.run
                    self.crew.announcer.put(partial(_report_given_up, message, end, run))
            mail.outbox.popleft()
        if ran:
            run_limit.ran(ran)

    # ---- between two turns

    def _pause(self) -> float:
        """Seconds until the next turn is due, unless there are news."""
        mail, pool, now = self.mail, self.crew.pool, clock()
        if self.leases_first or mail.back:
            return 0.0
        pauses = [LONGEST_WAIT, *self.settling.pauses(now)]
        if mail.table:
            pauses.append(self.leases.left(now))
        if pool.waiting > mail.low_water:
            shortest = QUICK_LINGER if self.claiming.prefetch.is_quick else LINGER
            self._linger = shortest if self._has_collected else min(LONGEST_LINGER, max(shortest, self._linger * 2))
            pauses.append(self._linger)
        if not mail.is_stopping:
            if mail.is_to_look:
                return 0.0
            pauses += self.claiming.pauses(now)
            if self.claiming.open and not (mail.starves_for_room or self.failures):
                is_heard = self._rings and all(bell.is_heard for bell in self._bells)
                pauses.append(self.pace.longest if is_heard else self.pace.left(now))
        return max(0.0, min(pauses))

    def _wait(self, pause: float) -> None:
        """Wait for news of the workers and of the store, for up to ``pause`` seconds."""
        if self._arm():
            return
        mail, pool = self.mail, self.crew.pool
        mail.is_asleep = True
        if not (mail.outbox and pool.waiting <= mail.low_water):
            self.move(pause)
            for descriptor, _ in self._poller.poll(pause * 1000):
                if descriptor in self._watched:
                    self._ask(self._watched[descriptor].hear)
        mail.hear()

    def _arm(self) -> bool:
        """Have the bells ring if a ring is worth a claim; whether something may have come before."""
        mail = self.mail
        is_to = bool(self.claiming.open) and not (mail.is_stopping or mail.starves_for_room or self.leases_first)
        is_to = is_to and self.crew.pool.waiting <= mail.low_water
        has_come = [self._ask(bell.arm) for bell in self._bells] if is_to else []  # all of them: each must ring
        watched = {found: bell for bell in self._bells if is_to and (found := bell.fileno()) is not None}
        for gone in self._watched.keys() - watched.keys():
            with suppress(KeyError):
                self._poller.unregister(gone)
        for found in watched:
            self._poller.register(found, select.POLLIN)
        self._watched = watched
        return any(has_come)

    def _ask(self, step: Callable[[], bool]) -> bool:
        """Call a method of a bell; while that fails, the queues are polled."""
        try:
            answer = step()
        except Exception:
            self._rings = False
            recycle_connections()
            return False
        self._rings = True
        return answer


def _report_given_up(message: Message, settlement: Settlement, run: object) -> None:
    """Log what becomes of a message that is given up, and notify the instruments that follow its run."""
    report(message.queue, message.lease, settlement.verdict)
    if run is not None:
        run.give_up(settlement.verdict)  # type: ignore[attr-defined]
