"""Metrics for Prometheus: what is in the queues, as a view; what a consumer does, at its option ``--metrics``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import inf
from typing import Any
from wsgiref.simple_server import WSGIServer

from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

import djqueue
from djqueue import signals
from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.consumer.counters import BOUNDS, Durations, Totals
from djqueue.operations.consumers import consumers_of, serving
from djqueue.running.shared import shared_stores
from djqueue.utils import log_safely
from djqueue.wiring import queues

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, exposition, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector
except ImportError as error:
    text = "Metrics need the package prometheus-client: pip install 'django-djqueue[metrics]'."
    raise ImportError(text) from error

logger = logging.getLogger(__name__)

STATES = {"ready": "ready", "delayed": "delayed", "running": "leased", "failed": "failed"}
"""The values of the label ``state``, and the counts of a queue that they show."""
LE = [*map(str, BOUNDS), "+Inf"]
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which prometheus_client keeps the metrics of several processes in one folder."""

ENQUEUED = Counter("djqueue_enqueued", "Messages that this process has enqueued", ["queue", "command"])


@receiver(signals.enqueued)
def _count_enqueued(sender: str, queue_name: str, **about: Any) -> None:
    ENQUEUED.labels(queue_name, sender).inc()


@never_cache
@require_safe
@transaction.non_atomic_requests  # a store that cannot be asked must not break the transaction of the request
def queue_metrics(request: HttpRequest) -> HttpResponse:
    """What is in the queues, as their stores have it. A queue that cannot be asked has ``djqueue_queue_up`` 0."""
    registry = CollectorRegistry()
    asked = [queues[alias] for alias in queues]
    registry.register(QueueCollector(asked))
    registry.register(HeartbeatCollector(asked))
    encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


class QueueCollector(Collector):
    """What is in queues, asked for at each collection."""

    def __init__(self, asked: Iterable[BaseQueue]):
        self._queues = list(asked)

    def collect(self) -> Iterator[Metric]:
        labels = ["queue"]
        up = GaugeMetricFamily("djqueue_queue_up", "Whether the store of the queue could be asked", labels=labels)
        messages = GaugeMetricFamily(
            "djqueue_queue_messages", "Messages of the queue by state", labels=["queue", "state"]
        )
        oldest = GaugeMetricFamily(
            "djqueue_queue_oldest_seconds", "How long the first ready message has been due; 0 if none is", labels=labels
        )
        completed = CounterMetricFamily("djqueue_queue_completed", "Messages that were completed", labels=labels)
        for queue in self._queues:
            stats = _stats_of(queue)
            up.add_metric([queue.alias], stats is not None)
            if stats is None:
                continue
            for state, count in STATES.items():
                if (value := getattr(stats, count)) is not None:
                    messages.add_metric([queue.alias, state], value)
            oldest.add_metric([queue.alias], stats.oldest or 0.0)
            if stats.done is not None:
                completed.add_metric([queue.alias], stats.done)
        yield from (up, messages, oldest, completed)


def _stats_of(queue: BaseQueue) -> QueueStats | None:
    try:
        return queue.stats()
    except Exception as error:
        _cannot_be_asked(queue, error)
        return None


def _cannot_be_asked(queue: BaseQueue, error: Exception) -> None:
    about = {"queue": queue.alias}
    log_safely(logger, logging.WARNING, "%s cannot be asked for its metrics: %s", queue.alias, error, extra=about)


class HeartbeatCollector(Collector):
    """The consumers of queues, as the stores know them by their heartbeats."""

    def __init__(self, asked: Iterable[BaseQueue]):
        self._queues = list(asked)

    def collect(self) -> Iterator[Metric]:
        alive = GaugeMetricFamily("djqueue_queue_consumers", "Live consumers that serve the queue", labels=["queue"])
        age = GaugeMetricFamily(
            "djqueue_consumer_heartbeat_age_seconds", "For how long the consumer is silent", labels=["consumer"]
        )
        ages: dict[str, float] = {}  # one that serves queues of several stores is in each
        for shared in shared_stores(self._queues):
            try:
                known, now = consumers_of(shared), shared.store.now()
            except Exception as error:
                _cannot_be_asked(shared.queues[0], error)
                continue
            ages |= {one.name: min(now - one.at, ages.get(one.name, inf)) for one in known}
            for queue in shared.queues:
                alive.add_metric([queue.alias], len(serving(queue, known)))
        for name, seconds in sorted(ages.items()):
            age.add_metric([name], max(0.0, seconds))
        yield from (alive, age)


class ConsumerCollector(Collector):
    """What a consumer has counted since its start, in all of its processes."""

    def __init__(self, source: Callable[[], Totals]):
        self._source = source

    def collect(self) -> Iterator[Metric]:
        totals = self._source()
        yield InfoMetricFamily("djqueue", "The release of djqueue", value={"version": djqueue.__version__})
        yield from _gauges(totals)
        yield from _counts(totals)


GAUGES = {
    "processes": "Processes of the consumer",
    "threads": "Worker threads",
    "coroutines": "Async commands that may run at a time on event loops",
    "claimed": "Messages that are claimed and not settled yet",
    "running": "Messages that run",
}


def _gauges(totals: Totals) -> Iterator[Metric]:
    for name, text in GAUGES.items():
        yield GaugeMetricFamily(f"djqueue_consumer_{name}", text, value=totals.gauges.get(name, 0))


def _counts(totals: Totals) -> Iterator[Metric]:
    labels = ["queue", "command"]
    attempts = CounterMetricFamily("djqueue_attempts", "Attempts by how they ended", labels=[*labels, "outcome"])
    ran = HistogramMetricFamily("djqueue_run_seconds", "How long attempts ran", labels=labels)
    waited = HistogramMetricFamily(
        "djqueue_wait_seconds", "From when messages were due until their first attempt", labels=labels
    )
    for key, counts in sorted(totals.counts.items()):
        for outcome, count in sorted(counts.outcomes.items()):
            attempts.add_metric([*key, outcome], count)
        for family, durations in ((ran, counts.ran), (waited, counts.waited)):
            if any(durations.counts):
                family.add_metric(list(key), _classes(durations), durations.sum)
    yield from (attempts, ran, waited)


def _classes(durations: Durations) -> list[tuple[str, float]]:
    return list(zip(LE, map(float, accumulate(durations.counts)), strict=True))


# ---- The server of a consumer


def serve(address: str, port: int, source: Callable[[], Totals]) -> tuple[WSGIServer, threading.Thread]:
    """Answer on a port, in a thread, with what a consumer counts and with the project's own metrics.

    Raises OSError if the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(source))
    if os.environ.get(SHARED_FOLDER):
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    server, thread = start_http_server(port, address, registry)
    thread.name = "djqueue-metrics"
    return server, thread
