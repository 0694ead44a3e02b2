"""What history, heartbeats and counts cost of a drain: ``python -m tests.benchmarks.monitoring [BACKEND …]``.

One process drains the same messages again and again, in turns with all of them, and without one or any. Processor time
of consumer and server together counts, and its median: it moves less with other load than rates do.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from unittest import mock

import django
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

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
    if queue.database is None:
        link = getattr(queue, "_link", None)  # none in memory
        return _of(Path(f"/proc/{link.client.info('server')['process_id']}/schedstat")) if link else 0.0
    connection = connections[queue.database]
    if connection.vendor != "postgresql":
        return 0.0
    connection.ensure_connection()
    words = Path(f"/proc/{connection.connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    parent = words[1]
    ended = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[13:15]
    living = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ticks = sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
    return ticks * 1e6 + sum(_of(Path(f"/proc/{pid}/schedstat")) for pid in living)


def _of(schedstat: Path) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):  # of a process that has just ended
        return int(schedstat.read_text().split()[0]) / 1000
    return 0.0


def drain(queue, parts: tuple[str, ...]) -> tuple[float, float]:
    """Microseconds of a message: of the consumer, and of the server."""
    from djqueue import Consumer
    from tests.benchmarks.commands import noted

    for start in range(0, COUNT, 5_000):
        noted.enqueue_many([(number, "some text") for number in range(start, start + 5_000)])
    with only(parts):
        consumer = Consumer(threads=4, periodic=False)
        before, used = server_cpu(queue), time.process_time()
        consumer.run(limit=COUNT)
        ours = time.process_time() - used
        return ours / COUNT * 1e6, (server_cpu(queue) - before) / COUNT


def measure() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues

    queue = queues["default"]
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
        row = f"{name:22}{ours:7.2f}{theirs:7.2f}{whole:7.2f}{whole / bare:7.3f}"
        print(f"{os.environ['BENCH_BACKEND']:15}{row}", flush=True)


def least(figures: list[tuple[float, float]]) -> float:
    """The lower quartile: other load only adds."""
    return sorted(map(sum, figures))[len(figures) // 4]


def main(backends: list[str]) -> None:
    import subprocess

    from tests.benchmarks.run import environment

    print(f"{'backend':15}{'kept':22}{'here':>7}{'server':>7}{'all':>7}{'ratio':>7}   µs a message")
    for backend in backends or BACKENDS:
        subprocess.run([sys.executable, "-m", __spec__.name], env=environment(backend), check=True)


if __name__ == "__main__":
    measure() if "BENCH_BACKEND" in os.environ else main(sys.argv[1:])
