"""The steps that the suites about lanes are made of."""

from __future__ import annotations

from djqueue.backends.base import BaseQueue, Claimed, Entry, Lease
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.testing.contract.model import units_of
from djqueue.testing.contract.steps import Contract, asked, entry, names, put
from djqueue.testing.patience import eventually

LONG = 60.0
"""Seconds that no test lasts."""
ORDERED = Gate(ordered=True)
OPEN = Gate(concurrency=1000)
"""A gate that holds back no entry."""
EARLY = 1e-5
"""Seconds by which what is computed of two moments may be rounded."""


def runs_of(number: int) -> Gate:
    return Gate(ordered=True, max_run=number)


def so_many(limit: int, seconds: float, **ways) -> Gate:
    """A gate of one window."""
    return Gate(windows=(Window(limit, seconds, **ways),))


class LaneSuite(Contract):
    """The base of suites about lanes."""

    def with_lane(self, lane: str, *names: str, gate: Gate = ORDERED, **fields) -> BaseQueue:
        """A queue with one lane, in which there is an entry per name."""
        queue = self.queue("lanes")
        fill(queue, lane, *names, gate=gate, **fields)
        return queue

    def with_lanes(self, lanes: str, count: int = 1, gate: Gate = ORDERED) -> BaseQueue:
        """A queue with a lane per letter; see :func:`fill_each`."""
        queue = self.queue("lanes")
        fill_each(queue, lanes, count, gate)
        return queue


def fill(queue: BaseQueue, lane: str, *names: str, gate: Gate = ORDERED, **fields) -> dict[str, Entry]:
    """Put one entry per name into a lane, in one call; returns them by name."""
    return put(queue, *names, lane=lane, gate=gate.written(), **fields)


def fill_each(queue: BaseQueue, lanes: str, count: int = 1, gate: Gate = ORDERED) -> None:
    """Put ``count`` entries into each lane of one letter, named a0, a1 … b0, b1 …"""
    text = gate.written()
    queue.put([entry(f"{lane}{number}", lane=lane, gate=text) for lane in lanes for number in range(count)])


def unit(queue: BaseQueue, lease: float = LONG) -> list[Lease]:
    """One unit of work, as soon as there is one."""
    return eventually(lambda: queue.claim(1, lease))


def drained(queue: BaseQueue, count: int) -> list[str]:
    """The names of exactly ``count`` entries, claimed unit by unit, each completed before the next is claimed."""
    found: list[str] = []
    while len(found) < count:
        leases = unit(queue)
        found += names(leases)
        assert queue.complete(leases) == leases
    assert len(found) == count
    return found


def refused(queue: BaseQueue, limit: int = 10) -> Claimed:
    """The answer of a claim that finds nothing."""
    claimed = asked(lambda: queue.claim(limit))
    assert claimed == []
    return claimed


def all_now(queue: BaseQueue, limit: int = 100) -> list[Lease]:
    """All leases that may leave now, in their order."""
    found: list[Lease] = []
    while (claimed := queue.claim(limit - len(found))) or claimed.retry_after == 0:
        found += claimed
        if len(found) >= limit:
            break
    return found


def runs(leases: list[Lease]) -> list[list[str]]:
    """The names of the leases, grouped by run."""
    return [names(unit) for unit in units_of(leases)]


def lanes_of(leases: list[Lease]) -> list[str]:
    return [lease.entry.lane for lease in leases]


def nothing_known(queue: BaseQueue) -> bool:
    """Whether no lane is known any more, once the empty ones are forgotten."""
    return eventually(lambda: queue.claim(1) == [] and queue.lanes.page() == [])
