"""Claims by a budget: its fact is locked, its window asked, and what was claimed is spent, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from djqueue.backends import spending
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
        facts = sql.hold(run, store.keys_of(budget))
        value, mark = (facts.get(store.key(key)) if key else None for key in spending.keys_of(budget))
        account = None if value is None else Account.read(value)
        yield Purse(budget, account, sql.clock(run), int(mark or 0))


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
            release([replace(one, entry=untried(one.entry)) for one in surplus])
    if len(claimed) < granted.count or len(claimed) == limit == spent.count:
        return claimed
    return Claimed(claimed[: spent.count], spent.again, spent.why)


def _write(store: DatabaseStore, ours: Purse, account: Account) -> None:
    keep, (key, spacing) = spending.kept_for(ours.budget.window), spending.keys_of(ours.budget)
    store.put(key, account.written(), keep)
    if spacing:
        store.put(spacing, b"%d" % ours.now, keep)


def refused(value: bytes | None, budget: Budget, now: int) -> Grant | None:
    """What a budget said when it was last written, if that was no; a look without a lock, for those who poll."""
    grant, _ = spending.spend(None if value is None else Account.read(value), budget, 1, now)
    return None if grant.count else grant
