"""Run the conformance suite on all backends and write docs/conformance.csv: `make conformance`.

The arguments are the Pythons to use, by their Django: `5.2=.venv-conformance-5.2/bin/python`.
"""

import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import servers
from tests.tasks.peers.peers import PEERS

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "conformance.csv"
TOGETHER = 4
"""Most of the time a test waits."""
HEAD = ("Backend", "Version", "Django", "Passed", "Left out", "Failed", "What fails")


def main(pythons: dict[str, str]):
    for kind in ("redis", "postgres", "mariadb"):
        servers.start(kind)
    tried = [
        (pythons[django], peer.name) for peer in PEERS.values() for _, django in peer.combinations if django in pythons
    ]
    with ThreadPoolExecutor(TOGETHER) as pool:
        outcomes = list(pool.map(outcome, *zip(*tried, strict=True)))
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEAD)
        table.writerows(map(row, outcomes))
    print(f"written: {TABLE.relative_to(ROOT)}")


def outcome(python: str, name: str) -> dict:
    done = subprocess.run([python, "-m", "tests.tasks.peers.one", name], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name} could not be tried with {python}")
    line = done.stdout.splitlines()[-1]
    print(line, flush=True)
    return json.loads(line)


def row(told: dict) -> tuple:
    failed = [name.removeprefix("test_").replace("_", " ") for name in told["failed"]]
    return (
        told["backend"],
        told["version"],
        told["django"],
        told["passed"],
        told["skipped"],
        len(failed),
        "; ".join(failed),
    )


if __name__ == "__main__":
    main(dict(pair.split("=", 1) for pair in sys.argv[1:]))
