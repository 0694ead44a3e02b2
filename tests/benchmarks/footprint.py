"""What a message costs its server: bytes while it waits, and for each step processor time and bytes moved.

    python -m tests.benchmarks.footprint [--count N] [redis | postgres …]

The messages are calls of a no-op with a number and a short text. They are claimed and completed in runs of 32. The
processor time hardly depends on what else the machine does. Seconds are not measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.benchmarks.measure import cpu_of, server_pid, set_up
from tests.benchmarks.programs import Table, environment, lines, parser

BACKENDS = ("redis", "postgres")
RUN = 32
SINGLES = 3000


class Spent(NamedTuple):
    """What a server has used so far."""

    stored: int
    """Bytes of what it keeps."""
    processor: float
    """Microseconds."""
    moved: int
    """Redis: bytes that it received and sent. PostgreSQL: bytes that it wrote into its log."""


def redis(queue) -> Spent:
    info = queue._link.client.info()
    moved = info["total_net_input_bytes"] + info["total_net_output_bytes"]
    return Spent(info["used_memory"], cpu_of(server_pid(queue)), moved)


def postgres(queue) -> Spent:
    """Of the process that serves this connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('djqueue_message'), pg_current_wal_insert_lsn() - '0/0'")
        stored, log = cursor.fetchone()
    return Spent(stored, cpu_of(server_pid(queue)), int(log))


def steps(queue, count: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Each step with the number of its messages."""
    from tests.benchmarks.commands import send, send_many

    def drain():
        _, leases = queue.exchange([], RUN)
        while leases:
            _, leases = queue.exchange(leases, RUN)

    yield "single call", SINGLES, lambda: send(range(SINGLES))
    yield "run", SINGLES, drain
    yield "bulk", count, lambda: send_many(range(count))
    yield "run", count, drain


def measure(backend: str, count: int) -> None:
    """Print the figures of each step."""
    queue, spent = set_up(), {"redis": redis, "postgres": postgres}[backend]
    for name, number, step in steps(queue, count):
        before = spent(queue)
        step()
        after = spent(queue)
        costs = [(late - early) / number for late, early in zip(after, before, strict=True)]
        print(json.dumps([name, number, *costs]), flush=True)


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    switches.add_argument("--count", type=int, default=100_000, help="messages in bulk (default: %(default)s)")
    options = switches.parse_args()
    if "BENCH_BACKEND" in os.environ:
        measure(os.environ["BENCH_BACKEND"], options.count)
        return
    heads = ("messages", ">10,"), ("stored B", ">10.0f"), ("server µs", ">11.1f"), ("moved B", ">10.0f")
    for backend in options.backends:
        table = Table((backend, "12"), *heads)
        for row in lines("footprint", environment(backend), "--count", options.count):
            table.add(*row)


if __name__ == "__main__":
    main()
