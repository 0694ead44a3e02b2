"""The bars of docs/performance.rst, from the results that ``make race`` has written."""

import json
from collections.abc import Iterable
from math import log10
from pathlib import Path

import svg

RESULTS = Path(__file__).resolve().parent.parent / "performance" / "race.json"
STORES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}
NAMES, LEFT, RIGHT = 4, 156, 385
"""Where names begin, where bars begin, and where the longest one ends; its number stands behind."""
LINE, BAR = 12, 9
SHORTEST, LONGEST = 0.3, 1000.0
"""Milliseconds at both ends of the scale of latencies."""


def drawings() -> dict[str, str]:
    results = json.loads(RESULTS.read_text())
    drains = {f"race-drain-{store}": drain(results, store) for store in STORES if store in results["floors"]}
    return drains | {"race-enqueue": enqueue(results["entrants"]), "race-latency": latency(results["entrants"])}


def drain(results: dict, store: str) -> str:
    rows = []
    for one in of(results["entrants"], store):
        rows += [(one["name"], one.get("drain"), svg.ONE), ("", one.get("best_drain"), svg.TWO)]
    rows.append(("the bare loop", results["floors"][store]["drain"], svg.MUTED))
    keys = [("near to one process of four threads", svg.ONE), ("at its best on all processors", svg.TWO)]
    return bars(f"Messages drained a second, {STORES[store]}", rows, keys)


def enqueue(entrants: list[dict]) -> str:
    rows = [(f"{one['name']}, {STORES[one['store']]}", one.get("single"), svg.ONE) for one in entrants]
    return bars("Calls a second, one after the other", rows, [])


def bars(title: str, rows: list[tuple[str, dict | None, str]], keys: list[tuple[str, str]]) -> str:
    """A bar for the median of each row, with a line from the least to the most."""
    most = max(found["most"] for _, found, _ in rows if found)
    shapes, y = [svg.text(NAMES, 14, title)], 24
    for words, fill in keys:
        shapes += [svg.rect(NAMES, y, 9, 9, fill=fill, radius=1.5), svg.text(18, y + 9, words, size=11)]
        y += LINE + 3
    for name, found, fill in rows:
        y += LINE + (6 if name else 0)
        shapes += [svg.text(NAMES, y, name, size=10), *bar(y, found, most, fill)]
    return svg.drawing(f"{title}: {told(rows)}", y + 8, *shapes)


def bar(y: float, found: dict | None, most: float, fill: str) -> Iterable[str]:
    if not found:
        return [svg.text(LEFT, y, "–", size=10, fill=svg.MUTED)]
    at = {name: round(LEFT + (RIGHT - LEFT) * found[name] / most, 1) for name in ("least", "median", "most")}
    middle = y - BAR / 2
    return [
        svg.rect(LEFT, y - BAR, max(1, at["median"] - LEFT), BAR, fill=fill, radius=1),
        svg.line(at["least"], middle, at["most"], middle, stroke=svg.TEXT),
        svg.text(max(at["median"], at["most"]) + 5, y, f"{found['median']:,.0f}", size=10),
    ]


def told(rows: list[tuple[str, dict | None, str]]) -> str:
    """The medians, for those who do not see the bars; a row without a name is the best of the one above."""
    return ", ".join(f"{name or 'best'} {found['median']:,.0f}" for name, found, _ in rows if found)


def latency(entrants: list[dict]) -> str:
    """A line from the median to the 99th percentile, on a scale of tenfold steps."""
    title = "Milliseconds from a call to its start: p50, p95 and p99"
    shapes, y = [svg.text(NAMES, 14, title)], 24
    bottom = y + (LINE + 4) * len(entrants) + 8
    for step in (1, 10, 100, 1000):
        x = across(step)
        shapes += [
            svg.line(x, y, x, bottom, stroke=svg.FAINT),
            svg.text(x, bottom + 13, f"{step:g}", anchor="middle", size=10),
        ]
    for one in entrants:
        y += LINE + 4
        shapes.append(svg.text(NAMES, y, f"{one['name']}, {STORES[one['store']]}", size=10))
        if found := one.get("latency"):
            places = [across(found[name]) for name in ("p50", "p95", "p99")]
            shapes.append(svg.line(places[0], y - 4, places[2], y - 4, stroke=svg.MUTED))
            shapes += [svg.circle(x, y - 4, r, fill=svg.ONE) for x, r in zip(places, (4, 3, 2), strict=True)]
    medians = ", ".join(
        f"{one['name']}, {STORES[one['store']]} {one['latency']['p50']:.1f}" for one in entrants if one.get("latency")
    )
    return svg.drawing(f"{title}; medians: {medians}", bottom + 20, *shapes)


def across(milliseconds: float) -> float:
    """The place of a latency."""
    within = min(max(milliseconds, SHORTEST), LONGEST)
    return round(150 + 275 * log10(within / SHORTEST) / log10(LONGEST / SHORTEST), 1)


def of(entrants: list[dict], store: str) -> list[dict]:
    return [one for one in entrants if one["store"] == store]
