"""What a process of a consumer counts, for monitoring: attempts by outcome, how long they ran, how long they waited.

A process counts if it is asked to. With several processes each tells its supervisor, which adds them up.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from djqueue.backends.base import BaseQueue
from djqueue.consumer.in_flight import Held
from djqueue.policies.outcomes import Outcome
from djqueue.registry import registry

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""The upper bounds of the classes in which durations are counted, in seconds; one more class is for what is longer."""
OTHER = "other"
"""The name under which messages are counted whose command this process does not know."""
DONE, RETURNED = Outcome.DONE, Outcome.RETURNED
LEASE_LOST = "lease_lost"
OUTCOMES = {one: one.name.lower() if one.effect.status == "released" else one.effect.status for one in Outcome}
"""How an attempt ended, in a word: its status, or why it was released."""

USUAL = ("done", "retried", "failed")
"""The outcomes that are shown from the start: how much a counter rises can be told only from its second value on."""


@dataclass(slots=True)
class Durations:
    """How many durations there were in each class, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        if seconds > 0:  # not by two clocks that disagree, nor what is no number
            self.sum += seconds

    def include(self, other: Durations) -> None:
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


@dataclass(slots=True)
class Counts:
    """What was counted for one command in one queue."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(USUAL, 0))
    """Attempts whose end the store knows, by outcome."""
    ran: Durations = field(default_factory=Durations)
    """How long each attempt ran."""
    waited: Durations = field(default_factory=Durations)
    """From when a message was due until its first attempt began."""

    def add(self, outcome: str, count: int = 1) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count

    def include(self, other: Counts) -> None:
        for outcome, count in other.outcomes.items():
            self.add(outcome, count)
        self.ran.include(other.ran)
        self.waited.include(other.waited)


Key = tuple[str, str]
"""The alias of a queue, and the name of a command."""


@dataclass(slots=True)
class Totals:
    """What one process has counted since its start, or several together."""

    counts: dict[Key, Counts] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """What is so just now: ``processes``, ``threads``, ``coroutines``, ``claimed`` (messages held), ``running``."""

    def include(self, other: Totals) -> None:
        for key, counts in other.counts.items():
            self.counts.setdefault(key, Counts()).include(counts)
        for name, value in other.gauges.items():
            self.gauges[name] = self.gauges.get(name, 0) + value

    def written(self) -> str:
        """As one line of JSON."""
        rows = [
            [*key, one.outcomes, one.ran.counts, one.ran.sum, one.waited.counts, one.waited.sum]
            for key, one in self.counts.items()
        ]
        return json.dumps({"counts": rows, "gauges": self.gauges})

    @classmethod
    def read(cls, text: str) -> Totals:
        """The inverse of :meth:`written`."""
        told = json.loads(text)
        rows = {
            (queue, command): Counts(outcomes, Durations(ran, ran_sum), Durations(waited, waited_sum))
            for queue, command, outcomes, ran, ran_sum, waited, waited_sum in told["counts"]
        }
        return cls(rows, told["gauges"])


class Counters:
    """Counts the messages that are settled in this process. Safe to use from any thread.

    The commands of these queues are shown before any has run.
    """

    def __init__(self, queues: Iterable[BaseQueue] = ()) -> None:
        aliases = {queue.alias for queue in queues}
        ours = [command for command in registry if command.policy.queue_name in aliases]
        self._counts = {(one.policy.queue_name, one.name): Counts() for one in ours}
        self._lock = threading.Lock()

    def add(self, settled: Sequence[Held]) -> None:
        """Count messages whose end the store knows."""
        with self._lock:
            for held in settled:
                verdict = held.verdict
                if verdict is None or verdict.outcome is RETURNED:  # which counts as nothing
                    continue
                lease = held.lease
                entry = lease.entry
                counts = self._counts.get((held.queue.alias, entry.command)) or self._made(held)
                if verdict.outcome is DONE and not held.lost:
                    counts.outcomes["done"] += 1
                else:
                    counts.add(LEASE_LOST if held.lost else OUTCOMES[verdict.outcome])
                if ran := verdict.seconds:
                    counts.ran.add(ran)
                if entry.attempts == 1 and held.began is not None and lease.claimed:
                    due = entry.run_at if entry.run_at > entry.created else entry.created
                    counts.waited.add(lease.claimed - due + held.began - held.since)

    def totals(self) -> Totals:
        """A copy of what was counted."""
        totals = Totals()
        with self._lock:
            totals.include(Totals(self._counts))
        return totals

    def _made(self, held: Held) -> Counts:
        """Names of commands in a store are not signed, so only those are told apart that this process knows."""
        name = held.lease.entry.command
        return self._counts.setdefault((held.queue.alias, name if registry.get(name) else OTHER), Counts())


class SupervisedTotals:
    """What several processes have counted, each as it told last. Safe to use from any thread.

    ``before`` is shown before any of them has told something.
    """

    def __init__(self, before: Totals | None = None) -> None:
        self._living: dict[object, Totals] = {}
        self._ended = before or Totals()
        self._lock = threading.Lock()

    def hear(self, process: object, told: str) -> None:
        """Take in what a process has counted since its start."""
        totals = Totals.read(told)
        with self._lock:
            self._living[process] = totals

    def end(self, process: object) -> None:
        """Keep what a process has counted that has ended: counters only rise."""
        with self._lock:
            if (last := self._living.pop(process, None)) is not None:
                self._ended.include(Totals(last.counts))

    def sum(self) -> Totals:
        totals = Totals()
        with self._lock:
            for one in (self._ended, *self._living.values()):
                totals.include(one)
        return totals
