"""What enqueueing and draining cost, next to another checkout of djqueue: ``make bench-before COMMIT=main~10``.

    python -m tests.benchmarks.before --before CHECKOUT [--restarts N] [--turns N] [--verbs VERB …] [BACKEND …]

Two processes live at the same time, one for each djqueue, and take turns of less than a second, in shuffled order:
other load meets both. Printed is the time of the other checkout as a multiple of the time here, so that more than 1 is
faster here: the ratio of sums for each restart of the two, then its mean over the restarts, with the 90 % interval. A
process differs from its like by 3 %, as by the order of its hashes: restarts average that.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

from tests.benchmarks.programs import ROOT, Table, address, environment, parser
from tests.support import servers

BACKENDS = ("redis", "postgres", "sqlite")
VERBS = ("single", "bulk", "drain", "coroutines")
PROGRAM = Path(__file__).with_name("turns.py")


class Process:
    """A live djqueue of one checkout, with a store of its own."""

    def __init__(self, backend: str, url: str, checkout: Path):
        env = environment(backend, url, PYTHONPATH=str(checkout))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, PROGRAM], cwd=checkout, env=env, text=True, **pipes)
        self._answer()

    def turn(self, verb: str) -> tuple[float, float]:
        """Microseconds and processor time, in microseconds, of one message."""
        self._process.stdin.write(f"{verb}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"turns.py ended with {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def stores(backend: str) -> Iterator[list[str]]:
    """Two empty ones on the same server."""
    url = address(backend)
    if backend == "redis":
        yield [f"{url.rpartition('/')[0]}/{number}" for number in (14, 15)]
    elif backend == "sqlite":
        yield [f"{url}.{name}" for name in ("before", "here")]
        for path in servers.run_dir().glob("benchmark.sqlite3.*"):
            path.unlink()
    else:
        import psycopg

        names = ["djqueue_before", "djqueue_here"]
        with psycopg.connect(url, autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}")
            yield [url.replace("/postgres?", f"/{name}?") for name in names]
            for name in names:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def restart(backend: str, checkouts: list[Path], verbs: Sequence[str], turns: int) -> dict[str, tuple[float, float]]:
    """The ratios of time and of processor time, by verb, of two new processes. Their first turns warm up."""
    with stores(backend) as urls:
        pair = [Process(backend, url, checkout) for url, checkout in zip(urls, checkouts, strict=True)]
        found: dict[str, list[list[tuple[float, float]]]] = {verb: [[], []] for verb in verbs}
        for number in range(turns + 1):
            for verb in verbs:
                for index in random.sample((0, 1), 2):
                    taken = pair[index].turn(verb)
                    if number:
                        found[verb][index].append(taken)
        for process in pair:
            process.end()
    return {verb: (ratio(*sides, 0), ratio(*sides, 1)) for verb, sides in found.items()}


def ratio(before: list[tuple[float, float]], here: list[tuple[float, float]], which: int) -> float:
    return sum(taken[which] for taken in before) / sum(taken[which] for taken in here)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The mean, and its 90 % interval: two standard errors, which is Student's factor for six restarts or more."""
    middle = mean(ratios)
    width = 2 * stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    return middle, middle - width, middle + width


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    switches.add_argument("--before", type=Path, required=True, help="a checkout of the djqueue to compare with")
    switches.add_argument("--restarts", type=int, default=8, help="of both processes (default: %(default)s)")
    switches.add_argument("--turns", type=int, default=12, help="of each between (default: %(default)s)")
    switches.add_argument("--verbs", nargs="+", choices=VERBS, default=VERBS, help="what is measured (default: all)")
    options = switches.parse_args()
    figures = (("ratio", ">8.3f"), ("from", ">8.3f"), ("to", ">8.3f"), ("processor", ">11.3f"))
    table = Table(("backend", "10"), ("verb", "12"), *figures)
    for backend in options.backends:
        checkouts = [options.before.resolve(), ROOT]
        found = [restart(backend, checkouts, options.verbs, options.turns) for _ in range(options.restarts)]
        for verb in options.verbs:
            used = mean(each[verb][1] for each in found)
            table.add(backend, verb, *interval([each[verb][0] for each in found]), used)


if __name__ == "__main__":
    main()
