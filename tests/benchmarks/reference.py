"""The reference loop: a fixed piece of Python that machines, and djqueue on them, are compared with.

Each turn packs, signs, verifies and unpickles one message and calls a function, in one thread, without a store.
"""

from __future__ import annotations

from tests.benchmarks.floor import pack, run
from tests.benchmarks.measure import cost

TURNS, TIMES = 20_000, 5


def microseconds() -> float:
    """Of processor for a turn: the least of some measurements, as other load only adds to it."""
    return min(cost(TURNS, _turns)["cpu"] for _ in range(TIMES))


def _turns() -> None:
    for number in range(TURNS):
        run(pack(number))


if __name__ == "__main__":
    print(f"{microseconds():.2f}")
