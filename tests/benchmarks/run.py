"""How fast djqueue is here, on each backend, beside a bare loop in the same run: ``make bench``.

    python tests/benchmarks/run.py [--count N] [BACKEND …]

No-op messages per second: one call each, in bulk, and drained by one consumer process with four threads (median of
three, with the least and the most); milliseconds from the call to the start of a lone message. Figures of one run
compare with each other, and with nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support import servers  # noqa: E402  after the path is known

SERVERS = {"redis": "redis", "redis-blocking": "redis", "postgres": "postgres", "mariadb": "mariadb"}
BACKENDS = ("memory", "sqlite", "postgres", "mariadb", "redis", "redis-blocking")
COLUMNS = (
    ("single", "single/s"),
    ("bulk", "bulk/s"),
    ("drain", "drain/s"),
    ("drain_min", "least"),
    ("drain_max", "most"),
    ("floor", "floor/s"),
    ("latency_p50", "p50 ms"),
    ("latency_p99", "p99 ms"),
)


def address(backend: str) -> str:
    """Where the backend is; its server is started if it is not running yet."""
    if backend in SERVERS:
        servers.start(SERVERS[backend])
        return servers.address(SERVERS[backend])
    return str(servers.run_dir() / "benchmark.sqlite3") if backend == "sqlite" else ""


def measure(backend: str, count: int) -> dict:
    env = os.environ | {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address(backend)}
    figures = {}
    for module in ("measure", "floor"):
        command = [sys.executable, "-m", f"tests.benchmarks.{module}", str(count)]
        output = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout
        figures |= json.loads(output.strip().splitlines()[-1]) if output.strip() else {}
    return figures


def cell(figures: dict, key: str) -> str:
    if key not in figures:
        return "-"
    return f"{figures[key]:.2f}" if key.startswith("latency") else f"{figures[key]:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS, metavar="BACKEND", help=", ".join(BACKENDS))
    parser.add_argument("--count", type=int, default=20_000, help="messages per run (default: %(default)s)")
    options = parser.parse_args()
    print(f"{'backend':15}" + "".join(f"{title:>11}" for _, title in COLUMNS))
    for backend in options.backends:
        figures = measure(backend, options.count)
        print(f"{backend:15}" + "".join(f"{cell(figures, key):>11}" for key, _ in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
