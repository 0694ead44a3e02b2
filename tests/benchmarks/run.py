"""What a message costs on this machine, and whether that is more than it was: ``make bench-quick``.

    python tests/benchmarks/run.py [--write] [--count N] [BACKEND …]

The main figure is processor time, in turns of the reference loop (``reference.py``) that runs next to each backend: it
moves little with other load, and machines compare. Each figure is the least of three rounds, as load only adds to it.
A consumer is one process of four threads with its defaults. Above the stored figures (``limits.json``) by more than
the tolerance, the run fails; ``--write`` stores those of this run instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks import ledger, reference  # noqa: E402  after the path is known
from tests.benchmarks.processes import Processes  # noqa: E402
from tests.benchmarks.programs import Table, environment, output, parser  # noqa: E402
from tests.support import servers  # noqa: E402

BACKENDS = ("memory", "sqlite", "postgres", "redis-blocking")
OTHERS = ("mariadb", "redis")
LIMITS = Path(__file__).with_name("limits.json")
TABLE = ROOT / "docs" / "performance" / "cost.csv"
VERBS = ("single", "bulk", "drain", "floor")
ROUNDS = 3
TOLERANCES = {"single": 1.2, "bulk": 1.2, "drain": 1.2, "switches": 1.5, "frames": 1.0, "statements": 1.0}
"""How many times what is stored a figure may be."""
SLACK = {"switches": 0.1}
"""What may come on top, where the stored figure is near to nothing."""

Figures = dict[str, float]


def measure(backend: str, count: int) -> Figures:
    """Of each message: turns of the reference loop by verb, and the others of TOLERANCES; messages per second."""
    turns, rounds = [], []
    for _ in range(ROUNDS):
        turns.append(reference.microseconds())
        rounds.append(one_round(backend, count))
    turn = min(turns)
    figures = {verb: min(found[verb]["cpu"] for found in rounds) / turn for verb in ("single", "bulk", "drain")}
    figures["switches"] = min(found["drain"]["switches"] for found in rounds)
    figures["per_second"] = max(found["drain"]["drain"] for found in rounds)
    return figures | way(backend) | {"floor": floor(backend, count) / turn, "turn": turn}


def one_round(backend: str, count: int) -> dict[str, Figures]:
    """Enqueue in one process, and drain by another one."""
    path = servers.run_dir() / "benchmark.ledger"
    ledger.make(path)
    env = environment(backend, BENCH_LEDGER=str(path), DJANGO_SETTINGS_MODULE="tests.benchmarks.settings")
    figures = output("enqueueing", env, count)
    if "drain" not in figures:
        consumer = "django-admin queue_consumer --threads 4"
        path.unlink()
        ledger.make(path)
        with Processes(consumer, env, servers.run_dir() / "benchmark.log") as processes:
            figures["drain"] = processes.drain(ledger.Reader(path), count)
    return figures


def way(backend: str) -> Figures:
    """The frames between the consumer's loop and the command, and the statements or scripts, of one plain message."""
    if backend == "memory":
        return {}
    found = output("tracing", environment(backend))["plain"]
    return {"frames": len(found["frames"]), "statements": sum(found["asked"])}


def floor(backend: str, count: int) -> float:
    """Microseconds of the bare loop over the same store."""
    if backend in ("memory", "mariadb"):
        return 0.0
    return min(found["cpu"] for found in output("floor", environment(backend), count))


def excesses(found: dict[str, Figures], stored: dict[str, Figures]) -> list[str]:
    """What costs more than it may."""
    said = []
    for backend, figures in found.items():
        for name, tolerance in TOLERANCES.items():
            if name not in figures or name not in stored.get(backend, {}):
                continue
            most = stored[backend][name] * tolerance + SLACK.get(name, 0)
            if figures[name] > most:
                said.append(f"{backend}: {name} is {figures[name]:.2f}, and may be {most:.2f}")
    return said


def table_of_costs() -> Table:
    costs = [column for verb in VERBS for column in ((verb, ">9.2f"), ("µs", ">7.1f"))]
    ways = ("switches", ">10.2f"), ("frames", ">8g"), ("statements", ">12g")
    return Table(("backend", "15"), *costs, *ways, ("drain/s", ">10,.0f"), ("turn, µs", ">10.2f"))


def row(backend: str, figures: Figures) -> list:
    """Processor time in turns and in microseconds; a figure that there is not is 0."""
    turn = figures["turn"]
    costs = [cost for verb in VERBS for cost in (figures[verb], figures[verb] * turn)]
    ways = [figures.get(name, 0) for name in ("switches", "frames", "statements")]
    return [backend, *costs, *ways, figures["per_second"], turn]


def compared(figures: Figures) -> Figures:
    return {name: round(figures[name], 2) for name in TOLERANCES if name in figures}


def store(found: dict[str, Figures]) -> None:
    """What is compared, and the same as a table of the documentation."""
    LIMITS.write_text(json.dumps(found, indent=1) + "\n")
    TABLE.write_text(table(found))


def table(found: dict[str, Figures]) -> str:
    heads = ["Backend", *(name.capitalize() for name in TOLERANCES)]
    rows = [[backend, *(f"{figures.get(name, '–')}" for name in TOLERANCES)] for backend, figures in found.items()]
    return "".join(",".join(cells) + "\n" for cells in [heads, *rows])


def main() -> None:
    switches = parser(__doc__, BACKENDS, OTHERS)
    switches.add_argument("--count", type=int, default=30_000, help="messages per round (default: %(default)s)")
    switches.add_argument("--write", action="store_true", help="store the figures of this run")
    options = switches.parse_args()
    costs, found = table_of_costs(), {}
    for backend in options.backends:
        found[backend] = measure(backend, options.count)
        costs.add(*row(backend, found[backend]))
    stored = json.loads(LIMITS.read_text())
    if options.write:
        store(stored | {backend: compared(figures) for backend, figures in found.items()})
    elif said := excesses(found, stored):
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main()
