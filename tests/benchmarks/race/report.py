"""The results of a race: as text, and as JSON and tables in ``docs/performance``.

The drawings are made of the JSON by ``docs/drawings/race.py``.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.programs import ROOT

FOLDER = ROOT / "docs" / "performance"
RESULTS = FOLDER / "race.json"
TITLES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}
NONE = "–"

Rows = list[list[str]]


def write(results: dict) -> None:
    """The results, the tables and the drawings."""
    FOLDER.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for name, rows in tables(results).items():
        (FOLDER / f"{name}.csv").write_text(as_csv(rows))
    subprocess.run([sys.executable, "docs/drawings/draw.py"], cwd=ROOT, check=True)


def text(results: dict) -> str:
    return "\n\n".join(f"{name}\n{aligned(rows)}" for name, rows in tables(results).items())


def tables(results: dict) -> dict[str, Rows]:
    """Each with its head."""
    entrants = results["entrants"]
    stores = [store for store in TITLES if any(one["store"] == store for one in entrants)]
    drains = {f"drain-{store}": [*drain(results, store)] for store in stores}
    return drains | {
        "enqueue": [*enqueue(entrants)],
        "latency": [*latency(entrants)],
        "idle": [*idle(entrants)],
        "kill": [*kill(entrants)],
        "absent": [*absent(entrants)],
        "machine": [*machine(results)],
    }


def drain(results: dict, store: str) -> Iterator[list[str]]:
    yield ["Library", "Workers", "Per second", "Least – most", "CPU, µs each", "Round trips each"]
    for one in results["entrants"]:
        if one["store"] == store:
            for kind, words in (("", one["one"]), ("best_", one["best"])):
                name = one["name"] if not kind else f"{one['name']}, best"
                cells = [*rate(one.get(f"{kind}drain")), micros(one.get(f"{kind}cpu")), trips(one.get(f"{kind}asked"))]
                yield [name, words, *cells]
    if store in results["floors"]:
        floor = results["floors"][store]
        yield ["The bare loop", "4 threads", *rate(floor["drain"]), micros(floor["cpu"]), NONE]


def enqueue(entrants: list[dict]) -> Iterator[list[str]]:
    yield ["Library", "Store", "Single/s", "Least – most", "CPU, µs each", "Bulk/s", "Least – most"]
    for one in entrants:
        single, bulk = rate(one.get("single")), rate(one.get("bulk"))
        yield [one["name"], TITLES[one["store"]], *single, micros(one.get("single_cpu")), *bulk]


def latency(entrants: list[dict]) -> Iterator[list[str]]:
    yield ["Library", "Store", "p50, ms", "p95, ms", "p99, ms", "Messages"]
    for one in entrants:
        found = one.get("latency")
        cells = [f"{found[name]:,.2f}" for name in ("p50", "p95", "p99")] if found else [NONE] * 3
        yield [one["name"], TITLES[one["store"]], *cells, str(found["count"]) if found else NONE]


def idle(entrants: list[dict]) -> Iterator[list[str]]:
    yield ["Library", "Store", "CPU, %", "Round trips/s", "Memory, MB"]
    for one in entrants:
        cells = [(one.get("idle_cpu"), ".2f"), (one.get("idle_asked"), ".1f"), (one.get("memory"), ".0f")]
        yield [one["name"], TITLES[one["store"]], *(NONE if n is None else f"{n:{form}}" for n, form in cells)]


def kill(entrants: list[dict]) -> Iterator[list[str]]:
    yield ["Library", "Store", "In hand", "Run again", "After, s", "Not in hand, missing", "What it promises"]
    for one in entrants:
        found = one.get("kill")
        cells = (
            [str(found["held"]), str(found["again"]), seconds(found["after"]), str(found["others"])] if found else []
        )
        yield [one["name"], TITLES[one["store"]], *(cells or [NONE] * 4), one["kept"]]


def absent(entrants: list[dict]) -> Iterator[list[str]]:
    yield ["Library", "Store", "Reason"]
    failed = [[one["name"], TITLES[one["store"]], " ".join(one["failed"].split())] for one in entrants if one["failed"]]
    yield from failed or [["none", NONE, "all could be measured"]]


def machine(results: dict) -> Iterator[list[str]]:
    about = results["machine"]
    yield ["What", "Which"]
    yield ["Day", results["made"]]
    yield ["Processors", f"{about['cores']} × {about['cpu']}"]
    yield ["Rounds", f"{results['rounds']}, begun at a load of {about['load']}"]
    yield ["System", f"{about['system']}, Python {about['python']}"]
    yield ["Servers", ", ".join(results["servers"])]
    yield ["Reference loop", f"{results['reference']['cpu']:.2f} µs a turn"]
    yield ["Packages", ", ".join(f"{name} {number}" for name, number in results["versions"].items())]


# ---- Cells


def rate(found: dict | None) -> list[str]:
    if not found:
        return [NONE, NONE]
    return [f"{found['median']:,.0f}", f"{found['least']:,.0f} – {found['most']:,.0f}"]


def micros(found: dict | None) -> str:
    if not found:
        return NONE
    return f"{found['median']:,.1f}" if found["median"] < 100 else f"{found['median']:,.0f}"


def trips(found: dict | None) -> str:
    return NONE if not found else f"{found['median']:.2f}"


def seconds(found: float | None) -> str:
    return NONE if found is None else f"{found:.1f}"


def as_csv(rows: Rows) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def aligned(rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
