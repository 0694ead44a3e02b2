"""The time lines of docs/howto/debouncing.rst, from runs on a queue in memory whose clock turns."""

import svg

from djqueue import Deferrable, queue_command, queues

START = 1_000_000_000
"""Seconds since 1970 at which every run begins."""
SECONDS = 100
CALLS = (0, 4, 9, 21, 35, 41, 95)
RUNS = {
    "debounce": ({"debounce": 30}, CALLS),
    "debounce-always-delay": ({"debounce": 30, "always_delay": True}, CALLS),
    "debounce-extend": ({"debounce": 30, "extend": True}, CALLS),
    "debounce-max-wait": ({"debounce": 30, "extend": True, "max_wait": 45}, (0, 10, 20, 30, 40, 50, 60)),
    "unique": ({"unique": 30}, CALLS),
}
"""What is drawn: options, and the seconds of the calls."""

LEGEND = svg.LEFT + 4

ran: list[float] = []


@queue_command
def refresh() -> None:
    ran.append(queues["default"].now() - START)


def run(options: dict, calls: tuple[int, ...]) -> tuple[list[int], list[int], list[float]]:
    """The seconds of the calls that were put, of those that were skipped, and of the runs."""
    queues.reset()
    ran.clear()
    queue, put, skipped = queues["default"], [], []
    for second in range(SECONDS + 1):
        queue.clock = lambda now=START + second: now
        if second in calls:
            (put if refresh.using(**options).enqueue().enqueued else skipped).append(second)
        while Deferrable().run_once():
            continue
    return put, skipped, list(ran)


def drawn(options: dict, put: list[int], skipped: list[int], runs: list[float]) -> str:
    title = ", ".join(f"{name}={value}" for name, value in options.items())
    axis, calls, below = svg.Axis(SECONDS), 44, 84
    told = f"{title}: calls at {put + skipped} s, of which {skipped} are skipped; runs at {runs} s"
    links = [
        svg.line(axis.at(a), calls, axis.at(b), below, stroke=svg.ONE, dash="2 3")
        for a, b in zip(put, runs, strict=False)  # what is put last runs later than the drawing ends
    ]
    return svg.drawing(
        told,
        134,
        svg.text(4, 14, title, code=True),
        axis.scale(28, 98, 10),
        axis.row(calls, "calls"),
        axis.row(below, "runs"),
        *links,
        *(svg.circle(axis.at(second), calls, 4.5) for second in put),
        *(svg.circle(axis.at(second), calls, 3.5, fill=svg.FILL, stroke=svg.MUTED) for second in skipped),
        *(svg.rect(axis.at(second) - 4, below - 9, 8, 18, fill=svg.TWO, radius=2) for second in runs),
        svg.circle(LEGEND, 123, 4),
        svg.text(LEGEND + 8, 127, "put", size=11),
        svg.circle(LEGEND + 50, 123, 3.5, fill=svg.FILL, stroke=svg.MUTED),
        svg.text(LEGEND + 58, 127, "skipped", size=11),
        svg.rect(LEGEND + 116, 118, 6, 11, fill=svg.TWO, radius=2),
        svg.text(LEGEND + 126, 127, "run", size=11),
    )


def drawings() -> dict[str, str]:
    return {name: drawn(options, *run(options, calls)) for name, (options, calls) in RUNS.items()}
