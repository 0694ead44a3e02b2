"""Figures from what was measured, and what one has to know of the machine to compare them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import ends
from tests.benchmarks.programs import environment, output
from tests.benchmarks.race.entrants import Entrant
from tests.benchmarks.race.stores import STORES
from tests.support import servers

SHARED = ("Django", "redis", "hiredis", "psycopg")
FLOOR_MESSAGES = 40_000


def floor(store: str, scale: float) -> dict:
    """Three drains of the bare loop on a server of its own, as those of the entrants have."""
    folder = servers.run_dir() / f"floor-{store}"
    folder.mkdir()
    env = environment(store, STORES[store](folder).url)
    found = output("floor", env, int(FLOOR_MESSAGES * scale))
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
