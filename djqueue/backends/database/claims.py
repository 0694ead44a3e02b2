"""A claim in a database: what is in no lane by one statement, as if there were no lanes, and what lanes let leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from math import inf
from typing import NamedTuple

from djqueue.backends import stores
from djqueue.backends.database.lanes import claim_turns, take_tickets
from djqueue.backends.database.rows import lease_of, micros, order_of, place_of, seconds_to
from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.lanes import Glance
from djqueue.backends.database.sql.messages import Ask, Dialect, Payment
from djqueue.backends.database.store import DatabaseStore
from djqueue.backends.database.work import Database
from djqueue.backends.entries import Claimed, Lease, untried
from djqueue.backends.stores import Account, Budget, Grant

UNSEEN = 0.05
"""Seconds for which a claim that is full may not know of lanes that others filled."""
SOON = 0.005
"""Seconds after which to come again for lanes that somebody else has."""


ROUNDS = 20
"""So often those who only look take in what came to lanes, at most."""


class Brought(NamedTuple):
    """The leases of each unit, and seconds until there may be more."""

    units: list[list[Lease]]
    retry_after: float = inf


class Claims:
    """The claims of one queue object."""

    def __init__(self, database: Database):
        self._database = database
        self._stirred = False
        self._look_at = 0.0
        self._laned_last = False
        self._was_full = False

    def stir(self) -> None:
        """The next claim looks at the lanes first: something came to one, or one may have opened."""
        self._stirred = True

    def claim(self, ask: Ask, ahead: int) -> Brought:
        """Units of work, the first to leave first. At equal priority lanes and entries in none take turns.

        That holds among all that waited when the claim began, but for lanes that others filled, or let open, less than
        UNSEEN ago: a claim that is full without them does not look for them, but in :meth:`look_behind`.
        """
        if self._stirred:
            laned = self._laned(ask, ahead, self._glance())
            missing = ask.limit - sum(unit is not None for unit in laned.units)
            own, _ = self._own(ask, missing) if missing else (Brought([], 0.0), None)
            return _together(ask, laned, own, laned.units)
        own, glance = self._own(ask, ask.limit)
        if len(own.units) >= ask.limit:
            return own
        glance = glance or self._glance()
        laned = self._laned(ask._replace(limit=ask.limit - len(own.units)), ahead, glance)
        return _together(ask, laned, own, [None] * len(own.units) + [unit for unit in laned.units if unit])

    def paid(self, ask: Ask, payment: Payment) -> tuple[int, list[Lease]]:
        """What is in no lane and paid for, if it is as much as was asked for; and how much there is: 0 if that is not
        to be known by one statement."""
        if self._stirred:
            return 0, []
        there, rows = self._database.run(self._database.sql.claim_paid, ask, payment)
        self._was_full = bool(rows)
        return there, _in_order(rows, ask)

    def settle_in(self, ask: Ask) -> None:
        """Let the lanes stand where they belong, as far as claims have not."""
        for _ in range(ROUNDS):
            glance = self._glance()
            if not (glance.ticket or glance.rises or glance.falls_due):
                break
            self._database.work(claim_turns, ask, glance, self._database.work(take_tickets, glance), 0, False)

    def look_behind(self) -> None:
        """After a claim, which may have been full without lanes: now and then only."""
        if self._was_full and not self._stirred and time.monotonic() >= self._look_at:
            self._stirred = self._glance().stirs
            self._look_at = time.monotonic() + UNSEEN

    def _own(self, ask: Ask, limit: int) -> tuple[Brought, Glance | None]:
        """What is in no lane."""
        database, ask = self._database, ask._replace(limit=limit, look=not self._was_full)
        rows, now, next, more, glance = database.run(database.sql.claim, ask)
        self._was_full = len(rows) >= limit
        again = 0.0 if more or len(rows) >= limit else seconds_to(next, now)
        return Brought([[lease] for lease in _in_order(rows, ask)], again), glance

    def _laned(self, ask: Ask, ahead: int, glance: Glance) -> Brought:
        """Of lanes; None stands for what is in none and comes before."""
        self._stirred = glance.stirs
        if not glance.stirs:
            self._look_at = time.monotonic() + UNSEEN
            return Brought([], seconds_to(glance.next, glance.now))
        tickets, last = self._database.work(take_tickets, glance), self._laned_last
        units, self._laned_last, held_back = self._database.work(claim_turns, ask, glance, tickets, ahead, last)
        units = [
            unit and [lease_of(row, ask, unit[0], row[6], not place) for place, row in enumerate(unit[1])]
            for unit in units
        ]
        units = [unit for unit in units if unit is None or unit]
        if held_back or len(units) >= ask.limit:
            return Brought(units, 0.0)
        glance = self._glance()
        self._stirred = glance.stirs
        if glance.stirs:
            return Brought(units, 0.0 if any(units) else SOON)
        return Brought(units, seconds_to(glance.next, glance.now))

    def _glance(self) -> Glance:
        return self._database.do(self._database.sql.glance)


def _in_order(rows: Iterable[tuple], ask: Ask) -> list[Lease]:
    """In what order a database returns the rows it has changed is its own affair."""
    return [lease_of(row, ask) for row in sorted(rows, key=order_of, reverse=ask.lifo)]


def _together(ask: Ask, laned: Brought, own: Brought, order: list) -> Brought:
    """Both, in their order; what more there was in no lane comes last."""
    rest = iter(own.units)
    units = [unit for one in order if (unit := one or next(rest, None))]
    units += rest
    return Brought(units, 0.0 if len(units) >= ask.limit else min(laned.retry_after, own.retry_after))


def claim_failed(database: Database, ask: Ask) -> Brought:
    """From an error queue, which knows no lanes and is in the order of the deaths."""
    rows, now, next, more, _ = database.run(database.sql.claim, ask._replace(look=False))
    again = 0.0 if more or len(rows) >= ask.limit else seconds_to(next, now)
    return Brought([[lease_of(row, ask)] for row in sorted(rows, key=place_of)], again)


# ---- Claims by a budget: its fact is locked, its window asked, and what was claimed is spent, in one transaction


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
            return Claimed((), granted.retry_after, granted.reason)
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
    return Claimed(claimed[: spent.count], spent.retry_after, spent.reason)


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
    """Looks without a lock, for those who poll: of one queue object.

    Who found the queue empty may find it so again, and glances at it beside the budget. The others ask the budget
    alone, which takes a sixth of that: the claim finds out whether anything is left.
    """

    def __init__(self, database: Database):
        self._database, self._was_empty = database, True

    def look(self, store: DatabaseStore, budget: Budget) -> Look:
        sql, key = self._database.sql, store.key(stores.keys_of(budget)[0])
        if self._was_empty:
            glance, value = self._database.do(sql.glance_beside, key)
            now = glance.now
            if not glance.is_any:
                return Look(now, nothing=Claimed((), seconds_to(glance.soonest, now)))
        else:
            now, value = self._database.run(sql.get_as_of, key)
        account = None if value is None else Account.read(value)
        grant, _ = stores.spend(account, budget, 1, now)
        nothing = None if grant.count else self.found(Claimed((), grant.retry_after, grant.reason))
        return Look(now, value, account, nothing)

    def found(self, claimed: Claimed) -> Claimed:
        """Remember for the next look whether the queue is empty."""
        self._was_empty = not claimed and not claimed.reason
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
    return there, Claimed(leases, *((0.0,) if grant.count == ask.limit else (grant.retry_after, grant.reason)))
