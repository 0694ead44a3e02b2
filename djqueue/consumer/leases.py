"""A part of a pump: the leases of all that is in flight are extended, and the store knows what runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import log_extra
from djqueue.consumer.crew import Crew
from djqueue.consumer.in_flight import Mailbox, Message
from djqueue.consumer.loop import LONGEST_PAUSE, FailureBackoff, Slow, alike, slow_since
from djqueue.consumer.settling import Settling
from djqueue.running.settle import proof_of
from djqueue.utils import clock, plain

logger = logging.getLogger(__name__)

BATCH = 1000
"""Leases that one call extends."""
LOOK = 0.25
"""Seconds between two checks of all that is in flight, at most."""
NOTED = 0.5
"""Seconds after which what runs is noted in the store, if it was begun without."""


class Leases:
    """The leases of what is in flight on one server."""

    def __init__(self, queues: Sequence[BaseQueue], mail: Mailbox, crew: Crew, settling: Settling):
        self._queues, self._mail, self._crew, self._settling = list(queues), mail, crew, settling
        self._touching = {id(queue): self._backoff(f"touch() of {queue.alias}") for queue in queues}
        self._beginning = self._backoff(f"begin() of {queues[0].alias}")
        self._look_at = 0.0

    def _backoff(self, name: str) -> FailureBackoff:
        return FailureBackoff(name, self._crew.announcer.log)

    @property
    def starves(self) -> bool:
        backoffs = [*self._touching.values(), self._beginning]
        return any(backoff.starvation.lasts for backoff in backoffs)

    def left(self, now: float) -> float:
        """Seconds until the next check."""
        return self._look_at - now

    def keep(self, now: float) -> bool:
        """Extend what is due, and note what begins; whether all that is in flight was checked. Raises Slow."""
        looks = self._mail.is_to_extend or now >= self._look_at
        if looks:
            self._extend(now)
        if looks or self._mail.beginning:
            self._begin(now, looks)
        return looks

    def _extend(self, now: float) -> None:
        """Extend every lease after a quarter of its time, in one call per queue and length.

        What its worker died with, or no worker ever took, is not extended: nothing here will settle it.
        """
        self._mail.is_to_extend = False
        stale: dict[tuple[int, float], list[Message]] = {}
        shortest = min(map(self._crew.lease_of, self._queues))
        for message in self._mail.table.values():
            lease = message.own_lease or self._crew.lease_of(message.queue)
            shortest = min(shortest, lease)
            is_due = lease < message.span or now - message.touched >= lease / 4
            if is_due and not (message.lost or message.is_abandoned(now)):
                stale.setdefault((id(message.queue), lease), []).append(message)
        self._look_at = now + min(LOOK, shortest / 16)
        for (_, lease), some in stale.items():
            some.sort(key=attrgetter("touched"))
            for at in range(0, len(some), BATCH):
                self._touch(some[at : at + BATCH], lease, now)

    def _touch(self, some: Sequence[Message], lease: float, now: float) -> None:
        queue, asked, sent = some[0].queue, [message.lease for message in some], clock()
        backoff = self._touching[id(queue)]
        if backoff.left:
            return
        about = {"event": "extended", "queue": queue.alias, "count": len(some)}
        args = queue.alias, len(some), lease
        self._crew.announcer.log(logger, logging.DEBUG, "%s: extends %d leases to %g s", *args, extra=about)
        try:
            until = {proof_of(one): one.until for one in queue.touch(asked, lease)}
        except Exception as error:
            _failed(backoff, error, sent, min(LONGEST_PAUSE, lease / 4))
            return
        backoff.end()
        for message in some:
            if (to := until.get(proof_of(message.lease))) is not None:
                message.lease = replace(message.lease, until=to)
                message.touched, message.span = now, lease
            elif message.final is None:
                self._lose(message)
            elif message.in_doubt and not message.lapsed(clock()):
                self._settling.was_applied(message)
            else:
                message.lost = True

    def _lose(self, message: Message) -> None:
        message.lost = True
        entry, worker = message.lease.entry, message.worker
        about = {"event": "lease_lost", "worker": "" if worker is None else worker.name}
        extra = log_extra(message.queue.alias, entry, **about)
        log = self._crew.announcer.log
        log(logger, logging.WARNING, "The lease of message %s is lost", plain(entry.id), extra=extra)

    def _begin(self, now: float, looks: bool) -> None:
        """Note in the store what is about to begin and, if it ``looks``, what began without a note and still runs."""
        asked: dict[Message, threading.Event] = {}
        for message in list(self._mail.beginning):
            if (event := self._mail.beginning.pop(message, None)) is not None:
                asked[message] = event
        lasting = [one for one in self._mail.table.values() if looks and _lasts(one, now)]
        try:
            for some in alike([*asked, *(() if self._beginning.left else lasting)], lambda one: id(one.queue)):
                self._begin_some(some)
        finally:
            for event in asked.values():
                event.set()

    def _begin_some(self, some: Sequence[Message]) -> None:
        sent = clock()
        try:
            begun = set(map(proof_of, some[0].queue.begin([message.lease for message in some])))
        except Exception as error:
            _failed(self._beginning, error, sent)
            return
        self._beginning.end()
        for message in some:
            if proof_of(message.lease) in begun:
                message.lease = replace(message.lease, begun=True)


def _failed(backoff: FailureBackoff, error: Exception, since: float, longest: float = LONGEST_PAUSE) -> None:
    """A call has failed that began at a moment. Raises Slow if that took long."""
    backoff.add(error, longest)
    if slow_since(since):
        raise Slow from error


def _lasts(message: Message, now: float) -> bool:
    """Whether it has run for a while, and the store does not know that it has begun."""
    if message.lease.begun or not message.is_running or message.lost:
        return False
    return message.policy is not None and now - (message.began or now) >= NOTED
