"""The facts of a queue in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from math import inf

from django.db import connections

from djqueue.backends import stores
from djqueue.backends.base import FAILED_SUFFIX, BaseStore, Budget
from djqueue.backends.database.rows import batches, chunks, micros
from djqueue.backends.database.session import Session
from djqueue.backends.database.work import Database
from djqueue.backends.stores import Grant
from djqueue.exceptions import InvalidQueueError

LONGEST_KEY = 255


def alias_of(connection: str | None) -> str:
    """The database alias that a setting CONNECTION names. Raises InvalidQueueError."""
    alias = connection or "default"
    if not isinstance(alias, str) or alias not in connections:
        known = ", ".join(sorted(connections))
        shown = "a URL" if "://" in str(connection) else repr(connection)  # which may have a password
        raise InvalidQueueError(f"CONNECTION is {shown}, which is no alias in DATABASES; there are: {known}.")
    return alias


class DatabaseStore(BaseStore):
    """The facts of the queue ``name`` in the database of the Django alias ``connection`` ("" is the default one).

    A change is part of the caller's transaction. Raises InvalidQueueError if there is no such alias.
    """

    def __init__(self, name: str, connection: str | None = ""):
        self.prefix = f"{name.removesuffix(FAILED_SUFFIX)}:"
        self.database = alias_of(connection)
        self._db = Database(self.database, name)
        self.bound = ("", 0)
        """What the keys of facts begin with of which only so many are kept; "" if there are none."""

    def key(self, key: str) -> str:
        """The key in the table: with the queue's name, hashed if it would be too long."""
        whole = self.prefix + key
        if len(whole) <= LONGEST_KEY and "\0" not in whole:
            return whole
        return f"{self.prefix}#{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def now(self) -> float:
        return self._db.run(self._db.sql.clock) / 1e6

    def get(self, key: str) -> bytes | None:
        return self._db.run(self._db.sql.get, self.key(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        names, found = [self.key(key) for key in keys], {}
        for some in chunks(names):
            found |= self._db.run(self._db.sql.get_many, some)
        return [found.get(name) for name in names]

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        self._db.run(self._db.sql.put, [(self.key(key), value, _us(ttl))])

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        """In one statement, or in several if they are very many or very large."""
        rows = {row[0]: row for row in map(self.row_of, facts)}
        for batch in batches(sorted(rows.values()), lambda row: len(row[1])):
            self._db.run(self._db.sql.put, batch)

    def row_of(self, fact: tuple[str, bytes, float | None]) -> tuple[str, bytes, int | None]:
        """As it is written: the key in the table, the value and the time in µs."""
        key, value, ttl = fact
        return self.key(key), value, _us(ttl)

    def add(self, key: str, value: bytes, ttl: float) -> bool:
        return self._db.run(self._db.sql.add, self.key(key), value, _us(ttl))

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        if was is None:
            return self.add(key, value, ttl)
        return self._db.run(self._db.sql.swap, self.key(key), was, value, _us(ttl))

    def keep(self, key: str, value: bytes, ttl: float) -> bool:
        return self._db.run(self._db.sql.keep, self.key(key), value, _us(ttl))

    def drop(self, key: str, value: bytes | None = None) -> bool:
        return self._db.run(self._db.sql.drop, self.key(key), value)

    # ---- budgets

    @cached_property
    def shared(self) -> DatabaseStore:
        """Of all queues in this database: no queue has a space in its name."""
        return type(self)("of all", self.database)

    def take(self, budget: Budget, count: int) -> Grant:
        return self._db.run(self._in_turn, budget, super().take, budget, count)

    def give(self, budget: Budget, grant: Grant, count: int) -> None:
        self._db.run(self._in_turn, budget, super().give, budget, grant, count)

    def change_budget(self, budget: Budget) -> None:
        self._db.run(self._in_turn, budget, super().change_budget, budget)

    def keys_of(self, budget: Budget) -> list[str]:
        """The keys in the table of what is known of a budget, in the order in which they are locked."""
        return sorted(self.key(key) for key in stores.keys_of(budget) if key)

    def _in_turn(self, run: Session, budget: Budget, verb: Callable, *args):
        """One after the other, rather than again and again until nobody was faster."""
        with run.atomic():
            self._db.sql.hold(run, self.keys_of(budget))
            return verb(*args)

    def prune(self, limit: int = 1000) -> int:
        """Of all queues: those that nobody serves any more have nobody else to do it."""
        pruned = self._db.run(self._db.sql.prune, limit)
        if self.bound[0] and pruned < limit:
            pruned += self._db.run(self._db.sql.surplus, *self.bound, limit - pruned)
        return pruned


def _us(ttl: float | None) -> int | None:
    return None if ttl in (None, inf) else micros(ttl)
