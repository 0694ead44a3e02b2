"""Enqueues on one backend, in one process, and prints as JSON what a message cost.

First by a call for each message, then by one call for many, which are left in the queue; one in memory is drained too.
What a message costs to enqueue is that of the cheapest part of all messages, as other load only adds to it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial

from tests.benchmarks.measure import cost, set_up

SINGLES, PART = 3_000, 250
"""Messages that are enqueued one by one, and how many of them are one part."""
CALL = 5_000
"""Messages of a call for many."""


def least(send: Callable[[range], None], count: int, size: int) -> dict[str, float]:
    """The least of each figure, of all parts of that size."""
    parts = [range(start, min(start + size, count)) for start in range(0, count, size)]
    costs = [cost(len(part), partial(send, part)) for part in parts]
    return {name: min(each[name] for each in costs) for name in ("cpu", "switches")}


def drain(count: int) -> dict[str, float]:
    from djqueue import Consumer

    found = cost(count, lambda: Consumer(threads=4, periodic=False).run(limit=count))
    return {"drain": found["rate"], "cpu": found["cpu"], "switches": found["switches"]}


def main(count: int) -> None:
    queue = set_up()
    from tests.benchmarks.commands import send, send_many

    queue.flush()
    send(range(1))  # opens connections
    figures = {"single": least(send, SINGLES, PART)}
    queue.flush()
    figures["bulk"] = least(send_many, count, CALL)
    if os.environ["BENCH_BACKEND"] == "memory":
        figures["drain"] = drain(count)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
