"""What a process of a consumer counts, for monitoring: attempts by outcome, how long they ran, how long they waited.

With several processes each notifies its supervisor, which adds them up.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from djqueue.backends.base import BaseQueue
from djqueue.consumer.in_flight import Message
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
"""The outcomes that are shown from the start: how much a counter rises is known only from its second value on."""
FEW = 8
"""Durations that are faster counted one by one than sorted."""


@dataclass(slots=True)
class Durations:
    """How many durations there were in each class, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: list[float]) -> None:
        """Count durations. The list may be sorted for that."""
        if len(seconds) < FEW:
            for one in seconds:
                self.counts[bisect_left(BOUNDS, one)] += 1
        else:
            self._add_sorted(seconds)
        total = sum(seconds)
        if not (total >= 0 and min(seconds, default=0.0) >= 0):
            total = sum(one for one in seconds if one > 0)  # not by two clocks that disagree, nor what is no number
        self.sum += total

    def _add_sorted(self, seconds: list[float]) -> None:
        """Find how many there are in each class, instead of the class of each: most are in the first ones."""
        seconds.sort()
        below, all = 0, len(seconds)
        for place, bound in enumerate(BOUNDS):
            up_to = bisect_right(seconds, bound, below)
            self.counts[place] += up_to - below
            below = up_to
            if below == all:
                return
        self.counts[-1] += all - below

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
        written = json.loads(text)
        rows = {
            (queue, command): Counts(outcomes, Durations(ran, ran_sum), Durations(waited, waited_sum))
            for queue, command, outcomes, ran, ran_sum, waited, waited_sum in written["counts"]
        }
        return cls(rows, written["gauges"])


@dataclass(slots=True)
class EndedTogether:
    """What ended together, of one command in one queue."""

    done: int = 0
    others: list[str] = field(default_factory=list)
    """The outcomes that are not ``done``."""
    ran: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def count(self, counts: Counts) -> None:
        counts.outcomes["done"] += self.done
        for outcome in self.others:
            counts.add(outcome)
        counts.ran.add(self.ran)
        counts.waited.add(self.waited)


class Counters:
    """Counts the messages that are settled in this process. Safe to use from any thread.

    The commands of these queues are shown before any has run.
    """

    def __init__(self, queues: Iterable[BaseQueue] = ()) -> None:
        aliases = {queue.alias for queue in queues}
        ours = [command for command in registry if command.policy.queue_name in aliases]
        self._taken = {(one.policy.queue_name, one.name): Counts() for one in ours}
        """What :meth:`take` has returned."""
        self._recent: dict[Key, Counts] = {}
        """What was counted since."""
        self._lock = threading.Lock()

    def add(self, settled: Sequence[Message]) -> None:
        """Count messages whose end the store knows. Called for all messages, so those alike are counted at once."""
        groups: dict[Key, EndedTogether] = {}
        queue = command = ended = None
        for message in settled:
            if (final := message.final) is None or final.verdict.outcome is RETURNED:  # which counts as nothing
                continue
            verdict, lease = final.verdict, message.lease
            entry = lease.entry
            if ended is None or entry.command != command or message.queue is not queue:
                queue, command = message.queue, entry.command
                ended = groups.setdefault((queue.alias, command), EndedTogether())
            if verdict.outcome is DONE and not message.lost:
                ended.done += 1
            else:
                ended.others.append(LEASE_LOST if message.lost else OUTCOMES[verdict.outcome])
            if ran := verdict.seconds:
                ended.ran.append(ran)
            if entry.attempts == 1 and (began := message.began) is not None and (claimed := lease.claimed):
                due = entry.run_at if entry.run_at > entry.created else entry.created
                ended.waited.append(claimed - due + began - message.asked)
        with self._lock:
            for (alias, name), group in groups.items():
                group.count(self._counts_of(alias, name))

    def take(self, aliases: Collection[str]) -> dict[Key, Counts]:
        """What was counted in some queues since the last call for them."""
        with self._lock:
            taken = {key: counts for key, counts in self._recent.items() if key[0] in aliases}
            for key, counts in taken.items():
                del self._recent[key]
                self._taken.setdefault(key, Counts()).include(counts)
        return taken

    def totals(self) -> Totals:
        """A copy of all that was counted."""
        totals = Totals()
        with self._lock:
            totals.include(Totals(self._taken))
            totals.include(Totals(self._recent))
        return totals

    def _counts_of(self, alias: str, name: str) -> Counts:
        """Names of commands in a store are not signed, so only those that this process knows are distinguished."""
        if (counts := self._recent.get((alias, name))) is None:
            known = (alias, name) in self._taken or registry.get(name) is not None
            counts = self._recent.setdefault((alias, name if known else OTHER), Counts())
        return counts


class SupervisedTotals:
    """What several processes have counted, each as it reported last. Safe to use from any thread.

    ``before`` is shown before any of them has reported.
    """

    def __init__(self, before: Totals | None = None) -> None:
        self._living: dict[object, Totals] = {}
        self._ended = before or Totals()
        self._lock = threading.Lock()

    def hear(self, process: object, text: str) -> None:
        """Take in what a process has counted since its start."""
        totals = Totals.read(text)
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
