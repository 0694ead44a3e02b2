"""Claims by a rate limit: its fact is locked, its window asked, and what was claimed is spent, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from djqueue.backends import stores
from djqueue.backends.database.rows import ClaimRequest, micros, seconds_to
from djqueue.backends.database.session import Database
from djqueue.backends.database.sql.dialect import Dialect, Payment
from djqueue.backends.database.store import DatabaseStore
from djqueue.backends.entries import Claimed, Lease, untried
from djqueue.backends.stores import RateLimit
from djqueue.flow.rates import Rate


def claim_within(
    sql: Dialect,
    store: DatabaseStore,
    rate_limit: RateLimit,
    limit: int,
    claim: Callable[[int, int], Claimed],
    release: Callable[[Sequence[Lease]], list[Lease]],
) -> Claimed:
    """``claim`` as many entries as the rate limit grants, and spend them. Writes nothing if the claim is empty."""
    key, spacing = stores.keys_of(rate_limit)
    with sql.atomic():
        facts, now = sql.hold_as_of(store.keys_of(rate_limit))
        rate = stores.rate_of(facts.get(store.key(key)), rate_limit)
        last = stores.last_of(facts.get(store.key(spacing)), rate_limit) if spacing else 0
        granted, _ = stores.spend(rate, rate_limit, limit, now, last)
        if not granted.count:
            return Claimed((), granted.retry_after, granted.reason)
        claimed = claim(granted.count, now)
        if not claimed:
            return claimed
        now = max(now, *(round(lease.claimed * 1e6) for lease in claimed))  # what leaves lanes does so a little later
        spent, rate = stores.spend(rate, rate_limit, len(claimed), now, last)
        store.put(key, stores.kept(rate), stores.keep_of(rate))
        if spacing:
            store.put(spacing, b"%d" % now, stores.kept_for(rate.window))
        if surplus := claimed[spent.count :]:
            release([untried(lease) for lease in surplus])
    if len(claimed) < granted.count or len(claimed) == limit == spent.count:
        return claimed
    return Claimed(claimed[: spent.count], spent.retry_after, spent.reason)


class Look(NamedTuple):
    """A rate limit, seen without a lock."""

    now: int
    value: bytes | None = None
    rate: Rate | None = None
    """The rate that the value holds."""
    nothing: Claimed | None = None
    """Why there is nothing to claim, if that is plain to see."""


class Looks:
    """Reads without a lock, for the polls of one queue object.

    If the last claim found the queue empty, a look reads the queue next to the rate limit. Otherwise it reads the rate
    limit alone, which takes a sixth of the time: the claim then finds out whether anything is left.
    """

    def __init__(self, database: Database):
        self._database, self._was_empty = database, True

    def look(self, store: DatabaseStore, rate_limit: RateLimit) -> Look:
        sql, key = self._database.sql, store.key(stores.keys_of(rate_limit)[0])
        if self._was_empty:
            glance, value = self._database.run(sql.glance_beside, key)
            now = glance.now
            if not glance.is_any:
                return Look(now, nothing=Claimed((), seconds_to(glance.soonest, now)))
        else:
            now, value = self._database.run(sql.get_as_of, key)
        rate = stores.rate_of(value, rate_limit)
        grant, _ = stores.spend(rate, rate_limit, 1, now)
        nothing = None if grant.count else self.found(Claimed((), grant.retry_after, grant.reason))
        return Look(now, value, rate, nothing)

    def found(self, claimed: Claimed) -> Claimed:
        """Remember for the next look whether the queue is empty."""
        self._was_empty = not claimed and not claimed.reason
        return claimed


def claim_paid(
    look: Look,
    store: DatabaseStore,
    rate_limit: RateLimit,
    ask: ClaimRequest,
    most: int,
    claim: Callable[[ClaimRequest, Payment], tuple[int, list[Lease]]],
) -> tuple[int, Claimed]:
    """How many entries there are, and the leases of ``claim`` if no other process spends meanwhile.

    It claims up to ``most`` entries: fewer than were asked for if there are fewer.
    It can pay with one fact only. With a shared spacing, or if nothing was spent before, it returns 0 and no leases.
    """
    key, spacing = stores.keys_of(rate_limit)
    if look.value is None or spacing:
        return 0, Claimed()
    grant, rate = stores.spend(look.rate, rate_limit, most, look.now)
    keep = micros(stores.keep_of(rate))
    payment = Payment(store.key(key), look.value, stores.kept(rate), keep, look.now)
    there, leases = claim(ask._replace(limit=grant.count, since=str(look.now)), payment)
    if grant.count == ask.limit:
        return there, Claimed(leases, 0.0)
    return there, Claimed(leases, grant.retry_after, grant.reason)
