"""The facts of a queue in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import Any, ClassVar

from djqueue.backends.stores import RESULTS, BaseStore, Change
from djqueue.flow.board import Line


@contextmanager
def at_one_moment(clocked: Any):
    """Stop the clock of a queue whose lock the caller holds."""
    clock, now = clocked.clock, clocked.now()
    clocked.clock = lambda: now
    try:
        yield
    finally:
        clocked.clock = clock


class MemoryStore(BaseStore):
    """The facts of one queue, in a dictionary."""

    is_local = True
    clock: Callable[[], float] = staticmethod(time.time)
    _common: ClassVar[MemoryStore | None] = None
    _making = threading.Lock()

    def __init__(self, name: str = "", connection: object = None):
        self._lock = threading.RLock()
        self._facts: dict[str, bytes] = {}
        self._ends = Line()

    def now(self) -> float:
        return self.clock()

    @cached_property
    def shared(self) -> MemoryStore:
        """What all queues of this process share, by the clock of this one."""
        with MemoryStore._making:  # or two first threads would share nothing
            MemoryStore._common = common = MemoryStore._common or MemoryStore()
        shared = MemoryStore()
        shared._lock, shared._facts, shared._ends = common._lock, common._facts, common._ends
        shared.clock = self.now
        return shared

    @property
    def place(self) -> Hashable:
        return "memory"

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._facts.get(key) if self._ends.keys.get(key, (inf,))[0] > self.now() else None

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        with self._lock:
            self._facts[key] = value
            self._ends.drop(key)
            if ttl is not None:
                self._ends.add(key, (self.now() + ttl,))

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        with self._lock:
            super().put_many(facts)

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        with self._lock:
            same = self.get(key) == was
            if same:
                self.put(key, value, ttl)
            return same

    def swap_many(self, changes: Sequence[Change], ttl: float) -> bool:
        with self._lock:
            return super().swap_many(changes, ttl)

    def drop(self, key: str, value: bytes | None = None) -> bool:
        with self._lock:
            found = self.get(key)
            if found is None or value not in (None, found):
                return False
            self._delete(key)
            return True

    def trim_results(self, count: int, limit: int = 1000) -> int:
        with self._lock:
            ends = ((self._ends.keys.get(key, (inf,)), key) for key in self._facts if key.startswith(RESULTS))
            first = sorted(ends)[: -count or None][:limit]
            for _, key in first:
                self._delete(key)
            return len(first)

    def prune(self, limit: int = 1000) -> int:
        with self._lock:
            now, pruned = self.now(), 0
            while pruned < limit and (key := self._ends.first()) is not None and self._ends.keys[key][0] <= now:
                self._delete(key)
                pruned += 1
            return pruned

    def _delete(self, key: str) -> None:
        del self._facts[key]
        self._ends.drop(key)
