"""Queues on Redis (6.2 or later) or Valkey (7.2 or later).

Every verb is one script: one round trip, one atomic step. All keys of a queue and of its error queue share the hash
tag ``{prefix:name}``, so they live in one slot of a cluster; ``lua/common.lua`` says what is in them. Except for
``put``, which raises QueueFull then, every verb works on a server that is full.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property

from redis.exceptions import ConnectionError

from djqueue.backends import redis_wire as wire
from djqueue.backends.base import DEAD_SUFFIX, Budget, LeasedQueue
from djqueue.backends.entries import (
    DELAYED,
    LEASED,
    READY,
    Claimed,
    Entry,
    Fact,
    LaneRecord,
    Lease,
    QueueStats,
    Reaped,
    Record,
)
from djqueue.backends.guards import AnyGuard
from djqueue.backends.lua import LIFO_SCRIPTS, SCRIPTS
from djqueue.backends.redis_checks import check_server
from djqueue.backends.redis_link import Link, connections
from djqueue.backends.redis_store import Keys, RedisStore
from djqueue.backends.remembering import Span, remembering
from djqueue.durations import priority as checked_priority
from djqueue.exceptions import InvalidQueueError
from djqueue.logs import tell

__all__ = ["RedisBlockingQueue", "RedisQueue", "RedisStore", "connections"]

logger = logging.getLogger(__name__)

STATES = (READY, DELAYED, LEASED)
LATE = 0.15  # seconds by which a nap may outlast its time


class RedisQueue(LeasedQueue):
    """A queue on Redis that is asked for work at intervals.

    ``connection`` is ``"host:port:db"``, a ``redis://``, ``rediss://`` or ``unix://`` URL, or a client of redis-py
    (without ``decode_responses``, and with its retries off). ``prefix`` keeps two sites on one server apart.
    ``remember_done`` (seconds or a timedelta) or ``keep_done`` (a count; 100,000 if only the former is given) let the
    queue remember the ids of completed entries and refuse them; each costs the server about 100 bytes. With ``lifo``,
    of entries in no lane whose priorities are equal the one that came last leaves first. Raises InvalidQueueError.
    """

    cannot = frozenset({"transaction"})
    options = frozenset({"PREFIX", "REMEMBER_DONE", "KEEP_DONE", "LIFO"})
    bytes_at_once = wire.BYTES_AT_ONCE
    rings = 0
    """How many sleepers one call may wake."""

    def __init__(
        self,
        name: str,
        connection: object = None,
        prefix: str = "djqueue",
        remember_done: Span = None,
        keep_done: int | None = None,
        lifo: bool = False,
    ):
        super().__init__(name, connection)
        if not isinstance(prefix, str):
            raise InvalidQueueError(f"OPTIONS['PREFIX'] of a Redis queue is {prefix!r}: give a text.")
        self.prefix, self._link, self._keys = prefix, Link(connection), Keys(prefix, name)
        self.store = RedisStore(name, connection, prefix)
        scripts = LIFO_SCRIPTS if lifo else SCRIPTS
        self._scripts = {one.name: (one, [self._keys.part(key) for key in one.keys]) for one in scripts.values()}
        remember, self._keep = remembering(remember_done, keep_done)
        self._remember = wire.microseconds(remember) if remember else ""

    @cached_property
    def dead(self) -> RedisQueue | None:
        if self.name.endswith(DEAD_SUFFIX):
            return None
        return type(self)(self.name + DEAD_SUFFIX, self.connection, self.prefix)

    # ---- what the consumer calls

    def put(self, entries: Sequence[Entry], guards: Sequence[AnyGuard | None] | None = None) -> list[bool]:
        """As the contract says. More than 1,000 entries or 8 MiB go in several calls, of which a later may raise."""
        pairs = zip(entries, guards or [None] * len(entries), strict=True)
        return [accepted for some in wire.portions(pairs, size=_size) for accepted in self._put(some)]

    def claim(self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0) -> Claimed:
        if limit < 1:
            return Claimed((), 0.0)
        token, span = secrets.token_hex(wire.TOKEN // 2), wire.microseconds(lease)
        args = (min(limit, wire.AT_ONCE), ahead, wire.AT_ONCE, span, wire.text(token + owner))
        return self._claimed(self._run("claim", args), token, span)

    def claim_within(self, budget: Budget, limit: int = 1, lease: float = 60.0, owner: str = "") -> Claimed:
        if limit < 1:
            return Claimed((), 0.0)
        keys = self.store.shared.budget_keys(budget, self._keys.part("meta"))
        token, span = secrets.token_hex(wire.TOKEN // 2), wire.microseconds(lease)
        args = (min(limit, wire.AT_ONCE), wire.AT_ONCE, span, wire.text(token + owner), *wire.window_args(budget))
        found = self._run("claim_within", args, keys)
        wire.refuse_another(budget, found)
        return self._claimed(found[1], token, span, found[0].decode())

    def _claimed(self, found: list, token: str, span: int, why: str = "") -> Claimed:
        now, again, lost, units, *rows = found
        if lost:
            text, extra = "%d entries had no body: does the server evict keys?", {"queue_name": self.name}
            tell(logger, logging.ERROR, text, lost, extra=extra)
        leases = wire.leases_of(rows, units, token, now / 1e6, (now + span) / 1e6)
        return Claimed(leases, wire.until(again), why)

    def complete(self, leases: Sequence[Lease], facts: Sequence[Fact | None] = ()) -> list[Lease]:
        ours = self._settle("complete", leases, (self.rings, self._remember, self._keep), wire.proof)
        return self._with_facts(ours, leases, facts)

    def touch(self, leases: Sequence[Lease], lease: float = 60.0) -> list[Lease]:
        touched, span = [], wire.microseconds(lease)
        for some in wire.slices(leases):
            ours, now = self._settle_some("touch", some, (span,), wire.proof)
            touched += [Lease(one.entry, one.token, one.claimed, (now + span) / 1e6, one.run) for one in ours]
        return touched

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._settle("release", leases, (self.rings,), wire.returned)

    def bury(self, leases: Sequence[Lease], facts: Sequence[Fact | None] = ()) -> list[Lease]:
        if self.dead is None:
            return self.release(leases)  # what is dead stays here
        return self._with_facts(self._settle("bury", leases, (self.rings,), wire.verdict), leases, facts)

    def revive(self, ids: Iterable[str]) -> int:
        if self.dead is None:
            return 0
        return sum(self._run("revive", [self.rings, *map(wire.text, some)]) for some in wire.slices(ids))

    def reap(self, limit: int = 100) -> Reaped:
        reaped, next = self._run("reap", (max(0, min(limit, wire.AT_ONCE)), self.rings))
        return Reaped(reaped, wire.until(next))

    # ---- for operators

    def find(self, id: str) -> Record | None:
        found = self._run("find", (wire.text(id),))
        return wire.record_of(*found) if found else None

    def remove(self, ids: Iterable[str]) -> int:
        return sum(self._run("remove", [*map(wire.text, some)]) for some in wire.slices(ids))

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        return bool(self._run("amend", (wire.text(id), was, data)))

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        each = wire.slices(dict.fromkeys(ids))
        return sum(self._run("reprioritise", [checked_priority(priority), *map(wire.text, some)]) for some in each)

    def lanes(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        if limit < 1:
            return []
        behind = "-" if after is None else wire.text(f"+{after}")
        return [wire.lane_of(found) for found in self._run("lanes_of", (min(limit, wire.AT_ONCE), behind))]

    def lane(self, name: str) -> LaneRecord | None:
        found = self._run("lanes_of", (0, wire.text(name)))
        return wire.lane_of(*found) if found else None

    def park_lane(self, name: str, why: str) -> None:
        self._run("park_lane", (wire.text(name), wire.text(why or "parked")))

    def open_lane(self, name: str) -> bool:
        return bool(self._run("open_lane", (self.rings, wire.text(name))))

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Deletes 1,000 at a time. What came first is looked for in the 32 highest priorities."""
        bounds = ("" if most is None else most, "" if age is None else wire.microseconds(age))
        trimmed = 0
        while (some := min(limit - trimmed, wire.AT_ONCE)) > 0:
            trimmed += (deleted := self._run("trim", (*bounds, some)))
            if deleted < some:
                break
        return trimmed

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        if state not in STATES:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(STATES)}.")
        if limit < 1:
            return []
        score, _, member = (after or "").partition(" ")
        return wire.records_of(state, self._run("peek", (state, min(limit, wire.AT_ONCE), score, wire.text(member))))

    def stats(self) -> QueueStats:
        """Exact, whatever the size; the oldest is that of the 32 highest priorities."""
        ready, delayed, leased, dead, done, oldest = self._run("stats", ())
        age = None if oldest < 0 else oldest / 1e6
        return QueueStats(ready, delayed, leased, None if self.dead is None else dead, done, age)

    def flush(self) -> None:
        """Deletes 1,000 at a time, and no more than waited when it began."""
        deleted, left = self._run("flush", (wire.AT_ONCE,))
        while left > 0 and deleted > 0:
            deleted, _ = self._run("flush", (min(left, wire.AT_ONCE),))
            left -= deleted

    # ---- time and connection

    def now(self) -> float:
        return self._run("now", ()) / 1e6

    @property
    def feed(self) -> Hashable:
        """The server; on a cluster the queue itself, as no command takes bells of two slots."""
        server = (type(self), id(self._link.client))
        return (*server, self.prefix, self.name) if self._link.is_cluster else server

    def describe(self) -> str:
        return self._link.where

    def check(self) -> list:
        return check_server(self._link)

    # ---- the calls

    def _run(self, name: str, args: Sequence, more: Sequence[bytes] = ()) -> object:
        script, keys = self._scripts[name]
        return self._link.run(script, [*keys, *more] if more else keys, args)

    def _run_safely(self, name: str, args: Sequence, guards: Sequence[bytes] = ()) -> tuple[list, bool]:
        """Run, once more if the connection broke; tells whether it did. Only for what may be done twice."""
        try:
            return self._run(name, args, guards), False
        except ConnectionError:
            return self._run(name, args, guards), True

    def _put(self, pairs: Sequence[tuple[Entry, AnyGuard | None]]) -> list[bool]:
        args, guards = [self.rings, self._remember], []
        for entry, guard in pairs:
            if guard is not None:
                guards.append(self._keys.fact(guard.key))
            args += (wire.text(entry.id), entry.data, wire.accepted(entry, guard))
        (known, refused), repeated = self._run_safely("put", args, guards)
        # What was there before a repeated call came by the first one, whose reply was lost.
        out = set(refused) if repeated else {*refused, *known}
        return [number not in out for number in range(1, len(pairs) + 1)]

    def _settle(self, name: str, leases: Sequence[Lease], args: Sequence, tell: Callable) -> list[Lease]:
        return [lease for some in wire.slices(leases) for lease in self._settle_some(name, some, args, tell)[0]]

    def _settle_some(self, name: str, leases: list[Lease], args: Sequence, tell: Callable) -> tuple[list[Lease], int]:
        """Run over leases; gives those that were ours, and the time."""
        (now, *lost), repeated = self._run_safely(name, [*args, *(value for lease in leases for value in tell(lease))])
        if not lost:
            return leases, now
        # While a lease runs nobody else gets the entry: what is gone by a repeated call was settled by the first one.
        out = {number for number in lost if not (repeated and leases[number - 1].until > now / 1e6)}
        return [lease for number, lease in enumerate(leases, 1) if number not in out], now


def _size(pair: tuple[Entry, AnyGuard | None]) -> int:
    return len(pair[0].data)


class RedisBlockingQueue(RedisQueue):
    """A queue on Redis whose sleepers wake when work comes. Producers must be of this class too: they ring."""

    rings = 16
    wakes = True

    def nap(self, seconds: float, beside: Sequence[RedisQueue] = ()) -> bool:
        """Wait for the bells, which are no more than that: a ring lost or too many costs one look at the queue."""
        return self._hear(seconds, beside)

    def nap_until(self, due: float, pause: float, beside: Sequence[RedisQueue] = ()) -> bool:
        """To end in time costs a command more: only near the moment is it worth it."""
        return self._hear(min(due, pause), beside, promptly=due < pause + LATE)

    def _hear(self, seconds: float, beside: Sequence[RedisQueue], promptly: bool = False) -> bool:
        bells, end = [queue._keys.part("bell") for queue in (self, *beside)], time.monotonic() + seconds
        longest = self._link.longest_block
        while (left := end - time.monotonic()) > 0:
            if self._link.pop(bells, min(left, longest), promptly and left < longest + LATE):
                return True
        return False
