"""The other half of the contract: small facts that all processes share."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from djqueue.exceptions import NotSupported, RateUnreadable
from djqueue.flow import rates
from djqueue.flow.rates import Rate, agreed, capacity, returned
from djqueue.flow.windows import Window


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A window that all users of its name share, on one server or database.

    Of two windows of one name the stricter holds while both are in use. ``spacing`` is the name under which the last
    grant is kept, if queues share their spacing and not their window.
    """

    name: str
    window: Window
    spacing: str = ""


RESULTS = "result:"
"""What the keys of results begin with."""
Change = tuple[str, bytes | None, bytes | None]
"""A key, the value that it has, and the value that it is to have; None: there is none."""


class BaseStore:
    """Small facts shared by all processes: marks, locks, ticks, results. Values are bytes, keys are text.

    Every method is atomic. Times are seconds by the store's clock. ``ttl=None`` keeps a fact until it is dropped.
    A store belongs to one queue: two queues never see each other's keys. Only rate limits are shared, where they
    have the same name.
    """

    database: str | None = None
    """The database alias that holds it, if one does."""
    is_local: bool = False
    """Whether only this process sees its facts."""

    @property
    def shared(self) -> BaseStore:
        """The store of what queues of one server share: here this one, so nothing is shared."""
        return self

    @property
    def place(self) -> Hashable:
        """Equal for stores whose :attr:`shared` facts are the same."""
        return id(self.shared)

    def now(self) -> float:
        """The store's clock, epoch seconds."""
        return time.time()

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none or its time is over."""
        raise NotImplementedError

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key by :meth:`get`, in the order of the keys."""
        return [self.get(key) for key in keys]

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Set, whatever was there."""
        raise NotImplementedError

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        """Put several, each a key, a value and a ttl; of one key the last counts."""
        for key, value, ttl in facts:
            self.put(key, value, ttl)

    def add(self, key: str, value: bytes, ttl: float) -> bool:
        """Set if absent; True if it was. Of any number of simultaneous callers exactly one gets True."""
        return self.swap(key, None, value, ttl)

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        """Set if the value is still ``was`` (None: if there is none); True if it was."""
        raise NotImplementedError

    def swap_many(self, changes: Sequence[Change], ttl: float) -> bool:
        """Make several changes if each key still has the value that is given for it; True if so, else none is made.

        This default makes one after the other, and takes them back when one of them cannot be made: other processes may
        see a part of them, and so may all after a crash.
        """
        for number, (key, was, value) in enumerate(changes):
            if not self._change(key, was, value, ttl):
                for done, before, after in reversed(changes[:number]):
                    self._change(done, after, before, ttl)
                return False
        return True

    def _change(self, key: str, was: bytes | None, value: bytes | None, ttl: float) -> bool:
        if value is not None:
            return self.swap(key, was, value, ttl)
        return self.get(key) is None if was is None else self.drop(key, was)

    def drop(self, key: str, value: bytes | None = None) -> bool:
        """Delete the key (if it has that value, when one is given); True if something was deleted."""
        raise NotImplementedError

    # ---- rate limits, over compare-and-set

    def acquire(self, rate_limit: RateLimit, count: int) -> Grant:
        """Spend up to ``count`` of a rate limit; exact, whatever other processes do at the same time.

        A shared spacing is read before and written after. Raises RateUnreadable if what is kept of it cannot be read.
        """
        (key, spacing), ttl = keys_of(rate_limit), kept_for(rate_limit.window)
        while True:
            was, now = self.get(key), round(self.now() * 1e6)
            mark = self.get(spacing) if spacing else None
            grant, after = spend(rate_of(was, rate_limit), rate_limit, count, now, last_of(mark, rate_limit))
            if spacing and grant.count and not self.swap(spacing, mark, b"%d" % now, ttl):
                continue
            if self.swap(key, was, kept(after), keep_of(after)):
                return grant
            self._space_as_before(rate_limit, grant)

    def release(self, rate_limit: RateLimit, grant: Grant, count: int) -> None:
        """Hand back ``count`` of what was granted and not used."""
        if count == grant.count:
            self._space_as_before(rate_limit, grant)
        key = KEY + rate_limit.name
        while count and (rate := rate_of(was := self.get(key), rate_limit)) is not None:
            after = refund(rate, grant, count)
            if self.swap(key, was, kept(after), keep_of(after)):
                return

    def used(self, rate_limit: RateLimit) -> int:
        """How many of a rate limit are spent in its window now, whatever the window of the caller."""
        rate = rate_of(self.get(KEY + rate_limit.name), rate_limit)
        return 0 if rate is None else rates.used(rate, round(self.now() * 1e6))

    def _space_as_before(self, rate_limit: RateLimit, grant: Grant) -> None:
        """Undo the spacing of a grant that was not used at all."""
        _, spacing = keys_of(rate_limit)
        if spacing and grant.count:
            self.swap(spacing, b"%d" % grant.at, b"%d" % grant.before, kept_for(rate_limit.window))

    def change_rate_limit(self, rate_limit: RateLimit) -> None:
        """Set its window at once for all users, whatever their own settings, until it is changed again or forgotten.

        Earlier grants count by the new window.
        """
        key = KEY + rate_limit.name
        while True:
            was = self.get(key)
            after = rates.fixed(rate_of(was, rate_limit), rate_limit.window, round(self.now() * 1e6))
            if self.swap(key, was, kept(after), keep_of(after)):
                return

    def forget_rate_limit(self, rate_limit: RateLimit) -> None:
        """Forget what was spent of it, and a window that was set."""
        self.drop(KEY + rate_limit.name)
        self.drop(SPACING_KEY + (rate_limit.spacing or rate_limit.name))

    def trim_results(self, count: int, limit: int = 1000) -> int:
        """Delete the results that are over first, until ``count`` are left, up to ``limit`` of them; how many."""
        raise NotSupported(f"{type(self).__name__} cannot count results: leave QUEUE_MAX_RESULTS at None.")

    def prune(self, limit: int = 1000) -> int:
        """Delete up to ``limit`` facts whose time is over; how many. Stores that expire by themselves return 0."""
        return 0


class NoStore(BaseStore):
    """The store of a queue without facts (``QUEUES[alias]["STORE"] = False``): nothing is kept, nothing found."""

    def __init__(self, alias: str = "…"):
        self.alias = alias

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, value: bytes, ttl: float | None = None) -> NoReturn:
        raise NotSupported(
            f"QUEUES[{self.alias!r}]['STORE'] is False, so this queue keeps no facts: name a store there."
        )

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        return self.put(key, value, ttl)

    def drop(self, key: str, value: bytes | None = None) -> bool:
        return False


# ---- The rate of a rate limit, kept as one fact of a store

KEY, SPACING_KEY = "rate_limit:", "spacing:"
KEPT = 10 * 365 * 86400.0
"""Seconds for which a window that was set while it was in use is remembered."""


class Grant(NamedTuple):
    """What a rate limit allowed."""

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    retry_after: float = 0.0
    """Seconds until it allows more; 0 if it may at once."""
    reason: str = ""
    """"limited" or "spaced", if it allows no more now."""
    at: int = 0
    """When, by the store's clock, µs."""
    before: int = 0
    """The moment of the grant before it, for spacing, µs."""
    window: Window | None = None
    """The window in force, whatever the caller asked for."""


def rate_of(value: bytes | None, rate_limit: RateLimit) -> Rate | None:
    """The rate that a fact holds. Raises RateUnreadable, with the name of the rate limit."""
    try:
        return None if value is None else Rate.read(value.decode())
    except (ArithmeticError, TypeError, ValueError) as error:
        raise unreadable(rate_limit) from error


def last_of(mark: bytes | None, rate_limit: RateLimit) -> int:
    """The moment that the fact of a spacing holds, µs; 0 without one. Raises RateUnreadable."""
    try:
        return int(mark or 0)
    except ValueError as error:
        raise unreadable(rate_limit) from error


def unreadable(rate_limit: RateLimit) -> RateUnreadable:
    """The error if what is kept of a rate limit cannot be read."""
    return RateUnreadable(
        f"What is kept of the rate limit {rate_limit.name!r} cannot be read: an older version wrote it, or it was "
        "changed by hand. Nothing leaves by it until it is forgotten: call reset() of a queue that has it."
    )


def kept(rate: Rate) -> bytes:
    """The fact that holds a rate."""
    return rate.written().encode()


def spend(rate: Rate | None, rate_limit: RateLimit, count: int, now: int, last: int = 0) -> tuple[Grant, Rate]:
    """What a rate limit allows of ``count`` at ``now`` (µs), and its rate then.

    ``last`` is when other rate limits last used its spacing.
    """
    own = agreed(rate, rate_limit.window, now)
    before = max(own.last, last)
    taken, (spent,) = rates.spend([own._replace(last=before)], count, now)
    has = capacity(spent, now)
    grant = Grant(taken, has.wait / 1e6, has.reason, now, before if taken else 0, own.window)
    return grant, spent if taken else own  # grants of others in its spacing are not kept here, as they may be returned


def refund(rate: Rate, grant: Grant, count: int) -> Rate:
    """The rate when ``count`` of a grant was not used after all."""
    after = returned(rate, count, grant.at)
    is_unused = count == grant.count and rate.last == grant.at
    return after._replace(last=grant.before) if is_unused else after


def kept_for(window: Window) -> float:
    """Seconds after the last use for which earlier grants matter."""
    return 2 * window.seconds


def keep_of(rate: Rate) -> float:
    """Seconds for which a rate is kept; a window that was set is not forgotten with what was spent."""
    return KEPT if rate.is_fixed else kept_for(rate.window)


def keys_of(rate_limit: RateLimit) -> tuple[str, str]:
    """The keys of its rate, and of the mark of its spacing: "" if that is not shared."""
    shared = rate_limit.spacing not in ("", rate_limit.name)
    return KEY + rate_limit.name, SPACING_KEY + rate_limit.spacing if shared else ""
