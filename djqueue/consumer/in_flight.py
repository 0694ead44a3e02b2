"""The leases that this process holds, each from its claim until it is settled."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock, Thread
from typing import Any

from djqueue.backends.base import BaseQueue, Lease
from djqueue.policies.outcomes import Verdict
from djqueue.policies.policy import Policy
from djqueue.running.attempts import Attempt
from djqueue.running.instruments import Run
from djqueue.running.reporting import report
from djqueue.utils import clock, log_safely

logger = logging.getLogger(__name__)

LONGEST_WAIT = 30.0  # seconds: a message that waits for a worker goes back much sooner
_changing = Lock()
"""Held while a lease is changed: heartbeat, control channel and fetcher may do so at the same moment."""
os.register_at_fork(after_in_child=_changing._at_fork_reinit)  # type: ignore[attr-defined]


@dataclass(slots=True, eq=False)
class Held:
    """One lease that this process holds. Moments are of :func:`djqueue.utils.clock`."""

    queue: BaseQueue
    lease: Lease
    since: float
    """The moment just before its claim."""
    lost: bool = False
    """Whether the store answered that this process does not hold the lease any more."""
    began: float | None = None
    """When a worker took it."""
    worker: Thread | None = None
    """The worker that took it."""
    awaits_place: bool = False
    """Whether its worker is to wait until it may run on the event loop: it has not begun then."""
    description: str = ""
    """What the command says of its call, once it runs."""
    announced: bool = False
    """Whether the log says that it has started."""
    first: Held | None = None
    """The first lease of its unit, which the same worker runs before it; None if it is the first itself."""
    policy: Policy | None = None
    """The options of its message, once they are known."""
    ends: float | None = None
    """The moment at which it is given up, if it has a time limit."""
    waited: float = 0.0
    """For how many seconds it waited, once it ran, for a thread of the event loop."""
    reported: float = 0.0
    """When its progress was last taken to the store (monotonic)."""
    attempts: Sequence[Attempt] | None = None
    """Of a call through Django's tasks: its attempts, once it runs."""
    noted: bool = False
    """Whether the store knows who runs it."""
    run: Run | None = None
    """Its run, if instruments follow it."""
    cancelled: bool = False
    """Whether its result was cancelled; known if the message ran before, or if its command asked."""
    verdict: Verdict | None = None
    """What is to become of it, once that is known."""
    ended: float | None = None
    """When its verdict came, if that is not when its run was over."""
    in_doubt: bool = False
    """Whether the verdict was sent to the store, and its answer never came."""
    settled: bool = False
    """Whether the store answered, while no other process could hold the lease, that it is gone: our verdict arrived."""
    touched: float = field(init=False)
    """When it was last extended, or claimed."""
    span: float = field(init=False)
    """For how many seconds it was then held."""

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
        """The seconds of its command's option ``lease``; None without one.

        Until that is known the lease of the first of its unit counts: if their worker dies they come back together.
        """
        if self.policy is None:
            return None if self.first is None else self.first.own_lease
        return self.policy.lease

    def is_abandoned(self, now: float) -> bool:
        """Whether no verdict will come: its worker died, or no worker ever took it."""
        if self.verdict is not None:
            return False
        return now - self.since > LONGEST_WAIT if self.worker is None else not self.worker.is_alive()

    def is_overdue(self, now: float) -> bool:
        """Whether it began, and its lease ran out before it was completed; what goes back comes again anyway."""
        goes_back = self.verdict is not None and self.verdict.outcome.effect.verb != "complete"
        return self.began is not None and not goes_back and self.lapsed(now)

    def go_on(self, again: Held) -> None:
        """Continue under a new lease of the same entry: its start is neither lost nor counted again."""
        entry = again.lease.entry
        counted = replace(entry, attempts=entry.attempts - 1, lost=max(0, entry.lost - 1))
        with _changing:
            self.lease = replace(again.lease, entry=counted)
            self.touched, self.span, self.lost, self.in_doubt = again.touched, again.span, False, False

    def change(self, before: Lease, **changes: Any) -> None:
        """Change its lease, unless its entry was claimed again since it was held by ``before``. From any thread."""
        with _changing:
            if self.lease.token == before.token:
                self.lease = replace(self.lease, **changes)

    def extend(self, before: Lease, until: float, now: float, span: float) -> None:
        """Note that its lease was extended ``now``, by ``span`` seconds; as :meth:`change`."""
        with _changing:
            if self.lease.token == before.token:
                self.lease = replace(self.lease, until=until)
                self.touched, self.span = now, span

    def settle(self, before: Lease) -> None:
        """Note that our verdict on it has arrived, unless its entry was claimed again since."""
        with _changing:
            self.settled = self.settled or self.lease.token == before.token

    def lose(self, before: Lease) -> bool:
        """Note that its lease is lost, unless its entry was claimed again since; whether it is lost."""
        with _changing:
            self.lost = self.lost or self.lease.token == before.token
            return self.lost

    def lapsed(self, now: float) -> bool:
        """Whether another process may hold the entry by now: a message that has not begun must not begin then."""
        return not self.settled and (self.lost or now - self.touched > self.span)


def units_of(taken: Sequence[Held]) -> list[list[Held]]:
    """The leases by unit, which one worker runs in order: a run of a lane, or one lease alone."""
    if not any(held.lease.run for held in taken):
        return [[held] for held in taken]
    units: dict[object, list[Held]] = {}
    for held in taken:
        unit = units.setdefault(held.lease.run or held, [])
        held.first = unit[0] if unit else None
        unit.append(held)
    return list(units.values())


def reported(held: Held, verdict: Verdict) -> Verdict:
    """The verdict, once it is in the log."""
    report(held.queue, held.lease, verdict)
    return verdict


class InFlight:
    """A set of :class:`Held`; its single operations are safe to call from any thread."""

    def __init__(self, count: Callable[[Sequence[Held]], None] | None = None) -> None:
        self._held: set[Held] = set()
        self._count = count
        """Called with what was settled, if this process counts."""
        self.changed = time.monotonic()
        """When a lease was last settled: what a claim found before may be less than there is now."""

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
        """Continue begun messages whose entries were claimed again under the new leases; returns these leases."""
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

    def drop(self, settled: Sequence[Held], at: float | None = None) -> None:
        """Hold these no more: they were settled just now, or at a moment of the monotonic clock."""
        # First: a thread that sees no lease held must see this too.
        at = time.monotonic() if at is None else at
        if at > self.changed:  # another thread may have settled later ones
            self.changed = at
        self._held.difference_update(settled)
        if self._count is not None:
            try:
                self._count(settled)
            except Exception as error:  # the store has settled them, and a fetcher may hold what it has just claimed
                log_safely(
                    logger, logging.ERROR, "%d messages were settled and not counted", len(settled), exc_info=error
                )

    def running(self) -> list[Held]:
        """The leases that workers have, after waiting ones were handed back; one may be about to begin."""
        return [held for held in self if held.verdict is None]
