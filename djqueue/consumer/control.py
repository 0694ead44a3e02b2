"""The answers to what running commands ask their consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import NamedTuple, Self

from djqueue import conf
from djqueue.consumer.crew import Crew
from djqueue.consumer.housekeeper import Housekeeper
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import NoEventLoop
from djqueue.exceptions import QueueError
from djqueue.flow.gates import Gate
from djqueue.policies.policy import Policy
from djqueue.running.attempts import Attempt
from djqueue.running.context import Control
from djqueue.running.ends import Progress
from djqueue.running.instruments import Run
from djqueue.utils import clock, log_safely, seconds

logger = logging.getLogger(__name__)

PROMPT = 0.6  # of the margin of a throttle: what begins within it is prompt; the rest is for the steps to its function
BEGINNING = 10.0  # seconds to wait for the store to note that something begins


class _Limits(NamedTuple):
    """The limits of time of a run that waits."""

    since: float
    """When it began to wait."""
    ends: float | None
    """When it is given up."""
    when: float | None
    """When it is cancelled, by the clock of the event loop."""


class ConsumerControl(Control):
    """One run of a message: what its worker knows of it, and answers its command at once."""

    interrupts = (NoEventLoop,)
    owner = ""
    ends: float | None = None
    """The moment at which it is given up, if it has a time limit."""
    description = ""
    """What the command says of its call, once it runs."""
    attempts: Sequence[Attempt] | None = None
    run: Run | None = None

    def __init__(self, crew: Crew, housekeepers: Mapping[int, Housekeeper], message: Message):
        self.queue, self.lease, self.owner = message.queue, message.lease, crew.owner
        self.patience = crew.patience.get(id(message.queue), 1)
        self._message, self._crew, self._housekeepers = message, crew, housekeepers
        self._counted, self._left = message.lease, message.asked
        self._waited = 0.0
        """For how many seconds it waited, once it ran, for a thread of the event loop."""
        self._limits: _Limits | None = None
        """Its limits of time, while they stand still."""
        message.control = self

    def begin(self, policy: Policy) -> None:
        """Note in the store that the message begins now, unless that is needless. Raises QueueError if it cannot.

        It is needless for a first start of a command that this process has seen done, as that is mostly over before it
        could be noted. If it kills the process all the same, its next start is not the first.
        """
        lease = self._message.lease
        if not (lease.begun or (lease.entry.command in self._crew.seen_through and lease.entry.attempts == 1)):
            if not self._message.mail.begin(self._message, BEGINNING):
                raise QueueError("the store does not say that it is still ours")
        self._message.policy = policy
        if policy.lease is not None and policy.lease < self._message.span:
            self._message.mail.extend_now()
        if policy.time_limit is not None:
            grace = seconds(conf.get("QUEUE_TIME_LIMIT_GRACE"), "QUEUE_TIME_LIMIT_GRACE")
            self.ends = clock() + policy.time_limit + grace

    def wait(self) -> None:
        if self._limits is None:
            timeout = self.timeout
            self._limits = _Limits(clock(), self.ends, None if timeout is None else timeout.when())
            if self.ends is not None:
                self.ends = inf
            self._cancel_at(None)

    def go_on(self) -> None:
        if self._limits is not None:
            (since, ends, when), self._limits = self._limits, None
            waited = clock() - since
            self._waited += waited
            if ends is not None:
                self.ends = ends + waited
            if when is not None:
                self._cancel_at(when + waited)

    def delay(self, seconds: float) -> None:
        if self._limits is None:  # else the limits stand still anyway
            self._waited += seconds
            if self.ends is not None:
                self.ends += seconds
            if self.timeout is not None and (when := self.timeout.when()) is not None:
                self._cancel_at(when + seconds)

    def _cancel_at(self, when: float | None) -> None:
        if self.timeout is not None:
            with suppress(RuntimeError):  # it is over
                self.timeout.reschedule(when)

    @property
    def waited(self) -> float:  # type: ignore[override]
        return self._waited + (0.0 if self._limits is None else clock() - self._limits.since)

    @property
    def started(self) -> float:
        message = self._message
        waited = 0.0 if message.began is None else max(0.0, message.began - message.asked)
        return message.lease.claimed + waited

    def describe(self, description: str) -> None:
        self.description = description

    @property
    def stopping(self) -> bool:
        return self._message.mail.is_stopping

    @property
    def throttled(self) -> bool:  # type: ignore[override]
        return self._margin < inf

    @property
    def _margin(self) -> float:
        """The seconds that it may wait before it begins."""
        gate = self._message.lease.entry.gate
        return Gate.read(gate).margin if gate else inf

    @property
    def begins_by(self) -> float:  # type: ignore[override]
        return self._left + PROMPT * self._margin

    @property
    def late(self) -> float:
        now = clock()
        return now - self._left if now > self.begins_by else 0.0

    def defer(self, controls: Sequence[Self], seconds: float) -> bool:
        asked = clock()
        try:
            counted = self.queue.defer([control._counted for control in controls], seconds)
        except Exception as error:
            log_safely(logger, logging.ERROR, "A throttle could not be asked", exc_info=error)
            return False
        for control, lease in zip(controls, counted, strict=False):
            control._counted, control._left = lease, asked + seconds
        return len(counted) == len(controls)

    @property
    def lease_lost(self) -> bool:
        return self._message.lost or self.given_up

    @property
    def given_up(self) -> bool:
        return self._message.final is not None

    @property
    def _housekeeper(self) -> Housekeeper:
        return self._housekeepers[id(self.queue)]

    @property
    def cancelled(self) -> bool:
        return self._message.cancelled or self._housekeeper.is_cancelled(self._message)

    @property
    def called_off(self) -> bool:
        return self._message.cancelled

    def report(self, id: str, progress: Progress) -> None:
        if not self.lease_lost:
            self._housekeeper.report(self._message, progress)

    def touch(self, seconds: float) -> bool:
        return not self.lease_lost  # the pump extends it anyway
