"""What the project is notified of once a store has answered: its code runs here, as no pump may wait for it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue, Lease
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import Loop
from djqueue.running.settle import announce, proof_of
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

IDLE = 3600.0  # seconds: whoever has news wakes it


class Settled(NamedTuple):
    """The answer of a store to the settlements of one queue."""

    queue: BaseQueue
    messages: Sequence[Message]
    held: Sequence[Lease]
    """The leases that were still held."""
    applied: Collection[tuple[str, object]] = ()
    """The proofs of those that an earlier call settled, whose answer was lost."""


def send_signals(event: Settled) -> None:
    """The signals of what became of messages; those that another consumer holds by now are reported."""
    if len(event.held) == len(event.messages) and not any(map(_is_announced, event.messages)):
        return
    settlements = [sent for message in event.messages if (sent := message.as_sent()) is not None]
    announce(event.queue, settlements, event.held, lambda lease: proof_of(lease) in event.applied)


def _is_announced(message: Message) -> bool:
    """Whether there are receivers for what became of it."""
    return message.final is not None and bool(message.final.verdict.outcome.effect.signal.receivers)


class Announcer(Loop):
    """Calls the subscribers of ``settled`` and the handlers of the log for the pumps, one after the other.

    A subscriber that raises costs itself. While too much waits here the pumps claim nothing.
    """

    def __init__(self, count: Callable[[Sequence[Message]], object] = lambda messages: None):
        super().__init__("djqueue-announcer")
        self._waiting: deque[Callable[[], object]] = deque()
        self._subscribers: list[Callable[[Settled], object]] = [lambda event: count(event.messages), send_signals]
        """Of ``settled``, in their order."""

    def __len__(self) -> int:
        """How many answers and records wait."""
        return len(self._waiting)

    def put(self, step: Callable[[], object]) -> None:
        """Have it called, after all that waits. From any thread."""
        self._waiting.append(step)
        self.wake()

    def log(self, logger: logging.Logger, level: int, text: str, *args: Any, **how: Any) -> None:
        """:func:`djqueue.utils.log_safely`, in this thread."""
        if logger.isEnabledFor(level):
            self.put(partial(log_safely, logger, level, text, *args, **how))

    def settled(self, event: Settled) -> None:
        self.put(partial(self._settled, event))

    def _settled(self, event: Settled) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception as error:  # the store has settled them
                text = "%d messages of %s were settled, and not all is done that follows"
                log_safely(logger, logging.ERROR, text, len(event.messages), event.queue.alias, exc_info=error)

    def tick(self) -> float:
        while self._waiting:
            step = self._waiting[0]  # it waits until it is done: the end of the consumer is not before
            try:
                step()
            except Exception as error:
                log_safely(logger, logging.ERROR, "What a pump has reported could not be passed on", exc_info=error)
            finally:
                self._waiting.popleft()
        return IDLE
