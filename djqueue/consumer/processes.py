"""The processes of a consumer: a supervisor starts them, starts them again when they end, and replaces worn ones.

The supervisor runs no messages. It has a socket to each process, and both write lines. The process: ``alive S`` while
its main thread moves, which has to move again within S seconds; ``ran N``; and ``quiet`` or ``claim`` when an operator
orders it to claim nothing or again. The supervisor: ``retire``, ``stop`` and ``now``; ``quiet`` or ``claim`` to the
successor of such a process; ``duties`` to the one process that has scheduler and reaper, ``no duties`` if it had them.
When the supervisor is gone the sockets are closed, and the processes stop. If the processes count what they do, they
write ``counted JSON`` too.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import ceil, inf
from pathlib import Path
from typing import Any

from django.utils.autoreload import get_child_arguments

from djqueue import health, signals
from djqueue.consumer import CUT_OFF, STUCK, Consumer
from djqueue.consumer.counters import SupervisedTotals
from djqueue.consumer.isolation import STOPPED, how_it_ended, state_of
from djqueue.consumer.liveness import SILENCE, Reporter
from djqueue.consumer.loop import Loop
from djqueue.consumer.memory import memory_of
from djqueue.utils import handle_signals, log_safely, seconds, set_whole

logger = logging.getLogger(__name__)
say = partial(log_safely, logger)

LOOK = 0.5  # seconds between two looks at the processes
STEADY = 60.0  # seconds: if a process has served for so long, its end is not one of a series
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a process is started, from the second end of a series on
STARTS = 60.0  # seconds in which a process is to write its liveness file
LATE = 10.0  # seconds beyond the grace, after which a process is killed
ALIVE_EVERY = 1.0  # seconds between two heartbeats of a process
HUSH = 3.0  # seconds without one, after which another process gets scheduler and reaper
STEP = 2 * LOOK  # seconds: more than this between two ticks and the supervisor itself stood still
ASSIGNMENT = "DJQUEUE_PROCESS"
"""The environment variable for a process: its number, the descriptor of its socket, and whether it has duties."""
ALIVE, RAN = b"alive", b"ran"
RETIRE, STOP, NOW = b"retire", b"stop", b"now"
STOPS = STOP, NOW
QUIET, CLAIM = b"quiet", b"claim"
DUTIES, NO_DUTIES = b"duties", b"no duties"
COUNTED = b"counted"
COUNT_EVERY = 2.0  # seconds between two tellings of what was counted
STATES = {**STOPPED, "D": "it waits for a disk, or for memory from one"}
HANGS = "its main thread hangs, or a command holds the GIL"
"""What the state of a process means that stands still."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a process is replaced: after this number of messages, MiB of memory or seconds; None for never."""

    max_messages: int | None = None
    max_memory: int | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        if self.max_messages is not None:
            set_whole(self, "max_messages", least=1)
        if self.max_memory is not None:
            set_whole(self, "max_memory", least=1)
            if self.max_memory <= (own := memory_of()):
                text = f"a process has {own:.0f} MiB before it serves. Give more."
                raise ValueError(f"max_memory is {self.max_memory} MiB: {text}")
        if self.max_age is not None:
            seconds(self.max_age, "max_age", least=1.0)

    def is_too_much(self, memory: float) -> bool:
        return self.max_memory is not None and memory >= self.max_memory

    def reached(self, process: Process, age: float) -> str:
        """Which of them a process has reached, in words; empty if none."""
        if self.max_messages is not None and process.ran >= self.max_messages:
            return f"it has run {process.ran:,} messages"
        if self.max_age is not None and age >= self.max_age:
            return f"it has served for {age:.0f} s"
        if self.max_memory is not None and self.is_too_much(memory := process.memory()):
            return f"it has {memory:.0f} MiB"
        return ""


def cores() -> int:
    """The processors that this process may use: those it is bound to, or fewer by the limit of its control group."""
    try:
        bound = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        bound = os.cpu_count() or 1
    return ceil(min(bound, cpu_limit()))


def cpu_limit(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """The processors that the control groups of this process grant it (``cpu.max``)."""
    try:
        [own] = [line[3:].strip("/") for line in proc.read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        own = ""
    folder, least = root / own, inf
    for group in (folder, *folder.parents):
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            least = min(least, int(quota) / int(period))
        if group == root:
            break
    return least


def readable(sources: Iterable[Any], timeout: float) -> bool:
    """Whether one of these sockets has something to read within the time, whatever the number of its descriptor."""
    with selectors.PollSelector() as selector:  # needs no descriptor: there may be none left
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return bool(selector.select(timeout))


# ---- The supervisor


class Process:
    """A process of the consumer, as its supervisor sees it."""

    def __init__(self, number: int, has_duties: bool, totals: SupervisedTotals | None = None):
        self.number = number
        self._totals = totals
        """What is reported of its counts, if it counts."""
        self.ready = False
        """Whether it serves: it has said that it is alive."""
        self.has_duties = has_duties
        """Whether it was given scheduler and reaper."""
        self.silence = 0.0
        """For how many seconds it has not said that it is alive."""
        self.stopped = 0.0
        """For how many seconds it was seen stopped in its start."""
        self.limit = SILENCE
        """How many there may be of either."""
        self.ran = 0
        """How many messages it has said to have run."""
        self.quiet = False
        """Whether it claims nothing, as an operator ordered."""
        self.began = time.monotonic()
        self._rest = b""
        self._socket, theirs = socket.socketpair()
        try:
            self._popen = _start(number, theirs.fileno(), has_duties)
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)
        self.pid = self._popen.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._popen.poll()

    def fileno(self) -> int:
        """The descriptor on which it is heard; -1 once it will say nothing more."""
        return self._socket.fileno()

    def listen(self) -> None:
        """Take in what it has said since."""
        while self.fileno() >= 0:
            try:
                text = self._socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:  # it has ended, and what was said to it is not read
                text = b""
            if not text:
                self.close()
            *lines, self._rest = (self._rest + text).split(b"\n")
            for line in lines:
                self._take_in(line)

    def _take_in(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == ALIVE:
            self.ready, self.silence, self.limit = True, 0.0, float(rest)
        self.ran = int(rest) if word == RAN else self.ran
        self.quiet = word == QUIET if word in (QUIET, CLAIM) else self.quiet
        if word == COUNTED and self._totals is not None:
            self._totals.hear(self, rest.decode())

    def send(self, word: bytes) -> None:
        with suppress(OSError):  # it has ended
            self._socket.send(word + b"\n")

    def give_duties(self, has_duties: bool) -> None:
        """Have it keep the schedule and give back leases that ran out, or leave that to another process."""
        self.has_duties = has_duties
        self.send(DUTIES if has_duties else NO_DUTIES)

    def memory(self) -> float:
        """Its resident memory in MiB."""
        return memory_of(self.pid)

    def state(self) -> str:
        """Its state in one letter."""
        return state_of(self.pid)

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        self._popen.kill()

    def close(self) -> None:
        """Close the socket: if the process lives, it stops."""
        self._socket.close()
        if self._totals is not None:
            self._totals.end(self)


def _start(number: int, descriptor: int, has_duties: bool) -> subprocess.Popen:
    """This command again, as a process of that number.

    A Ctrl-C reaches all processes of a terminal. In the new one it waits until the consumer can handle it.
    """
    environment = {**os.environ, ASSIGNMENT: f"{number}:{descriptor}:{has_duties:d}"}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(get_child_arguments(), env=environment, pass_fds=[descriptor])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessSlot:
    """Where one process serves: the one that does, the next one while it starts, and the last one while it ends."""

    def __init__(self, number: int, start: Callable[[int, bool], Process], bounds: Bounds, drain: bool):
        self.number = number
        self.serving: Process | None = None
        self.starting: Process | None = None
        self.retiring: Process | None = None
        self.killed: list[Process] = []
        """Those that stood still, until they are gone: one that waits for a disk cannot end at once."""
        self.drained = False
        self._start = start
        self._bounds = self._bounds_now = bounds
        self._drain = drain
        self._since = 0.0
        """When the one that serves began to."""
        self._is_quiet = False
        """Whether the one that serves, or the last that did, shall claim nothing: its successor is notified."""
        self._ends = 0
        """How many processes in a row have ended before they had served for long."""
        self._not_before = 0.0

    @property
    def roles(self) -> dict[str, Process]:
        """Its processes by what they do."""
        roles = {health.SERVING: self.serving, health.STARTING: self.starting, health.STOPPING: self.retiring}
        return {state: one for state, one in roles.items() if one is not None}

    @property
    def processes(self) -> list[Process]:
        return [*self.roles.values(), *self.killed]

    def details(self) -> list[health.Report]:
        """Its processes, for a report."""
        return [
            {"number": self.number, "pid": one.pid, "state": state, "began": one.began, "limit": STARTS}
            for state, one in self.roles.items()
        ]

    @property
    def is_replacing(self) -> bool:
        """Whether a process starts next to the one that it will replace."""
        return self.serving is not None and self.starting is not None

    def listen(self, now: float, elapsed: float) -> list[tuple[Process, int]]:
        """Read what the processes say; those that have ended, with their exit codes."""
        codes = [(process, process.code) for process in self.processes]  # first: then all that they said can be heard
        for process, _ in codes:
            process.silence += elapsed
            process.listen()
            is_stopped = not process.ready and process.state() in STOPPED
            process.stopped = process.stopped + elapsed if is_stopped else 0.0
        if self.serving is not None:
            self._is_quiet = self.serving.quiet
        if self.starting is not None and self.starting.ready and (self.starting, None) in codes:
            self._put_in_service(self.starting, now)
        return [(process, code) for process, code in codes if code is not None]

    def remove(self, process: Process) -> None:
        process.close()
        if process is self.serving:
            self.serving = None
        elif process is self.starting:
            self.starting = None
        elif process is self.retiring:
            self.retiring = None
        else:
            self.killed.remove(process)

    def kill_those_that_stand_still(self, now: float) -> None:
        """Kill the processes that have said nothing for too long. A start may take its time, unless it is stopped."""
        for process in self.roles.values():
            still = process.silence if process.ready else process.stopped
            if still >= process.limit:
                why = STATES.get(process.state(), HANGS)
                pause = self._kill(process, now)
                text = "Process %d (pid %d) has stood still for %.0f s and is killed: %s%s"
                say(logging.ERROR, text, self.number, process.pid, still, why, _then(pause))

    def _kill(self, process: Process, now: float) -> float:
        """Kill a process, and free its slot at once; the seconds until another may start in it.

        0 if it has served: it stood still for longer than the first pauses of a series.
        """
        process.kill()
        pause = 0.0
        if process is self.retiring:
            self.retiring = None
        elif process is self.starting:
            self.starting, pause = None, self._put_off(now)
        else:
            self.serving = None
        self.killed.append(process)
        return pause

    def follow(self, process: Process, code: int, now: float) -> None:
        """Decide what follows the end of a process. One that was replaced has a successor."""
        is_asked = process is self.retiring or process in self.killed
        served = now - self._since if process is self.serving else 0.0
        self.remove(process)
        if code == 0 and (is_asked or self._drain):
            self.drained = self.drained or not is_asked
            return
        pause = 0.0 if is_asked else self._put_off(now, served)
        text, level = "Process %d (pid %d) has ended: %s%s", logging.INFO if code == 0 else logging.WARNING
        say(level, text, self.number, process.pid, how_it_ended(code), _then(pause), extra={"event": "process_ended"})

    def fill(self, now: float, may_replace: bool, has_duties: bool) -> None:
        """Start a process if none serves, or if the one that does has reached a bound."""
        if self.starting is not None or self.drained or now < self._not_before:
            return
        if self.serving is not None:
            if not may_replace or self.retiring is not None:
                return
            if not (reason := self._bounds_now.reached(self.serving, now - self._since)):
                return
            say(logging.INFO, "Process %d (pid %d) is replaced: %s", self.number, self.serving.pid, reason)
        try:
            self.starting = self._start(self.number, has_duties)
            self._pass_on(self.starting)
        except OSError as error:  # the machine is at its limits
            text = "Process %d cannot be started: %s; trying again in %g s"
            say(logging.ERROR, text, self.number, error, self._put_off(now))

    def _put_in_service(self, process: Process, now: float) -> None:
        """Have a process serve that is ready, and the one before it retire."""
        say(logging.INFO, "Process %d is ready (pid %d)", self.number, process.pid, extra={"event": "process_ready"})
        self._pass_on(process)
        if self.serving is not None:
            self.serving.send(RETIRE)
        self.serving, self.starting, self.retiring, self._since = process, None, self.serving, now
        self._bounds_now = self._bounds
        if self._bounds.is_too_much(process.memory()):  # so has the next one
            self._bounds_now = replace(self._bounds, max_memory=None)
            say(logging.ERROR, "Process %d is beyond max_memory before it has run anything: give more", self.number)

    def _pass_on(self, process: Process) -> None:
        """Pass to a process what an operator ordered the one before it."""
        if process.quiet != self._is_quiet:
            process.quiet = self._is_quiet
            process.send(QUIET if self._is_quiet else CLAIM)

    def _put_off(self, now: float, served: float = 0.0) -> float:
        """The seconds until a process may be started again: longer for each that has ended soon."""
        self._ends = 0 if served >= STEADY else self._ends + 1
        pause = 0.0 if self._ends < 2 else min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._ends - 2))
        self._not_before = now + pause
        return pause


def _then(pause: float) -> str:
    """What a line of the log says of the pause before the next start."""
    return f"; another starts in {pause:g} s" if pause else ""


class ProcessSupervisor:
    """Keeps ``count`` processes serving until it is stopped.

    ``start`` makes a process of a number from 1, with duties or without: one process has scheduler and reaper.
    """

    def __init__(
        self,
        count: int,
        bounds: Bounds | None = None,
        *,
        grace: float = 25.0,
        drain: bool = False,
        look: Callable[[], object] = lambda: None,
        start: Callable[[int, bool], Process] = Process,
        reporter: Reporter | None = None,
    ):
        self.slots = [ProcessSlot(number, start, bounds or Bounds(), drain) for number in range(1, count + 1)]
        self._grace = grace
        self._look = look
        """Called at each tick."""
        self._reporter = reporter or Reporter("supervisor")
        self._stops = self._sent = 0
        self._until = inf
        """When processes are killed that do not end."""
        self._ticked = inf
        self._keeper: Process | None = None
        """The process that has scheduler and reaper."""
        self._has_served = False
        self._failed_with = 0
        self._codes: list[int] = []
        """Of processes that were stopped."""
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)

    def stop(self) -> None:
        """Let all processes end what they run; a second call does not wait. Safe in a signal handler."""
        self._stops += 1
        self._wake()

    def run(self) -> int:
        """Serve until stopped or drained; returns the exit code, which means what a consumer's means."""
        handle_signals([signal.SIGCHLD], lambda *_: self._wake())
        self._reporter.begin()
        try:
            while not self.ended:
                self.tick(time.monotonic())
                self._wait()
        finally:
            for process in self._processes():
                process.close()
            self._reporter.end()
        return self.code

    def _details(self) -> health.Report:
        """Which processes there are, for a report. Each writes a file of its own next to it."""
        return {"places": len(self.slots), "processes": [one for slot in self.slots for one in slot.details()]}

    @property
    def ended(self) -> bool:
        is_over = self._stops > 0 or all(slot.drained for slot in self.slots)
        return is_over and not any(self._processes())

    @property
    def code(self) -> int:
        if self._failed_with or not any(self._codes):
            return self._failed_with
        return STUCK if STUCK in self._codes else CUT_OFF

    def tick(self, now: float) -> None:
        """Read what the processes say, and start and end those that have to be.

        Only the time in which the supervisor itself moved counts as silence of a process: both may have stood still.
        """
        elapsed, self._ticked = max(0.0, min(STEP, now - self._ticked)), now
        for slot in self.slots:
            for process, code in slot.listen(now, elapsed):
                self._note_end(slot, process, code, now)
            self._has_served = self._has_served or slot.serving is not None
        if self._stops:
            self._end(now)
        else:
            self._keep_serving(now)
        self._look()
        serves = health.SERVING if self._has_served else health.STARTING
        self._reporter.look(health.STOPPING if self._stops else serves, self._details)

    def _keep_serving(self, now: float) -> None:
        for slot in self.slots:
            slot.kill_those_that_stand_still(now)
        self._assign_duties()
        for slot in self.slots:
            may_replace = not any(one.is_replacing for one in self.slots)
            slot.fill(now, may_replace, has_duties=self._keeper in (None, slot.serving))
            self._keeper = self._keeper or slot.starting

    def _assign_duties(self) -> None:
        """Have one process keep the schedule and reap; another one as soon as that is silent, or leaves.

        For a moment two may do it, which is harmless.
        """
        before, serving = self._keeper, [slot.serving or slot.starting for slot in self.slots]
        there = [process for process in serving if process is not None]
        if before not in there or before.silence >= HUSH:
            fit = [process for process in there if process.ready and process.silence < HUSH]
            fit.sort(key=lambda process: not process.has_duties)  # first the successor, which was started with them
            stays = [before] if before in there else there
            self._keeper = next(iter(fit or stays), None)
        if (keeper := self._keeper) is not None and not keeper.has_duties:
            keeper.give_duties(True)
            say(logging.INFO, "Process %d (pid %d) has scheduler and reaper now", keeper.number, keeper.pid)
        for process in there:
            if process is not keeper and process.has_duties and process.ready and process.silence < HUSH:
                process.give_duties(False)

    def _note_end(self, slot: ProcessSlot, process: Process, code: int, now: float) -> None:
        """Note the end of a process. A start that fails ends them all, as it would end one: before any has served.

        What was killed, or asks for a new process, is started again even then.
        """
        if self._stops:
            slot.remove(process)
            self._codes += [code] if process.ready else []
        elif not (self._has_served or process.ready) and code > 0 and code != STUCK:
            slot.remove(process)
            self._failed_with = code
            self._stops = 1
        else:
            slot.follow(process, code, now)

    def _end(self, now: float) -> None:
        """Pass each stop on, and kill in the end what does not end."""
        while self._sent < min(self._stops, len(STOPS)):
            for process in self._processes():
                process.send(STOPS[self._sent])
                if not process.ready:
                    process.terminate()
            self._sent += 1
            self._until = now + LATE + (self._grace if self._sent == 1 else 0.0)
        if now >= self._until:
            for process in self._processes():
                say(logging.ERROR, "The process of pid %d does not end, and is killed", process.pid)
                process.kill()
            self._until = inf

    def _processes(self) -> Iterator[Process]:
        for slot in self.slots:
            yield from slot.processes

    def _wait(self) -> None:
        """Wait for the next look, for a signal, or until a process says something or ends."""
        readable([self._wake_reader, *(one for one in self._processes() if one.fileno() >= 0)], LOOK)
        with suppress(BlockingIOError):
            self._wake_reader.recv(4096)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is to wake already
            self._wake_writer.send(b"!")


# ---- Within a process


class Assignment:
    """What the supervisor has this process be: its number, the descriptor of its socket, whether it has duties."""

    def __init__(self, number: int, descriptor: int, has_duties: bool):
        self.number = number
        self.descriptor = descriptor
        self.has_duties = has_duties
        """Whether this process is the one that keeps the schedule and gives back leases that ran out."""

    @classmethod
    def of_this_process(cls) -> Assignment | None:
        """Read from the environment, for this process alone; None if it has no supervisor."""
        if not (text := os.environ.pop(ASSIGNMENT, "")):
            return None
        number, descriptor, has_duties = map(int, text.split(":"))
        os.set_inheritable(descriptor, False)
        return cls(number, descriptor, bool(has_duties))


class SupervisorLink(Loop):
    """Does what the supervisor says, and notifies it while the main thread of the consumer moves.

    It also says whether it is quiet, how many messages were run, if that is ``limited``, and what was counted, if
    ``metrics`` show it. A process whose link has died says nothing, and is replaced.
    """

    longest_pause = ALIVE_EVERY

    def __init__(self, consumer: Consumer, descriptor: int, limited: bool, metrics: bool = False):
        super().__init__("djqueue-supervisor")
        self._consumer = consumer
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._limited, self._metrics = limited, metrics
        self._telling = threading.Lock()
        self._stops = count()
        self._rest = b""
        self._reported = 0
        self._reported_quiet = False
        self._reported_alive: tuple[float, float] | None = None
        """Which move of the main thread the supervisor knows of."""
        self._counted = 0.0
        """When it was last notified of what was counted (monotonic)."""
        signals.consumer_started.connect(self._has_started, sender=consumer)

    def stop_consumer(self) -> None:
        """Stop the consumer. However often, as a signal to all processes of a terminal reaches the supervisor too."""
        if next(self._stops) == 0:
            self._consumer.stop()

    def tick(self) -> float:
        if readable([self._socket], LOOK):
            self._listen()
        else:
            self._report_what_is_done()
        return 0.0

    def _listen(self) -> None:
        try:
            text = self._socket.recv(4096)
        except OSError:
            text = b""
        if not text:
            say(logging.WARNING, "The supervisor of this process is gone")
            self._consumer.reporter.leaves_file = False
            self.stop()
            return self.stop_consumer()
        *words, self._rest = (self._rest + text).split(b"\n")
        for word in words:
            self._do(word)

    def _do(self, word: bytes) -> None:
        if word == RETIRE:
            self._consumer.retire()
        elif word in (DUTIES, NO_DUTIES):
            self._consumer.has_duties = word == DUTIES
        elif word in (QUIET, CLAIM):
            self._consumer.state.quiet = self._reported_quiet = word == QUIET
            if self._reported_quiet:
                say(logging.WARNING, "It claims nothing, as an operator ordered the process before it")
        elif word in STOPS:
            self.stop_consumer()
            if word == NOW:
                self._consumer.stop()

    def _has_started(self, **named: Any) -> None:
        """Its main thread is about to start the others; before a drain it keeps the schedule first."""
        self._tell(b"%s %g" % (ALIVE, STARTS if self._consumer.options.drain else SILENCE))

    def _report_what_is_done(self) -> None:
        self._report_that_it_moves()
        if (is_quiet := self._consumer.state.quiet) != self._reported_quiet:
            self._reported_quiet = is_quiet
            self._tell(QUIET if is_quiet else CLAIM)
        if self._limited and (ran := self._consumer.ran) != self._reported:
            self._reported = ran
            self._tell(b"%s %d" % (RAN, ran))
        if (now := time.monotonic()) >= self._counted + COUNT_EVERY:
            self._counted = now
            self.report_what_is_counted()

    def _report_that_it_moves(self) -> None:
        """Notify the supervisor if the main thread has moved since. That this thread moves proves nothing."""
        (moved, limit), last = self._consumer.moved or (0.0, 0.0), self._reported_alive or (0.0, 0.0)
        if moved >= last[0] + ALIVE_EVERY or limit != last[1]:
            self._reported_alive = moved, limit
            self._tell(b"%s %g" % (ALIVE, limit))

    def report_what_is_counted(self) -> None:
        """Report what the consumer has counted, if that is shown. From any thread."""
        if self._metrics:
            self._tell(b"%s %s" % (COUNTED, self._consumer.totals().written().encode()))

    def _tell(self, line: bytes) -> None:
        with suppress(OSError), self._telling:  # it is gone, which the thread will notice
            self._socket.sendall(line + b"\n")
