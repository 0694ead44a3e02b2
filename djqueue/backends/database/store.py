"""The facts of a queue in a table, and the guards of a put, which are facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any

from django.db import connections

from djqueue.backends import stores
from djqueue.backends.base import FAILED_SUFFIX, BaseStore, RateLimit
from djqueue.backends.database.rows import BATCH, BATCH_BYTES, NewRow, chunks, is_text, micros, state_of
from djqueue.backends.database.session import Database
from djqueue.backends.database.sql.dialect import Dialect
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.backends.guards import Decision, DedupMark, Guard, decide
from djqueue.backends.stores import Change, Grant
from djqueue.exceptions import InvalidQueueError
from djqueue.utils import portions

LONGEST_KEY = 255
_ADDRESS = r"[\w.-]+:\d+:"
_SERVERS = (
    (
        "Redis",
        "djqueue.backends.redis_backend.RedisBlockingQueue",
        re.compile(rf"(redis|rediss|unix|valkeys?)://|{_ADDRESS}"),
    ),
    ("SQS", "djqueue.backends.sqs.SqsQueue", re.compile(r"sqs://|https://(sqs|queue)\.")),
)
"""Servers of other classes, and how a CONNECTION of theirs begins."""


def alias_of(connection: str | None) -> str:
    """The database alias that a setting CONNECTION names. Raises InvalidQueueError."""
    alias = connection or "default"
    if not isinstance(alias, str) or alias not in connections:
        known = ", ".join(sorted(connections))
        shown, meant = _shown(connection)
        raise InvalidQueueError(f"CONNECTION is {shown}, which is no alias in DATABASES; there are: {known}.{meant}")
    return alias


def _shown(connection: object) -> tuple[str, str]:
    """What is no alias, without a password, and the class that it may have been meant for."""
    text = str(connection)
    is_url, is_address = "://" in text, re.match(_ADDRESS, text) is not None
    shown = "a URL" if is_url else "an address" if is_address else repr(connection)
    for name, path, pattern in _SERVERS:
        if pattern.match(text):
            return shown, f" A queue in {name} needs CLASS (or QUEUE_CLASS) = {path!r}."
    return shown, ""


class DatabaseStore(BaseStore):
    """The facts of the queue ``name`` in the database of the Django alias ``connection`` ("" is the default one).

    A change is part of the caller's transaction. Raises InvalidQueueError if there is no such alias.
    """

    def __init__(self, name: str, connection: str | None = ""):
        self.prefix = f"{name.removesuffix(FAILED_SUFFIX)}:"
        self.database = alias_of(connection)
        self._db = Database(self.database, name)
        self.bound = ("", 0)
        """The prefix of the keys that are bounded in number ("": none), and how many of them are kept."""

    def key(self, key: str) -> str:
        """The key in the table: with the queue's name, hashed if no column holds it, or if it would be too long."""
        whole = self.prefix + key
        if len(whole) <= LONGEST_KEY and is_text(whole):
            return whole
        return f"{self.prefix}#{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def now(self) -> float:
        return self._db.run(self._db.sql.clock) / 1e6

    def get(self, key: str) -> bytes | None:
        return self._db.run(self._db.sql.get, self.key(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        names = [self.key(key) for key in keys]
        found: dict[str, bytes] = {}
        for some in chunks(names):
            found |= self._db.run(self._db.sql.get_many, some)
        return [found.get(name) for name in names]

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        self._db.run(self._db.sql.put, [(self.key(key), value, _us(ttl))])

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        """In one statement, or in several if they are very many or very large."""
        rows = {row[0]: row for row in map(self.row_of, facts)}
        for batch in portions(sorted(rows.values()), BATCH, BATCH_BYTES, lambda row: len(row[1])):
            self._db.run(self._db.sql.put, batch)

    def row_of(self, fact: tuple[str, bytes, float | None]) -> tuple[str, bytes, int | None]:
        """The row of a fact: the key in the table, the value and the time in µs."""
        key, value, ttl = fact
        return self.key(key), value, _us(ttl)

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        if was is None:
            return self._db.run(self._db.sql.add, self.key(key), value, _us(ttl))
        return self._db.run(self._db.sql.swap, self.key(key), was, value, _us(ttl))

    def swap_many(self, changes: Sequence[Change], ttl: float) -> bool:
        return self._db.run(self._swap_all, {self.key(key): pair for key, *pair in changes}, ttl)

    @staticmethod
    def _swap_all(sql: Dialect, pairs: Mapping[str, Sequence[bytes | None]], ttl: float) -> bool:
        with sql.atomic():
            held: dict[str, bytes] = {}
            for some in chunks(sorted(pairs)):
                held |= sql.hold(some)
            if any(held.get(key) != was for key, (was, _) in pairs.items()):
                return False
            rows = [(key, value, _us(ttl)) for key, (_, value) in sorted(pairs.items()) if value is not None]
            for batch in portions(rows, BATCH, BATCH_BYTES, lambda row: len(row[1])):
                sql.put(batch)
            for key in held.keys() - {row[0] for row in rows}:
                sql.drop(key, None)
            return True

    def drop(self, key: str, value: bytes | None = None) -> bool:
        return self._db.run(self._db.sql.drop, self.key(key), value)

    # ---- rate limits

    @cached_property
    def shared(self) -> DatabaseStore:
        """Of all queues in this database: no queue has a space in its name."""
        return type(self)("of all", self.database)

    @property
    def place(self) -> Hashable:
        return ("database", self.database)

    def acquire(self, rate_limit: RateLimit, count: int) -> Grant:
        return self._db.run(self._in_turn, rate_limit, super().acquire, rate_limit, count)

    def release(self, rate_limit: RateLimit, grant: Grant, count: int) -> None:
        self._db.run(self._in_turn, rate_limit, super().release, rate_limit, grant, count)

    def change_rate_limit(self, rate_limit: RateLimit) -> None:
        self._db.run(self._in_turn, rate_limit, super().change_rate_limit, rate_limit)

    def keys_of(self, rate_limit: RateLimit) -> list[str]:
        """The keys in the table of what is known of a rate limit, in the order in which they are locked."""
        return sorted(self.key(key) for key in stores.keys_of(rate_limit) if key)

    def _in_turn(self, sql: Dialect, rate_limit: RateLimit, verb: Callable, *args: Any) -> Any:
        """Run a verb under the locks of a rate limit: it waits for its turn, instead of retrying until it wins."""
        with sql.atomic():
            sql.hold(self.keys_of(rate_limit))
            return verb(*args)

    def trim_results(self, count: int, limit: int = 1000) -> int:
        return self._db.run(self._db.sql.surplus, self.key(stores.RESULTS), count, limit)

    def prune(self, limit: int = 1000) -> int:
        """Prunes the facts of all queues: a queue without consumers could not prune its own."""
        pruned = self._db.run(self._db.sql.prune, limit)
        if self.bound[0] and pruned < limit:
            pruned += self._db.run(self._db.sql.surplus, *self.bound, limit - pruned)
        return pruned


def _us(ttl: float | None) -> int | None:
    return None if ttl in (None, inf) else micros(ttl)


# ---- A put whose guards are decided in Python: lock and look, decide, write, in one transaction


def put_guarded(sql: Dialect, arrivals: Sequence[NewRow], done: str) -> set[str]:
    """Insert entries that their guards accept, or that have no guard; the ids that were inserted.

    The keys are locked first, in order: no other put decides in between, and two puts never deadlock.
    ``done`` is what the keys of remembered ids begin with ("": none are).
    """
    ids = [arrival.id for arrival in arrivals]
    with sql.atomic():
        held = sql.hold(sorted({arrival.key for arrival in arrivals if arrival.key}))
        marks = {key: DedupMark.read(value) for key, value in held.items()}
        now, numbers = sql.look([*ids, *(mark.id for mark in marks.values())])
        known = {*numbers, *sql.marked(done, ids)}
        fresh = [arrival for arrival in arrivals if arrival.id not in known]
        states = {id: state_of(number) for id, number in numbers.items()}
        if any(mark.at > now and states.get(mark.id) not in (READY, DELAYED) for mark in marks.values()):
            now = sql.clock()  # a statement sees what was done after the moment that it calls now
        decisions = PutDecisions(fresh, now, marks, states)
        if taken := _taken(sql, decisions.awaited):
            decisions = PutDecisions(fresh, sql.clock(), marks, states | dict.fromkeys(taken, LEASED))
        if decisions.written:
            sql.put([(key, *fact) for key, fact in sorted(decisions.written.items())])
        for id, due in sorted(decisions.postponed.items()):
            sql.postpone(id, due)
        return sql.insert_unmarked(list(decisions.accepted.values()), done)


def _taken(sql: Dialect, awaited: set[str]) -> set[str]:
    """The entries that a claim is about to lease. The rest cannot begin before this transaction ends, and so see what
    its caller wrote: only because of such entries may arrivals be refused."""
    return awaited - sql.withhold(sorted(awaited)) if awaited else awaited


class PutDecisions:
    """What the guards decide about arrivals, in the order of the call; moments are µs."""

    def __init__(self, arrivals: Sequence[NewRow], now: int, marks: Mapping[str, DedupMark], states: Mapping[str, str]):
        self.accepted: dict[str, NewRow] = {}
        self.written: dict[str, tuple[bytes, int | None]] = {}
        """For each key the last mark, and how many µs to keep it."""
        self.postponed: dict[str, int] = {}
        self.awaited: set[str] = set()
        """The ids of waiting entries because of which arrivals are refused."""
        self._now, self._marks, self._states = now, dict(marks), dict(states)
        for arrival in arrivals:
            if arrival.guard is None:
                self._accept(arrival)
            else:
                self._decide(arrival, arrival.guard)

    def _decide(self, arrival: NewRow, guard: Guard) -> None:
        mark = self._marks.get(arrival.key)
        decision = self._rule(arrival, guard, mark, None if mark is None else self._states.get(mark.id))
        if decision.mark is not None:
            self._marks[arrival.key] = decision.mark
            self.written[arrival.key] = decision.mark.written(), _us(decision.ttl)
        if not decision.accept:
            if mark is not None:  # or nothing would refuse it
                self._refuse(arrival, guard, mark, decision)
        elif decision.mark is not None and decision.delay:
            self._accept(arrival.due_at(decision.mark.at))
        else:
            self._accept(arrival)

    def _rule(self, arrival: NewRow, guard: Guard, mark: DedupMark | None, state: str | None) -> Decision:
        return decide(guard, arrival.entry, mark, state, self._now / 1e6)

    def _accept(self, arrival: NewRow) -> None:
        due = arrival.due(self._now)
        self.accepted[arrival.id] = arrival.due_at(due)  # the moment of its mark: it is inserted a little later
        self._states[arrival.id] = DELAYED if due > self._now else READY

    def _refuse(self, arrival: NewRow, guard: Guard, mark: DedupMark, decision: Decision) -> None:
        if mark.id in self.accepted:
            if decision.postpone:
                self.accepted[mark.id] = self.accepted[mark.id].due_at(decision.postpone)
            return
        if decision.postpone:
            self.postponed[mark.id] = decision.postpone
        if self._states.get(mark.id) in (READY, DELAYED) and self._rule(arrival, guard, mark, None).accept:
            self.awaited.add(mark.id)
