"""Claims by a budget: its fact is locked, its window asked, and what was claimed is spent, in one transaction.

Where the database can, one statement claims and spends instead, unless somebody has spent since a look without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from djqueue.backends import stores
from djqueue.backends.database_rows import micros, seconds_to
from djqueue.backends.database_store import DatabaseStore
from djqueue.backends.entries import Claimed, Lease, untried
from djqueue.backends.sql.common import Ask, Dialect, Payment
from djqueue.backends.sql.session import Session
from djqueue.backends.stores import Account, Budget, Grant


class Purse(NamedTuple):
    """A budget whose fact is ours until the transaction ends."""

    budget: Budget
    account: Account | None
    now: int
    last: int
    """When others who share its spacing used that."""

    def spend(self, count: int) -> tuple[Grant, Account]:
        return stores.spend(self.account, self.budget, count, self.now, self.last)


@contextmanager
def purse(run: Session, sql: Dialect, store: DatabaseStore, budget: Budget):
    """A transaction that has a budget to itself."""
    with run.atomic():
        facts, now = sql.hold_as_of(run, store.keys_of(budget))
        value, mark = (facts.get(store.key(key)) if key else None for key in stores.keys_of(budget))
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
        ours = ours._replace(now=max(ours.now, *_moments(claimed)))
        spent, account = ours.spend(len(claimed))
        _write(store, ours, account)
        if surplus := claimed[spent.count :]:
            release([untried(lease) for lease in surplus])
    if len(claimed) < granted.count or len(claimed) == limit == spent.count:
        return claimed
    return Claimed(claimed[: spent.count], spent.again, spent.why)


def _moments(claimed: Claimed) -> list[int]:
    """When they left, µs: what leaves lanes does so a little later."""
    return [round(lease.claimed * 1e6) for lease in claimed]


def _write(store: DatabaseStore, ours: Purse, account: Account) -> None:
    key, spacing = stores.keys_of(ours.budget)
    store.put(key, account.written(), stores.keep_of(account))
    if spacing:
        store.put(spacing, b"%d" % ours.now, stores.kept_for(account.window))


class Look(NamedTuple):
    """A budget, seen without a lock."""

    now: int
    value: bytes | None = None
    account: Account | None = None
    """What the value says."""
    nothing: Claimed | None = None
    """Why there is nothing to claim, if that is plain to see."""


class Looks:
    """Looks without a lock, for those who poll: of one queue object. ``do`` runs a verb on the database.

    Who found the queue empty may find it so again, and glances at it beside the budget. The others ask the budget
    alone, which takes a sixth of that: the claim finds out whether anything is left.
    """

    def __init__(self, do: Callable):
        self._do, self._was_empty = do, True

    def look(self, sql: Dialect, queue: str, store: DatabaseStore, budget: Budget) -> Look:
        key = store.key(stores.keys_of(budget)[0])
        if self._was_empty:
            glance, value = self._do(sql.glance_beside, queue, key)
            now = glance.now
            if not glance.is_any:
                return Look(now, nothing=Claimed((), seconds_to(glance.soonest, now)))
        else:
            now, value = self._do(sql.get_as_of, key)
        account = None if value is None else Account.read(value)
        grant, _ = stores.spend(account, budget, 1, now)
        nothing = None if grant.count else self.found(Claimed((), grant.again, grant.why))
        return Look(now, value, account, nothing)

    def found(self, claimed: Claimed) -> Claimed:
        """Remember for the next look whether the queue is empty."""
        self._was_empty = not claimed and not claimed.why
        return claimed


def claim_paid(look: Look, store: DatabaseStore, budget: Budget, ask: Ask, claim: Callable) -> tuple[int, Claimed]:
    """How many there are, and what ``claim`` has of them if nobody spends meanwhile; it takes an ask and its payment.

    Of one fact only: whoever shares the spacing of others, or is the first to spend, is told that there are none.
    """
    key, spacing = stores.keys_of(budget)
    if look.value is None or spacing:
        return 0, Claimed()
    grant, account = stores.spend(look.account, budget, ask.limit, look.now)
    keep = micros(stores.keep_of(account))
    payment = Payment(store.key(key), look.value, account.written(), keep, look.now)
    there, leases = claim(ask._replace(limit=grant.count, since=str(look.now)), payment)
    return there, Claimed(leases, *((0.0,) if grant.count == ask.limit else (grant.again, grant.why)))
