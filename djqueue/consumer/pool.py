"""A fixed number of threads that run what is put before them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from djqueue.consumer.bonds import Bonds
from djqueue.consumer.holdings import Held
from djqueue.consumer.worker import Worker
from djqueue.policies.outcomes import Verdict
from djqueue.running.context import Control


class Pool:
    """Workers around one inbox of units. ``finish(held, verdict)`` is called by a worker for each that it has run."""

    def __init__(
        self,
        threads: int,
        finish: Callable[[Held, Verdict], None],
        control: Callable[[Held], Control | None] = lambda held: None,
        recall: Callable[[], str] = str,
        isolate: Callable[[Held, Control], Verdict | None] | None = None,
    ):
        self._inbox: SimpleQueue[list[Held] | None] = SimpleQueue()
        self._finish = finish
        self.control = control
        """Makes what the command of a held lease can ask."""
        self.recall = recall
        """Why what a worker has not begun is to go back to the queue; nothing if it is to go on."""
        self.isolate = isolate
        """Runs what workers have died with in a process of its own; None if the workers run it as everything else."""
        self._low_water = 0
        self._lock = threading.Lock()
        self._handed = 0  # to the workers, since the start
        self.room = threading.Event()
        """Set when few enough are waiting that it is worth while to claim more."""
        self.workers = [Worker(self, number) for number in range(1, threads + 1)]
        self._bonds = Bonds()
        self._left_behind: list[Worker] = []

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def close(self) -> None:
        """Let no worker keep a handler beyond what it is running."""
        with self._lock:
            self._bonds.dissolve()

    def stop(self) -> None:
        """Let each worker end after what it is running."""
        self.close()
        for _ in self.workers:
            self._inbox.put(None)

    @property
    def keeps(self) -> bool:
        """Whether a worker keeps a handler, and will part from it."""
        return any(worker.binding.shard is not None and not worker.is_dead for worker in self.workers)

    @property
    def waiting(self) -> int:
        """How many units nobody has begun."""
        return self._inbox.qsize()

    @property
    def idle(self) -> int:
        """How many threads would begin something at once."""
        return max(0, len(self.workers) - self._undone)

    @property
    def _undone(self) -> int:
        return self._handed - self.finished

    @property
    def finished(self) -> int:
        """How many units have been run so far."""
        return sum(worker.finished for worker in self.workers)

    @property
    def stuck(self) -> int:
        """How many threads were left behind and still run."""
        return sum(worker.is_alive() for worker in self._left_behind)

    @property
    def is_stuck(self) -> bool:
        """Whether so many were left behind that a new process is needed: as many as there are threads."""
        return self.stuck >= len(self.workers)

    def leave_behind(self, held: Held) -> tuple[Worker, list[Held]] | None:
        """Put a new thread in the place of the one that runs this; the old one and all that it has in hands.

        None if no thread runs it any more.
        """
        with self._lock:
            worker = next((worker for worker in self.workers if held in worker.unit), None)
            if worker is None:
                return None
            heir = Worker(self, worker.number)
            heir.finished = worker.finished + 1
            heir.start()  # which may fail: then nothing has changed
            self._bonds.untie(worker)
            self.workers[self.workers.index(worker)], unit, worker.unit = heir, worker.unit, []
            self._left_behind = [*(one for one in self._left_behind if one.is_alive()), worker]
            return worker, unit

    def bereave(self) -> list[Held]:
        """Take from the workers that died all that they have in hands, and what was put before them alone."""
        with self._lock:
            left = []
            for worker in self.workers:
                if worker.is_dead:
                    self._bonds.untie(worker)
                    left += [*worker.unit, *_mail_of(worker)]
                    worker.unit = []
            return left

    def let_go(self, worker: Worker, held: Held) -> bool:
        """The worker is done with this; False if it was left behind meanwhile."""
        with self._lock:
            ours = held in worker.unit
            if ours:
                worker.unit.remove(held)
                worker.finished += not worker.unit
            return ours

    def submit(self, units: Sequence[list[Held]], low_water: int = 0) -> None:
        """Put them before the workers; :attr:`room` is set when no more than ``low_water`` are left."""
        self._low_water = low_water
        with self._lock:
            self._handed += len(units)
            crowded = self._undone > len(self.workers)  # then each in its turn, whoever keeps a handler for it
            for unit in units:
                (self._inbox if crowded else self._bonds.inbox_of(unit, self._inbox)).put(unit)
            self._call_up()

    def take_back(self) -> list[list[Held]]:
        """All that nobody has begun."""
        taken = []
        while True:
            try:
                taken.append(self._inbox.get_nowait())
            except Empty:
                break
        for _ in range(taken.count(None)):
            self._inbox.put(None)  # words to stop, which are the workers'
        taken = [unit for unit in taken if unit is not None]
        with self._lock:
            self._handed -= len(taken)
        return taken

    def next(self, worker: Worker | None = None) -> list[Held] | None:
        """What is to be run now; None: nothing any more."""
        unit = (self._for_its_shard(worker) or _left_in(worker)) if worker is not None else None
        unit = unit or self._inbox.get()
        if self._inbox.qsize() <= self._low_water:
            self.room.set()
        return unit

    def finish(self, held: Held, verdict: Verdict) -> None:
        self._finish(held, verdict)
        if self._inbox.empty():
            self.room.set()

    # ---- workers that keep a handler

    def keep(self, worker: Worker) -> None:
        """Have what comes for the shard of its handler go to this worker, if it keeps one."""
        if worker.binding.shard != worker.tied:
            with self._lock:
                if worker in self.workers:
                    self._bonds.tie(worker)

    def _for_its_shard(self, worker: Worker) -> list[Held]:
        """What comes while the worker lingers; nothing if it is to run something else, without its handler."""
        if worker.binding.shard is None:
            return []
        with self._lock:
            self._bonds.linger(worker)
            self._call_up()
        try:
            unit = worker.mail.get(timeout=min(worker.binding.linger, threading.TIMEOUT_MAX))
        except Empty:
            with self._lock:
                unit = self._bonds.last_word(worker)
        if not unit:
            worker.part()
        return unit

    def _call_up(self) -> None:
        """Every unit needs a worker that does not wait for its own shard."""
        if self._bonds.lingering:
            self._bonds.give_up(self._undone + len(self._bonds.lingering) - len(self.workers))


def _mail_of(worker: Worker) -> list[Held]:
    """All that nobody but this worker would take."""
    mail = []
    while not worker.mail.empty():
        mail += worker.mail.get()
    return mail


def _left_in(worker: Worker) -> list[Held]:
    """What was put into its mail just before it gave up its handler."""
    while not worker.mail.empty():
        if unit := worker.mail.get():
            return unit
    return []
