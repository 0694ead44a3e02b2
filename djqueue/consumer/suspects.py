"""Messages that were lost once, and cannot run in a process of their own, run alone in this one: *suspects*."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from math import inf

from djqueue.backends.base import BaseQueue
from djqueue.consumer.in_flight import Message
from djqueue.utils import clock

PATIENCE = 10.0
"""Seconds that a suspect waits at most for running messages, or these for its settlement."""


class Suspects:
    """Sees to it that what kills its process kills nothing else.

    Before a suspect is claimed, all other messages of this process end and are settled, or PATIENCE passes: what still
    runs then runs on. While it runs nothing is claimed.
    """

    def __init__(self, queues: Sequence[BaseQueue], held: Callable[[], Iterable[Message]]):
        self._queues = {id(queue) for queue in queues}
        """The queues whose suspects run here."""
        self._held = held
        """All messages in flight, of all pumps."""
        self._lock = threading.Lock()
        self._suspect: Message | None = None
        self._ended: float | None = None
        """When the suspect was first seen to have ended, until the store has taken that."""
        self._pump: object = None
        """The one that has met a suspect: it alone claims, and one entry at most."""
        self._since = 0.0
        """When it met that."""

    def among(self, queue: BaseQueue, messages: Sequence[Message]) -> list[Message]:
        """Which of these messages of a queue may run only alone."""
        return [one for one in messages if one.lease.entry.lost] if id(queue) in self._queues else []

    @property
    def awaited(self) -> bool:
        """Whether a suspect waits for all other messages of this process."""
        return self._pump is not None

    def most(self, pump: object) -> float:
        """How many entries a pump may claim now, as far as suspects decide."""
        if self._is_occupied():
            return 0
        if self._pump is None:
            return inf
        return int(self._pump is pump and self._may_begin())

    def await_(self, pump: object) -> None:
        """A pump has met a suspect: claim nothing until the other messages of this process have ended."""
        with self._lock:
            if self._pump is None or self._pump is pump:
                self._pump, self._since = pump, clock()

    def stop_awaiting(self, pump: object, before: float = inf) -> None:
        """A pump has claimed after its wait, or cannot claim; unless it has met a suspect again since."""
        with self._lock:
            if self._pump is pump and self._since < before:
                self._pump = None

    def admit(self, suspect: Message) -> bool:
        """Whether a suspect may run now. If so, nothing else is begun until it is settled."""
        with self._lock:
            if self._is_occupied() or not self._may_begin(suspect):
                return False
            self._suspect, self._ended = suspect, None
            return True

    def shuts_out(self, message: Message) -> bool:
        """Whether a message may not begin now as a suspect runs."""
        return self._is_occupied() and message is not self._suspect

    def _is_occupied(self) -> bool:
        """Whether a suspect is not settled: what began now could be lost with it.

        If the store does not take its end, other messages begin all the same after a while.
        """
        suspect = self._suspect
        if suspect is None or not suspect.mail.holds(suspect):
            return False
        if suspect.final is None:
            return True
        ended = self._ended
        if ended is None:
            self._ended = ended = clock()
        return clock() - ended < PATIENCE

    def _may_begin(self, suspect: Message | None = None) -> bool:
        """Whether a suspect may begin: it is alone, or has waited for the others for long enough."""
        is_alone = all(message is suspect for message in self._held())
        return is_alone or (self._pump is not None and clock() - self._since > PATIENCE)
