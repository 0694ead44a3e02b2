"""The facts of a queue in a table, and the guards of a put, which are facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from math import inf

from django.db import connections

from djqueue.backends import stores
from djqueue.backends.base import FAILED_SUFFIX, BaseStore, Budget
from djqueue.backends.database.rows import batches, chunks, due_at, due_of, micros, state_of
from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.messages import Arrival, ids_of
from djqueue.backends.database.work import Database, UnitOfWork
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.backends.guards import Decision, DedupMark, rule
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


# ---- A put whose guards are decided in Python: lock and look, decide, write, in one transaction


def put_guarded(work: UnitOfWork, arrivals: Sequence[Arrival], done: str) -> set[str]:
    """Insert what its guard accepts and what has none; the ids that went in.

    The keys are locked first, in their order: nobody else decides between, and two puts never wait for each other.
    ``done`` is what the keys of remembered ids begin with ("": none are).
    """
    session, sql, queue = work
    ids = ids_of(arrivals)
    with session.atomic():
        held = sql.hold(session, sorted({arrival.key for arrival in arrivals if arrival.key}))
        marks = {key: DedupMark.read(value) for key, value in held.items()}
        now, numbers = sql.look(session, queue, [*ids, *(mark.id for mark in marks.values())])
        known = {*numbers, *sql.marked(session, done, ids)}
        fresh = [arrival for arrival in arrivals if arrival.row[0] not in known]
        states = {id: state_of(number) for id, number in numbers.items()}
        if any(mark.at > now and states.get(mark.id) not in (READY, DELAYED) for mark in marks.values()):
            now = sql.clock(session)  # a statement sees what was done after the moment that it calls now
        decision = PutDecisions(fresh, now, marks, states)
        if taken := _taken(work, decision.awaited):
            decision = PutDecisions(fresh, sql.clock(session), marks, states | dict.fromkeys(taken, LEASED))
        _write(work, decision)
        return sql.insert_unmarked(session, queue, list(decision.accepted.values()), done)


def _taken(work: UnitOfWork, awaited: set[str]) -> set[str]:
    """Those that somebody is about to lease. The others cannot begin before this transaction ends, and so see what its
    caller wrote: only then may others be refused for their sake."""
    return awaited - work.sql.withhold(work.session, work.queue, sorted(awaited)) if awaited else awaited


def _write(work: UnitOfWork, decision: PutDecisions) -> None:
    session, sql, queue = work
    if decision.written:
        sql.put(session, [_fact(key, decision) for key, decision in sorted(decision.written.items())])
    for id, due in sorted(decision.postponed.items()):
        sql.postpone(session, queue, id, due)


def _fact(key: str, decision: Decision) -> tuple[str, bytes, int | None]:
    return key, decision.mark.written(), None if decision.ttl == inf else micros(decision.ttl)


class PutDecisions:
    """What the guards decide about arrivals, in the order of the call; moments are µs."""

    def __init__(
        self, arrivals: Sequence[Arrival], now: int, marks: Mapping[str, DedupMark], states: Mapping[str, str]
    ):
        self.accepted: dict[str, Arrival] = {}
        self.written: dict[str, Decision] = {}
        """Of each key the last decision that has a mark."""
        self.postponed: dict[str, int] = {}
        self.awaited: set[str] = set()
        """What waits in the queue, and for whose sake others are refused."""
        self._now, self._marks, self._states = now, dict(marks), dict(states)
        for arrival in arrivals:
            self._take(arrival) if arrival.guard else self._accept(arrival)

    def _take(self, arrival: Arrival) -> None:
        mark = self._marks.get(arrival.key)
        decision = self._rule(arrival, mark, None if mark is None else self._states.get(mark.id))
        if decision.mark is not None:
            self._marks[arrival.key], self.written[arrival.key] = decision.mark, decision
        if decision.accept:
            self._accept(due_at(arrival, decision.mark.at) if decision.delay else arrival)
        else:
            self._refuse(arrival, mark, decision)

    def _rule(self, arrival: Arrival, mark: DedupMark | None, state: str | None) -> Decision:
        return rule(arrival.guard, arrival.entry, mark, state, self._now / 1e6)

    def _accept(self, arrival: Arrival) -> None:
        id = arrival.row[0]
        due = due_of(arrival, self._now)
        self.accepted[id] = due_at(arrival, due)  # as its mark says: it is inserted a little later
        self._states[id] = DELAYED if due > self._now else READY

    def _refuse(self, arrival: Arrival, mark: DedupMark, decision: Decision) -> None:
        if mark.id in self.accepted:
            if decision.postpone:
                self.accepted[mark.id] = due_at(self.accepted[mark.id], decision.postpone)
            return
        if decision.postpone:
            self.postponed[mark.id] = decision.postpone
        if self._states.get(mark.id) in (READY, DELAYED) and self._rule(arrival, mark, None).accept:
            self.awaited.add(mark.id)
