"""What a message costs in a queue that is empty, and in one that holds a million: ``make scale``.

    python tests/benchmarks/scale.py [--waiting N] [--delayed N] [--leased N] [--queues N] [--lanes N] [BACKEND …]

A queue is filled in steps with waiting, delayed and leased messages; then come many queues beside it, and queues whose
messages wait in lanes. At each step the script measures what it costs to put one message, to put 1,000 at once, to
claim and complete 32 at a time, to look for leases that ran out, and to count: the CPU time of the client and of the
server together, the statements (or scripts), and how many times as much it is as on an empty database of the same
server, where each round is repeated. More than ``--most`` times is an error. ``--save`` writes what the documentation
shows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support import servers  # noqa: E402  after the path is known

BACKENDS = ("sqlite", "redis", "postgres", "mariadb")
SIZES = {"waiting": 20_000, "delayed": 20_000, "leased": 2_000, "queues": 100, "lanes": 2_000}
FULL = {"waiting": 1_000_000, "delayed": 1_000_000, "leased": 100_000, "queues": 1_000, "lanes": 100_000}
VERBS = ("put", "put_many", "claim", "reap", "stats")
FLAT = ("put", "put_many", "claim", "reap")
"""What must not grow. Counting does, to the 100,000 at which it stops in a database."""
LARGE = {
    "postgres": ["-c", "shared_buffers=1GB", "-c", "max_wal_size=8GB"],
    "mariadb": ["--innodb-buffer-pool-size=1G"],
}
"""Arguments of a server whose memory holds such a queue."""
SAVED = ROOT / "docs" / "drawings" / "scale.json"


def measure(backend: str, sizes: dict[str, int]) -> Iterator[dict]:
    """What each step costs, from a process of its own, on a server of its own."""
    folder = servers.run_dir() / f"scale-{backend}"
    server = servers.KINDS[backend](folder, *LARGE.get(backend, ())).start() if backend in servers.KINDS else None
    empty = "djqueue_empty" if server else f"{folder}-empty.sqlite3"
    address = server.url if server else f"{folder}.sqlite3"
    env = os.environ | {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address, "BENCH_EMPTY": empty}
    command = [sys.executable, "-m", "tests.benchmarks.scaling", *map(str, sizes.values())]
    try:
        with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
            yield from map(json.loads, process.stdout)
        if process.returncode:
            raise SystemExit(f"{backend}: the measuring process ended with {process.returncode}")
    finally:
        if server:
            server.stop()


def cell(found: dict) -> str:
    return f"{found['cpu']:,.0f} µs {found['statements']:.2g} {found['ratio']:.2f}x"


def save(found: dict[str, list[dict]]) -> None:
    """Beside what was measured of other backends before."""
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    SAVED.write_text(json.dumps(saved | found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS, metavar="BACKEND", help=", ".join(BACKENDS))
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=f"default: {size:,}; with --full {FULL[name]:,}")
    parser.add_argument("--full", action="store_true", help="the sizes that the documentation shows")
    parser.add_argument("--most", type=float, default=2.0, help="times the cost of an empty queue (default: 2)")
    parser.add_argument("--save", action="store_true", help="write what the documentation shows")
    options = parser.parse_args()
    usual = FULL if options.full else SIZES
    sizes = {name: usual[name] if (given := getattr(options, name)) is None else given for name in SIZES}
    steep = []
    for backend in options.backends:
        print(f"{backend:18}" + "".join(f"{verb:>22}" for verb in VERBS))
        steps = []
        for found in measure(backend, sizes):
            steps.append(found)
            cells = "".join(f"{cell(found['verbs'][verb]):>22}" for verb in VERBS)
            print(f"{found['size']:>9,} {found['kind']:8}{cells}", flush=True)
            steep += [
                f"{backend}: {verb} at {found['size']:,} {found['kind']} costs {ratio} times as much as when empty"
                for verb in FLAT
                if (ratio := found["verbs"][verb]["ratio"]) > options.most
            ]
        if options.save:
            save({backend: steps})
    sys.exit("\n".join(steep) or 0)


if __name__ == "__main__":
    main()
