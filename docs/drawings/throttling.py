"""The time lines of docs/howto/rate-limits.rst, from runs on a queue in memory whose clock turns."""

import svg

from djqueue.backends.memory import MemoryQueue
from djqueue.throttle import ThrottledQueue

START = 1_000_000_000
"""Seconds since 1970 at which every run begins."""
SECONDS, PER_SECOND = 40, 2
"""How long it lasts, and how often a second a worker asks."""
FIVE = {"limit": 5, "window": 10}
EVEN = {**FIVE, "moderate": True}
CATCHING_UP = {**EVEN, "elastic": True}
BUFFERED = {**CATCHING_UP, "elastic_buffer": 2}
ALWAYS, BREAK = range(0), range(11, 21)
RUNS = {
    "throttle": (FIVE, {0: 3, 4: 4, 12: 2, 20: 9}, ALWAYS),
    "throttle-moderate": (EVEN, {0: 12}, ALWAYS),
    "throttle-moderate-break": (EVEN, {0: 30}, BREAK),
    "throttle-elastic": (CATCHING_UP, {0: 30}, BREAK),
    "throttle-elastic-buffer": (BUFFERED, {0: 30}, BREAK),
}
"""What is drawn: the settings, how many are put at which second, and the seconds in which no worker asks."""


def run(given: dict, puts: dict[int, int], away: range) -> dict[float, int]:
    """How many left at which second."""
    within = MemoryQueue("drawn")
    queue, left = ThrottledQueue(within, **given), {}
    for column in range(SECONDS * PER_SECOND + 1):
        second = column / PER_SECOND
        within.clock = lambda now=START + second: now
        queue.push_many(range(puts.get(second, 0)))
        if int(second) not in away and (number := sum(iter(lambda: queue.pop() is not None, False))):
            left[second] = number
    return left


def drawn(given: dict, puts: dict[int, int], away: range, left: dict[float, int]) -> str:
    title = ", ".join(f"{name}={value}" for name, value in given.items())
    axis, above, below = svg.Axis(SECONDS), 56, 112
    shapes = [svg.text(4, 14, title, code=True, size=11), axis.scale(28, 122, 5)]
    if away:
        start, end = axis.at(away[0]), axis.at(away[-1] + 1)
        shapes += [
            svg.rect(start, 28, end - start, 94, fill=svg.FAINT, radius=0),
            svg.text((start + end) / 2, 42, "no worker asks", anchor="middle", size=11, fill=svg.MUTED),
        ]
    shapes += [axis.row(above, "put"), axis.row(below, "leave")]
    shapes += [bar(axis.at(second), above, number, svg.ONE) for second, number in puts.items()]
    shapes += [bar(axis.at(second), below, number, svg.TWO) for second, number in left.items()]
    told = f"{title}: {puts} are put (second: number), {left} leave"
    return svg.drawing(told, 138, *shapes)


def bar(x: float, y: float, number: int, fill: str) -> str:
    """A column as high as the number, with the number on it unless it is one."""
    height = 6 * min(number, 4)
    words = [svg.text(x, y - height - 2, str(number), anchor="middle", size=11)] if number > 1 else []
    return "\n".join([svg.rect(x - 3, y - height, 6, height, fill=fill, radius=1.5), *words])


def drawings() -> dict[str, str]:
    return {name: drawn(given, puts, away, run(given, puts, away)) for name, (given, puts, away) in RUNS.items()}
