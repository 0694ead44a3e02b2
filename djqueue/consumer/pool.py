"""A fixed number of threads that run what is put before them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from queue import Empty, SimpleQueue

from django.db import connections

from djqueue.consumer.holdings import Held
from djqueue.durations import clock
from djqueue.executor import execute
from djqueue.logs import about, tell
from djqueue.running import Control
from djqueue.verdicts import Outcome, Verdict

logger = logging.getLogger(__name__)


_LAPSED = Verdict(Outcome.UNTRIED, "its lease ran out before it was begun")


class Pool:
    """Workers around one inbox. ``finish(held, verdict)`` is called by a worker for each that it has run."""

    def __init__(
        self,
        threads: int,
        finish: Callable[[Held, Verdict], None],
        control: Callable[[Held], Control | None] = lambda held: None,
    ):
        self._inbox: SimpleQueue[Held | None] = SimpleQueue()
        self._finish = finish
        self.control = control
        """Makes what the command of a held lease can ask."""
        self._low_water = 0
        self._lock = threading.Lock()
        self._handed = 0  # to the workers, since the start
        self.room = threading.Event()
        """Set when few enough are waiting that it is worth while to claim more."""
        self.workers = [Worker(self, number) for number in range(1, threads + 1)]
        self._left_behind: list[Worker] = []

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """Let each worker end after what it is running."""
        for _ in self.workers:
            self._inbox.put(None)

    @property
    def waiting(self) -> int:
        """How many nobody has begun."""
        return self._inbox.qsize()

    @property
    def idle(self) -> int:
        """How many threads would begin something at once."""
        return max(0, len(self.workers) - (self._handed - self.finished))

    @property
    def finished(self) -> int:
        """How many have been run so far."""
        return sum(worker.finished for worker in self.workers)

    @property
    def stuck(self) -> int:
        """How many threads were left behind and still run."""
        return sum(worker.is_alive() for worker in self._left_behind)

    @property
    def is_stuck(self) -> bool:
        """Whether so many were left behind that a new process is needed: as many as there are threads."""
        return self.stuck >= len(self.workers)

    def leave_behind(self, held: Held) -> Worker | None:
        """Put a new thread in the place of the one that runs this; the old one, or None if none does any more."""
        with self._lock:
            worker = next((worker for worker in self.workers if worker.held is held), None)
            if worker is None:
                return None
            heir = Worker(self, worker.number)
            heir.finished = worker.finished + 1
            heir.start()  # which may fail: then nothing has changed
            self.workers[self.workers.index(worker)], worker.held = heir, None
            self._left_behind = [*(one for one in self._left_behind if one.is_alive()), worker]
            return worker

    def let_go(self, worker: Worker, held: Held) -> bool:
        """The worker has run this; False if it was left behind meanwhile."""
        with self._lock:
            ours = worker.held is held
            worker.held = None
            worker.finished += ours
            return ours

    def submit(self, units: Sequence[Held], low_water: int = 0) -> None:
        """Put them before the workers; :attr:`room` is set when no more than ``low_water`` are left."""
        self._low_water = low_water
        with self._lock:
            self._handed += len(units)
        for held in units:
            self._inbox.put(held)

    def take_back(self) -> list[Held]:
        """All that nobody has begun."""
        taken = []
        while True:
            try:
                taken.append(self._inbox.get_nowait())
            except Empty:
                break
        for _ in range(taken.count(None)):
            self._inbox.put(None)  # words to stop, which are the workers'
        taken = [held for held in taken if held is not None]
        with self._lock:
            self._handed -= len(taken)
        return taken

    def next(self) -> Held | None:
        held = self._inbox.get()
        if self._inbox.qsize() <= self._low_water:
            self.room.set()
        return held

    def finish(self, held: Held, verdict: Verdict) -> None:
        self._finish(held, verdict)
        if self._inbox.empty():
            self.room.set()


class Worker(threading.Thread):
    """Runs one at a time, for ever."""

    def __init__(self, pool: Pool, number: int):
        super().__init__(name=f"djqueue-worker-{number}", daemon=True)
        self.number = number
        self.held: Held | None = None
        """What it is running."""
        self._pool = pool
        self._runner: asyncio.Runner | None = None
        self.finished = 0

    def run(self) -> None:
        while (held := self._pool.next()) is not None:
            self.held, held.began = held, clock()
            verdict = _LAPSED if held.lapsed(held.began) else self._execute(held)
            if not self._pool.let_go(self, held):
                break
            try:
                self._pool.finish(held, verdict)
            except BaseException as error:  # nothing may end the thread
                tell(logger, logging.ERROR, "A message could not be finished", exc_info=error)
        if self._runner is not None:
            self._runner.close()
        connections.close_all()

    def where(self) -> str:
        """What it is doing just now, as a traceback tells it."""
        frame = sys._current_frames().get(self.ident)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def _execute(self, held: Held) -> Verdict:
        mend_connections()
        try:
            return execute(held.queue, held.lease, self._await, self._pool.control(held))
        except BaseException as error:  # not the command's, which execute() judges; nothing may end the thread
            tell(
                logger,
                logging.ERROR,
                "A message could not be run",
                exc_info=error,
                extra=about(held.queue, held.lease.entry),
            )
            return Verdict(Outcome.HANDED_BACK, f"could not be run: {type(error).__name__}", delay=1.0)
        finally:
            mend_connections()

    def _await(self, coroutine: Coroutine) -> object:
        """Async commands of one thread share an event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine, context=copy_context())  # else they would share the context of the first


def mend_connections() -> None:
    """Around every command what Django does around every request: no connection that is broken or too old.

    Nor does one stay in a transaction that a command has left open.
    """
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                connection.close()
                del connections[connection.alias]  # Django holds a connection closed within atomic() to be broken
            else:
                connection.close_if_unusable_or_obsolete()
        except Exception:
            tell(logger, logging.WARNING, "A database connection could not be closed", exc_info=True)
