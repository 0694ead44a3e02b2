"""What this process holds: every lease from its claim until it is settled."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Thread

from djqueue.backends.base import BaseQueue, Lease
from djqueue.policies.outcomes import Verdict
from djqueue.policies.policy import Policy
from djqueue.utils import clock

LONGEST_WAIT = 30.0  # seconds: what waits for a worker goes back much sooner


@dataclass(slots=True, eq=False)
class Held:
    """One lease in our hands. Moments are of :func:`djqueue.utils.clock`."""

    queue: BaseQueue
    lease: Lease
    since: float
    """Just before its claim."""
    lost: bool = False
    """The store said that it is not ours any more."""
    began: float | None = None
    """When a worker took it."""
    worker: Thread | None = None
    """That worker."""
    first: Held | None = None
    """The first of its unit, which the same worker runs before it; None if it is that itself."""
    policy: Policy | None = None
    """The options of its message, once they are known."""
    ends: float | None = None
    """When it is given up, if it has a time limit."""
    reported: float = 0.0
    """When its progress was last taken to the store (monotonic)."""
    cancelled: bool = False
    """Whether the holder of its result wants it to stop; known of what ran before, and of those that asked."""
    verdict: Verdict | None = None
    """What is to become of it, once that is known."""
    in_doubt: bool = False
    """Whether the store was told so, and its answer never came."""
    settled: bool = False
    """Whether the store, while nobody else could have it, said that it is gone: it was heard."""
    touched: float = field(init=False)
    """When it was last extended, or claimed."""
    span: float = field(init=False)
    """For how many seconds it was ours then."""

    def __post_init__(self) -> None:
        self.touched = self.since
        self.span = self.lease.until - self.lease.claimed

    @property
    def suspect(self) -> bool:
        """Whether a worker has died with it before."""
        return self.lease.entry.lost > 0

    @property
    def behind(self) -> bool:
        return self.first is not None

    @property
    def own_lease(self) -> float | None:
        """The seconds for which its command wants to be held, if it says so.

        Before that is known it is held as the first of its unit is: if their worker dies they come back together.
        """
        if self.policy is None:
            return None if self.first is None else self.first.own_lease
        return self.policy.lease

    def deserted(self, now: float) -> bool:
        """Whether nobody will say what became of it: its worker died, or it never came to one."""
        if self.verdict is not None:
            return False
        return now - self.since > LONGEST_WAIT if self.worker is None else not self.worker.is_alive()

    def is_overdue(self, now: float) -> bool:
        """Whether it began, and its lease ran out before the store knew its end; what goes back comes again anyway."""
        goes_back = self.verdict is not None and self.verdict.outcome.effect.verb != "complete"
        return self.began is not None and not goes_back and self.lapsed(now)

    def go_on(self, again: Held) -> None:
        """Under the lease of the same entry, taken again: its start is neither lost nor a further one."""
        entry = again.lease.entry
        counted = replace(entry, attempts=entry.attempts - 1, lost=max(0, entry.lost - 1))
        self.lease = replace(again.lease, entry=counted)
        self.touched, self.span, self.lost, self.in_doubt = again.touched, again.span, False, False

    def lapsed(self, now: float) -> bool:
        """Whether somebody else may hold it by now: what has not begun then is not to be begun."""
        return not self.settled and (self.lost or now - self.touched > self.span)


def units_of(taken: Sequence[Held]) -> list[list[Held]]:
    """What one worker runs in order: a run of a lane, or one alone."""
    units: dict[object, list[Held]] = {}
    for held in taken:
        unit = units.setdefault(held.lease.run or held, [])
        held.first = unit[0] if unit else None
        unit.append(held)
    return list(units.values())


class InFlight:
    """A set of :class:`Held`; its single operations are safe to call from any thread."""

    def __init__(self) -> None:
        self._held: set[Held] = set()
        self.changed = time.monotonic()
        """When something was last settled."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, held: Held) -> bool:
        return held in self._held

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.copy())

    def take(self, queue: BaseQueue, leases: Iterable[Lease], asked: float) -> list[Held]:
        taken = [Held(queue, lease, asked) for lease in leases]
        self._held.update(taken)
        return taken

    def resume(self, taken: Sequence[Held]) -> set[Held]:
        """Let what has begun go on under the leases by which the same entries were taken again; those leases."""
        now = clock()
        again: set[Held] = set()
        begun = {(id(held.queue), held.lease.entry.id): held for held in self if held.is_overdue(now)}
        for held in taken:
            start = begun.get((id(held.queue), held.lease.entry.id))
            if start is not None:
                start.go_on(held)
                again.add(held)
        self._held.difference_update(again)
        return again

    def drop(self, settled: Iterable[Held]) -> None:
        self.changed = time.monotonic()  # first: who sees that nothing is held must see this too
        self._held.difference_update(settled)

    def running(self) -> list[Held]:
        """Those in the hands of a worker, once what waited for one was handed back; it may be about to begin."""
        return [held for held in self if held.verdict is None]
