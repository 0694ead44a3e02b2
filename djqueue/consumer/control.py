"""Progress reports and requests to cancel, exchanged between running commands and the holders of their results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from threading import Event
from typing import NamedTuple, Self

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.consumer.in_flight import Held, InFlight
from djqueue.consumer.loop import Loop, NoEventLoop, PerServer, alike, run_all
from djqueue.consumer.operators import OperatorChannel, OperatorChannels
from djqueue.exceptions import QueueError
from djqueue.flow.gates import Gate
from djqueue.policies.policy import Policy
from djqueue.running.attempts import Attempt, note
from djqueue.running.context import Control
from djqueue.running.ends import Progress
from djqueue.running.instruments import Run
from djqueue.running.result_store import are_cancelled, is_cancelled, report_progress
from djqueue.running.settle import proof_of
from djqueue.utils import clock, log_safely, seconds

logger = logging.getLogger(__name__)

PROMPT = 0.6  # of the margin of a throttle: what begins within it is prompt; the rest is for the steps to its function
EVERY = 0.25  # seconds between two deliveries, or two questions, for one message
FIRST_ANSWER = 1.0  # most seconds to wait for the first answer to a question
BEGINNING = 10.0  # seconds to wait for the store to note that something begins
NOTED = 0.5  # seconds after which what runs is noted, if it was begun without


class ControlChannel(Loop):
    """Takes progress to the store, and asks it whether what runs is cancelled, if its command wants to know.

    Its thread does the same for operators: heartbeats go to the store, pauses and orders come from it.

    It has a connection of its own: a report made within a transaction is visible before that ends, and a question is
    not answered from a snapshot. All queues are of one server: a server that does not answer delays no other.
    """

    def __init__(self, queues: Sequence[BaseQueue], in_flight: InFlight, operators: Sequence[OperatorChannel] = ()):
        super().__init__(f"djqueue-controlchannel-{queues[0].alias}")
        self._operators = operators
        self.stopping = False
        """Whether the consumer wants to stop."""
        self._ours = {id(queue) for queue in queues}
        self._in_flight = in_flight
        self._reports: dict[Held, Progress] = {}
        self._watched: dict[Held, Event] = {}
        self._beginning: dict[Held, Event] = {}
        self.seen_through: set[str] = set()
        """Commands whose first starts need not be noted."""

    def report(self, held: Held, progress: Progress) -> None:
        is_new = held not in self._reports
        self._reports[held] = progress
        if is_new:
            self.wake()

    def watch(self, held: Held) -> None:
        """Ask from now on whether it is cancelled; wait for the first answer."""
        if held not in self._watched:
            self._watched[held] = first = Event()
            self.wake()
            first.wait(FIRST_ANSWER)

    def begin(self, held: Held) -> None:
        """Note in the store that the message begins now, unless that is needless. Raises QueueError if it cannot.

        It is needless for a first start of a command that this process has seen done, as that is mostly over before it
        could be noted. If it kills the process all the same, its next start is not the first.
        """
        entry = held.lease.entry
        if entry.command in self.seen_through and entry.attempts == 1:
            return
        self._beginning[held] = answered = Event()
        self.wake()
        if not answered.wait(BEGINNING) or not held.lease.begun:
            self._beginning.pop(held, None)
            raise QueueError("the store does not say that it is still ours")

    def saw_through(self, held: Held) -> None:
        """The command is done and the process lives: note no more first starts, unless only one start may be lost."""
        command = held.lease.entry.command
        if command not in self.seen_through and held.policy is not None and held.policy.most_lost > 1:
            self.seen_through.add(command)

    def tick(self) -> float:
        self._begin_all()
        self._begin_what_lasts()
        self._note_attempts()
        for held in [held for held in list(self._watched) if held not in self._in_flight]:
            del self._watched[held]
        now = time.monotonic()
        due = [held for held in list(self._reports) if now - held.reported >= EVERY]
        watched = list(self._watched)  # commands add to it meanwhile
        steps: list[Callable[[], None]] = [
            *(channel.tick for channel in self._operators),
            *(partial(self._deliver, held) for held in due),
            *(partial(self._ask, held) for held in watched),
        ]
        run_all(steps, lambda step: step())  # a step that fails delays no other
        pause = EVERY if self._reports or self._watched else NOTED
        return min([pause, *(channel.left for channel in self._operators)])

    def _begin_all(self) -> None:
        waiting = {held: answered for held in list(self._beginning) if (answered := self._beginning.pop(held, None))}
        try:
            run_all(alike(waiting, _queue_of), self._begin_some)
        finally:
            for answered in waiting.values():
                answered.set()

    def _begin_what_lasts(self) -> None:
        """Note in the store what began without a note and still runs: from now on it is lost if this process dies."""
        run_all(alike([held for held in self._lasting() if not held.lease.begun], _queue_of), self._begin_some)

    def _note_attempts(self) -> None:
        """Note who runs calls through Django's tasks: results show it while they run, and if this process dies."""
        unknown = [held for held in self._lasting() if held.attempts and not held.noted and not held.lost]
        run_all(alike(unknown, _queue_of), _note_some)

    def _lasting(self) -> list[Held]:
        """What has run for a while."""
        before = clock() - NOTED
        ours = [held for held in self._in_flight if id(held.queue) in self._ours]
        running = [held for held in ours if held.policy and held.verdict is None]
        return [held for held in running if held.began is not None and held.began <= before]

    def _begin_some(self, some: Sequence[Held]) -> None:
        asked = [held.lease for held in some]
        begun = set(map(proof_of, some[0].queue.begin(asked)))
        for held, before in zip(some, asked, strict=True):
            if proof_of(before) in begun:
                held.change(before, begun=True)

    def on_stop(self) -> None:
        steps: list[Callable[[], None]] = [channel.end for channel in self._operators]
        steps += [partial(self._deliver, held) for held in list(self._reports)]
        run_all(steps, lambda step: step())

    def _deliver(self, held: Held) -> None:
        held.reported, progress = time.monotonic(), self._reports.pop(held)
        try:
            report_progress(held.queue, held.lease.entry.id, progress)
        except Exception:
            self._reports.setdefault(held, progress)
            raise

    def _ask(self, held: Held) -> None:
        held.cancelled = held.cancelled or is_cancelled(held.queue, held.lease.entry)
        self._watched[held].set()


class ControlChannels(PerServer[ControlChannel]):
    """The control channels of a consumer; they make the controls of its commands."""

    def __init__(
        self,
        servers: Sequence[Sequence[BaseQueue]],
        in_flight: InFlight,
        shorten: Callable[[], None],
        patience_for: Callable[[BaseQueue], int],
        owner: str = "",
        operators: OperatorChannels | None = None,
    ):
        operators = operators or OperatorChannels()
        super().__init__(servers, lambda queues: ControlChannel(queues, in_flight, operators.first_of(queues)))
        self._shorten = shorten
        self._patience = {id(queue): patience_for(queue) for queues in servers for queue in queues}
        self._owner = owner

    def control(self, held: Held) -> ConsumerControl:
        patience = self._patience[id(held.queue)]
        return ConsumerControl(held, self.of(held.queue), self._shorten, patience, self._owner)

    def saw_through(self, held: Held) -> None:
        self.of(held.queue).saw_through(held)


def note_cancelled(queue: BaseQueue, claimed: Sequence[Held]) -> None:
    """Ask, before messages begin, which of them were cancelled in an earlier run. Workers ask no store."""
    again = [held for held in claimed if held.lease.entry.attempts > 1]
    try:
        cancelled = are_cancelled(queue, [held.lease.entry for held in again]) if again else []
    except Exception as error:  # running them does less harm
        text = "It cannot be known whether messages of %s are cancelled"
        log_safely(logger, logging.ERROR, text, queue.alias, exc_info=error, extra={"queue": queue.alias})
        return
    for held, was in zip(again, cancelled, strict=True):
        held.cancelled = was


def _note_some(some: Sequence[Held]) -> None:
    note(some[0].queue, [(held.lease.entry, held.attempts[-1]) for held in some if held.attempts])
    for held in some:
        held.noted = True


def _queue_of(held: Held) -> int:
    return id(held.queue)


class _Limits(NamedTuple):
    """The limits of time of a run that waits."""

    since: float
    """When it began to wait."""
    ends: float | None
    """When it is given up."""
    when: float | None
    """When it is cancelled, by the clock of the event loop."""


class ConsumerControl(Control):
    """Answers the questions of a command at once, from what the consumer knows."""

    interrupts = (NoEventLoop,)
    owner = ""

    def __init__(
        self,
        held: Held,
        control_channel: ControlChannel,
        shorten: Callable[[], None],
        patience: int = 1,
        owner: str = "",
    ):
        self.queue, self.lease, self._held, self.owner = held.queue, held.lease, held, owner
        self._channel, self._shorten, self.patience = control_channel, shorten, patience
        self._counted, self._left = held.lease, held.since
        self._limits: _Limits | None = None
        """Its limits of time, while they stand still."""

    def begin(self, policy: Policy) -> None:
        if not self._held.lease.begun:
            self._channel.begin(self._held)
        self._held.policy = policy
        if policy.lease is not None and policy.lease < self._held.span:
            self._shorten()
        if policy.time_limit is not None:
            grace = seconds(conf.get("QUEUE_TIME_LIMIT_GRACE"), "QUEUE_TIME_LIMIT_GRACE")
            self._held.ends = clock() + policy.time_limit + grace

    def wait(self) -> None:
        if self._limits is None:
            held, timeout = self._held, self.timeout
            self._limits = _Limits(clock(), held.ends, None if timeout is None else timeout.when())
            if held.ends is not None:
                held.ends = inf
            self._cancel_at(None)

    def go_on(self) -> None:
        if self._limits is not None:
            (since, ends, when), self._limits = self._limits, None
            waited = clock() - since
            self._held.waited += waited
            if ends is not None:
                self._held.ends = ends + waited
            if when is not None:
                self._cancel_at(when + waited)

    def delay(self, seconds: float) -> None:
        if self._limits is None:  # else the limits stand still anyway
            self._held.waited += seconds
            if self._held.ends is not None:
                self._held.ends += seconds
            if self.timeout is not None and (when := self.timeout.when()) is not None:
                self._cancel_at(when + seconds)

    def _cancel_at(self, when: float | None) -> None:
        if self.timeout is not None:
            with suppress(RuntimeError):  # it is over
                self.timeout.reschedule(when)

    @property
    def waited(self) -> float:  # type: ignore[override]
        return self._held.waited + (0.0 if self._limits is None else clock() - self._limits.since)

    @property
    def started(self) -> float:
        held = self._held
        waited = 0.0 if held.began is None else max(0.0, held.began - held.since)
        return held.lease.claimed + waited

    @property
    def attempts(self) -> Sequence[Attempt] | None:  # type: ignore[override]
        return self._held.attempts

    @attempts.setter
    def attempts(self, attempts: Sequence[Attempt] | None) -> None:
        self._held.attempts = attempts

    @property
    def run(self) -> Run | None:
        return self._held.run

    @run.setter
    def run(self, run: Run | None) -> None:
        self._held.run = run

    def describe(self, description: str) -> None:
        self._held.description = description

    @property
    def stopping(self) -> bool:
        return self._channel.stopping

    @property
    def throttled(self) -> bool:  # type: ignore[override]
        return self._margin < inf

    @property
    def _margin(self) -> float:
        """The seconds that it may wait before it begins."""
        gate = self._held.lease.entry.gate
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
        return self._held.lost or self.given_up

    @property
    def given_up(self) -> bool:
        return self._held.verdict is not None

    @property
    def cancelled(self) -> bool:
        self._channel.watch(self._held)
        return self._held.cancelled

    @property
    def called_off(self) -> bool:
        return self._held.cancelled

    def report(self, id: str, progress: Progress) -> None:
        if not self.lease_lost:
            self._channel.report(self._held, progress)

    def touch(self, seconds: float) -> bool:
        return not self.lease_lost  # the heartbeat extends it anyway
