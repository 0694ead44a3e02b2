"""The other half of the contract: small facts that all processes share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from djqueue.backends import spending
from djqueue.backends.spending import Grant
from djqueue.exceptions import NotSupported
from djqueue.flow.windows import Window


@dataclass(frozen=True, slots=True)
class Budget:
    """A window that everybody who names it shares, on one server or database.

    Of two windows that are said of one name the stricter holds while both are in use. ``spacing`` is the name under
    which the last grant is kept, if queues that share their spacing do not share their window.
    """

    name: str
    window: Window
    spacing: str = ""


class BaseStore:
    """Small facts shared by all processes: marks, locks, ticks, results. Values are bytes, keys are text.

    Every method is atomic. Times are seconds by the store's clock. ``ttl=None`` keeps a fact until it is dropped.
    A store belongs to one queue: two queues never see each other's keys. Only budgets are shared, where that is said.
    """

    database: str | None = None
    """The database alias that holds it, if one does."""

    @property
    def shared(self) -> BaseStore:
        """The store of what queues of one server share: here this one, so nothing is shared."""
        return self

    def now(self) -> float:
        """The store's clock, epoch seconds."""
        return time.time()

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none or its time is over."""
        raise NotImplementedError

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Of each key, in their order, what :meth:`get` says."""
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
        raise NotImplementedError

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        """Set if the value is still ``was`` (None: if there is none); True if it was."""
        raise NotImplementedError

    def keep(self, key: str, value: bytes, ttl: float) -> bool:
        """Give the key ``ttl`` more seconds from now if it still has that value; True if so."""
        raise NotImplementedError

    def drop(self, key: str, value: bytes | None = None) -> bool:
        """Delete the key (if it has that value, when one is given); True if something was deleted."""
        raise NotImplementedError

    def take(self, budget: Budget, count: int) -> Grant:
        """Spend up to ``count`` of a budget; exact, whoever else does so."""
        return spending.take(self, budget, count)

    def give(self, budget: Budget, grant: Grant, count: int) -> None:
        """Hand back ``count`` of what was granted and not used."""
        spending.give(self, budget, grant, count)

    def change_budget(self, budget: Budget) -> None:
        """Let its window hold at once for all who use it, whatever they say, until it is changed again or forgotten.

        What was spent counts by the new window.
        """
        spending.change(self, budget)

    def forget_budget(self, budget: Budget) -> None:
        """As if nobody had ever spent anything of it, or changed its window."""
        spending.forget(self, budget)

    def prune(self, limit: int = 1000) -> int:
        """Delete up to ``limit`` facts whose time is over; how many. Stores that expire by themselves return 0."""
        return 0


class NoStore(BaseStore):
    """The store of a queue that is to have none (``QUEUES[…]["STORE"] = False``): nothing is kept, nothing found."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        raise NotSupported('This queue has no store, by QUEUES[…]["STORE"] = False: it keeps no facts.')

    def add(self, key: str, value: bytes, ttl: float) -> bool:
        return self.put(key, value, ttl)

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        return self.put(key, value, ttl)

    def keep(self, key: str, value: bytes, ttl: float) -> bool:
        return False

    def drop(self, key: str, value: bytes | None = None) -> bool:
        return False
