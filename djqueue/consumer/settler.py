"""Hands verdicts to the queues, as many at a time as have gathered."""

from __future__ import annotations

from collections import deque

from djqueue.consumer.holdings import Held, Holdings
from djqueue.consumer.loop import Loop
from djqueue.policies import Verdict
from djqueue.settle import VERBS, settle

BATCH = 1000  # verdicts per flush


class Settler(Loop):
    """One thread settles for all workers.

    They never wait for the store, and batches form by themselves: while one flush is on its way the next one gathers.
    What could not be settled is tried again; meanwhile its lease is kept alive.
    """

    def __init__(self, holdings: Holdings):
        super().__init__("djqueue-settler")
        self._holdings = holdings
        self._pending: deque[Held] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, held: Held, verdict: Verdict) -> None:
        """From any thread. The first verdict counts: what was handed back while it ran is not ours to finish."""
        if held.verdict is not None:
            return
        held.verdict = verdict
        self._pending.append(held)
        self.wake()

    def tick(self) -> float:
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), BATCH))]
        errors = [error for group in _alike(batch) if (error := self._settle(group)) is not None]
        if errors:
            raise errors[0]
        return 0 if self._pending else 3600

    def _settle(self, group: list[Held]) -> Exception | None:
        """One verb of one queue. A store that is out of reach must not hold up the others."""
        try:
            settle(group[0].queue, [(held.lease, held.verdict) for held in group])
        except Exception as error:
            self._pending.extend(group)
            return error
        self._holdings.drop(group)
        return None


def _alike(batch: list[Held]) -> list[list[Held]]:
    groups: dict[tuple, list[Held]] = {}
    for held in batch:
        groups.setdefault((id(held.queue), VERBS[held.verdict.outcome]), []).append(held)
    return list(groups.values())
