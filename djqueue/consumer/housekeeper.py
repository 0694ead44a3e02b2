"""What a consumer does beside the messages of a server: progress, requests to cancel, and all that operators see."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from djqueue.backends.base import BaseQueue
from djqueue.consumer.crew import Crew
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import Loop, alike, run_all
from djqueue.consumer.operators import OperatorChannel
from djqueue.running.attempts import note
from djqueue.running.ends import Progress
from djqueue.running.result_store import are_cancelled, progress_fact
from djqueue.utils import clock

EVERY = 0.25
"""Seconds between two reports, or two questions, for one message."""
FIRST_ANSWER = 1.0
"""Most seconds to wait for the first answer to a question."""
LASTING = 0.5
"""Seconds after which it is noted who runs a call through Django's tasks, and between two looks for such."""


@dataclass(slots=True)
class Watch:
    """The question whether a message is cancelled, asked again and again."""

    answered: Event = field(default_factory=Event)
    is_cancelled: bool = False


class Housekeeper(Loop):
    """Takes progress to the store, and asks it whether what runs is cancelled, if its command wants to know.

    Its thread does the same for operators: heartbeats go to the store, pauses and orders come from it.

    It has a connection of its own: a report made within a transaction is visible before that ends, and a question is
    not answered from a snapshot. All queues are of one server: a server that does not answer delays no other.
    """

    def __init__(self, queues: Sequence[BaseQueue], crew: Crew, operators: Sequence[OperatorChannel] = ()):
        super().__init__(f"djqueue-housekeeper-{queues[0].alias}")
        self._operators = operators
        self._ours = {id(queue) for queue in queues}
        self._crew = crew
        self._reports: dict[Message, Progress] = {}
        self._reported: dict[Message, float] = {}
        """When the progress of a message was last taken to the store (monotonic)."""
        self._watched: dict[Message, Watch] = {}
        self._noted: set[Message] = set()
        """Those of which the store knows who runs them."""

    def report(self, message: Message, progress: Progress) -> None:
        is_new = message not in self._reports
        self._reports[message] = progress
        if is_new:
            self.wake()

    def is_cancelled(self, message: Message) -> bool:
        """Whether it was cancelled; from now on that is asked again and again. Waits for the first answer."""
        if (watch := self._watched.get(message)) is None:
            watch = self._watched[message] = Watch()
            self.wake()
            watch.answered.wait(FIRST_ANSWER)
        return watch.is_cancelled

    def tick(self) -> float:
        now, held = time.monotonic(), [one for one in self._crew.messages() if id(one.queue) in self._ours]
        self._forget(set(held))
        due = [message for message in list(self._reports) if now - self._reported.get(message, 0.0) >= EVERY]
        unknown = [message for message in held if message not in self._noted and _lasts_as_task(message)]
        steps: list[Callable[[], None]] = [
            *(channel.tick for channel in self._operators),
            *(partial(self._deliver, some) for some in alike(due, _queue_of)),
            *(partial(self._ask, some) for some in alike(list(self._watched), _queue_of)),
            *(partial(self._note, some) for some in alike(unknown, _queue_of)),
        ]
        run_all(steps, lambda step: step())  # a step that fails delays no other
        pause = EVERY if self._reports or self._watched else LASTING
        return min([pause, *(channel.left for channel in self._operators)])

    def _forget(self, held: set[Message]) -> None:
        for message in [one for one in list(self._watched) if one not in held]:
            del self._watched[message]
        for message in self._reported.keys() - held:
            del self._reported[message]
        self._noted &= held

    def on_stop(self) -> None:
        steps: list[Callable[[], None]] = [channel.end for channel in self._operators]
        steps += [partial(self._deliver, some) for some in alike(list(self._reports), _queue_of)]
        run_all(steps, lambda step: step())

    def _deliver(self, some: Sequence[Message]) -> None:
        reports = {message: progress for message in some if (progress := self._reports.pop(message, None)) is not None}
        self._reported.update(dict.fromkeys(reports, time.monotonic()))
        queue = some[0].queue
        try:
            queue.store.put_many([progress_fact(queue, one.lease.entry.id, said) for one, said in reports.items()])
        except Exception:
            for message, progress in reports.items():
                self._reports.setdefault(message, progress)
            raise

    def _ask(self, some: Sequence[Message]) -> None:
        cancelled = are_cancelled(some[0].queue, [message.lease.entry for message in some])
        for message, was in zip(some, cancelled, strict=True):
            if (watch := self._watched.get(message)) is not None:
                watch.is_cancelled = watch.is_cancelled or was
                watch.answered.set()

    def _note(self, some: Sequence[Message]) -> None:
        """Note who runs calls through Django's tasks: results show it while they run, and if this process dies."""
        attempts = [(one.lease.entry, control.attempts) for one in some if (control := one.control) is not None]
        note(some[0].queue, [(entry, known[-1]) for entry, known in attempts if known])
        self._noted.update(some)


def _lasts_as_task(message: Message) -> bool:
    """Whether it is a call through Django's tasks that has run for a while."""
    control = message.control
    if not message.is_running or message.lost or control is None or not control.attempts:
        return False
    return message.began is not None and message.began <= clock() - LASTING


def _queue_of(message: Message) -> int:
    return id(message.queue)
