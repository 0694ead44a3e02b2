"""Enqueues on one backend, in one process, and prints as JSON what a message cost.

First by a call for each message, then by one call for many, which are left in the queue; one in memory is drained too.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable

import django
from django.core.management import call_command

SINGLES = 3_000


def cost(count: int, function: Callable[[], object]) -> dict[str, float]:
    """Of each message: how many in a second, microseconds of processor, and context switches."""
    began, used, switches = time.perf_counter(), time.process_time(), _switches()
    function()
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu": (time.process_time() - used) / count * 1e6,
        "switches": (_switches() - switches) / count,
    }


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

    def send_singly() -> None:
        for number in range(SINGLES):
            noted(number, "some text")

    queues["default"].flush()
    noted(0, "the first one opens connections")
    figures = {"single": cost(SINGLES, send_singly)}
    queues["default"].flush()
    calls = [(number, "some text") for number in range(count)]
    figures["bulk"] = cost(count, lambda: noted.enqueue_many(calls))
    if os.environ["BENCH_BACKEND"] == "memory":
        figures["drain"] = drain(count)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
