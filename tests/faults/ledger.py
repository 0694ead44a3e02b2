"""A record of every run, kept by the commands themselves, apart from the store under test; and what it proves.

One line per event, written by one `os.write`, so that lines of different processes never mix:
`id attempt what pid parent thread moment`. What happened is "start", "end", or a word of the command's own.
"""

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from djqueue import current_message
from tests.app.commands import write_down
from tests.support.processes import until

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds by a clock that all processes share and nobody sets."""
    return time.clock_gettime(CLOCK)


def record(what: str) -> None:
    """Write one event of the command that is running."""
    message = current_message()
    write(message.id, message.attempt, what)


def write(id: str, attempt: int, what: str) -> None:
    """Write one event of a message."""
    write_down(f"{id} {attempt} {what} {os.getpid()} {os.getppid()} {threading.get_native_id()} {now():.6f}")


UNREPORTED = 0.2
"""Seconds: what is done is settled with the next claim, 50 ms later at most, and a round trip takes time."""


class Event(NamedTuple):
    """One line of the ledger."""

    id: str
    attempt: int
    what: str
    pid: int
    parent: int
    """The process that started that one: the consumer, if the message ran in a process of its own."""
    thread: int
    at: float

    @classmethod
    def of(cls, line: str) -> "Event":
        id, attempt, what, pid, parent, thread, at = line.split()
        return cls(id, int(attempt), what, int(pid), int(parent), int(thread), float(at))

    @property
    def run(self) -> tuple:
        """What a start and its end have in common."""
        return self.id, self.attempt, self.pid, self.thread


class Ledger:
    """The reader's side."""

    def __init__(self, path: Path):
        self.path = path
        self.events: list[Event] = []
        self._ended: set[str] = set()
        self._running: dict[tuple, Event] = {}
        self._read = 0
        path.touch()

    def look(self) -> list[Event]:
        """All events so far, in the order of their writing."""
        with self.path.open() as file:
            file.seek(self._read)
            text = file.read().rpartition("\n")[0]
        if text:
            new = [*map(Event.of, text.split("\n"))]
            self.events += new
            self._read += len(text) + 1
            self._running |= {event.run: event for event in new if event.what == "start"}
            for event in new:
                if event.what == "end":
                    self._running.pop(event.run, None)
                    self._ended.add(event.id)
        return self.events

    def of(self, what: str, ids: Collection[str] | None = None) -> list[Event]:
        """The events of one kind, and of these messages only if ids are given."""
        return [event for event in self.look() if event.what == what and (ids is None or event.id in ids)]

    def wait(self, what: str, count: int = 1, ids: Collection[str] | None = None, timeout: float = 30.0) -> list[Event]:
        """Wait for so many events of that kind. AssertionError after `timeout` seconds."""
        return self._until(lambda: found if len(found := self.of(what, ids)) >= count else None, timeout)

    def wait_all(self, what: str, ids: Iterable[str], timeout: float = 60.0) -> None:
        """Wait for an event of that kind of each of these messages."""
        wanted = set(ids)
        self._until(lambda: wanted <= {event.id for event in self.of(what)}, timeout)

    def running(self) -> list[Event]:
        """The starts that have no end (yet)."""
        self.look()
        return [*self._running.values()]

    def ended(self) -> set[str]:
        """The messages that have run to an end."""
        self.look()
        return self._ended

    def starts(self, ids: Collection[str]) -> Counter[str]:
        """How often each of these messages was started."""
        return Counter(event.id for event in self.of("start", ids))

    def pids(self, what: str | None = None, ids: Collection[str] | None = None) -> set[int]:
        """The processes that wrote anything, or such events of these messages."""
        return {event.pid for event in (self.of(what, ids) if what else self.look())}

    def just_ended(self, pid: int) -> int:
        """How many messages a killed process had ended of which its store may not have heard: they wait for a claim."""
        events = [event for event in self.look() if pid in (event.pid, event.parent)]
        last = max(event.at for event in events)
        return sum(event.what == "end" and last - event.at < UNREPORTED for event in events)

    def check(self, ok: Iterable[str], unknown: Iterable[str] = ()) -> "Findings":
        """What the ledger says of messages that were accepted, and of those that may have been."""
        return Findings.of(self.look(), set(ok), set(unknown))

    def _until(self, condition: Callable, timeout: float):
        try:
            return until(condition, timeout)
        except AssertionError as error:
            counts = Counter(event.what for event in self.events)
            raise AssertionError(f"{error}; the ledger has {dict(counts)}; last: {self.events[-5:]}") from None


@dataclass(frozen=True)
class Findings:
    """What became of the messages. At rest, when nothing waits and nothing is leased."""

    lost: set[str] = field(default_factory=set)
    """Accepted, and never run to the end."""
    unexpected: set[str] = field(default_factory=set)
    """Run, but never sent."""
    dup_runs: int = 0
    """Ends beyond the first of each."""
    overlaps: set[str] = field(default_factory=set)
    """Those of which two runs went on at the same time."""

    @classmethod
    def of(cls, events: list[Event], ok: set[str], unknown: set[str]) -> "Findings":
        ends = Counter(event.id for event in events if event.what == "end")
        return cls(
            ok - ends.keys(),
            ends.keys() - ok - unknown,
            sum(count - 1 for count in ends.values()),
            {id for id, runs in _runs(events).items() if _overlap(runs)},
        )


def _runs(events: list[Event]) -> dict[str, list[tuple[float, float]]]:
    """Start and end of each run by message; one without an end is taken to have ended when it began."""
    ended = {event.run: event.at for event in events if event.what == "end"}
    runs = defaultdict(list)
    for event in events:
        if event.what == "start":
            runs[event.id].append((event.at, ended.get(event.run, event.at)))
    return runs


def _overlap(runs: list[tuple[float, float]]) -> bool:
    runs.sort()
    return any(later[0] < earlier[1] for earlier, later in zip(runs, runs[1:], strict=False))
