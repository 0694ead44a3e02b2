"""What benchmarks share: their backends, the programs that measure in processes of their own, and their tables."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import servers

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {"redis": "redis", "redis-blocking": "redis", "postgres": "postgres", "mariadb": "mariadb"}


def address(backend: str) -> str:
    """Where the backend is; its server is started if it is not running yet."""
    if backend in SERVERS:
        servers.start(SERVERS[backend])
        return servers.address(SERVERS[backend])
    return str(servers.run_dir() / "benchmark.sqlite3") if backend == "sqlite" else ""


def environment(backend: str, url: str | None = None, **variables: str) -> dict[str, str]:
    """That of a program: it measures the backend at that URL, by default where ``address`` has it."""
    own = {"BENCH_BACKEND": backend, "BENCH_CONNECTION": address(backend) if url is None else url}
    return os.environ | own | {"PYTHONPATH": str(ROOT)} | variables


def lines(module: str, env: dict[str, str], *arguments: object) -> Iterator[Any]:
    """What a program prints as lines of JSON, as they come. SystemExit if it fails."""
    with subprocess.Popen(_command(module, arguments), cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"{env['BENCH_BACKEND']}: {module} ended with {process.returncode}")


def output(module: str, env: dict[str, str], *arguments: object) -> Any:
    """The last line that a program prints, which is JSON. SystemExit with what it said if it fails."""
    done = subprocess.run(_command(module, arguments), cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{env['BENCH_BACKEND']}: {module} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _command(module: str, arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]


def parser(doc: str, backends: Sequence[str], others: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Options of a benchmark of these backends by default, and of others on demand."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    known = ", ".join([*backends, *others])
    made.add_argument("backends", nargs="*", default=backends, metavar="BACKEND", help=known)
    return made


class Table:
    """Rows that are printed as they come. Each column is a head and a format, such as ``>11,.0f``."""

    def __init__(self, *columns: tuple[str, str]):
        self._formats = [form for _, form in columns]
        self._places = [re.match(r"[<>]?\d+", form)[0] for form in self._formats]
        self._print([f"{head:{place}}" for (head, _), place in zip(columns, self._places, strict=True)])

    def add(self, *cells: object) -> None:
        """A cell that is None stays empty."""
        places = zip(cells, self._formats, self._places, strict=True)
        self._print([f"{'':{place}}" if cell is None else f"{cell:{form}}" for cell, form, place in places])

    def _print(self, cells: list[str]) -> None:
        print("".join(cells), flush=True)
