"""A queue in its simplest form, with which a backend is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from djqueue.backends.base import AnyGuard, Entry, Lease
from djqueue.backends.entries import DEAD, DELAYED, LEASED, READY
from djqueue.backends.guards import Mark, rule

AGES_AGO = 1_000_000_000.0
"""A moment in the past: entries that fell due then go before those that fall due on arrival."""
ON_ARRIVAL = 2 * AGES_AGO
"""The place of all that falls due, or dies, while the test runs; its turn comes by its number."""


@dataclass
class Known:
    """What the model knows of one entry."""

    entry: Entry
    place: tuple[float, int]
    state: str
    counts: tuple[int, int, int] = (0, 0, 0)
    """Attempts, failures, lost."""
    holder: Lease | None = None
    begun: bool = False
    """Whether it is lost if its lease runs out."""

    def turn(self) -> tuple:
        return (0 if self.state == DEAD else -self.entry.priority, *self.place)


class Model:
    """A queue as a plain dictionary. Delays end only by :meth:`fall_due`, leases only by :meth:`lose`, marks never."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.marks: dict[str, Mark] = {}
        self.arrivals = 0
        self.done = 0

    def put(self, entries: Sequence[Entry], guards: Sequence[AnyGuard | None], now: float) -> list[bool]:
        return [self._put(one, guard, now) for one, guard in zip(entries, guards, strict=True)]

    def _put(self, one: Entry, guard: AnyGuard | None, now: float) -> bool:
        if one.id in self.known:
            return False
        if guard is not None:
            mark = self.marks.get(guard.key)
            ruling = rule(guard, one, mark, mark and self.state(mark.id), now)
            self.marks[guard.key] = ruling.mark or mark
            if not ruling.accept:
                return False
            one = replace(one, delay=ruling.delay or one.delay)
        self.known[one.id] = Known(one, self._last(one.run_at or ON_ARRIVAL), DELAYED if one.delay else READY)
        return True

    def _last(self, moment: float = ON_ARRIVAL) -> tuple[float, int]:
        """The place behind all others of that moment."""
        self.arrivals += 1
        return moment, self.arrivals

    def state(self, id: str) -> str | None:
        """Its state in this queue, where the dead are not."""
        known = self.known.get(id)
        return None if known is None or known.state == DEAD else known.state

    def fall_due(self, id: str) -> None:
        self.known[id].state, self.known[id].place = READY, self._last()

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        same = self.state(id) in (READY, DELAYED) and self.known[id].entry.data == was
        if same:
            self.known[id].entry = replace(self.known[id].entry, data=data)
        return same

    def revive(self, id: str) -> bool:
        known = self.known.get(id)
        dead = known is not None and known.state == DEAD
        if dead:
            known.state, known.counts, known.place = READY, (0, 0, 0), self._last()
        return dead

    def trim(self, most: int) -> int:
        dead = self.ids(DEAD)
        surplus = dead[: max(0, len(dead) - most)]
        for id in surplus:
            del self.known[id]
        return len(surplus)

    def ids(self, state: str) -> list[str]:
        found = sorted((known for known in self.known.values() if known.state == state), key=Known.turn)
        return [known.entry.id for known in found]

    def claim(self, leases: list[Lease], begin: bool = True) -> None:
        for lease in leases:
            known = self.known[lease.entry.id]
            attempts, failures, lost = known.counts
            known.state, known.counts, known.holder = LEASED, (attempts + 1, failures, lost), lease
            known.begun = begin and lost == 0
            assert lease.begun == known.begun

    def ours(self, lease: Lease) -> bool:
        known = self.known.get(lease.entry.id)
        return known is not None and known.holder is not None and known.holder.token == lease.token

    def begin(self, lease: Lease) -> bool:
        is_held = self.ours(lease) and self.known[lease.entry.id].state == LEASED
        if is_held:
            self.known[lease.entry.id].begun = True
        return is_held

    def complete(self, lease: Lease) -> None:
        del self.known[lease.entry.id]
        self.done += 1

    def give_up(self, lease: Lease, state: str) -> None:
        says, known = lease.entry, self.known[lease.entry.id]
        known.state, known.holder = state, None
        known.counts = (says.attempts, says.failures, says.lost)
        known.place = self._last() if state == DEAD else known.place

    def lose(self, lease: Lease) -> None:
        known = self.known[lease.entry.id]
        attempts, failures, lost = known.counts
        known.state, known.counts = READY, (attempts, failures, lost + known.begun)

    def drop(self, ids: list[str]) -> int:
        waiting = [id for id in ids if self.state(id) in (READY, DELAYED)]
        for id in waiting:
            del self.known[id]
        return len(waiting)
