"""Measures one backend in one process, and prints the figures as JSON: rates per second, latencies in milliseconds."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from statistics import median, quantiles

import django
from django.core.management import call_command


def enqueue_single(nothing, count: int) -> float:
    nothing(0, "warm")
    began = time.perf_counter()
    for number in range(count):
        nothing(number, "some text")
    return count / (time.perf_counter() - began)


def enqueue_bulk(nothing, count: int) -> float:
    calls = [(number, "some text") for number in range(count)]
    began = time.perf_counter()
    nothing.enqueue_many(calls)
    return count / (time.perf_counter() - began)


def drain(stamps: dict, count: int, threads: int) -> float:
    """From the first start to the last: starting the consumer is not in it."""
    from djqueue import Consumer

    stamps |= {"first": 0.0, "last": 0.0}
    Consumer(threads=threads, periodic=False).run(limit=count)
    return (count - 1) / (stamps["last"] - stamps["first"])


def latency(note_latency, count: int) -> dict:
    """Lone messages to an idle consumer, from before the call to the start."""
    from djqueue import Consumer

    consumer = Consumer(threads=4, periodic=False)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    with tempfile.NamedTemporaryFile() as file:
        for number in range(count):
            time.sleep(0.02)
            note_latency(time.perf_counter(), file.name)
            while sum(1 for _ in open(file.name)) <= number:
                time.sleep(0.001)
        taken = [float(line) for line in open(file.name)]
    consumer.stop()
    thread.join()
    return {"latency_p50": median(taken), "latency_p99": quantiles(taken, n=100)[98]}


def main(count: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues
    from tests.benchmarks.commands import note_latency, nothing, stamps

    singles = min(count, 3000)
    figures = {"single": enqueue_single(nothing, singles)}
    queues["default"].flush()
    rates = []
    for _ in range(3):
        figures["bulk"] = max(figures.get("bulk", 0), enqueue_bulk(nothing, count))
        rates.append(drain(stamps, count, threads=4))
    figures |= {"drain": median(rates), "drain_min": min(rates), "drain_max": max(rates)}
    figures |= latency(note_latency, 100)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
