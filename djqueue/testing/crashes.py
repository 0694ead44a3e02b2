"""Workers that die at a point that a test chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from djqueue.backends.base import BaseQueue, Lease
from djqueue.enqueueing.command import Command
from djqueue.testing.assertions import AnyCommand, command_of
from djqueue.utils import whole

POINTS = {
    "claimed": "a worker has the message, and has not begun to run it",
    "ran": "the command has ended, and the queue does not know",
    "settled": "the queue knows, nothing else does: no signal is sent, no result kept",
}
"""The points at which a worker can die, in order."""


class Crash:
    """A point, and the deaths there."""

    def __init__(self, point: str, command: Command | None, times: int):
        self._point, self._command, self._left = point, command, times
        self.died: list[tuple[BaseQueue, Lease]] = []

    def kills(self, point: str, queue: BaseQueue, batch: Sequence[Lease]) -> bool:
        """Whether the worker that holds these leases dies at this point."""
        dies = self._left > 0 and point == self._point and any(map(self._means, batch))
        if dies:
            self._left -= 1
            self.died += [(queue, lease) for lease in batch]
        return dies

    def _means(self, lease: Lease) -> bool:
        return self._command is None or lease.entry.command == self._command.name

    def expire(self) -> None:
        """End the leases of the dead workers; a lease that another worker holds by now stays."""
        for queue, lease in self.died:
            queue.touch([lease], 0.0)


_crashes: list[Crash] = []


@contextmanager
def crash_at(point: str, command: AnyCommand | None = None, *, times: int = 1) -> Iterator[None]:
    """Have the worker of :func:`run_due` die at ``point``, at the first ``times`` messages, of ``command`` if given.

    ``"claimed"``: it has the message, and has not begun to run it. ``"ran"``: the command has ended, and the queue does
    not know. ``"settled"``: only the queue knows: no signal is sent, no result kept.

    :func:`run_due` goes on with other messages, as another worker would. The lease of the dead one stays until it runs
    out: by :func:`virtual_time`, or at the end of the block at the latest. The next :func:`run_due` delivers the
    message again, with one more attempt, and with one more start that is counted as lost if it had begun.

    Raises ValueError for another point, AssertionError if no worker has died when the block ends.
    """
    if point not in POINTS:
        raise ValueError(f"crash_at({point!r}): the points are {', '.join(map(repr, POINTS))}.")
    crash = Crash(point, command_of(command), whole(times, "times", least=1))
    _crashes.append(crash)
    try:
        yield
    finally:
        _crashes.remove(crash)
    if not crash.died:
        raise AssertionError(f"No worker died: none came to {point!r} in this block. Is run_due() in it?")
    crash.expire()


def dies(point: str, queue: BaseQueue, batch: Sequence[Lease]) -> bool:
    """Whether the worker that holds these leases, one or a batch, dies at this point."""
    return any(crash.kills(point, queue, batch) for crash in _crashes)
