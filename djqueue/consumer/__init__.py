"""The consumer: claims messages, runs them on a pool of threads, and keeps the schedule."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any

from django.core.checks import CheckMessage
from django.db import connections

from djqueue import conf, health, signals
from djqueue.backends.base import BaseQueue
from djqueue.consumer.counters import Counters, Totals
from djqueue.consumer.database_connections import follow_connections
from djqueue.consumer.liveness import SILENCE, Reporter
from djqueue.consumer.locks import ConsumerLocks
from djqueue.consumer.loop import HANGS, Options, alike, alone
from djqueue.consumer.operators import ConsumerState
from djqueue.consumer.supervisor import Supervisor
from djqueue.discovery import autodiscover
from djqueue.exceptions import StoreError
from djqueue.registry import registry
from djqueue.utils import log_safely, whole
from djqueue.wiring import queues as all_queues
from djqueue.words import counted

__all__ = ["Consumer", "Options"]

logger = logging.getLogger(__name__)
say = partial(log_safely, logger)

LOOK = 0.5  # seconds between two looks at the threads
FIRST_ANSWER = 5.0  # seconds in which a store is to answer at the start
DRAINED, CUT_OFF, STUCK, STORE_UNREACHABLE = 0, 1, 70, 75  # exit codes


class Consumer:
    """Serves queues until it is stopped.

    ``queues`` are aliases of QUEUES, all by default; the other arguments are the fields of :class:`Options`. Raises
    ValueError or TypeError for bad ones, InvalidQueueError for an alias that does not exist.
    """

    def __init__(self, queues: Iterable[str] | None = None, **options: Any):
        if isinstance(queues, str):
            raise TypeError(f"Consumer({queues!r}): give a list of aliases.")
        self.options = Options(**options)
        self.queues: list[BaseQueue] = [all_queues[alias] for alias in queues or all_queues]
        prefix = conf.get("QUEUE_CONSUMER_PREFIX")
        self.name = f"{prefix}{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._locks = ConsumerLocks(self.name, self.queues)
        """What proves that it lives, until nothing is left to be given back; else until its process ends."""
        self.counters = Counters(self.queues)
        """What counts its messages."""
        self._words: SimpleQueue[str] = SimpleQueue()
        self._stops, self._retires = 0, False
        self.state = ConsumerState()
        """What an operator wants of it: whether it is to claim nothing."""
        self.has_duties = True
        """Whether it reaps and keeps the schedule, as far as its options say so. It may change while it serves."""
        self.moved: tuple[float, float] | None = None
        """When its main thread last moved (monotonic), and the seconds within which it has to move again."""
        self._supervisor: Supervisor | None = None
        self.reporter = Reporter(self.name, self.options.alive)

    def stop(self) -> None:
        """Claim nothing more, let running messages end; a second call does not wait. Safe in a signal handler."""
        self._words.put("stop")

    def retire(self) -> None:
        """Claim nothing more, and end when what runs has ended, however long it takes; a stop bounds that."""
        self._words.put("retire")

    @property
    def ran(self) -> int:
        """About how many messages it has run."""
        return 0 if self._supervisor is None else self._supervisor.run_limit.count

    @property
    def leaves_tasks(self) -> bool:
        """Whether coroutines of commands have not ended with it. They could keep the interpreter from its end."""
        coroutines = None if self._supervisor is None else self._supervisor.coroutines
        return coroutines is not None and coroutines.leaves_tasks

    def totals(self) -> Totals:
        """What it has counted, and how much it does just now."""
        totals = self.counters.totals()
        if self._supervisor is not None:
            totals.gauges = self._supervisor.gauges()
        return totals

    async def arun(self, limit: int | None = None) -> int:
        """:meth:`run` for async code; cancelling it stops the consumer."""
        running = asyncio.ensure_future(asyncio.to_thread(self._run_and_close, limit))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def run(self, limit: int | None = None) -> int:
        """Serve until stopped, drained, or ``limit`` messages have been run; returns the exit code.

        0: all that was begun has ended; 1: some was handed back while it ran; 70: only a new process can go on, as a
        thread of the consumer died, or has been without memory, descriptors or threads for a second, or as many
        commands as there are threads ran past their time limit and do not end; 75: a store could not be reached at
        the start. After 70 end this process: what it is short of, or cannot end, stays.
        """
        if limit is not None:
            limit = whole(limit, "limit", least=1)
        self._refuse_transactions()
        self.reporter.begin()
        try:
            with ExitStack() as serving:
                for queue in self.queues:
                    serving.enter_context(queue.serving())
                return self._serve(limit)
        finally:
            self.reporter.end()

    def _serve(self, limit: int | None) -> int:
        follow_connections()
        autodiscover()
        if not registry:
            say(logging.WARNING, "There are no commands: no app in INSTALLED_APPS has one in a module of QUEUE_MODULES")
        if not self._stores_answer():
            return STORE_UNREACHABLE
        supervisor = self._supervisor = Supervisor(self, limit)
        signals.emit(signals.consumer_started, self)
        try:
            self._locks.acquire()
            supervisor.start()
            worn_out = self._watch(supervisor)
        except Exception as error:  # this thread may be short of memory too
            say(logging.CRITICAL, "The consumer cannot go on: a new process is needed", exc_info=error)
            worn_out = True
        finally:
            self._move(HANGS)
            signals.emit(signals.consumer_stopping, self)
            code = self._end(supervisor)
            self._words, self._stops, self._retires, self.state = SimpleQueue(), 0, False, ConsumerState()
        return STUCK if worn_out else code

    def _run_and_close(self, limit: int | None) -> int:
        """:meth:`run` for a thread of its own: closes its connections, which would otherwise stay open."""
        try:
            return self.run(limit)
        finally:
            connections.close_all()

    def size(self, processes: int = 1) -> str:
        """How many threads and coroutines it has, in words, in how many processes."""
        threads, coroutines = counted(self.options.threads, "thread"), self.options.coroutines
        if coroutines:
            threads = f"{threads} and {counted(coroutines, 'coroutine')}"
        return threads if processes == 1 else f"{processes} processes × {threads}"

    def banner(self, processes: int = 1) -> str:
        """What this consumer serves, in one line for people; without passwords."""
        periodic = len(registry.periodic()) if self.options.periodic else 0
        served = ", ".join(f"{queue.alias} ({queue.describe()})" for queue in self.queues)
        return (
            f"consumer {self.name}: {self.size(processes)}; queues: {served}; "
            f"{counted(len(registry), 'command')}, {counted(periodic, 'schedule')}"
        )

    def lease_of(self, queue: BaseQueue) -> float:
        """The seconds for which this consumer claims from a queue."""
        return self.options.lease or queue.lease

    def shortest_lease_of(self, queue: BaseQueue) -> float:
        """The shortest lease of a message of a queue, as far as this process knows: a command may want less."""
        return min([self.lease_of(queue), *(one.policy.lease for one in registry if one.policy.lease is not None)])

    def _refuse_transactions(self) -> None:
        """The threads of a consumer do not see what an open transaction holds, and may wait for it for ever."""
        for alias in {queue.database for queue in self.queues if queue.database}:
            if connections[alias].in_atomic_block:
                raise RuntimeError(
                    f"Consumer.run() within a transaction on {alias!r} (a TestCase is one): commit first, or use a "
                    "TransactionTestCase; invoker.dequeue() runs one message in this thread."
                )

    def _stores_answer(self) -> bool:
        """Whether no store refuses. A store that does not answer delays no other: it is served once it answers."""
        questions = [_Question(queues) for queues in alike(self.queues, attrgetter("server"))]
        for question in questions:
            question.start()
        until = time.monotonic() + FIRST_ANSWER
        for question in questions:
            question.join(max(0.0, until - time.monotonic()))
            question.report()
        return not any(question.error for question in questions)

    def _watch(self, supervisor: Supervisor) -> bool:
        """Wait for a stop, or for the end of the work; whether only a new process can go on.

        Signal handlers run in this thread.
        """
        self._move(SILENCE)
        while not self._asked_to_stop(0.02 if supervisor.may_end else LOOK) and not supervisor.ended():
            self._move(SILENCE)
            supervisor.duties.follow()
            if (reapers := supervisor.duties.reapers) and self._locks.another_is_dead():
                for reaper in reapers:
                    reaper.wake()
            self.reporter.look(health.SERVING, supervisor.details)
            if stuck := supervisor.stuck:
                text = "Too many commands are stuck (%d): a new process is needed"
                say(logging.CRITICAL, text, stuck)
                return True
            if troubles := supervisor.troubles:
                say(logging.CRITICAL, "%s: a new process is needed", "; ".join(troubles))
                return True
        if self.options.drain and not supervisor.run_limit.spent and supervisor.ended():
            self._log_what_stays()
        return False

    def _move(self, limit: float) -> None:
        self.moved = time.monotonic(), limit

    def _log_what_stays(self) -> None:
        """Log, after a drain, how many due messages still wait."""
        for queue in self.queues:
            with suppress(Exception):
                stats = queue.stats()
                if stats.ready and stats.delayed is not None and "count" in queue.features:
                    text = "%s: %d are due and may not run yet: they wait for a throttle, or are paused"
                    say(logging.INFO, text, queue.alias, stats.ready, extra={"queue": queue.alias})

    def _asked_to_stop(self, timeout: float) -> bool:
        try:
            word = self._words.get(timeout=timeout)
        except Empty:
            return False
        self._stops += word == "stop"
        self._retires = self._retires or word == "retire"
        return True

    def _end(self, supervisor: Supervisor) -> int:
        """Shut down. This ends even if a step of it fails."""
        try:
            return self._shut_down(supervisor)
        except Exception as error:
            say(logging.CRITICAL, "The consumer cannot hand back what it holds; its leases run out", exc_info=error)
            supervisor.abandon()
            return STUCK

    def _wait_while(self, is_so: Callable[[], bool], until: float, supervisor: Supervisor) -> None:
        """Wait while it is so, at most until then; a second stop ends the wait."""
        while is_so() and self._stops < 2 and (left := until - time.monotonic()) > 0:
            self._asked_to_stop(min(left, 0.02))
            self._move(HANGS)
            self.reporter.look(health.STOPPING, supervisor.details)
            supervisor.tick_for_dead_threads()

    def _shut_down(self, supervisor: Supervisor) -> int:
        self.reporter.look(health.STOPPING, supervisor.details)
        supervisor.stop_claiming()
        supervisor.tick_for_dead_threads()
        running = supervisor.running
        say(logging.INFO, "Stopping%s", self._what_runs(len(running)), extra={"event": "stopping"})
        self._wait_while(lambda: self._retires and not self._stops and supervisor.busy, inf, supervisor)
        until = time.monotonic() + self.options.grace
        self._wait_while(lambda: supervisor.busy, until, supervisor)
        cut_off = supervisor.hand_back_running()
        self._wait_while(lambda: supervisor.owes_word, until, supervisor)
        unsettled = supervisor.end()
        if not unsettled:
            self._locks.release()
        if cut_off:
            say(logging.WARNING, "Stopped; handed back while it ran: %d", cut_off, extra={"event": "stopped"})
        if unsettled:
            text = "Stopped; the store does not know yet what became of: %d; their leases run out"
            say(logging.WARNING, text, unsettled, extra={"event": "stopped"})
        if not (cut_off or unsettled):
            say(logging.INFO, "Stopped", extra={"event": "stopped"})
        if supervisor.stuck:
            return STUCK
        return CUT_OFF if cut_off or unsettled or self._stops > 1 else DRAINED

    def _what_runs(self, count: int) -> str:
        """What is running as the consumer stops, and how long that may go on."""
        if not count:
            return ""
        if self._retires and not self._stops:
            return f": {count} running, waited for"
        it = "it" if count == 1 else "them"
        if not self.options.grace:
            return f": {count} running, handed back"
        return f": {count} running, up to {self.options.grace:g} s more; Ctrl-C again hands {it} back"


class _Question(threading.Thread):
    """Whether the stores of the queues of one server can be used, asked in turn on a connection of its own."""

    def __init__(self, queues: Sequence[BaseQueue]):
        super().__init__(name=f"djqueue-question-{queues[0].alias}", daemon=True)
        self.error: Exception | None = None
        self._stopped: list[tuple[BaseQueue, StoreError]] = []
        """Queues that stand still while the others can be served."""
        self._queues = queues
        self._asked = queues[0]
        self._reasons: list[CheckMessage] = []

    def run(self) -> None:
        try:
            for queue in self._queues:
                self._asked = queue
                _, error = alone(partial(self._ask, queue))
                if error is not None:
                    self._stopped.append((queue, error))
        except Exception as error:
            if not isinstance(error, StoreError):  # which says why, and the fix
                with suppress(Exception):  # this asks the store, which may be out of reach
                    self._reasons = self._asked.check()
            self.error = error
        finally:
            connections.close_all()

    def _ask(self, queue: BaseQueue) -> None:
        queue.stats()
        queue.history.get("")  # which has a table of its own

    def report(self) -> None:
        for queue, error in self._stopped:
            text = "Queue %r stands still, and is served once this is corrected: %s"
            say(logging.CRITICAL, text, queue.alias, error, extra={"queue": queue.alias})
        if self.is_alive():
            text = "The store of queue %r says nothing for %g s; the queue is served once it does"
            say(logging.ERROR, text, self._asked.alias, FIRST_ANSWER, extra={"queue": self._asked.alias})
        elif self.error is not None:
            say(logging.CRITICAL, "The store of queue %r cannot be used: %s", self._asked.alias, self.error)
            for reason in self._reasons:
                say(logging.CRITICAL, "%s %s", reason.msg, reason.hint)
