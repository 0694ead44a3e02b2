"""What lanes cost: how fast a queue is drained whose entries wait for each other, beside one whose do not.

    python tests/benchmarks/lanes.py [--count N] [--rounds N] [--before CHECKOUT] [BACKEND …]

Entries per second of four threads that claim and complete, the median of some rounds in which the cases take turns, and
the ratio to the first of them. ``--before`` is a checkout of a djqueue that knew no lanes yet. Figures of one run
compare with each other, and with nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.drains import CASES  # noqa: E402  after the path is known
from tests.benchmarks.run import address  # noqa: E402

BACKENDS = ("memory", "sqlite", "postgres", "mariadb", "redis")


def rate(backend: str, case: str, count: int, checkout: Path) -> float:
    """Entries per second of one case, in a process of its own."""
    env = os.environ | {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address(backend), "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(ROOT / "tests" / "benchmarks" / "drains.py"), case, str(count)]
    output = subprocess.run(command, cwd=checkout, env=env, check=True, capture_output=True, text=True).stdout
    return float(output.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS, metavar="BACKEND", help=", ".join(BACKENDS))
    parser.add_argument("--count", type=int, default=32_000, help="entries per round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--before", type=Path, help="a checkout of a djqueue without lanes, to compare with")
    options = parser.parse_args()
    cases = [case for case in CASES if options.before or case != "before"]
    print(f"{'backend':10}{'case':26}{'entries/s':>11}{'ratio':>8}{'least':>9}{'most':>9}")
    for backend in options.backends:
        rates: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(options.rounds):
            for case in cases:
                checkout = options.before if case == "before" else ROOT
                rates[case].append(rate(backend, case, options.count, checkout.resolve()))
        first = median(rates[cases[0]])
        for case, found in rates.items():
            ratio, ends = median(found) / first, f"{min(found):>9,.0f}{max(found):>9,.0f}"
            print(f"{backend:10}{case:26}{median(found):>11,.0f}{ratio:>8.2f}{ends}", flush=True)


if __name__ == "__main__":
    main()
