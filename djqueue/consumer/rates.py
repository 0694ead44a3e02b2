"""What consumers counted in each minute and each quarter of an hour, and what was in the queues: shared facts.

The counts of a consumer are in a *slot* of its own, a number that it has while it lives. The next consumer takes the
slot of one that is gone, and adds to what is there. So the facts outlive consumers, and there are no more slots than
consumers lived at a time, however often processes are replaced. A fact has the whole count of its span of time: to
write it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.backends.stores import BaseStore
from djqueue.consumer.counters import Counters, Counts, Durations, Key
from djqueue.running import consumers
from djqueue.running.shared import change
from djqueue.utils import UNREADABLE, json_list, json_object

INDEX = "rates:slots"
"""The key of the fact that says which consumer has which slot."""
COMMON = "common"
"""The slot of all consumers that ended before they took one."""
MINUTE, QUARTER = LENGTHS = 60, 900
"""Seconds."""
KEPT = {MINUTE: 65 * 60.0, QUARTER: 25 * 3600.0}
"""Seconds for which the facts of a span are kept."""
LARGEST = 2**53
"""No count and no moment of a sample is that high."""
SILENT = 60.0
"""Seconds without a heartbeat after which a consumer has lost its slot; after half of them it looks whether it has."""

Span = tuple[int, int]
"""The length of a span of time, and its start: epoch seconds by the clock of the store."""
Rows = dict[Key, Counts]
"""Counts by the name of a queue in its store, and the name of a command."""
Fact = tuple[str, bytes, float | None]


def spans_of(now: float) -> list[Span]:
    """The minute and the quarter of an hour of a moment."""
    return [(length, int(now // length) * length) for length in LENGTHS]


def _key(slot: int | str, span: Span) -> str:
    return f"rates:slot:{slot}:{span[0]}:{span[1]}"


# ---- what consumers count


class _Bucket(NamedTuple):
    """The counts of one span."""

    kept: Rows
    """What the store has in the slot of this consumer."""
    fresh: Rows
    """What was counted since it was written."""


class RateRecorder:
    """Gathers what a consumer counts for one store, and says which facts its next heartbeat writes."""

    def __init__(self, store: BaseStore, queues: Iterable[BaseQueue], name: str, counters: Counters):
        self._store, self._name, self._counters = store, name, counters
        self._names = {queue.alias: queue.base_name for queue in queues}
        self._slot: int | None = None
        self._buckets: dict[Span, _Bucket] = {}
        self._now = 0.0
        """When something was last added, by the clock of the store."""

    def gather(self, now: float) -> None:
        """Add what was counted since the last call to the minute and the quarter of an hour of this moment."""
        self._add(self._counters.take(self._names), now)

    def facts(self) -> list[Fact]:
        """What the store does not have yet."""
        fresh = self._fresh()
        if fresh and self._slot is None:
            self._enter()
        return [self._fact(span) for span in fresh]

    def written(self) -> None:
        """The store has what :meth:`facts` returned."""
        for span in self._fresh():
            self._buckets[span] = _Bucket(_sum(self._buckets[span]), {})
        for span in [span for span in self._buckets if sum(span) <= self._now]:
            del self._buckets[span]

    def doubt(self) -> None:
        """Another consumer may have the slot by now, or the store was emptied: look before the next write."""
        self._slot = None

    def end(self, now: Callable[[], float]) -> None:
        """Write what is left, and free the slot. Without one that is done at once: the consumer was there shortly."""
        if taken := self._counters.take(self._names):
            self._add(taken, now())
        if self._slot is None:
            for span in self._fresh():
                rows = self._buckets[span].fresh
                change(self._store, _key(COMMON, span), partial(_with, rows), KEPT[span[0]])
        else:
            self._store.put_many(self.facts())
            change(self._store, INDEX, partial(_left, self._name, self._now))

    def _add(self, taken: Mapping[Key, Counts], now: float) -> None:
        if now < self._now:  # the clock was set back: what is there of that time is read again
            self.doubt()
        self._now = now
        for span in [span for span in self._buckets if span[1] + KEPT[span[0]] < self._now]:
            del self._buckets[span]  # the store was unreachable for long
        for span in spans_of(self._now) if taken else ():
            fresh = self._buckets.setdefault(span, _Bucket({}, {})).fresh
            for (alias, command), counts in taken.items():
                fresh.setdefault((self._names[alias], command), Counts()).include(counts)

    def _fresh(self) -> list[Span]:
        return [span for span, bucket in self._buckets.items() if bucket.fresh]

    def _fact(self, span: Span) -> Fact:
        assert self._slot is not None
        return _key(self._slot, span), _written(_sum(self._buckets[span])), KEPT[span[0]]

    def _enter(self) -> None:
        """Take a slot, and what is there already of the spans that are counted."""
        slots: list[int] = []
        change(self._store, INDEX, partial(_entered, self._store, self._name, self._now, slots))
        slot = self._slot = slots[-1]
        spans = list(dict.fromkeys([*self._buckets, *spans_of(self._now)]))
        texts = self._store.get_many([_key(slot, span) for span in spans])
        for span, text in zip(spans, texts, strict=True):
            fresh = self._buckets[span].fresh if span in self._buckets else {}
            self._buckets[span] = _Bucket(_read(text), fresh)


def _entered(store: BaseStore, name: str, now: float, found: list[int], text: bytes | None) -> bytes:
    """The index with a slot for a consumer, whose number is added to ``found``: its own, a free one, or a new one."""
    slots = _slots(text)
    heard = consumers.heard(store, [holder for holder, _ in slots])
    ends = [max(at, last) for (_, at), last in zip(slots, heard, strict=True)]
    while slots and ends[len(slots) - 1] < now - KEPT[QUARTER]:
        slots.pop()
    free = [number for number, (holder, _) in enumerate(slots) if not holder or ends[number] < now - SILENT]
    own = [number for number, (holder, _) in enumerate(slots) if holder == name]
    number = next(iter([*own, *free]), len(slots))
    slots[number : number + 1] = [(name, now)]
    found.append(number)
    return json.dumps(slots).encode()


def _left(name: str, now: float, text: bytes | None) -> bytes:
    """The index in which the slot of a consumer is free."""
    return json.dumps([("", now) if holder == name else (holder, at) for holder, at in _slots(text)]).encode()


def _slots(text: bytes | None) -> list[tuple[str, float]]:
    """The consumer of each slot, "" for none, and since when that is so; none if the index cannot be read."""
    try:
        return [(str(holder), float(at)) for holder, at in json_list(text)]
    except UNREADABLE:
        return []


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


def counts_in(store: BaseStore, spans: Sequence[Span]) -> dict[Span, Rows]:
    """What all consumers counted in these spans, those too that are gone."""
    slots = [COMMON, *range(len(_slots(store.get(INDEX))))]
    found: dict[Span, Rows] = {span: {} for span in spans}
    asked = [(slot, span) for slot in slots for span in spans]
    texts = store.get_many([_key(slot, span) for slot, span in asked])
    for (_, span), text in zip(asked, texts, strict=True):
        if text is not None:
            _add_read(found[span], text)
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


# ---- rows as text: classes without a duration are left out, as nearly all are


def _sum(parts: Iterable[Rows]) -> Rows:
    rows: Rows = {}
    for part in parts:
        for key, counts in part.items():
            rows.setdefault(key, Counts()).include(counts)
    return rows


def _with(rows: Rows, text: bytes | None) -> bytes:
    return _written(_sum([_read(text), rows]))


def _written(rows: Rows) -> bytes:
    counted: dict[str, dict[str, Any]] = {}
    for (queue, command), one in rows.items():
        outcomes = {outcome: count for outcome, count in one.outcomes.items() if count}
        counted.setdefault(queue, {})[command] = [outcomes, _few(one.ran), _few(one.waited)]
    return json.dumps(counted, separators=(",", ":")).encode()


def _few(durations: Durations) -> list[float]:
    """The sum, then the number of each class and how many are in it."""
    classes = [number for place in enumerate(durations.counts) if place[1] for number in place]
    return [round(durations.sum, 6), *classes]


def _read(text: bytes | None) -> Rows:
    rows: Rows = {}
    _add_read(rows, text or b"{}")
    return rows


def _add_read(rows: Rows, text: bytes) -> None:
    """Add what a fact has, up to where it cannot be read, as anything that reaches the store may have written it."""
    try:
        for queue, commands in json_object(text).items():
            for command, (outcomes, ran, waited) in commands.items():
                if (counts := rows.get((queue, command))) is None:
                    counts = rows[queue, command] = Counts()
                for outcome, count in outcomes.items():
                    counts.add(outcome, count)
                _add_few(counts.ran, ran)
                _add_few(counts.waited, waited)
    except UNREADABLE:
        return


def _add_few(durations: Durations, numbers: Sequence[Any]) -> None:
    durations.sum += numbers[0]
    for place, count in zip(numbers[1::2], numbers[2::2], strict=True):
        durations.counts[place] += count
