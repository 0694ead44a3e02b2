"""Enqueues on one backend, in one process, and prints as JSON what a message cost.

First by a call for each message, then by one call for many, which are left in the queue; one in memory is drained too.
What a message costs to enqueue is that of the cheapest part of all messages, as other load only adds to it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial

import django
from django.core.management import call_command

SINGLES, PART = 3_000, 250
"""Messages that are enqueued one by one, and how many of them are one part."""
CALL = 5_000
"""Messages of a call for many."""


def cost(count: int, function: Callable[[], object]) -> dict[str, float]:
    """Of each message: how many in a second, microseconds of processor, and context switches."""
    began, used, switches = time.perf_counter(), time.process_time(), _switches()
    function()
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu": (time.process_time() - used) / count * 1e6,
        "switches": (_switches() - switches) / count,
    }


def least(send: Callable[[range], None], count: int, size: int) -> dict[str, float]:
    """The least of each figure, of all parts of that size."""
    parts = [range(start, min(start + size, count)) for start in range(0, count, size)]
    costs = [cost(len(part), partial(send, part)) for part in parts]
    return {name: min(each[name] for each in costs) for name in ("cpu", "switches")}


def _switches() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def drain(count: int) -> dict[str, float]:
    from djqueue import Consumer

    found = cost(count, lambda: Consumer(threads=4, periodic=False).run(limit=count))
    return {"drain": found["rate"], "cpu": found["cpu"], "switches": found["switches"]}


def main(count: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues
    from tests.benchmarks.commands import noted

    def send_singly(numbers: range) -> None:
        for number in numbers:
            noted(number, "some text")

    def send_many(numbers: range) -> None:
        noted.enqueue_many([(number, "some text") for number in numbers])

    queues["default"].flush()
    send_singly(range(1))  # opens connections
    figures = {"single": least(send_singly, SINGLES, PART)}
    queues["default"].flush()
    figures["bulk"] = least(send_many, count, CALL)
    if os.environ["BENCH_BACKEND"] == "memory":
        figures["drain"] = drain(count)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
