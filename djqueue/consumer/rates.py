"""What consumers counted in each minute and each quarter of an hour, and what was in the queues: shared facts.

There is one fact for a queue and a span of time, to which all consumers add what they counted. So the facts outlive
consumers. A fact says which addition of each consumer was the last: one whose answer was lost is repeated, and counts
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.backends.stores import BaseStore
from djqueue.consumer.counters import Counters, Counts, Durations, Key
from djqueue.running.shared import change_many
from djqueue.utils import UNREADABLE, json_object

MINUTE, QUARTER = LENGTHS = 60, 900
"""Seconds."""
KEPT = {MINUTE: 65 * 60.0, QUARTER: 25 * 3600.0}
"""Seconds for which the facts of a span are kept."""
LARGEST = 2**53
"""No count and no moment of a sample is that high."""
MOST_WRITERS = 100
"""How many consumers a fact names: the latest. Who repeats an addition does so within seconds."""

Span = tuple[int, int]
"""The length of a span of time, and its start: epoch seconds by the clock of the store."""
Rows = dict[Key, Counts]
"""Counts by the name of a queue in its store, and the name of a command."""
Place = tuple[Span, str]
"""What a fact is about: a span of time, and the name of a queue in its store."""
Commands = dict[str, Counts]
"""Counts by the name of a command."""
Fact = tuple[str, bytes, float | None]


def spans_of(now: float) -> list[Span]:
    """The minute and the quarter of an hour of a moment."""
    return [(length, int(now // length) * length) for length in LENGTHS]


def _key(span: Span, name: str) -> str:
    return f"rates:named:{name}:{span[0]}:{span[1]}"


# ---- what consumers count


class RateRecorder:
    """Gathers what a consumer counts for one store, and adds it to the facts there."""

    def __init__(self, store: BaseStore, queues: Iterable[BaseQueue], counters: Counters):
        self._store, self._counters = store, counters
        self._names = {queue.alias: queue.base_name for queue in queues}
        self._writer, self._number = token_hex(4), 0
        """By these a fact knows an addition again: each has the next number."""
        self._gathered: dict[Place, Commands] = {}
        self._adding: dict[Place, Commands] = {}
        """What the store may have already: it stays as it is until the store has it for certain."""

    def gather(self, now: float) -> None:
        """Count what was counted since the last call in the minute and the quarter of an hour of this moment."""
        self._include(self._counters.take(self._names), now)
        for places in (self._gathered, self._adding):
            for place in [place for place in places if place[0][1] + KEPT[place[0][0]] < now]:
                del places[place]  # the store was unreachable for long

    def add(self) -> None:
        """Add to the facts what was gathered. If that raises, the next call finds out what of it they have."""
        while self._adding or self._gathered:
            if not self._adding:
                self._adding, self._gathered, self._number = self._gathered, {}, self._number + 1
            for length in LENGTHS:
                places = [place for place in self._adding if place[0][0] == length]
                changes = {_key(*place): partial(self._added, self._adding[place]) for place in places}
                change_many(self._store, changes, KEPT[length])
                for place in places:
                    del self._adding[place]

    def end(self, now: Callable[[], float]) -> None:
        """Add what is left."""
        if taken := self._counters.take(self._names):
            self._include(taken, now())
        self.add()

    def _include(self, taken: Mapping[Key, Counts], now: float) -> None:
        for span in spans_of(now):
            for (alias, command), counts in taken.items():
                commands = self._gathered.setdefault((span, self._names[alias]), {})
                commands.setdefault(command, Counts()).include(counts)

    def _added(self, commands: Commands, text: bytes | None) -> bytes | None:
        """A fact with what this consumer counted; as it is if it has that already."""
        fact = json_object(text)
        writers = kept if isinstance(kept := fact.get("writers"), dict) else {}
        if writers.pop(self._writer, None) == self._number:
            return text
        latest = dict([*writers.items()][-MOST_WRITERS + 1 :])
        counted = _counts_of(fact)
        for command, counts in commands.items():
            counted.setdefault(command, Counts()).include(counts)
        return _written(counted, {**latest, self._writer: self._number})


# ---- what is in the queues


class Sample(NamedTuple):
    """What was in a queue at a moment."""

    at: float
    stats: QueueStats


class Sampler:
    """Keeps once a minute what is in a queue: of its consumers, the first that looks does it."""

    def __init__(self) -> None:
        self._minutes: dict[str, Span] = {}

    def look(self, queue: BaseQueue, now: float) -> None:
        """Keep it, unless that was done in this minute of the store's clock."""
        minute, quarter = spans_of(now)
        if self._minutes.get(queue.alias) == minute:
            return
        self._minutes[queue.alias] = minute
        store, key = queue.store.shared, _sample_key(queue.base_name, minute)
        if not store.add(key, b"", KEPT[MINUTE]):
            return
        value = json.dumps({"at": now, **asdict(queue.stats())}).encode()
        facts: list[Fact] = [(key, value, KEPT[MINUTE])]
        if store.add(longer := _sample_key(queue.base_name, quarter), b"", KEPT[QUARTER]):
            facts.append((longer, value, KEPT[QUARTER]))
        store.put_many(facts)


def _sample_key(name: str, span: Span) -> str:
    return f"sample:named:{name}:{span[0]}:{span[1]}"


# ---- what others read


def counts_in(store: BaseStore, names: Iterable[str], spans: Sequence[Span]) -> dict[Span, Rows]:
    """What all consumers counted in queues of these names in the store, those too that are gone."""
    places = [(span, name) for name in dict.fromkeys(names) for span in spans]
    texts = store.get_many([_key(*place) for place in places])
    found: dict[Span, Rows] = {span: {} for span in spans}
    for (span, name), text in zip(places, texts, strict=True):
        found[span] |= {(name, command): counts for command, counts in _counts_of(json_object(text)).items()}
    return found


def samples_in(store: BaseStore, names: Sequence[str], spans: Sequence[Span]) -> dict[str, list[Sample]]:
    """What was in queues of these names in the store, the oldest first."""
    texts = store.get_many([_sample_key(name, span) for name in names for span in spans])
    read = [_sample(text) for text in texts]
    size = len(spans)
    return {
        name: [one for one in read[number * size : (number + 1) * size] if one is not None]
        for number, name in enumerate(names)
    }


def _sample(text: bytes | None) -> Sample | None:
    if not text:
        return None
    try:
        record = json_object(text)
        at, known = float(record.pop("at")), [value for value in record.values() if value is not None]
        return Sample(at, QueueStats(**record)) if all(0 <= value < LARGEST for value in [at, *known]) else None
    except UNREADABLE:  # not written by djqueue
        return None


# ---- counts as text: classes without a duration are left out, as nearly all are


def _written(commands: Commands, writers: Mapping[str, Any]) -> bytes:
    """A fact: the counts, and the number of the last addition of each consumer, the latest last."""
    counted: dict[str, Any] = {}
    for command, one in commands.items():
        outcomes = {outcome: count for outcome, count in one.outcomes.items() if count}
        counted[command] = [outcomes, _few(one.ran), _few(one.waited)]
    return json.dumps({"counts": counted, "writers": writers}, separators=(",", ":")).encode()


def _few(durations: Durations) -> list[float]:
    """The sum, then the number of each class and how many are in it."""
    classes = [number for place in enumerate(durations.counts) if place[1] for number in place]
    return [round(durations.sum, 6), *classes]


def _counts_of(fact: Mapping[str, Any]) -> Commands:
    """What a fact has, up to where it cannot be read, as anything that reaches the store may have written it."""
    commands: Commands = {}
    try:
        for command, (outcomes, ran, waited) in fact.get("counts", {}).items():
            counts = commands.setdefault(command, Counts())
            for outcome, count in outcomes.items():
                counts.add(outcome, count)
            _add_few(counts.ran, ran)
            _add_few(counts.waited, waited)
    except UNREADABLE:
        pass
    return commands


def _add_few(durations: Durations, numbers: Sequence[Any]) -> None:
    durations.sum += numbers[0]
    for place, count in zip(numbers[1::2], numbers[2::2], strict=True):
        durations.counts[place] += count
