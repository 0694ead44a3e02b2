"""Which workers keep a handler, and for which shard. Called under the lock of the pool."""

from __future__ import annotations

from collections.abc import Hashable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from djqueue.consumer.holdings import Held
    from djqueue.consumer.worker import Worker


class Bonds:
    """A worker that keeps a handler is tied to its shard, and *lingers* while nothing comes for that."""

    def __init__(self) -> None:
        self._tied: dict[Hashable, Worker] = {}
        self._dissolved = False
        self.lingering: dict[Worker, None] = {}
        """In the order in which they began to."""

    def tie(self, worker: Worker) -> None:
        """Have what comes for the shard of its handler go to this worker, if it keeps one."""
        self.untie(worker)
        worker.tied = worker.binding.shard
        if worker.tied is not None:
            self._tied[worker.tied] = worker

    def untie(self, worker: Worker) -> None:
        """Nothing comes to this worker alone any more."""
        self.lingering.pop(worker, None)
        if self._tied.get(worker.tied) is worker:
            del self._tied[worker.tied]
        worker.tied = None

    def inbox_of(self, unit: list[Held], inbox: SimpleQueue) -> SimpleQueue:
        """Where a unit is put: before the worker that keeps a handler for it and does nothing else, or before all."""
        if not self._tied:
            return inbox
        entry = unit[0].lease.entry
        worker = self._tied.get((entry.label, entry.lane))
        if worker is None or worker.unit:
            return inbox
        self.lingering.pop(worker, None)
        return worker.mail

    def linger(self, worker: Worker) -> None:
        """From now on it looks at its mail only, until its time is over."""
        if self._dissolved:
            self._send_away(worker)
        elif worker.mail.empty():
            self.lingering[worker] = None

    def last_word(self, worker: Worker) -> list[Held]:
        """Its time is over; what came for it at the last moment, if anything did."""
        self.untie(worker)
        try:
            return worker.mail.get_nowait()
        except Empty:
            return []

    def give_up(self, count: int) -> None:
        """Have so many of those that linger keep their handlers no longer: those that did so for longest."""
        for worker in list(self.lingering)[: max(0, count)]:
            self._send_away(worker)

    def dissolve(self) -> None:
        """Have nobody linger any more."""
        self._dissolved = True
        self.give_up(len(self.lingering))

    def _send_away(self, worker: Worker) -> None:
        self.untie(worker)
        worker.mail.put([])
