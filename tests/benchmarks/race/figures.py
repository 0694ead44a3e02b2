"""Figures from what was measured, and what one has to know of the machine to compare them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles

from tests.benchmarks.processes import ROOT
from tests.benchmarks.race.entrants import Entrant
from tests.benchmarks.race.stores import STORES
from tests.support import servers

SHARED = ("Django", "redis", "hiredis", "psycopg")
FLOOR_MESSAGES = 40_000


def ends(found: list[float]) -> dict[str, float]:
    return {"median": median(found), "least": min(found), "most": max(found)}


def percentiles(taken: list[float]) -> dict[str, float]:
    cuts = quantiles(taken, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "count": len(taken)}


def floor(store: str, scale: float) -> dict:
    """Three drains of the bare loop on a server of its own, as those of the entrants have."""
    folder = servers.run_dir() / f"floor-{store}"
    folder.mkdir()
    env = {**os.environ, "BENCH_BACKEND": store, "BENCH_CONNECTION": STORES[store](folder).url}
    command = [sys.executable, "-m", "tests.benchmarks.floor", str(int(FLOOR_MESSAGES * scale))]
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return {name: ends([each[name] for each in found]) for name in ("drain", "cpu")}


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def versions(entrants: Iterable[Entrant]) -> dict[str, str]:
    names = {*SHARED, *(package for entrant in entrants for package in entrant.packages)}
    return {name: version(name) for name in sorted(names, key=str.lower)}
