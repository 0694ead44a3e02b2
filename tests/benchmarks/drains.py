"""Drains one queue of one kind of entries, in one process, and prints entries per second: see ``lanes.py``."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import django
from django.core.management import call_command

THREADS = 4
LANES = 1_000
HOURLY = '{"w":[[1,3600000000,0,0]]}'
"""Gates as text: what is measured may be a djqueue that knows none."""
RUNS, ALONE, PAIRS = '{"o":1,"r":31}', '{"o":1}', '{"m":2}'
THROTTLED = '{"w":[[100000000,1000000,0,0]]}'
SHARED = '{"m":100,"in":"all","by":{"w":[[100000000,1000000,0,0]]}}'
CASES = {
    "before": ("", 32, False),
    "no lanes": ("", 32, False),
    "no lanes, beside lanes": ("", 32, True),
    "ordered, runs of 32": (RUNS, 8, False),
    "ordered, one by one": (ALONE, 32, False),
    "two at once": (PAIRS, 32, False),
    "throttled": (THROTTLED, 32, False),
    "throttled together": (SHARED, 32, False),
}
"""The gate, how many units a claim asks for, and whether lanes that are shut wait beside."""


def entries(count: int, gate: str) -> list:
    from djqueue.backends.base import Entry

    if not gate:
        return [Entry(b"x" * 150, uuid.uuid4().hex) for _ in range(count)]
    return [Entry(b"x" * 150, uuid.uuid4().hex, lane=f"lane {number % LANES}", gate=gate) for number in range(count)]


def put(queue, all_entries: list) -> None:
    for start in range(0, len(all_entries), 1000):
        queue.put(all_entries[start : start + 1000])


def drain(queue, count: int, limit: int) -> float:
    """Seconds from the first claim to the last completion."""
    done, lock = [0], threading.Lock()

    def work() -> None:
        while done[0] < count:
            completed = len(queue.complete(queue.claim(limit)))
            with lock:
                done[0] += completed
        queue.close()

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: work(), range(THREADS)))
    return time.perf_counter() - began


def main(case: str, count: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"  # next to this file: djqueue may be of another checkout
    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues

    queue, (gate, limit, beside) = queues["default"], CASES[case]
    try:
        if beside:
            put(queue, entries(2 * LANES, HOURLY))
            while (claimed := queue.claim(LANES)) or claimed.retry_after == 0:
                queue.complete(claimed)
        put(queue, entries(count, gate))
        print(count / drain(queue, count, limit))
    finally:
        queue.flush()
        call_command("migrate", "djqueue", "zero", verbosity=0)  # what is measured next may have other tables


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
