"""What a message costs its server: bytes while it waits, and for each step processor time and bytes moved.

    python tests/benchmarks/footprint.py [--count N] [redis | postgres …]

The messages are calls of a no-op with a number and a short text. They are claimed and completed in runs of 32. The
processor time hardly depends on what else the machine does. Seconds are not measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.run import address  # noqa: E402  after the path is known

BACKENDS = ("redis", "postgres")
RUN = 32
SINGLES = 3000


class Spent(NamedTuple):
    """What a server has used so far."""

    stored: int
    """Bytes of what it keeps."""
    processor: float
    """Seconds."""
    moved: int
    """Redis: bytes that it received and sent. PostgreSQL: bytes that it wrote into its log."""


def redis() -> Spent:
    from djqueue import queues

    info = queues["default"]._link.client.info()
    moved = info["total_net_input_bytes"] + info["total_net_output_bytes"]
    return Spent(info["used_memory"], info["used_cpu_user"] + info["used_cpu_sys"], moved)


def postgres() -> Spent:
    """Of the process that serves this connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_total_relation_size('djqueue_message'), pg_backend_pid(), pg_current_wal_insert_lsn() - '0/0'"
        )
        stored, pid, log = cursor.fetchone()
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return Spent(stored, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), int(log))


def steps(count: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Each step with the number of its messages."""
    from djqueue import queues
    from tests.benchmarks.commands import noted

    queue = queues["default"]

    def drain():
        _, leases = queue.exchange([], RUN)
        while leases:
            _, leases = queue.exchange(leases, RUN)

    yield "single call", SINGLES, lambda: [noted(number, "some text") for number in range(SINGLES)]
    yield "run", SINGLES, drain
    yield "bulk", count, lambda: noted.enqueue_many([(number, "some text") for number in range(count)])
    yield "run", count, drain


def measure(backend: str, count: int) -> None:
    """Print the figures of each step."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    spent = {"redis": redis, "postgres": postgres}[backend]
    print(f"{backend:12}{'messages':>10}{'stored B':>10}{'server µs':>11}{'moved B':>10}")
    for name, number, step in steps(count):
        before = spent()
        step()
        after = spent()
        stored, processor, moved = ((late - early) / number for late, early in zip(after, before, strict=True))
        print(f"{name:12}{number:>10,}{stored:>10.0f}{processor * 1e6:>11.1f}{moved:>10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS, metavar="BACKEND", help=", ".join(BACKENDS))
    parser.add_argument("--count", type=int, default=100_000, help="messages in bulk (default: %(default)s)")
    options = parser.parse_args()
    if "BENCH_BACKEND" in os.environ:
        measure(os.environ["BENCH_BACKEND"], options.count)
        return
    for backend in options.backends:
        env = os.environ | {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address(backend)}
        env |= {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings", "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, __file__, "--count", str(options.count)], cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    main()
