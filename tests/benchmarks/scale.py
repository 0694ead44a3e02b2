"""What a message costs in a queue that is empty, and in one that holds a million: ``make scale``.

    python tests/benchmarks/scale.py [--waiting N] [--delayed N] [--leased N] [--queues N] [--lanes N] [BACKEND …]

A queue is filled in steps with waiting, delayed and leased messages; then come many queues next to it, and queues whose
messages wait in lanes. At each step the script measures what it costs to put one message, to put 1,000 at once, to
claim and complete 32 at a time, to look for leases that ran out, and to count: the CPU time of the client and of the
server together, the statements (or scripts), and how many times as much it is as on an empty database of the same
server, where each round is repeated. More than ``--most`` times is an error. ``--save`` writes what the documentation
shows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.programs import Table, environment, lines, parser  # noqa: E402  after the path is known
from tests.support import servers  # noqa: E402

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
    """What each step costs, on a server of its own."""
    folder = servers.run_dir() / f"scale-{backend}"
    if backend not in servers.KINDS:
        env = environment(backend, f"{folder}.sqlite3", BENCH_EMPTY=f"{folder}-empty.sqlite3")
        yield from lines("scaling", env, *sizes.values())
        return
    with servers.KINDS[backend](folder, *LARGE.get(backend, ())) as server:
        env = environment(backend, server.url, BENCH_EMPTY="djqueue_empty")
        yield from lines("scaling", env, *sizes.values())


def cell(found: dict) -> str:
    return f"{found['cpu']:,.0f} µs {found['statements']:.2g} {found['ratio']:.2f}x"


def save(found: dict[str, list[dict]]) -> None:
    """Beside what was measured of other backends before."""
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    SAVED.write_text(json.dumps(saved | found, indent=1) + "\n")


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    for name, size in SIZES.items():
        switches.add_argument(f"--{name}", type=int, help=f"default: {size:,}; with --full {FULL[name]:,}")
    switches.add_argument("--full", action="store_true", help="the sizes that the documentation shows")
    switches.add_argument("--most", type=float, default=2.0, help="times the cost of an empty queue (default: 2)")
    switches.add_argument("--save", action="store_true", help="write what the documentation shows")
    options = switches.parse_args()
    usual = FULL if options.full else SIZES
    sizes = {name: usual[name] if (given := getattr(options, name)) is None else given for name in SIZES}
    steep = []
    for backend in options.backends:
        table = Table((backend, ">9,"), ("", "9"), *((verb, ">22") for verb in VERBS))
        steps = []
        for found in measure(backend, sizes):
            steps.append(found)
            table.add(found["size"], f" {found['kind']}", *(cell(found["verbs"][verb]) for verb in VERBS))
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
