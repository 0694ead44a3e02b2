"""Prints the timelines of docs/howto/debouncing.rst, from a run on a queue in memory whose clock this script turns.

python docs/drawings/debounce.py; a test holds that the page shows what it prints.
"""

import sys
from pathlib import Path

import django
from django.conf import settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
settings.configure(
    INSTALLED_APPS=["djqueue"],
    QUEUES={"default": {"CLASS": "djqueue.backends.memory.MemoryQueue", "OPTIONS": {"ON_COMMIT": None}}},
    SECRET_KEY="only-for-drawing-timelines-of-djqueue-0123456789-abcdefghij",
)
django.setup()

from djqueue import (  # noqa: E402
    Deferrable,
    queue_command,
    queues,  # noqa: E402
)

START = 1_000_000_000
"""Seconds since 1970 at which every run begins."""
SECONDS = 100
"""So long it lasts; a second is a column."""
RUNS = {
    "debounce=30": ({"debounce": 30}, (0, 4, 9, 21, 35, 41, 95)),
    "debounce=30, always_delay=True": ({"debounce": 30, "always_delay": True}, (0, 4, 9, 21, 35, 41, 95)),
    "debounce=30, extend=True": ({"debounce": 30, "extend": True}, (0, 4, 9, 21, 35, 41, 95)),
    "debounce=30, extend=True, max_wait=45": (
        {"debounce": 30, "extend": True, "max_wait": 45},
        (0, 10, 20, 30, 40, 50, 60),
    ),
    "unique=30": ({"unique": 30}, (0, 4, 9, 21, 35, 41, 95)),
}
"""What is drawn: options, and the seconds of the calls."""

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


def drawn(title: str, put: list[int], skipped: list[int], runs: list[float]) -> str:
    scale = "".join(f"{second:<10}" for second in range(0, SECONDS, 10)) + str(SECONDS)
    marks = {**dict.fromkeys(put, "o"), **dict.fromkeys(skipped, "x")}
    lines = {
        title: "",
        "second": scale,
        "calls": "".join(marks.get(second, " ") for second in range(SECONDS + 1)),
        "runs": "".join("R" if second in runs else "." for second in range(SECONDS + 1)),
    }
    return "\n".join(f"{name:<8}{line}".rstrip() for name, line in lines.items())


if __name__ == "__main__":
    print("\n\n".join(drawn(title, *run(*what)) for title, what in RUNS.items()))
