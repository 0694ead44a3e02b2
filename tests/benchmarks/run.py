"""What a message costs on this machine, and whether that is more than it was: ``make bench-quick``.

    python tests/benchmarks/run.py [--write] [--count N] [BACKEND …]

The main figure is processor time, in turns of the reference loop (``reference.py``) that runs beside each backend: it
moves little with other load, and machines compare. Each figure is the least of three rounds, as load only adds to it.
A consumer is one process of four threads with its defaults. Above the stored figures (``limits.json``) by more than
the tolerance, the run fails; ``--write`` stores those of this run instead.
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

from tests.benchmarks import ledger, reference  # noqa: E402  after the path is known
from tests.benchmarks.processes import Processes  # noqa: E402
from tests.support import servers  # noqa: E402

SERVERS = {"redis": "redis", "redis-blocking": "redis", "postgres": "postgres", "mariadb": "mariadb"}
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


def address(backend: str) -> str:
    """Where the backend is; its server is started if it is not running yet."""
    if backend in SERVERS:
        servers.start(SERVERS[backend])
        return servers.address(SERVERS[backend])
    return str(servers.run_dir() / "benchmark.sqlite3") if backend == "sqlite" else ""


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
    env = environment(backend) | {"BENCH_LEDGER": str(path), "DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"}
    figures = json.loads(output("measure", env, str(count)))
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
    found = json.loads(output("tracing", environment(backend)))["plain"]
    return {"frames": len(found["frames"]), "statements": sum(found["asked"])}


def floor(backend: str, count: int) -> float:
    """Microseconds of the bare loop over the same store."""
    if backend in ("memory", "mariadb"):
        return 0.0
    return min(found["cpu"] for found in json.loads(output("floor", environment(backend), str(count))))


def environment(backend: str) -> dict[str, str]:
    own = {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address(backend), "PYTHONPATH": str(ROOT)}
    return os.environ | own


def output(module: str, env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{module} on {env['BENCH_BACKEND']}: {done.stderr}")
    return done.stdout.strip().splitlines()[-1]


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


def head() -> str:
    costs = "".join(f"{verb:>9}{'µs':>7}" for verb in VERBS)
    return f"{'backend':15}{costs}{'switches':>10}{'frames':>8}{'statements':>12}{'drain/s':>10}{'turn, µs':>10}"


def line(backend: str, figures: Figures) -> str:
    """Processor time in turns and in microseconds; a figure that there is not is 0."""
    costs = "".join(f"{figures[verb]:>9.2f}{figures[verb] * figures['turn']:>7.1f}" for verb in VERBS)
    others = f"{figures['switches']:>10.2f}{figures.get('frames', 0):>8g}{figures.get('statements', 0):>12g}"
    return f"{backend:15}{costs}{others}{figures['per_second']:>10,.0f}{figures['turn']:>10.2f}"


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", default=BACKENDS, metavar="BACKEND", help=", ".join(BACKENDS + OTHERS))
    parser.add_argument("--count", type=int, default=30_000, help="messages per round (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="store the figures of this run")
    options = parser.parse_args()
    print(head())
    found = {}
    for backend in options.backends:
        found[backend] = measure(backend, options.count)
        print(line(backend, found[backend]), flush=True)
    stored = json.loads(LIMITS.read_text())
    if options.write:
        store(stored | {backend: compared(figures) for backend, figures in found.items()})
    elif said := excesses(found, stored):
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main()
