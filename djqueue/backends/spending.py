"""Budgets: one window that many share, kept as one fact of a store.

What is decided is a pure function of that fact's bytes; a store that knows nothing but compare-and-set is exact too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from djqueue.flow.windows import Log, Window, adopted, granted, returned, room

if TYPE_CHECKING:
    from djqueue.backends.store import BaseStore, Budget

KEY, SPACING_KEY = "budget:", "spacing:"
CLAIMED_FOR = 60.0
"""Seconds, or two windows if that is less, for which the stricter of two holds after those who say so last used it."""
KEPT = 10 * 365 * 86400.0
"""Seconds for which a window that was set while it was in use is remembered."""


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
    window: Window | None = None
    """The one that holds, whatever was said."""


class Account(NamedTuple):
    """What is known of a budget."""

    window: Window
    used: int
    """When it was last asked by somebody who says this window, µs."""
    log: Log = Log()
    fixed: bool = False
    """Whether the window was set while it was in use, whatever those who use it say."""

    @classmethod
    def read(cls, value: bytes) -> Account:
        limit, span, ways, buffer, used, fixed, last, warm, *grants = json.loads(value)
        log = Log(tuple(zip(grants[::2], grants[1::2], strict=True)), last, warm)
        return cls(Window.read(limit, span, ways, buffer), used, log, bool(fixed))

    def written(self) -> bytes:
        head = [*self.window.written(), self.used, int(self.fixed), self.log.last, self.log.warm]
        return json.dumps([*head, *(number for grant in self.log.grants for number in grant)]).encode()


def spend(account: Account | None, budget: Budget, count: int, now: int, last: int = 0) -> tuple[Grant, Account]:
    """What a budget allows of ``count`` at ``now`` (µs), and its account then.

    ``last`` is when its spacing was last used by others.
    """
    account = agreed(account, budget.window, now)
    window = account.window
    log = account.log._replace(last=max(account.log.last, last))
    has = room(window, log, now)
    taken, before = min(count, has.free), log.last
    if not taken:  # what others did to its spacing is theirs, and they may take it back
        return Grant(0, has.wait / 1e6, has.reason, now, 0, window), account
    log = granted(window, log, taken, now)
    has = room(window, log, now)
    return Grant(taken, has.wait / 1e6, has.reason, now, before, window), account._replace(log=log)


def agreed(account: Account | None, window: Window, now: int) -> Account:
    """The account as it holds for one who says this window: what was spent counts, whoever said what.

    A window that was set while it was in use holds for all. Of two others the stricter does, as long as somebody who
    says it uses the budget.
    """
    if account is None:
        return Account(window, now)
    if account.window == window:
        return account._replace(used=now)
    is_in_use = now - account.used < min(CLAIMED_FOR * 1e6, 2 * account.window.span)
    if account.fixed or is_in_use and account.window.rank < window.rank:
        return account
    return Account(window, now, adopted(window, account.log))


def changed(account: Account | None, window: Window, now: int) -> Account:
    """The account when its window is set, for all who use it; what was spent counts."""
    log = Log() if account is None else adopted(window, account.log)
    return Account(window, now, log, fixed=True)


def refund(account: Account, grant: Grant, count: int) -> Account:
    """The account when ``count`` of a grant was not used after all."""
    log = returned(account.window, account.log, count, grant.at)
    unused = count == grant.count and account.log.last == grant.at
    return account._replace(log=log._replace(last=grant.before) if unused else log)


def kept_for(window: Window) -> float:
    """Seconds after its last use for which what was spent says anything."""
    return 2 * window.seconds


def keep_of(account: Account) -> float:
    """The same of an account; a window that was set is not forgotten with what was spent."""
    return KEPT if account.fixed else kept_for(account.window)


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
        if store.swap(key, was, after.written(), keep_of(after)):
            return grant
        _space_as_before(store, budget, grant)


def give(store: BaseStore, budget: Budget, grant: Grant, count: int) -> None:
    if count == grant.count:
        _space_as_before(store, budget, grant)
    key = KEY + budget.name
    while count and (was := store.get(key)) is not None:
        after = refund(Account.read(was), grant, count)
        if store.swap(key, was, after.written(), keep_of(after)):
            return


def change(store: BaseStore, budget: Budget) -> None:
    """Let all who use a budget have this window."""
    key = KEY + budget.name
    while True:
        was = store.get(key)
        after = changed(None if was is None else Account.read(was), budget.window, round(store.now() * 1e6))
        if store.swap(key, was, after.written(), keep_of(after)):
            return


def _space_as_before(store: BaseStore, budget: Budget, grant: Grant) -> None:
    """Nothing of a grant was used: the next one may be as near as if it had not been."""
    _, spacing = keys_of(budget)
    if spacing and grant.count:
        store.swap(spacing, b"%d" % grant.at, b"%d" % grant.before, kept_for(budget.window))


def forget(store: BaseStore, budget: Budget) -> None:
    store.drop(KEY + budget.name)
    store.drop(SPACING_KEY + (budget.spacing or budget.name))
