"""The other half of the contract: small facts that all processes share."""

from __future__ import annotations

import time
from collections.abc import Sequence

from djqueue.exceptions import NotSupported


class BaseStore:
    """Small facts shared by all processes: marks, locks, ticks, results. Values are bytes, keys are text.

    Every method is atomic. Times are seconds by the store's clock. ``ttl=None`` keeps a fact until it is dropped.
    A store belongs to one queue: two queues never see each other's keys.
    """

    database: str | None = None
    """The database alias that holds it, if one does."""

    def now(self) -> float:
        """The store's clock, epoch seconds."""
        return time.time()

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none or its time is over."""
        raise NotImplementedError

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
