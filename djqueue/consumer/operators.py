"""What a consumer reports to operators, its heartbeats, and what it hears from them: pauses and orders."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable
from math import inf
from operator import attrgetter
from typing import Protocol

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.consumer.counters import Counters
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import Options
from djqueue.consumer.memory import memory_of
from djqueue.consumer.rates import RateRecorder
from djqueue.registry import registry
from djqueue.running import consumers, pauses
from djqueue.running.consumers import ConsumerRecord, Order
from djqueue.running.pauses import COMMAND, SCHEDULE, Pauses, ends
from djqueue.running.shared import Shared, shared_stores
from djqueue.utils import clock, log_safely, plain
from djqueue.version import VERSION

logger = logging.getLogger(__name__)

LOOK = 1.0  # seconds between two looks for pauses and orders
FIRST_ANSWER, LONGEST_SILENCE = 5.0, 300.0  # seconds between two warnings that a store does not say what is paused
LASTING = 1.0  # seconds that a consumer lives before its first heartbeat: one that only drains costs nothing
CLOCK_EVERY = 60.0  # seconds between two questions for the time of the store
COMMANDS_EVERY = 43_200.0  # seconds after which the commands are written again, as the fact has a time to live


class OperatedConsumer(Protocol):
    """The part of a consumer that a heartbeat reports, and that an order changes."""

    name: str
    options: Options
    counters: Counters

    @property
    def ran(self) -> int: ...
    def stop(self) -> None: ...


class ConsumerState:
    """What the consumer does, whichever store is asked."""

    def __init__(self) -> None:
        self.quiet = False
        """Whether an operator wants it to claim nothing more."""
        self.stopping = False

    def __str__(self) -> str:
        return consumers.STOPPING if self.stopping else consumers.QUIET if self.quiet else consumers.RUNNING


class OperatorChannel:
    """Heartbeats, pauses and orders of a consumer, in one store of shared facts. :meth:`tick` does what is due.

    While nothing changes, this costs a read of two facts a second, and a write in five seconds. What the consumer
    counts is added to the shared facts with each heartbeat.
    """

    def __init__(
        self,
        shared: Shared,
        consumer: OperatedConsumer,
        messages: Callable[[], Iterable[Message]],
        state: ConsumerState,
        changed: Callable[[], object],
    ):
        self.store, self.queues = shared.store, shared.queues
        self.pauses = Pauses()
        self.is_known = False
        """Whether the pauses were read once."""
        self._consumer = consumer
        self._messages = messages
        """Returns what is in flight."""
        self._state = state
        self._rates = RateRecorder(self.store, self.queues, consumer.counters)
        self._changed = changed
        """Called when something was paused or resumed."""
        self._text: bytes | None = None
        self._obeyed = Order()
        self._began, self._ahead, self._asked = clock(), 0.0, -inf
        """When this consumer began; by how much the clock of the store is ahead of ours, and when it was asked."""
        self._looked = self._beat = self._listed_at = -inf
        self._written = self._listed = self._digest = ""
        """The state that the last heartbeat had; the digest of the commands that the store has, and of those known."""
        self._known: dict[str, str] = {}

    @property
    def now(self) -> float:
        """The time by the clock of the store, as far as it is known."""
        return clock() + self._ahead

    def tick(self) -> None:
        now = clock()
        if now - self._looked >= LOOK:
            if self._asked > -inf:
                self._rates.gather(self.now)
            self._look(now)
        is_due = now - self._beat >= consumers.EVERY or str(self._state) != self._written
        if is_due and now - self._began >= LASTING:
            self._write(now)

    @property
    def left(self) -> float:
        """The seconds until the next look is due."""
        return max(0.0, LOOK - (clock() - self._looked))

    def end(self) -> None:
        """The consumer has ended: write what it counted, and forget its heartbeat."""
        try:
            self._rates.end(self._now_for_certain)
        finally:
            if self._beat > -inf:
                consumers.leave(self.store, self._consumer.name)

    # ---- what it hears

    def _look(self, now: float) -> None:
        is_beat = self._beat > -inf and now - self._beat >= consumers.EVERY
        name = self._consumer.name
        keys = [pauses.KEY, consumers.order_key_of(name), *([consumers.INDEX] if is_beat else [])]
        text, order, *index = self.store.get_many(keys)
        self._looked = now
        if index and not consumers.is_listed(index[0], name):  # the store was emptied
            self._beat, self._listed = -inf, ""
        if text != self._text or not self.is_known:
            if text is not None and self._asked == -inf:
                self._ask_clock(now)  # by which a pause ends
            self._take_pauses(text)
        self._obey(consumers.order_of(order))

    def _take_pauses(self, text: bytes | None) -> None:
        before, self._text, self.pauses, self.is_known = self.pauses, text, Pauses.read(text), True
        now, ours = self.now, lambda one: any(map(one.covers, self.queues))
        was, are = list(filter(ours, before.at(now))), list(filter(ours, self.pauses.at(now)))
        for one in are:
            if one not in was:
                why = f" ({one.why})" if one.why else ""
                log_safely(
                    logger, logging.INFO, "%s %s is paused by %s%s", *map(plain, (one.kind, one.name, one.by, why))
                )
        for one in was:
            if one.key not in {other.key for other in are}:
                log_safely(logger, logging.INFO, "%s %s is resumed", *map(plain, (one.kind, one.name)))
        self._changed()

    def _obey(self, order: Order) -> None:
        if order == self._obeyed or not order.order:
            return
        self._obeyed = order
        text = "%s orders this consumer to %s"
        words = {consumers.QUIET: "claim nothing more", consumers.RESUME: "claim again", consumers.STOP: "stop"}
        log_safely(
            logger, logging.WARNING, text, plain(order.by) or "An operator", words.get(order.order, "do what it cannot")
        )
        if order.order == consumers.STOP:
            self._consumer.stop()
        elif order.order in words:
            self._state.quiet = order.order == consumers.QUIET
            self._changed()

    # ---- what it reports

    def _write(self, now: float) -> None:
        if now - self._asked >= CLOCK_EVERY:
            self._ask_clock(now)
        if len(self._known) != len(registry):
            self._known = consumers.known_commands(registry)
            self._digest = consumers.digest_of(self._known)
        if self._listed != self._digest or now - self._listed_at >= COMMANDS_EVERY:
            consumers.write_commands(self.store, self._known)
            self._listed, self._listed_at = self._digest, now
        self._rates.gather(self.now)
        state = str(self._state)
        consumers.write(self.store, self._record(state))
        if self._beat == -inf:
            consumers.enter(self.store, self._consumer.name)  # last: others take out those that have no record
        self._beat, self._written = now, state
        self._rates.add()

    def _record(self, state: str) -> ConsumerRecord:
        options = self._consumer.options
        running = sorted(
            (
                consumers.Running(one.lease.entry.id, one.lease.entry.command, one.began + self._ahead)
                for one in self._messages()
                if one.is_running and one.began is not None
            ),
            key=attrgetter("since"),
        )
        return ConsumerRecord(
            name=self._consumer.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            parent=os.getppid(),
            release=conf.get("QUEUE_RELEASE"),
            version=VERSION,
            queues=[queue.base_name for queue in self.queues],
            threads=options.threads,
            coroutines=options.coroutines,
            busy=len(running),
            running=running[: consumers.MOST_RUNNING],
            ran=self._consumer.ran,
            commands=self._digest,
            memory=round(memory_of(), 1),
            started=self._began + self._ahead,
            at=self.now,
            state=state,
        )

    def _now_for_certain(self) -> float:
        if self._asked == -inf:
            self._ask_clock(clock())
        return self.now

    def _ask_clock(self, now: float) -> None:
        self._ahead, self._asked = self.store.now() - now, now


class OperatorChannels:
    """The operator channels of a consumer, by queue. Queues that keep no facts have none: they are never paused."""

    def __init__(self, state: ConsumerState | None = None) -> None:
        self.state = state or ConsumerState()
        self.channels: list[OperatorChannel] = []
        self._of: dict[int, OperatorChannel] = {}
        self._are_known = False

    def open(
        self,
        queues: Iterable[BaseQueue],
        consumer: OperatedConsumer,
        messages: Callable[[], Iterable[Message]],
        changed: Callable[[], object],
    ) -> None:
        """Make a channel for each store of shared facts."""
        for shared in shared_stores(queues):
            channel = OperatorChannel(shared, consumer, messages, self.state, changed)
            self.channels.append(channel)
            self._of.update(dict.fromkeys(map(id, shared.queues), channel))

    def first_of(self, queues: Iterable[BaseQueue]) -> list[OperatorChannel]:
        """The channels whose first queue is among these: of several servers one serves a channel."""
        ours = set(map(id, queues))
        return [channel for channel in self.channels if id(channel.queues[0]) in ours]

    def are_known(self) -> bool:
        """Whether it is known of all queues what is paused."""
        return all(channel.is_known for channel in self.channels)

    def unknown_of(self, queues: Iterable[BaseQueue]) -> list[BaseQueue]:
        """The queues whose pauses are not known: their store of facts has not answered since the start."""
        self._are_known = self._are_known or self.are_known()
        return [] if self._are_known else [queue for queue in queues if not self._knows(queue)]

    def _knows(self, queue: BaseQueue) -> bool:
        channel = self._of.get(id(queue))
        return channel is None or channel.is_known

    def may_claim(self, queue: BaseQueue) -> bool:
        """Whether this consumer claims from a queue: not while either is paused, or may be."""
        if self.state.quiet or not self._knows(queue):
            return False
        channel = self._of.get(id(queue))
        return channel is None or not channel.pauses or channel.pauses.of_queue(queue, channel.now) is None

    def has_paused_commands(self, queue: BaseQueue) -> bool:
        channel = self._of.get(id(queue))
        return channel is not None and channel.pauses.has_commands

    def pause_times(self, queue: BaseQueue, command: str) -> tuple[float, float] | None:
        """For how long a command has been paused, and until its pause ends by itself; None if it is not paused."""
        channel = self._of[id(queue)]
        now = channel.now
        pause = channel.pauses.find(COMMAND, command, queue, now)
        return None if pause is None else (max(0.0, now - pause.since), ends(pause) - now)

    def is_schedule_paused(self, queue: BaseQueue, name: str) -> bool:
        if not self._knows(queue):
            return True  # for the moment
        channel = self._of.get(id(queue))
        if channel is None or not channel.pauses:
            return False
        return channel.pauses.find(SCHEDULE, name, queue, channel.now) is not None


class SilenceLog:
    """Logs that nothing is claimed from queues, as their stores do not say what is paused: with growing pauses."""

    def __init__(self, log: Callable[..., None] = log_safely) -> None:
        self._log = log
        self._began = clock()
        self._pause = FIRST_ANSWER

    def note(self, unknown: Iterable[BaseQueue]) -> None:
        waited = clock() - self._began
        if waited < self._pause:
            return
        text = "Nothing is claimed from %s: its store of facts has not answered for %.0f s, so it may be paused"
        for queue in unknown:
            self._pause = waited + min(waited, LONGEST_SILENCE)
            self._log(logger, logging.WARNING, text, queue.alias, waited, extra={"queue": queue.alias})
