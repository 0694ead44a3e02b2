"""What lanes cost: how fast a queue is drained whose entries wait for each other, next to one whose do not.

    python -m tests.benchmarks.lanes [--count N] [--rounds N] [--before CHECKOUT] [BACKEND …]

Entries per second of four threads that claim and complete, the median of some rounds in which the cases take turns, and
the ratio to the first of them. ``--before`` is a checkout of a djqueue that knew no lanes yet. Figures of one run
compare with each other, and with nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.drains import CASES
from tests.benchmarks.measure import ends
from tests.benchmarks.programs import ROOT, Table, environment, parser

BACKENDS = ("memory", "sqlite", "postgres", "mariadb", "redis")


def rate(backend: str, case: str, count: int, checkout: Path) -> float:
    """Entries per second of one case, in a process of its own."""
    env = environment(backend, PYTHONPATH=str(checkout))
    command = [sys.executable, str(ROOT / "tests" / "benchmarks" / "drains.py"), case, str(count)]
    output = subprocess.run(command, cwd=checkout, env=env, check=True, capture_output=True, text=True).stdout
    return float(output.split()[-1])


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    switches.add_argument("--count", type=int, default=32_000, help="entries per round (default: %(default)s)")
    switches.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    switches.add_argument("--before", type=Path, help="a checkout of a djqueue without lanes, to compare with")
    options = switches.parse_args()
    cases = [case for case in CASES if options.before or case != "before"]
    figures = ("entries/s", ">11,.0f"), ("ratio", ">8.2f"), ("least", ">9,.0f"), ("most", ">9,.0f")
    table = Table(("backend", "10"), ("case", "26"), *figures)
    for backend in options.backends:
        rates: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(options.rounds):
            for case in cases:
                checkout = options.before if case == "before" else ROOT
                rates[case].append(rate(backend, case, options.count, checkout.resolve()))
        first = ends(rates[cases[0]])["median"]
        for case, found in rates.items():
            middle, least, most = ends(found).values()
            table.add(backend, case, middle, middle / first, least, most)


if __name__ == "__main__":
    main()
