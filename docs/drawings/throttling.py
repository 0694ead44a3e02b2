"""Prints the timelines of docs/howto/rate-limits.rst, from a run on a queue in memory whose clock this script turns.

python docs/drawings/throttling.py; a test holds that the page shows what it prints.
"""

import sys
from pathlib import Path

from django.conf import settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
settings.configure(SECRET_KEY="only-for-drawing-timelines-of-djqueue-0123456789-abcdefghij")

from djqueue.backends.memory import MemoryQueue  # noqa: E402
from djqueue.throttle import ThrottledQueue  # noqa: E402

START = 1_000_000_000
"""Seconds since 1970 at which every run begins."""
SECONDS, PER_SECOND = 40, 2
"""So long it lasts, with so many columns for each second."""
FIVE = {"limit": 5, "window": 10}
EVEN = {**FIVE, "moderate": True}
CATCHING_UP = {**EVEN, "elastic": True}
ALWAYS, BREAK = range(0), range(11 * PER_SECOND, 21 * PER_SECOND)
RUNS = {
    "limit=5, window=10": (FIVE, {0: 3, 4: 4, 12: 2, 20: 9}, ALWAYS),
    "limit=5, window=10, moderate=True": (EVEN, {0: 12}, ALWAYS),
    "limit=5, window=10, moderate=True; nobody asks from 11 to 21": (EVEN, {0: 30}, BREAK),
    "limit=5, window=10, moderate=True, elastic=True": (CATCHING_UP, {0: 30}, BREAK),
    "limit=5, window=10, moderate=True, elastic=True, elastic_buffer=2": (
        {**CATCHING_UP, "elastic_buffer": 2},
        {0: 30},
        BREAK,
    ),
}
"""What is drawn: the settings, how many are put at which second, and the columns in which nobody asks."""


def run(given: dict, puts: dict[int, int], away: range) -> tuple[list[str], list[str]]:
    """How many were put in each column, and how many left."""
    within = MemoryQueue("drawn")
    queue, put, left = ThrottledQueue(within, **given), [], []
    for column in range(SECONDS * PER_SECOND + 1):
        within.clock = lambda now=START + column / PER_SECOND: now
        number = puts.get(column // PER_SECOND, 0) if column % PER_SECOND == 0 else 0
        queue.push_many(range(number))
        put.append(shown(number, " "))
        left.append(" " if column in away else shown(sum(iter(lambda: queue.pop() is not None, False)), "."))
    return put, left


def shown(number: int, nothing: str) -> str:
    return "+" if number > 9 else str(number or nothing)


def drawn(title: str, put: list[str], left: list[str]) -> str:
    scale = "".join(f"{second:<10}" for second in range(0, SECONDS, 10 // PER_SECOND)) + str(SECONDS)
    lines = {title: "", "second": scale, "put": "".join(put), "leave": "".join(left)}
    return "\n".join(f"{name:<8}{line}".rstrip() for name, line in lines.items())


if __name__ == "__main__":
    print("\n\n".join(drawn(title, *run(*what)) for title, what in RUNS.items()))
