"""Budgets: one window that many share, kept as one fact of a store.

What is decided is a pure function of that fact's bytes; a store that knows nothing but compare-and-set is exact too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from djqueue.backends.windows import Log, Window, granted, returned, room
from djqueue.exceptions import DifferentBudget

if TYPE_CHECKING:
    from djqueue.backends.store import BaseStore, Budget

KEY, SPACING_KEY = "budget:", "spacing:"
CLAIMED_FOR = 60.0
"""Seconds, or two windows if that is less, for which who used a budget last says what it is."""


class Grant(NamedTuple):
    """What a budget allowed."""

    count: int
    again: float = 0.0
    """Seconds until it allows more; 0 if it may at once."""
    why: str = ""
    """"limited" or "spaced", if it allows no more now."""
    at: int = 0
    """When, by the store's clock, µs."""
    before: int = 0
    """The same of the grant before it, for spacing."""


class Account(NamedTuple):
    """What is known of a budget."""

    window: Window
    used: int
    """When it was last asked, µs."""
    log: Log = Log()

    @classmethod
    def read(cls, value: bytes) -> Account:
        limit, span, ways, buffer, used, last, warm, *grants = json.loads(value)
        log = Log(tuple(zip(grants[::2], grants[1::2], strict=True)), last, warm)
        return cls(Window.read(limit, span, ways, buffer), used, log)

    def written(self) -> bytes:
        head = [*self.window.written(), self.used, self.log.last, self.log.warm]
        return json.dumps([*head, *(number for grant in self.log.grants for number in grant)]).encode()


def spend(account: Account | None, budget: Budget, count: int, now: int, last: int = 0) -> tuple[Grant, Account]:
    """What a budget allows of ``count`` at ``now`` (µs), and its account then.

    ``last`` is when its spacing was last used by others. Raises DifferentBudget.
    """
    window = budget.window
    if account is None or account.window != window:
        _refuse_another(account, budget, now)
        account = Account(window, now)
    log = account.log._replace(last=max(account.log.last, last))
    has = room(window, log, now)
    taken, before = min(count, has.free), log.last
    if not taken:  # what others did to its spacing is theirs, and they may take it back
        return Grant(0, has.wait / 1e6, has.reason, now), Account(window, now, account.log)
    log = granted(window, log, taken, now)
    has = room(window, log, now)
    return Grant(taken, has.wait / 1e6, has.reason, now, before), Account(window, now, log)


def _refuse_another(account: Account | None, budget: Budget, now: int) -> None:
    if account is not None and now - account.used < min(CLAIMED_FOR * 1e6, 2 * account.window.span):
        raise DifferentBudget(budget.name, str(account.window), str(budget.window))


def refund(account: Account, grant: Grant, count: int) -> Account:
    """The account when ``count`` of a grant was not used after all."""
    log = returned(account.window, account.log, count, grant.at)
    unused = count == grant.count and account.log.last == grant.at
    return account._replace(log=log._replace(last=grant.before) if unused else log)


def kept_for(window: Window) -> float:
    """Seconds after its last use for which an account says anything."""
    return 2 * window.seconds


def keys_of(budget: Budget) -> tuple[str, str]:
    """Of its account, and of the mark of its spacing: "" if it shares that with nobody."""
    shared = budget.spacing not in ("", budget.name)
    return KEY + budget.name, SPACING_KEY + budget.spacing if shared else ""


# ---- over compare-and-set


def take(store: BaseStore, budget: Budget, count: int) -> Grant:
    """Spend, whoever else does; a spacing that others share is read before and written after."""
    (key, spacing), ttl = keys_of(budget), kept_for(budget.window)
    while True:
        was, now = store.get(key), round(store.now() * 1e6)
        mark = store.get(spacing) if spacing else None
        account = None if was is None else Account.read(was)
        grant, after = spend(account, budget, count, now, int(mark or 0))
        if spacing and grant.count and not store.swap(spacing, mark, b"%d" % now, ttl):
            continue
        if store.swap(key, was, after.written(), ttl):
            return grant
        _space_as_before(store, budget, grant)


def give(store: BaseStore, budget: Budget, grant: Grant, count: int) -> None:
    if count == grant.count:
        _space_as_before(store, budget, grant)
    key, ttl = KEY + budget.name, kept_for(budget.window)
    while count and (was := store.get(key)) is not None:
        after = refund(Account.read(was), grant, count)
        if store.swap(key, was, after.written(), ttl):
            return


def _space_as_before(store: BaseStore, budget: Budget, grant: Grant) -> None:
    """Nothing of a grant was used: the next one may be as near as if it had not been."""
    _, spacing = keys_of(budget)
    if spacing and grant.count:
        store.swap(spacing, b"%d" % grant.at, b"%d" % grant.before, kept_for(budget.window))


def forget(store: BaseStore, budget: Budget) -> None:
    store.drop(KEY + budget.name)
    store.drop(SPACING_KEY + (budget.spacing or budget.name))
