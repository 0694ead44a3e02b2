"""FIFO queues: what leaves a group together, and what changes about messages that stay where they are.

Nobody can write on a message at SQS, and SQS itself gives out nothing more of a group while something of it is out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf

from djqueue.backends import fallback
from djqueue.backends.entries import Entry, Lease
from djqueue.backends.sqs_wire import LONGEST_KEPT
from djqueue.backends.stores import BaseStore
from djqueue.exceptions import NotSupported
from djqueue.flow.gates import Gate


class Changes:
    """What became of entries since they were sent, in the store of their queue, as of so many receives."""

    def __init__(self, name: str, store: Callable[[], BaseStore | None]):
        self._name, self._store = name, store

    def keep(self, entry: Entry, receives: int) -> None:
        """Write down all of an entry but its body, as it is after that receive."""
        head = fallback.pack(replace(entry, data=b""))
        self._needed().put(self._key(entry), f"{receives} {head}".encode(), LONGEST_KEPT)

    def of(self, entry: Entry) -> tuple[Entry, int]:
        """The entry as it is, and how many receives that counts."""
        value = self._needed().get(self._key(entry))
        if value is None:
            return entry, 0
        counted, _, head = value.decode().partition(" ")
        return replace(fallback.unpack(head), data=entry.data), int(counted)

    def drop(self, entry: Entry) -> None:
        self._needed().drop(self._key(entry))

    def _needed(self) -> BaseStore:
        store = self._store()
        if store is None:
            raise NotSupported(f"The SQS queue {self._name} has no store: a FIFO queue notes there what it gives back.")
        return store

    def _key(self, entry: Entry) -> str:
        return f"sqs:{self._name}:{entry.id}"


def runs(leases: Sequence[Lease], waiting: Collection[str]) -> tuple[list[Lease], list[Lease]]:
    """Of what was received, the runs of the lanes, and what has to wait behind them or behind what its lane waits for.

    One that was lost once leaves alone.
    """
    together: list[Lease] = []
    behind: list[Lease] = []
    firsts: dict[str, list[Entry]] = {}
    for lease in leases:
        entry, shut = lease.entry, [*waiting, *(one.entry.lane for one in behind)]
        run = firsts.setdefault(entry.lane, [])
        if entry.lane and (entry.lane in shut or not _joins(run, entry)):
            behind.append(lease)
        else:
            run.append(entry)
            together.append(replace(lease, run=entry.lane))
    return together, behind


def units(leases: Sequence[Lease]) -> int:
    """How many units of work they are."""
    return sum(not lease.run for lease in leases) + len({lease.run for lease in leases if lease.run})


def _joins(run: Sequence[Entry], entry: Entry) -> bool:
    """Whether an entry may leave behind these."""
    most = Gate.read(entry.gate).run if entry.gate else inf
    return not run or (len(run) < most and not entry.lost and not run[0].lost)
