"""What operators' pages and commands cost where a million messages wait: ``make bench-operations``.

    python tests/benchmarks/operations.py [--waiting N] [--failed N] [--lanes N] … [BACKEND …]

A queue is filled with messages that wait (a tenth of them in lanes, a twentieth delayed), run and have failed, with a
history, pauses, the records of 50 consumers and schedules made at run time. Then every page of the dashboard and every
command for operators is called, and at last those that change many messages. For each it prints seconds of CPU of
client and server together (the least of three calls; of a change the only one), of these the server's, the longest
statement or script, how many there were, the rows or index entries that PostgreSQL read, and by how many MiB the
process has grown. One that takes more than ``--most`` seconds of CPU is an error; of a change the longest statement is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.programs import Table, environment, lines, parser  # noqa: E402  after the path is known
from tests.benchmarks.scale import LARGE  # noqa: E402
from tests.support import servers  # noqa: E402

BACKENDS = ("postgres", "redis")
SIZES = {"waiting": 1_000_000, "failed": 100_000, "lanes": 10_000, "schedules": 1_000, "history": 100_000}
STEPS = "fill,look,change"
SECONDS = ">9.3f"
COLUMNS = {"cpu": SECONDS, "server": SECONDS, "longest": SECONDS, "trips": ">9,", "rows": ">11,", "memory": ">7"}
READS_ALL = ("queue_errors list --exception", "queue_errors summary", "queue_history --command", "queue_history --id")
"""Searches through all that has failed, or through the whole history."""


def measure(backend: str, sizes: list[int]) -> Iterator[dict]:
    """What each page and command costs, on a server of its own."""
    with servers.KINDS[backend](servers.run_dir() / f"operations-{backend}", *LARGE.get(backend, ())) as server:
        yield from lines("operating", environment(backend, server.url), STEPS, *sizes)


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    for name, size in SIZES.items():
        switches.add_argument(f"--{name}", type=int, default=size, help="default: %(default)s")
    switches.add_argument("--most", type=float, default=1.0, help="seconds (default: 1)")
    options = switches.parse_args()
    slow = []
    for backend in options.backends:
        table = Table((backend, "58"), *COLUMNS.items())
        for found in measure(backend, [getattr(options, name) for name in SIZES]):
            table.add(found["name"][:58], *(found[name] for name in COLUMNS))
            took = found["longest" if found["is_change"] else "cpu"]
            if took > options.most and not found["name"].startswith(READS_ALL):
                slow.append(f"{backend}: {found['name']} took {took} s")
    sys.exit("\n".join(slow) or 0)


if __name__ == "__main__":
    main()
