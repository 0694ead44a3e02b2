"""Which messages were run, and when: a file of one time for each, written by the workers and read by who measures.

BENCH_LEDGER names the file; without it the ledger is in this process alone. The times are of the machine's monotonic
clock, so those of several processes compare. A message that was not run has the time 0.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

MOST = 400_000
"""Messages that a ledger has room for."""
MISSING = b"\0" * 8
SLOW = 1.0
"""Seconds that a slow message takes, between two notes."""


def make(path: Path) -> None:
    """An empty ledger; it takes no room on the disk before it is written."""
    with path.open("wb") as file:
        file.truncate(MOST * len(MISSING))


def _mapped() -> mmap.mmap:
    path = os.environ.get("BENCH_LEDGER")
    if path is None:
        return mmap.mmap(-1, MOST * len(MISSING))
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


times = memoryview(_mapped()).cast("d")


def note(number: int) -> None:
    """The message is run now."""
    times[number] = time.monotonic()


def doze(number: int) -> None:
    """A message that takes a while is run: its start and its end are noted."""
    note(2 * number)
    time.sleep(SLOW)
    note(2 * number + 1)


async def adoze(number: int) -> None:
    """:func:`doze` for async code."""
    import asyncio  # here, as what libraries without it take of memory is measured

    note(2 * number)
    await asyncio.sleep(SLOW)
    note(2 * number + 1)


class Reader:
    """A ledger as the one who measures sees it."""

    def __init__(self, path: Path):
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)
        self.times = memoryview(self._bytes).cast("d")

    def missing(self, start: int = 0) -> int:
        """The first message from ``start`` on that was not run."""
        found = self._bytes.find(MISSING, start * len(MISSING))
        return -(-found // len(MISSING)) if found >= 0 else MOST

    def any(self, count: int) -> bool:
        """Whether one of the first messages was run."""
        return bool(self._bytes[: count * len(MISSING)].strip(b"\0"))

    def run(self, first: int, last: int) -> list[float]:
        """The times of those that were run, in order."""
        return sorted(filter(None, self.times[first:last]))
