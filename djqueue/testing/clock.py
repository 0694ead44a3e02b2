"""Time that only a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from unittest import mock

from djqueue.backends.base import BaseQueue, NoStore
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.exceptions import NotSupported
from djqueue.messages import envelope
from djqueue.testing.assertions import commit, send
from djqueue.throttle import unthrottled
from djqueue.utils import moment, seconds
from djqueue.wiring import queues as all_queues

Follow = Callable[[datetime], object]


class VirtualClock:
    """The clock of the queues in memory. It does not advance until it is moved."""

    def __init__(self, start: float, follow: Follow | None = None):
        self._now, self._follow = start, follow

    def __call__(self) -> float:
        """Epoch seconds."""
        return self._now

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self._now, UTC)

    def move(self, by: float | timedelta) -> None:
        """Let ``by`` seconds pass. That runs nothing: :func:`run_due` does.

        Calls that wait for the commit of a TestCase are sent first: they were made before the time passed.
        """
        passed = seconds(by, "by")
        send()
        self._now += passed
        if self._follow is not None:
            self._follow(self.now)

    def move_to(self, when: datetime) -> None:
        """Let it be that moment. Raises ValueError if it has passed."""
        self.move(self.left(when))

    def left(self, until: float | timedelta | datetime) -> float:
        """Seconds until a moment, or the given seconds. Raises ValueError if it has passed."""
        if not isinstance(until, datetime):
            return seconds(until, "until")
        left = moment(until, "until") - self._now
        if left < 0:
            raise ValueError(f"It is {self.now:%Y-%m-%d %H:%M:%S} UTC already, and time does not go back to {until}.")
        return left


_clocks: list[VirtualClock] = []
"""The clocks of the blocks that are open; the last one counts."""


@contextmanager
def virtual_time(
    start: datetime | None = None, *, queues: Iterable[str] | None = None, follow: Follow | None = None
) -> Iterator[VirtualClock]:
    """Stop time for queues in memory, at ``start`` or at the next full second; yields a VirtualClock.

    All that depends on time there follows it: delays, backoffs, time to live, debounce windows, leases, schedules, how
    long results are kept. ``time`` and ``datetime`` in your own code do not; ``follow`` is called with each new time,
    as a datetime in UTC: ``move_to`` of time-machine, or of freezegun.

    After the block the queues have their former clock. Calls that wait for the commit of a TestCase are sent where the
    block begins and where it ends, so that the time of the call counts. Raises NotSupported if one of ``queues``
    (aliases; all by default) is none of memory: the clock of its server cannot be moved.
    """
    for alias in all_queues if queues is None else queues:
        _refuse_other_clocks(alias, all_queues[alias])
    # Whole seconds are exact as floats, so that what is due in 60 s is when 60 s have passed.
    clock = VirtualClock(float(ceil(MemoryQueue.clock())) if start is None else moment(start, "start"), follow)
    send()
    with (
        mock.patch.object(MemoryQueue, "clock", clock),
        mock.patch.object(MemoryStore, "clock", clock),
        mock.patch.object(envelope, "clock", lambda: int(clock() * 1000) * 1_000_000),
    ):
        _clocks.append(clock)
        try:
            yield clock
            send()
        finally:
            _clocks.remove(clock)


@contextmanager
def the_clock(queues: Iterable[str]) -> Iterator[VirtualClock]:
    """The clock of the enclosing :func:`virtual_time`, or a temporary one."""
    if _clocks:
        for alias in queues:
            _refuse_other_clocks(alias, all_queues[alias])
        yield _clocks[-1]
    else:
        commit()  # here, so that callbacks keep their order: virtual_time() sends djqueue's before all others
        with virtual_time(queues=queues) as clock:
            yield clock


def _refuse_other_clocks(alias: str, queue: BaseQueue) -> None:
    if not isinstance(unthrottled(queue), MemoryQueue):
        raise NotSupported(f"QUEUES[{alias!r}] is a {type(unthrottled(queue)).__name__}, {_FIX}")
    if not isinstance(queue.store, MemoryStore | NoStore):
        raise NotSupported(f"QUEUES[{alias!r}]['STORE'] is a {type(queue.store).__name__}, {_FIX}")


_FIX = (
    "whose time is that of its server and cannot be moved. Let the test have its queues in memory: with "
    "memory_queues(), the fixture djqueue_memory_queues, or djqueue.backends.memory.MemoryQueue in its settings."
)
