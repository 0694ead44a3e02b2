"""Claims by a budget: its fact is locked, its window asked, and what was claimed is spent, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from djqueue.backends import spending
from djqueue.backends.database_rows import seconds_to
from djqueue.backends.database_store import DatabaseStore
from djqueue.backends.entries import Claimed, Lease, untried
from djqueue.backends.spending import Account, Grant
from djqueue.backends.sql.common import Dialect
from djqueue.backends.sql.session import Session
from djqueue.backends.store import Budget


class Purse(NamedTuple):
    """A budget whose fact is ours until the transaction ends."""

    budget: Budget
    account: Account | None
    now: int
    last: int
    """When others who share its spacing used that."""

    def spend(self, count: int) -> tuple[Grant, Account]:
        return spending.spend(self.account, self.budget, count, self.now, self.last)


@contextmanager
def purse(run: Session, sql: Dialect, store: DatabaseStore, budget: Budget):
    """A transaction that has a budget to itself."""
    with run.atomic():
        facts, now = sql.hold_as_of(run, store.keys_of(budget))
        value, mark = (facts.get(store.key(key)) if key else None for key in spending.keys_of(budget))
        account = None if value is None else Account.read(value)
        yield Purse(budget, account, now, int(mark or 0))


def claim_within(
    run: Session,
    sql: Dialect,
    store: DatabaseStore,
    budget: Budget,
    limit: int,
    claim: Callable[[int, int], Claimed],
    release: Callable[[Sequence[Lease]], list[Lease]],
) -> Claimed:
    """``claim`` so many, as of a moment, and spend that. Where there is nothing nothing is written."""
    with purse(run, sql, store, budget) as ours:
        granted, _ = ours.spend(limit)
        if not granted.count:
            return Claimed((), granted.again, granted.why)
        claimed = claim(granted.count, ours.now)
        if not claimed:
            return claimed
        spent, account = ours.spend(len(claimed))
        _write(store, ours, account)
        if surplus := claimed[spent.count :]:
            release([untried(lease) for lease in surplus])
    if len(claimed) < granted.count or len(claimed) == limit == spent.count:
        return claimed
    return Claimed(claimed[: spent.count], spent.again, spent.why)


def _write(store: DatabaseStore, ours: Purse, account: Account) -> None:
    keep, (key, spacing) = spending.kept_for(ours.budget.window), spending.keys_of(ours.budget)
    store.put(key, account.written(), keep)
    if spacing:
        store.put(spacing, b"%d" % ours.now, keep)


class Looks:
    """Looks without a lock, for those who poll: of one queue object. ``do`` runs a verb on the database.

    Who was refused asks the budget alone, as a glance at the queue takes six times as long: it finds out in its
    transaction whether anything is left there. The others come to a queue that may well be empty, and glance first.
    """

    def __init__(self, do: Callable):
        self._do, self._was_refused = do, False

    def refused(self, sql: Dialect, queue: str, key: str, budget: Budget) -> Claimed | None:
        """Why there is nothing, if that is plain to see; ``key`` is that of the budget."""
        if self._was_refused:
            now, value = self._do(sql.get_as_of, key)
        else:
            glance, value = self._do(sql.glance_beside, queue, key)
            now = glance.now
            if not glance.is_any:
                return Claimed((), seconds_to(glance.soonest, now))
        grant, _ = spending.spend(None if value is None else Account.read(value), budget, 1, now)
        self._was_refused = not grant.count
        return Claimed((), grant.again, grant.why) if self._was_refused else None
