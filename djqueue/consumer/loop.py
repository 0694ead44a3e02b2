"""The threads that a consumer needs, which notice when the process is at its limits; and the consumer's options."""

from __future__ import annotations

import errno
import gc
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from traceback import FrameSummary
from types import FrameType
from typing import Any, TypeVar

from django.db import connections

from djqueue import conf
from djqueue.consumer.database_connections import drop
from djqueue.exceptions import StoreError
from djqueue.messages.failures import chained, text_of
from djqueue.utils import clock, end_child, forks, log_safely, seconds, set_whole

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries while a store is unreachable
PATIENCE = 1.0  # seconds after which it will not pass by itself
HANGS = 60.0  # seconds: a step of a thread that takes longer will not end
ROOM = 2 << 20  # bytes: more than the interpreter asks for at a time
NUMBERS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
WORDS = ("can't start new thread", "can't allocate lock")
_ERRNO: Any = OSError.errno
"""The descriptor itself, which no class of an exception can hide."""


def is_for_want(error: BaseException) -> bool:
    """Whether something failed because the process was at its limits, as far as the exceptions show it."""
    return any(map(_says_so, chained([error])))


def at_limits() -> bool:
    """Whether the process cannot open one file more, or take some memory: each driver says that in its own words."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        bytearray(ROOM)
    except (OSError, MemoryError):
        return True
    return False


class NoEventLoop(Exception):
    """This process is at its limits, and can make no event loop for an async command, which has not begun."""


class Starvation:
    """For how long a thread has found the process at its limits at every try."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.lasts = False
        """Whether that lasts too long: only another process can go on."""

    def add(self, error: BaseException) -> bool:
        """Note a failure; whether it came of the process's limits. If so, garbage has been collected."""
        if not (is_for_want(error) or at_limits()):
            self.end()
            return False
        gc.collect()
        self._note()
        return True

    def look(self) -> bool:
        """Whether the process is at its limits just now, without its garbage too."""
        if at_limits():
            gc.collect()
            if at_limits():
                self._note()
                return True
        self.end()
        return False

    def end(self) -> None:
        self._since, self.lasts = None, False

    def _note(self) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        self.lasts = now - self._since >= PATIENCE


def _says_so(error: BaseException) -> bool:
    kind = type(error)  # not error.__class__, which can be any
    if issubclass(kind, OSError):
        return _ERRNO.__get__(error) in NUMBERS
    return issubclass(kind, MemoryError) or (issubclass(kind, RuntimeError) and text_of(error).startswith(WORDS))


class Member(threading.Thread):
    """A thread that does its :meth:`duty`; :attr:`trouble` is why it ended too early, or cannot go on."""

    def __init__(self, name: str):
        super().__init__(name=name, daemon=True)
        self.starvation = Starvation()
        self._died_of = ""
        self.forks = forks.count
        """By how many forks this process was made."""
        self.moved = time.monotonic(), HANGS
        """When it last moved (monotonic), and the seconds within which it has to move again."""

    def move(self, pause: float = 0.0) -> None:
        """Note that it goes on: with its next step, or with a pause."""
        self.moved = time.monotonic(), pause + HANGS

    def duty(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        self.forks = forks.count  # it may have been made before its program forked
        try:
            self.duty()
        except BaseException as error:
            self._died_of = f"{type(error).__name__}: {text_of(error)}"
            raise

    def where(self) -> str:
        """The traceback of what it is doing now."""
        return "".join(traceback.format_list(self.stack()))

    def stack(self) -> list[FrameSummary]:
        """The frames of what it is doing now, the innermost last."""
        frame = frames_of_threads().get(self.ident or 0)
        return [] if frame is None else traceback.extract_stack(frame)

    @property
    def is_dead(self) -> bool:
        return self.ident is not None and not self.is_alive()

    @property
    def starves(self) -> bool:
        """Whether the process has been at its limits whenever it tried, for too long to wait."""
        return self.starvation.lasts

    @property
    def trouble(self) -> str:
        """Why only another process can go on; nothing if it does its duty."""
        if self.is_dead:
            return f"{self.name} has died of {self._died_of or 'an unknown cause'}"
        if self.starves:
            return f"{self.name} starves: this process is at its limits of memory, descriptors or threads"
        return ""


def frames_of_threads() -> dict[int, FrameType]:
    """The frames of all threads, with garbage collection off: older Pythons deadlock in it (CPython gh-106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def pause_after(failures: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))


def how_to_log(error: BaseException, failures: int) -> tuple[int, BaseException | None]:
    """The level for so many failures in a row, and the exception whose traceback is shown: of the first failure.

    The text of a StoreError says all.
    """
    if failures > 1:
        return logging.WARNING, None
    return logging.ERROR, None if issubclass(type(error), StoreError) else error


def run_all(things: Iterable[T], do: Callable[[T], float | None]) -> float:
    """Call ``do`` for each thing, even if it fails for some; then raise the first error, or return the least answer."""
    least, errors = inf, []
    for thing in things:
        try:
            answer = do(thing)
        except Exception as error:
            errors.append(error)
        else:
            least = least if answer is None else min(least, answer)
    if errors:
        raise errors[0]
    return least


def alone(do: Callable[[], T]) -> tuple[T | None, StoreError | None]:
    """What ``do`` returns for a queue, and the error if that stops this queue alone. Raises all other errors."""
    try:
        return do(), None
    except StoreError as error:
        if not error.stops_one:
            raise
        return None, error


def alike(things: Iterable[T], kind: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for thing in things:
        found.setdefault(kind(thing), []).append(thing)
    return list(found.values())


def recycle_connections() -> None:
    """After a failure: database connections of this thread are not used again.

    One may be broken. Where memory was short, one may be left in a transaction that nothing ends, with its locks.
    """
    is_ours = isinstance(threading.current_thread(), Member)  # a tick may be called within a transaction of a test
    for connection in connections.all(initialized_only=True):
        if is_ours or not connection.in_atomic_block:
            with suppress(Exception):
                drop(connection)


SLOW = 1.0
"""Seconds: a store that fails a call so late is unreachable."""


class Slow(Exception):
    """A call of the store has failed late: leases may be about to run out."""


def slow_since(moment: float) -> bool:
    """Whether a call that fails now, and began at a moment of our clock, has failed late."""
    return clock() - moment > SLOW


class FailureBackoff:
    """Counts and logs the failures of one thing in a row, and decides when it is tried again."""

    def __init__(self, name: str, log: Callable[..., None] = log_safely):
        self.name, self._log = name, log
        self.count = 0
        self.starvation = Starvation()
        self._until = 0.0

    @property
    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def add(self, error: BaseException, longest_pause: float = LONGEST_PAUSE) -> float:
        """Log the first failure in full, each later one in a line; the seconds to wait, longer every time.

        Not longer if the process is at its limits: that is over soon, or another process is needed.
        """
        recycle_connections()
        self.count += 1
        longest_pause = min(FIRST_PAUSE, longest_pause) if self.starvation.add(error) else longest_pause
        pause = min(longest_pause, pause_after(self.count))
        self._until = time.monotonic() + pause
        text = "%s failed (%d in a row): %s; trying again in %.1f s"
        level, shown = how_to_log(error, self.count)
        self._log(logger, level, text, self.name, self.count, text_of(error).rstrip("."), pause, exc_info=shown)
        return pause

    def end(self) -> None:
        if self.count:
            self._log(logger, logging.INFO, "%s goes on", self.name)
            self.count, self._until = 0, 0.0
            self.starvation.end()


class Loop(Member):
    """Calls :meth:`tick` until it is stopped. While a store is unreachable it keeps trying."""

    longest_pause: float = LONGEST_PAUSE
    """The most seconds between two tries while a tick fails."""

    def __init__(self, name: str):
        super().__init__(name)
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._failure_backoff = FailureBackoff(name)
        self._broken_off = 0
        """How many ticks in a row could not even be followed by a pause."""

    def tick(self) -> float:
        """Do what is due; seconds until the next tick."""
        raise NotImplementedError

    @property
    def starves(self) -> bool:
        return self._failure_backoff.starvation.lasts or self._broken_off * FIRST_PAUSE >= PATIENCE

    @property
    def failures(self) -> int:
        """How many ticks in a row have failed."""
        return self._failure_backoff.count

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def wake(self) -> None:
        """Have the next tick begin now."""
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """Let no further tick begin."""
        self._stopped.set()
        self._wake.set()

    def duty(self) -> None:
        while True:
            try:
                if self.stopped:
                    break
                if self._broken_off:
                    recycle_connections()
                if forks.count != self.forks:
                    end_child(None)  # of a handler of the log: it must not go on as the consumer
                self.move()
                if (pause := self.guarded_tick()) > 0:
                    self.move(pause)
                    self._wake.wait(pause)
                self._wake.clear()  # the next tick sees what woke this thread
                self._broken_off = 0
            except BaseException:  # waiting takes a lock, for which memory may be short
                self._broken_off += 1
                time.sleep(FIRST_PAUSE)
        with suppress(Exception):
            self.on_stop()
        connections.close_all()

    def on_stop(self) -> None:
        """Called once no tick will begin any more."""

    def guarded_tick(self) -> float:
        """A tick; if it raises, the seconds to wait before the next try, longer every time."""
        try:
            pause = self.tick()
        except BaseException as error:  # nothing may end the thread
            return self._failure_backoff.add(error, self.longest_pause)
        self._failure_backoff.end()
        return pause


@dataclass(frozen=True, slots=True)
class Options:
    """How a consumer behaves. Durations are seconds."""

    threads: int = 4
    coroutines: int = 0
    """How many messages of async commands run at a time on one event loop; 0: each is run by a thread, to its end."""
    periodic: bool = True
    delay: float = 0.1
    """The first pause of an idle consumer of a polling backend …"""
    backoff: float = 1.15
    """… each pause is this many times the last …"""
    max_delay: float | None = None
    """… up to this; None for QUEUE_MAX_POLL_INTERVAL."""
    lease: float | None = None
    """How long a claim holds unless it is extended, which it is; None for each queue's own."""
    grace: float = 25.0
    """How long running messages may go on after a stop."""
    strict: bool = False
    """Serve the queues in the order given, not in turn."""
    drain: bool = False
    """Run all due messages, then end."""
    isolate: bool = False
    """Run a message with which workers have died in a process of its own, which loads the settings module again.

    Without it, and for a queue that no other process can reach, such a message runs alone in the consumer.
    """
    reap: bool = True
    """Give back leases that ran out, and prune what is old; of the consumers of a queue one has to."""
    alive: str | None = None
    """The liveness file, in which the consumer writes every two seconds how each of its parts fares."""
    stuck_after: float | None = None
    """A command that has run for longer counts as stuck in the liveness file and for systemd; None for never."""

    def __post_init__(self) -> None:
        set_whole(self, "threads", least=1)
        set_whole(self, "coroutines", least=0)
        if not self.backoff >= 1:
            raise ValueError(f"backoff is {self.backoff!r}: give at least 1.")
        seconds(self.delay, "delay", least=0.001)
        if self.max_delay is not None:
            seconds(self.max_delay, "max_delay", least=0.001)
        seconds(self.grace, "grace")
        if self.lease is not None:
            seconds(self.lease, "lease", least=0.1)
        if self.stuck_after is not None:
            seconds(self.stuck_after, "stuck_after", least=1.0)
        if self.alive is not None and not (folder := Path(self.alive).absolute().parent).is_dir():
            raise ValueError(f"alive: there is no folder {folder}; make it, or give another path.")

    @property
    def longest_pause(self) -> float:
        if self.max_delay is not None:
            return self.max_delay
        return seconds(conf.get("QUEUE_MAX_POLL_INTERVAL"), "QUEUE_MAX_POLL_INTERVAL", least=0.001)
