"""Queues in two tables of a database that Django knows: PostgreSQL, MariaDB or SQLite.

Which row changes how is in :mod:`djqueue.backends.sql`; how rows become entries in
:mod:`djqueue.backends.database_rows`. Here is what each verb asks of them.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from types import NoneType

from django.db import connections

from djqueue.backends import database_checks
from djqueue.backends.base import DEAD_SUFFIX, LeasedQueue
from djqueue.backends.database_guards import put_guarded
from djqueue.backends.database_rows import (
    BATCH,
    STATES,
    Token,
    arrival_of,
    batches,
    chunks,
    delay_of,
    is_ours,
    lease_of,
    micros,
    order_of,
    pairs_of,
    place_of,
    record_of,
    rounds,
    said_of,
    seconds_to,
)
from djqueue.backends.database_store import DatabaseStore, alias_of
from djqueue.backends.entries import LEASED, Claimed, Entry, Lease, QueueStats, Reaped, Record
from djqueue.backends.guards import AnyGuard, Guard
from djqueue.backends.remembering import Span, remembering
from djqueue.backends.sql import Dialect, dialect_of
from djqueue.backends.sql.common import Arrival, Ask, Finish
from djqueue.backends.sql.operators import CAP
from djqueue.backends.sql.session import joined, run
from djqueue.exceptions import InvalidQueueError

__all__ = ["DatabaseQueue", "DatabaseStore"]

LONGEST_NAME, LONGEST_OWNER = 95, 100
SLOTS = 16
"""What is done is counted in so many rows, so that threads and processes seldom wait for each other."""
FOR_EVER = 100 * 365 * 86400
"""Seconds for which an id is remembered if only a count bounds it."""


class DatabaseQueue(LeasedQueue):
    """A queue in the database of the Django alias ``connection`` ("" is the default one).

    ``put`` joins the transaction of its caller: the entry is there if and when that commits. ``remember_done``
    (seconds or a timedelta) and ``keep_done`` (a count, kept to within a hundredth) say for how long the ids of
    completed entries are kept and refused; without either they are forgotten at once. With ``remember_done`` alone
    100,000 are kept.

    Raises InvalidQueueError if there is no such alias, the name is too long or an option cannot be. Does not connect.
    """

    cannot = frozenset({"lanes", "shards"})
    options = frozenset({"REMEMBER_DONE", "KEEP_DONE"})
    on_commit = None

    def __init__(
        self,
        name: str,
        connection: str | None = "",
        remember_done: Span = None,
        keep_done: int | None = None,
    ):
        super().__init__(name, connection)
        self.database = alias_of(connection)
        if len(self.logical) > LONGEST_NAME:
            raise InvalidQueueError(f"The queue NAME {name!r} is too long: it may have {LONGEST_NAME} characters.")
        self.store = self._facts = DatabaseStore(name, connection)
        remember, keep = remembering(remember_done, keep_done)
        self._marks = self._facts.key("done:") if remember else ""
        self._remember = micros(min(remember, FOR_EVER))
        self._facts.bound = (self._marks, keep)
        self._unswept = 0

    @cached_property
    def dead(self) -> DatabaseQueue | None:
        """It remembers nothing: what is completed there may come again."""
        if self.name.endswith(DEAD_SUFFIX):
            return None
        return type(self)(self.name + DEAD_SUFFIX, self.connection)

    # ---- put

    def put(self, entries: Sequence[Entry], guards: Sequence[AnyGuard | None] | None = None) -> list[bool]:
        """Raises ValueError for an id, label or lane that is too long.

        What an entry was refused for because that waits is not claimed before the caller's transaction ends.
        """
        if guards and self.store is not self._facts:
            return super().put(entries, guards)
        arrivals: dict[str, Arrival] = {}
        pairs = zip(entries, guards or [None] * len(entries), strict=True)
        first = [self._arrive(arrivals, entry, guard) for entry, guard in pairs]
        accepted: set[str] = set()
        for batch in batches(arrivals.values()):
            accepted |= self._insert(batch)
        return [is_first and entry.id in accepted for entry, is_first in zip(entries, first, strict=True)]

    def _put_one(self, entry: Entry) -> bool:
        return self.put([entry])[0]

    def _arrive(self, arrivals: dict[str, Arrival], entry: Entry, guard: AnyGuard | None) -> bool:
        """Whether the entry is the first of its id."""
        if entry.id in arrivals:
            return False
        key = "" if guard is None else self._facts.key(guard.key)
        arrivals[entry.id] = arrival_of(entry, key, guard)
        return True

    def _insert(self, arrivals: list[Arrival]) -> set[str]:
        kinds = {type(arrival.guard) for arrival in arrivals} - {NoneType}
        if kinds - {Guard}:
            return self._run(put_guarded, self._sql, self.name, arrivals, self._marks)
        if self._marks:
            return self._do(self._sql.insert_checked, arrivals, self._marks)
        return self._do(self._sql.insert_guarded if kinds else self._sql.insert, arrivals)

    # ---- claim and reap

    def claim(self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0) -> Claimed:
        token = secrets.randbits(62) | 1  # 0 is nobody's
        ask = Ask(self.name, limit, micros(lease), token, owner[:LONGEST_OWNER])
        rows, now, next, more = self._run(self._sql.claim, ask)
        again = 0.0 if more or len(rows) >= limit else seconds_to(next, now)
        # In what order a database returns the rows it has changed is its own affair.
        order = place_of if self.dead is None else order_of
        return Claimed([lease_of(row, ask) for row in sorted(rows, key=order)], again)

    def reap(self, limit: int = 100) -> Reaped:
        count, now, next = self._do(self._sql.reap, limit)
        return Reaped(count, 0.0 if count >= limit else seconds_to(next, now))

    # ---- what a holder does

    def complete(self, leases: Sequence[Lease]) -> list[Lease]:
        slot = (os.getpid() + threading.get_native_id()) % SLOTS
        finish = Finish(self._counters[slot], self._marks, self._remember)
        done = self._by_holder(leases, lambda held: self._run(self._sql.complete, pairs_of(held), finish))
        self._sweep(len(done))
        return [lease for lease, _ in done]

    def touch(self, leases: Sequence[Lease], lease: float = 60.0) -> list[Lease]:
        held = self._by_holder(leases, lambda held: self._run(self._sql.touch, pairs_of(held), micros(lease)))
        return [replace(lease, until=row[1] / 1e6) for lease, row in held]

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        back = self._by_holder(leases, lambda held: self._do(self._sql.release, said_of(held, delay_of)))
        return [lease for lease, _ in back]

    def bury(self, leases: Sequence[Lease]) -> list[Lease]:
        if self.dead is None:  # an error queue has no other to put them in
            return self.complete(leases)
        into, places = self.dead.name, {id(lease): place for place, lease in enumerate(leases)}

        def say(held: Iterable[Lease]) -> Iterable[tuple]:
            return self._run(self._sql.bury, into, said_of(held, lambda lease: places[id(lease)]))

        return [lease for lease, _ in self._by_holder(leases, say)]

    def _by_holder(self, leases: Sequence[Lease], say: Callable[[Iterable[Lease]], Iterable[tuple]]) -> list[tuple]:
        """Each lease that was still ours, with the row that says so; a row begins with its seq."""
        mine = [lease for lease in leases if is_ours(lease)]
        rows: dict[Token, tuple] = {}
        for held in rounds(mine):
            rows |= {held[row[0]].token: row for row in say(held.values())}
        return [(lease, rows[lease.token]) for lease in mine if lease.token in rows]

    def _sweep(self, done: int) -> None:
        """Forget the oldest ids; now and then only, as that counts them all."""
        self._unswept += done
        if self._marks and self._unswept >= max(1, self._facts.bound[1] // 100):
            self._unswept = 0
            self._run(self._sql.surplus, *self._facts.bound, BATCH)

    # ---- for operators

    def revive(self, ids: Iterable[str]) -> int:
        if self.dead is None:
            return 0
        return sum(self._run(self._sql.revive, self.dead.name, self.name, chunk) for chunk in chunks(ids))

    def find(self, id: str) -> Record | None:
        return next(map(record_of, self._do(self._sql.find, id)), None)

    def remove(self, ids: Iterable[str]) -> int:
        return sum(self._do(self._sql.remove, chunk) for chunk in chunks(ids))

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        return self._do(self._sql.amend, id, was, data)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Finds what is too old by a step in the index, and counts no further than to ``most``."""
        trimmed = 0 if age is None else self._do(self._sql.trim_older, micros(age), limit)
        if most is not None and trimmed < limit:
            trimmed += self._do(self._sql.trim_surplus, most, limit - trimmed)
        return trimmed

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        if state not in STATES:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(STATES)}.")
        if state != LEASED:
            self._do(self._sql.promote)
        cursor = [int(part) for part in after.split(".")] if after else None
        return [record_of(row) for row in self._do(self._sql.peek, STATES.index(state), limit, cursor)]

    def flush(self) -> None:
        while self._do(self._sql.flush):
            pass

    def stats(self) -> QueueStats:
        """Counts stop at 100,000."""
        dead = self.dead.name if self.dead is not None else ""
        ready, due, delayed, leased, buried, done, now, *heads = self._do(self._sql.stats, dead, self._counters)
        oldest = min((moment for moment in heads if moment is not None), default=None)
        return QueueStats(
            ready=min(ready + due, CAP),
            delayed=delayed,
            leased=leased,
            dead=buried if dead else None,
            done=int(done or 0),
            oldest=None if oldest is None else max(0.0, (now - oldest) / 1e6),
            capped=CAP,
        )

    def __len__(self) -> int:
        """Counts them all: in milliseconds up to some 10,000."""
        return self._do(self._sql.length)

    # ---- time and connection

    def now(self) -> float:
        return self._facts.now()

    @property
    def feed(self) -> Hashable:
        return ("database", self.database)

    def describe(self) -> str:
        connection = connections[self.database]
        settings = connection.settings_dict
        host = f" at {settings['HOST']}" if settings.get("HOST") else ""
        return f"{connection.vendor} database {settings['NAME']}{host} ({self.database})"

    def check(self) -> list:
        return database_checks.check(self.database, in_use=True)

    def close(self) -> None:
        """Close the calling thread's connection, unless a transaction is open on it."""
        if not joined(connections[self.database]):
            connections[self.database].close()

    # ---- inside

    @cached_property
    def _sql(self) -> Dialect:
        return dialect_of(connections[self.database])

    @cached_property
    def _counters(self) -> list[str]:
        """Keys that no fact can have, as no name has a space in it."""
        return [f"{self.name} done {slot}" for slot in range(SLOTS)]

    def _run(self, verb: Callable, *args):
        return run(self.database, self._sql.now, verb, *args)

    def _do(self, verb: Callable, *args):
        """The same of a verb that is asked of this queue."""
        return self._run(verb, self.name, *args)
