"""How much comes in and is done per minute: the last hour by minutes, the last day by quarters of an hour."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.consumer.counters import BOUNDS, Counts, Durations, Key
from djqueue.consumer.rates import LARGEST, MINUTE, QUARTER, Rows, Sample, Span, counts_in, samples_in
from djqueue.operations.filters import is_named
from djqueue.operations.queues import chosen
from djqueue.running.shared import Shared, shared_stores
from djqueue.words import Bucket

LATELY = 5
"""Minutes over which rates per minute are taken."""
MINUTES, HOUR, DAY = "minutes", "hour", "day"
PERIODS = {MINUTES: (MINUTE, LATELY + 1), HOUR: (MINUTE, 60), DAY: (QUARTER, 96)}
"""The length of a span of time in seconds, and how many of them a period has."""


FEW = 20
"""With fewer durations a quantile is given only as its class."""


class Quantiles(NamedTuple):
    """Durations in seconds; None if there was none.

    They are interpolated between the bounds of the classes in which durations are counted, as Prometheus does it: right
    to the class, not to the second. What is longer than an hour counts as an hour. Of fewer than 20 durations they are
    a :class:`~djqueue.words.Bucket`, the class itself: the pages say "10–30 s", not a median that was never measured.
    """

    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """What was counted for a command in a queue in one span of time."""

    start: float
    """Epoch seconds by the clock of the store."""
    done: int = 0
    failed: int = 0
    retried: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    """Attempts that ended otherwise, by outcome: discarded, expired, lease_lost, …"""
    run: Quantiles = Quantiles()
    """How long attempts ran."""
    wait: Quantiles = Quantiles()
    """From when a message was due until its first attempt began."""


@dataclass(frozen=True, slots=True)
class CommandRates:
    """What was counted for a command in a queue: one point per minute or quarter of an hour, oldest first."""

    queue: str
    """The alias of the queue."""
    command: str
    """Its name, or ``other`` for commands that their consumer did not know."""
    points: Sequence[Point]
    total: Point
    """The sum of all points."""


class QueuePoint(NamedTuple):
    """What was counted for a queue in one span of time."""

    start: float
    enqueued: int | None
    """About how many messages came in; None if that is not known."""
    done: int
    failed: int
    retried: int
    ready: int | None
    """How many messages were ready at some moment of it; None if none were counted."""


@dataclass(frozen=True, slots=True)
class QueueRates:
    """What comes into a queue and goes out of it."""

    queue: str
    points: Sequence[QueuePoint]
    """One for each minute or quarter of an hour, oldest first; the last one is not over yet."""
    enqueued: float | None
    """Messages per minute in the last five minutes; None if that is not known."""
    done: float
    failed: float
    retried: float
    time_to_drain: float | None
    """Seconds until no message is ready, at the pace of the last minutes; None if they become no fewer."""


def rates(queue: str | None = None, command: str | None = None, period: str = HOUR) -> list[CommandRates]:
    """What consumers counted in the last ``hour`` by minutes, or in the last ``day`` by quarters of an hour.

    ``minutes`` are the last six points of an hour, which are read faster. Of one queue or all, and of commands of a
    name as :func:`messages_of` takes it, those with the most attempts first.

    Counts are of attempts whose end the store knows. They outlive consumers; of one that is killed the last 5 seconds
    may be missing. What ends in the last second of a minute may be counted in the next one.
    """
    return rates_in(shared_stores(chosen(None if queue is None else [queue])), command, period)


def rates_in(stores: Iterable[Shared], command: str | None, period: str) -> list[CommandRates]:
    """:func:`rates` of the queues of some stores."""
    length, count = _period(period)
    found: list[CommandRates] = []
    for shared in stores:
        aliases = {one.base_name: one.alias for one in shared.queues}
        spans = _spans(shared.store.now(), length, count)
        rows = counts_in(shared.store, aliases, spans)
        for key in {key for span in spans for key in rows[span]}:
            if command is None or is_named(key[1], command):
                found.append(_of_command(aliases[key[0]], key, rows))
    return sorted(found, key=lambda one: (-_attempts(one.total), one.queue, one.command))


def queue_rates(aliases: Iterable[str] | None = None, period: str = HOUR) -> list[QueueRates]:
    """What came into these queues (all by default) that keep facts, and its outcome; ``period`` as in :func:`rates`.

    What was done is counted as for :func:`rates`. What came in follows from how many messages are in the queue and have
    been done, which a consumer counts once a minute: cancelled or deleted messages are missing, and it is not known
    while no consumer runs, nor beyond what a backend counts. ``time_to_drain`` comes from the same counts.
    """
    length, count = _period(period)
    return [one for shared in shared_stores(chosen(aliases)) for one in _of_store(shared, length, count)]


def time_to_drain(queue: str) -> float | None:
    """Seconds until no message of a queue is ready, at the pace of the last minutes; None if they become no fewer.

    Also None while that is not known: see :func:`queue_rates`.
    """
    [one] = chosen([queue])
    for shared in shared_stores([one]):
        now = shared.store.now()
        spans = _spans(now, MINUTE, LATELY + 1)
        return _drain(samples_in(shared.store, [one.base_name], spans)[one.base_name], now)
    return None


def _period(period: str) -> tuple[int, int]:
    if period not in PERIODS:
        raise ValueError(f"period is {period!r}: give {', '.join(map(repr, PERIODS))}.")
    return PERIODS[period]


def _spans(now: float, length: int, count: int) -> list[Span]:
    """The last spans of a length, oldest first; the last one is not over yet."""
    last = int(now // length) * length
    return [(length, last - length * number) for number in reversed(range(count))]


# ---- commands


def _of_command(alias: str, key: Key, rows: Mapping[Span, Rows]) -> CommandRates:
    total = Counts()
    points = []
    for span, found in rows.items():
        counts = found.get(key)
        points.append(Point(float(span[1])) if counts is None else _point(span[1], counts))
        if counts is not None:
            total.include(counts)
    return CommandRates(alias, key[1], points, _point(points[0].start, total))


def _point(start: float, counts: Counts) -> Point:
    others = {outcome: whole for outcome, count in counts.outcomes.items() if (whole := _whole(count))}
    done, failed, retried = (others.pop(outcome, 0) for outcome in ("done", "failed", "retried"))
    return Point(float(start), done, failed, retried, others, _quantiles(counts.ran), _quantiles(counts.waited))


def _whole(count: float) -> int:
    """A count from a store; 0 for anything else, as anybody with access may have written it."""
    return int(count) if 0 <= count < LARGEST else 0


def _attempts(point: Point) -> int:
    return point.done + point.failed + point.retried + sum(point.others.values())


def _quantiles(durations: Durations) -> Quantiles:
    return Quantiles(_quantile(durations.counts, 0.5), _quantile(durations.counts, 0.95))


def _quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration that a share of all does not exceed, as if durations were spread evenly in their class.

    For few durations it is the class itself, a :class:`Bucket`.
    """
    total = sum(counts)
    if not 0 < total < LARGEST or min(counts) < 0:
        return None
    rank = total * share
    below = 0.0
    for bound, count in zip((*BOUNDS, BOUNDS[-1]), counts, strict=False):
        if count >= rank:
            return Bucket.between(below, bound) if total < FEW else below + (bound - below) * rank / count
        rank, below = rank - count, bound
    return below


# ---- queues


def _of_store(shared: Shared, length: int, count: int) -> list[QueueRates]:
    now, names = shared.store.now(), [queue.base_name for queue in shared.queues]
    spans, latest = _spans(now, length, count), _spans(now, MINUTE, LATELY + 1)
    rows = counts_in(shared.store, names, list(dict.fromkeys([*spans, *latest])))
    samples = samples_in(shared.store, names, spans)
    recent = samples if length == MINUTE else samples_in(shared.store, names, latest)
    return [
        _of_queue(queue, now, rows, spans, (samples[queue.base_name], recent[queue.base_name]))
        for queue in shared.queues
    ]


def _of_queue(
    queue: BaseQueue,
    now: float,
    rows: Mapping[Span, Rows],
    spans: Sequence[Span],
    samples: tuple[Sequence[Sample], Sequence[Sample]],
) -> QueueRates:
    name = queue.base_name
    points = [_queue_point(span, _outcomes(rows[span], name), samples[0]) for span in spans]
    latest = _spans(now, MINUTE, LATELY + 1)
    recent = [one for one in samples[1] if one.at >= latest[0][1]]
    minutes = (now - latest[0][1]) / 60
    counted = zip(*(_outcomes(rows[span], name) for span in latest), strict=True)
    done, failed, retried = (sum(counts) / minutes for counts in counted)
    return QueueRates(queue.alias, points, _enqueued_per_minute(recent), done, failed, retried, _drain(recent, now))


def _outcomes(rows: Rows, name: str) -> list[int]:
    """How many messages of a queue were done, failed and retried."""
    ours = [counts.outcomes for (queue, _), counts in rows.items() if queue == name]
    return [sum(_whole(one.get(outcome, 0)) for one in ours) for outcome in ("done", "failed", "retried")]


def _queue_point(span: Span, outcomes: Sequence[int], samples: Sequence[Sample]) -> QueuePoint:
    (length, start), (done, failed, retried) = span, outcomes
    before, after = _entered_by(start, samples), _entered_by(start + length, samples)
    enqueued = None if before is None or after is None else max(0, round(after - before))
    ready = next((one.stats.ready for one in samples if start <= one.at < start + length), None)
    return QueuePoint(float(start), enqueued, done, failed, retried, ready)


def _entered_by(moment: float, samples: Sequence[Sample]) -> float | None:
    """How many messages had ever come in by a moment; None if it is not between two samples."""
    if len(samples) < 2 or not samples[0].at <= moment <= samples[-1].at:
        return None
    number = min(bisect_right(samples, moment, key=lambda one: one.at), len(samples) - 1)
    (earlier, was), (later, is_then) = samples[number - 1 : number + 1]
    first, last = entered(was), entered(is_then)
    if first is None or last is None:
        return None
    return first + (last - first) * (moment - earlier) / (later - earlier)


def entered(stats: QueueStats) -> int | None:
    """How many messages have ever come in, as the sum of all counts; None if one is not known."""
    counts = [stats.ready, stats.delayed, stats.leased, stats.failed]
    if None in counts or stats.done is None:
        return None
    known = [count for count in counts if count is not None]
    return None if stats.capped is not None and max(known) >= stats.capped else sum(known) + stats.done


def _enqueued_per_minute(samples: Sequence[Sample]) -> float | None:
    if len(samples) < 2 or samples[-1].at <= samples[0].at:
        return None
    first, last = entered(samples[0].stats), entered(samples[-1].stats)
    return None if first is None or last is None else max(0, last - first) * 60 / (samples[-1].at - samples[0].at)


def _drain(samples: Sequence[Sample], now: float) -> float | None:
    if len(samples) < 2 or any(one.stats.ready == one.stats.capped for one in (samples[0], samples[-1])):
        return None
    (since, was), (at, last) = samples[0], samples[-1]
    if not last.ready:
        return 0.0
    sunk = was.ready - last.ready
    return max(0.0, last.ready * (at - since) / sunk - (now - at)) if sunk > 0 and at > since else None
