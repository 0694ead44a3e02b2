"""What history, heartbeats and counts cost of a drain: ``python -m tests.benchmarks.monitoring [BACKEND …]``.

One process drains the same messages again and again, in turns with all of them, and without one or any. Processor time
of consumer and server together counts, and its median: it moves less with other load than rates do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from unittest import mock

from django.db import connections
from django.test import override_settings

from tests.benchmarks.measure import cost, cpu_of, server_pid, set_up
from tests.benchmarks.programs import Table, environment, lines, parser

ROUNDS, COUNT = 9, 20_000
BACKENDS = ("memory", "sqlite", "redis-blocking", "postgres")
PARTS = "history", "heartbeats", "counts"
VARIANTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "all": PARTS,
    **{f"all but {part}": tuple(other for other in PARTS if other != part) for part in PARTS},
}


@contextmanager
def only(parts: tuple[str, ...]) -> Iterator[None]:
    """Have a consumer keep these alone."""
    from djqueue.consumer.counters import Counters
    from djqueue.consumer.operators import OperatorChannels

    with ExitStack() as stack:
        if "history" not in parts:
            stack.enter_context(override_settings(QUEUE_HISTORY=None))
        if "heartbeats" not in parts:
            stack.enter_context(mock.patch.object(OperatorChannels, "open"))
        if "counts" not in parts:
            stack.enter_context(mock.patch.object(Counters, "add"))
        yield


def server_cpu(queue) -> float:
    """Microseconds of processor that the server of a queue has taken; of PostgreSQL all its processes."""
    pid = server_pid(queue)
    if queue.database is None or connections[queue.database].vendor != "postgresql":
        return cpu_of(pid)
    parent = _stat(pid)[1]
    ticks = sum(map(int, _stat(parent)[13:15])) / os.sysconf("SC_CLK_TCK")
    living = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return ticks * 1e6 + sum(map(_cpu_of, living))


def _cpu_of(pid: str) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        return cpu_of(pid)
    return 0.0


def _stat(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat after the name of the program."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def drain(queue, parts: tuple[str, ...]) -> tuple[float, float]:
    """Microseconds of a message: of the consumer, and of the server."""
    from djqueue import Consumer
    from tests.benchmarks.commands import send_many

    for start in range(0, COUNT, 5_000):
        send_many(range(start, start + 5_000))
    with only(parts):
        consumer = Consumer(threads=4, periodic=False)
        before = server_cpu(queue)
        ours = cost(COUNT, lambda: consumer.run(limit=COUNT))["cpu"]
        return ours, (server_cpu(queue) - before) / COUNT


def measure() -> None:
    queue = set_up()
    queue.flush()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for turn in range(ROUNDS + 1):
        for name, parts in VARIANTS.items():
            figures = drain(queue, parts)
            if turn:  # the first opens connections
                found[name].append(figures)
    bare = least(found["nothing"])
    for name, figures in found.items():
        ours, theirs = (median(column) for column in zip(*figures, strict=True))
        whole = least(figures)
        print(json.dumps([name, ours, theirs, whole, whole / bare]), flush=True)


def least(figures: list[tuple[float, float]]) -> float:
    """The lower quartile: other load only adds."""
    return sorted(map(sum, figures))[len(figures) // 4]


def main() -> None:
    figures = ("here", ">7.2f"), ("server", ">7.2f"), ("all", ">7.2f"), ("ratio", ">7.3f")
    table = Table(("backend", "15"), ("µs a message", "22"), *figures)
    for backend in parser(__doc__, BACKENDS).parse_args().backends:
        for row in lines("monitoring", environment(backend)):
            table.add(backend, *row)


if __name__ == "__main__":
    measure() if "BENCH_BACKEND" in os.environ else main()
