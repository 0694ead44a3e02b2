"""The workers: a fixed number of threads that run units of messages, and the handlers that some of them keep."""

from __future__ import annotations

import gc
import logging
import threading
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue

from django.db import connections

from djqueue.backends.entries import log_extra
from djqueue.consumer.coroutines import Coroutines
from djqueue.consumer.database_connections import check_connections
from djqueue.consumer.in_flight import Message, reported
from djqueue.consumer.loop import Member, is_for_want
from djqueue.consumer.thread_loop import ThreadLoop, leave_running_loop
from djqueue.messages.failures import kind_of, release
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.context import Control
from djqueue.running.executor import (
    BEHIND,
    MOST_TRIES,
    Begun,
    batch_of,
    begin,
    execute_batch,
    why_not,
)
from djqueue.running.handlers import HandlerSlot
from djqueue.utils import clock, end_child, forks, log_safely, plain

logger = logging.getLogger(__name__)

LOOK = 0.1  # seconds between two looks whether the process is still at its limits
CHECKED = 1.0  # seconds for which a connection that was checked after a command needs no check before the next one
LAPSED = Verdict(Outcome.RETURNED, "its lease ran out before it was begun")


class Affinity:
    """Which worker keeps the handler of which shard. While nothing comes for it, such a worker *waits* for it alone."""

    def __init__(self) -> None:
        self._assigned: dict[Hashable, Worker] = {}
        self._closed = False
        self.waiting: dict[Worker, None] = {}
        """The workers that wait for their shard alone, in the order in which they began to."""

    def assign(self, worker: Worker) -> None:
        """Send the units for the shard of its handler to this worker, if it keeps one."""
        self.unassign(worker)
        worker.assigned = worker.slot.shard
        if worker.assigned is not None:
            self._assigned[worker.assigned] = worker

    def unassign(self, worker: Worker) -> None:
        """Send no more units to this worker alone."""
        self.waiting.pop(worker, None)
        if self._assigned.get(worker.assigned) is worker:
            del self._assigned[worker.assigned]
        worker.assigned = None

    def inbox_of(self, unit: list[Message], inbox: SimpleQueue) -> SimpleQueue:
        """The inbox for a unit: the mail of the idle worker that keeps a handler for it, or else the common inbox."""
        if not self._assigned:
            return inbox
        entry = unit[0].lease.entry
        worker = self._assigned.get((entry.command, entry.lane))
        if worker is None or worker.unit:
            return inbox
        self.waiting.pop(worker, None)
        return worker.mail

    def wait_for_its_shard(self, worker: Worker) -> None:
        """The worker looks at its mail only from now on, until its time is over."""
        if self._closed:
            self._release(worker)
        elif worker.mail.empty():
            self.waiting[worker] = None

    def stop_waiting(self, worker: Worker) -> list[Message]:
        """End the worker's waiting; the unit that came for it at the last moment, if any."""
        self.unassign(worker)
        try:
            return worker.mail.get_nowait()
        except Empty:
            return []

    def give_up(self, count: int) -> None:
        """Have this many waiting workers stop their handlers, the ones that waited longest first."""
        for worker in list(self.waiting)[: max(0, count)]:
            self._release(worker)

    def close(self) -> None:
        """End all waiting, for good."""
        self._closed = True
        self.give_up(len(self.waiting))

    def _release(self, worker: Worker) -> None:
        self.unassign(worker)
        worker.mail.put([])


class Worker(Member):
    """Runs one unit at a time."""

    def __init__(self, pool: Pool, number: int):
        super().__init__(f"djqueue-worker-{number}")
        self.number = number
        self.unit: list[Message] = []
        """The leases that it has: the one that it runs, and those after it."""
        self._loop, self._handler_loop = ThreadLoop(), ThreadLoop(is_kept=True)
        self.slot = HandlerSlot(self._await, self._handler_loop.close)
        """The handler that it keeps, if any."""
        self.mail: SimpleQueue[list[Message]] = SimpleQueue()
        """The units for the shard of that handler; an empty unit if other units need the worker more."""
        self.assigned: Hashable = None
        """The shard for which it has mail."""
        self._pool = pool
        self._checked = -inf
        """When the latest command began after which connections were checked."""
        self.finished = 0
        self._waits_after = -1
        """How many units it had finished when it last went to wait for one; -1 while it does something else."""

    @property
    def waits(self) -> bool:
        """Whether it waits for a unit."""
        return self._waits_after == self.finished and not self.unit

    def duty(self) -> None:
        self._waits_after = self.finished
        while (unit := self._pool.next(self)) is not None and self._serve(unit):
            self._recover(unit)
            unit.clear()  # otherwise it would stay in memory until the next unit comes
            if forks.count != self.forks:
                end_child(None)
            self._waits_after = self.finished
        self._waits_after = -1
        self.stop_handler()
        self._loop.close()
        self._handler_loop.close()
        connections.close_all()

    def give_up_handler(self) -> None:
        """Stop the handler, to run other units."""
        self._waits_after = -1
        self.stop_handler()
        self._waits_after = self.finished

    def stop_handler(self) -> None:
        """Stop the handler, and keep none."""
        if self.slot.shard is not None:
            self.slot.release()
            check_connections()

    def _serve(self, unit: list[Message]) -> bool:
        """Run a unit, finishing each message as it ends; False if this thread was left behind meanwhile."""
        self.unit, rest = unit.copy(), unit
        for message in unit:
            message.worker = self
        if self._pool.coroutines is not None and unit[0].awaits_place:
            return self._start(self._pool.coroutines, unit[0])
        while rest:
            batch, rest = (rest, []) if len(rest) == 1 else _next_batch(rest)
            now = clock()
            for message in batch:
                message.began = now
            verdicts = self._execute(batch, now)
            if rest and (untried := self._why_not(batch, verdicts, rest)) is not None:
                verdicts += [reported(message, untried) for message in rest]
                batch, rest = batch + rest, []
            for place, message in enumerate(batch):
                if not self._pool.finish_of(self, message, verdicts[place]):
                    return False
        return True

    def _recover(self, unit: Sequence[Message]) -> None:
        """After a failure free the frames of its exception, and begin nothing while this process is at its limits."""
        for message in unit:
            if message.end is not None and message.end.verdict.outcome is not Outcome.DONE:
                break
        else:
            return
        failures = _failures([message.end.verdict for message in unit if message.end is not None])
        release(failures)  # the frames that have ended since
        if any(map(is_for_want, failures)):
            gc.collect()
        while self.starvation.look():
            time.sleep(LOOK)

    def _why_not(
        self, batch: Sequence[Message], verdicts: Sequence[Verdict], rest: Sequence[Message]
    ) -> Verdict | None:
        """Why the rest of the unit must not begin; None if it may."""
        if reason := self._pool.recall():
            return Verdict(Outcome.RETURNED, reason)
        if _failures(verdicts) and self.starvation.look():
            return Verdict(Outcome.RETURNED, "this process is at its limits")
        if any(message.lost for message in batch):
            return BEHIND
        return why_not([message.lease for message in batch], verdicts, rest[0].lease)

    def _execute(self, batch: Sequence[Message], now: float) -> list[Verdict]:
        """A verdict for each message of a batch, which is run but for leases that may have run out."""
        for message in batch:
            if message.final is not None or message.lapsed(now):  # it was given up before it began, or may be
                return self._execute_before(message, batch, now)
        if now - self._checked > CHECKED:
            check_connections()
        first, controls = batch[0], [self._pool.control(message) for message in batch]
        try:
            if (
                first.lease.entry.lost
                and len(batch) == 1
                and (verdict := self._isolated(first, controls[0])) is not None
            ):
                return [verdict]
            verdicts = execute_batch(first.queue, [message.lease for message in batch], controls, self.slot)
        except BaseException as error:  # not of the command: execute_batch() judges those
            return _not_run(batch, error)
        finally:
            if forks.count != self.forks:
                end_child(None)  # of a handler of the log
            check_connections()
            if _get_running_loop() is not None:
                leave_running_loop()
            self._checked = now
            if self.slot.shard != self.assigned:
                self._pool.keep(self)
        for verdict in verdicts:
            if verdict.exception is not None:
                release([verdict.exception])  # now, as its frames may hold much memory
        return verdicts

    def _isolated(self, suspect: Message, control: Control) -> Verdict | None:
        """Run a suspect in a process of its own if it can be had; else None."""
        return None if self._pool.isolate is None else self._pool.isolate(suspect, control)

    def _start(self, coroutines: Coroutines, message: Message) -> bool:
        """Begin a message that runs on the event loop; False if this thread was left behind meanwhile."""
        if reason := coroutines.take_place(self._pool.recall):
            return self._pool.finish_of(self, message, reported(message, Verdict(Outcome.RETURNED, reason)))
        message.began = clock()
        begun = reported(message, LAPSED) if message.lapsed(message.began) else self._begin(message)
        if not isinstance(begun, Verdict):
            message.worker = coroutines
            if self._pool.let_go(self, message):
                coroutines.start_task(message, begun)
                self._pool.freed()
                return True
        coroutines.give_place()
        return isinstance(begun, Verdict) and self._pool.finish_of(self, message, begun)

    def _begin(self, message: Message) -> Begun | Verdict:
        """Begin a message, or run it in a process of its own if loops have died with it."""
        control = self._pool.control(message)
        try:
            if message.lease.entry.lost and (verdict := self._isolated(message, control)) is not None:
                return verdict
            return begin(message.queue, message.lease, control)
        except BaseException as error:  # not of the command: begin() judges those
            return _not_run([message], error)[0]
        finally:
            if forks.count != self.forks:
                end_child(None)
            check_connections()

    def _execute_before(self, lapsed: Message, batch: Sequence[Message], now: float) -> list[Verdict]:
        """Run the messages before one whose lease may have run out; behind it nothing must begin."""
        ours, others = batch[: batch.index(lapsed)], batch[batch.index(lapsed) :]
        verdicts = self._execute(ours, now) if ours else []
        return verdicts + [reported(message, LAPSED) for message in others]

    def _await(self, coroutine: Coroutine) -> object:
        """Run a coroutine on the event loop of the consumer, or of this thread.

        Raises NoEventLoop.
        """
        if self._pool.coroutines is not None:
            return self._pool.coroutines.await_(coroutine)
        (self._handler_loop if self.slot.is_at_work else self._loop).run(coroutine)
        return None


def _next_batch(rest: list[Message]) -> tuple[list[Message], list[Message]]:
    """What of a unit runs together next, and the rest."""
    size = batch_of([message.lease for message in rest])
    return rest[:size], rest[size:]


def _not_run(batch: Sequence[Message], error: BaseException) -> list[Verdict]:
    """The verdicts on messages that could not be run, which is logged: nothing may end the thread."""
    shown: BaseException | None = error  # once
    for message in batch:
        entry = message.lease.entry
        about = plain(entry.command), plain(entry.id)
        extra = log_extra(message.queue.alias, entry)
        log_safely(logger, logging.ERROR, "%s (message %s) could not be run", *about, exc_info=shown, extra=extra)
        shown = None
    return [_again(message, error) for message in batch]


def _again(message: Message, error: BaseException) -> Verdict:
    """A message that could not be run is run again, but not for ever unless this process is at its limits."""
    reason = f"could not be run: {kind_of(error)}"
    if message.lease.entry.attempts >= MOST_TRIES and not is_for_want(error):
        return Verdict(Outcome.FAILED, reason)
    return Verdict(Outcome.INTERRUPTED, reason, delay=1.0)


def _failures(verdicts: Sequence[Verdict]) -> list[BaseException]:
    return [verdict.exception for verdict in verdicts if verdict.exception is not None]


class Pool:
    """Workers that share one inbox of units. A worker calls ``finish(message, verdict)`` for each lease that it ran."""

    def __init__(
        self,
        threads: int,
        finish: Callable[[Message, Verdict], None],
        control: Callable[[Message], Control] = lambda message: Control(message.queue, message.lease),
        recall: Callable[[], str] = str,
        isolate: Callable[[Message, Control], Verdict | None] | None = None,
        coroutines: Coroutines | None = None,
    ):
        self.inbox: SimpleQueue[list[Message] | None] = SimpleQueue()
        self.freed: Callable[[], object] = int
        """Called when a worker is free though it has finished no message."""
        self.finish = finish
        self.control = control
        """Makes the control that the command of a message lease can ask."""
        self.recall = recall
        """Why messages that no worker has begun must go back to the queue; empty if they may begin."""
        self.isolate = isolate
        """Runs messages with which workers died in a process of their own; None if workers run them like all others."""
        self.coroutines = coroutines
        """Runs async commands on one event loop; None if each worker runs its own."""
        self._lock = threading.Lock()
        self._handed = 0  # units given to the workers since the start
        self.workers = [Worker(self, number) for number in range(1, threads + 1)]
        self._affinity = Affinity()
        self._left_behind: list[Worker] = []

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def close(self) -> None:
        """Have each worker stop its handler after the unit that it runs."""
        with self._lock:
            self._affinity.close()

    def stop(self) -> None:
        """Have each worker end after the unit that it runs."""
        self.close()
        for _ in self.workers:
            self.inbox.put(None)

    @property
    def keeps(self) -> bool:
        """Whether a worker keeps a handler, and will stop it."""
        return any(worker.slot.shard is not None and not worker.is_dead for worker in self.workers)

    @property
    def waiting(self) -> int:
        """How many units no worker has taken."""
        return self.inbox.qsize()

    @property
    def idle(self) -> int:
        """How many threads are free to begin a unit at once."""
        return max(0, len(self.workers) - self._undone)

    @property
    def ahead(self) -> int:
        """How many units there are beyond one for each thread."""
        return max(0, self._undone - len(self.workers))

    @property
    def _undone(self) -> int:
        return self._handed - self.finished

    @property
    def finished(self) -> int:
        return sum(worker.finished for worker in self.workers)

    @property
    def left_behind(self) -> list[Worker]:
        """The threads that were left behind and still run."""
        return [worker for worker in self._left_behind if worker.is_alive()]

    @property
    def stuck(self) -> int:
        """How many threads were left behind and still run."""
        return len(self.left_behind)

    @property
    def is_stuck(self) -> bool:
        """Whether a new process is needed: as many threads were left behind and still run as the pool has."""
        return self.stuck >= len(self.workers)

    def leave_behind(self, message: Message) -> tuple[Worker, list[Message]] | None:
        """Replace the thread that runs this by a new one; the old thread and all leases that it had.

        None if no thread runs it any more.
        """
        with self._lock:
            worker = next((worker for worker in self.workers if message in worker.unit), None)
            if worker is None:
                return None
            successor = Worker(self, worker.number)
            successor.finished = worker.finished + 1
            successor.start()  # if this fails, nothing has changed
            self._affinity.unassign(worker)
            self.workers[self.workers.index(worker)], unit, worker.unit = successor, worker.unit, []
            self._left_behind = [*self.left_behind, worker]
            return worker, unit

    def take_from_dead(self) -> list[Message]:
        """Take all leases from the workers that died, those in their mail too."""
        with self._lock:
            left = []
            for worker in self.workers:
                if worker.is_dead:
                    self._affinity.unassign(worker)
                    left += [*worker.unit, *_mail_of(worker)]
                    worker.unit = []
            return left

    def let_go(self, worker: Worker, message: Message) -> bool:
        """Take a lease from the worker; False if the worker was left behind meanwhile."""
        with self._lock:
            ours = message in worker.unit
            if ours:
                worker.unit.remove(message)
                worker.finished += not worker.unit
            return ours

    def finish_of(self, worker: Worker, message: Message, verdict: Verdict) -> bool:
        """Finish a lease that the worker ran; False if the worker was left behind meanwhile."""
        if not self.let_go(worker, message):
            return False
        self.finish(message, verdict)
        return True

    def submit(self, units: Sequence[list[Message]]) -> None:
        """Give units to the workers."""
        with self._lock:
            # If it is crowded all go to the common inbox, even if a handler is kept.
            crowded = self._undone + len(units) > len(self.workers)
            for unit in units:
                (self.inbox if crowded else self._affinity.inbox_of(unit, self.inbox)).put(unit)
                self._handed += 1
            self._release_for_others()

    def take_back(self) -> list[list[Message]]:
        """Take back all units that no worker has begun."""
        units, words = [], 0
        with suppress(Empty):
            while True:
                if (unit := self.inbox.get_nowait()) is None:
                    words += 1
                else:
                    units.append(unit)
        for _ in range(words):
            self.inbox.put(None)  # a None stops a worker: these must stay in the inbox
        with self._lock:
            self._handed -= len(units)
        return units

    def next(self, worker: Worker | None = None) -> list[Message] | None:
        """The next unit for a worker, which waits for it; None: end."""
        if worker is None or (worker.slot.shard is None and worker.mail.empty()):  # as nearly all
            return self.inbox.get()
        return self._for_its_shard(worker) or _left_in(worker) or self.inbox.get()

    # ---- workers that keep a handler

    def keep(self, worker: Worker) -> None:
        """Send the units for the shard of its handler to this worker, if it keeps one."""
        with self._lock:
            if worker in self.workers:
                self._affinity.assign(worker)

    def _for_its_shard(self, worker: Worker) -> list[Message]:
        """The unit that comes while the worker waits; empty if it must stop its handler and run other units."""
        if worker.slot.shard is None:
            return []
        with self._lock:
            self._affinity.wait_for_its_shard(worker)
            self._release_for_others()
        try:
            unit = worker.mail.get(timeout=min(worker.slot.idle_timeout, threading.TIMEOUT_MAX))
        except Empty:
            with self._lock:
                unit = self._affinity.stop_waiting(worker)
        if not unit:
            worker.give_up_handler()
        return unit

    def _release_for_others(self) -> None:
        """End the waiting of as many workers as the waiting units need."""
        if self._affinity.waiting:
            self._affinity.give_up(self._undone + len(self._affinity.waiting) - len(self.workers))


def _mail_of(worker: Worker) -> list[Message]:
    """All leases in the mail of a worker, which no other worker would take."""
    mail = []
    while not worker.mail.empty():
        mail += worker.mail.get()
    return mail


def _left_in(worker: Worker) -> list[Message]:
    """The unit that was put into its mail just before it gave up its handler."""
    while not worker.mail.empty():
        if unit := worker.mail.get():
            return unit
    return []
