"""Queues in a database that Django knows: PostgreSQL, MariaDB or SQLite. Tables: message, lane, ticket, fact, history.

Here is what each verb does, and how a claim is made of statements. What happens in lanes is in
:mod:`djqueue.backends.database.lanes`; how rows become entries in :mod:`djqueue.backends.database.rows`.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import islice, repeat
from math import inf
from types import NoneType
from typing import Self

from django.core.checks import CheckMessage
from django.db import connections

from djqueue.backends.base import FAILED_SUFFIX, FEATURES, LeasedQueue, RateLimit, Unanswered
from djqueue.backends.bells import Bell
from djqueue.backends.database import checks, lanes
from djqueue.backends.database.history import DatabaseHistory
from djqueue.backends.database.listening import Delivery, PostgresBell, delivery_of
from djqueue.backends.database.rate_limits import Looks, claim_paid, claim_within
from djqueue.backends.database.rows import (
    BATCH,
    BATCH_BYTES,
    LONGEST,
    STATES,
    ClaimRequest,
    NewRow,
    arrival_of,
    batches,
    chunks,
    delay_of,
    ended_by,
    ended_of,
    is_ours,
    is_text,
    kept_of,
    lane_record_of,
    lease_of,
    micros,
    number_of,
    order_of,
    pairs_of,
    place_of,
    plain_pairs,
    record_of,
    rounds,
    said_of,
    seconds_to,
    token_of,
)
from djqueue.backends.database.session import Database
from djqueue.backends.database.silence import TIMEOUT, watch
from djqueue.backends.database.sql.dialect import (
    CAP,
    FLUSHED,
    LANE_CAP,
    ClaimResult,
    Completion,
    Dialect,
    Glance,
    Payment,
    joined,
)
from djqueue.backends.database.sql.text import ALL, NONE
from djqueue.backends.database.store import DatabaseStore, alias_of, put_guarded
from djqueue.backends.database.vacuum import VACUUM_EVERY, Vacuum
from djqueue.backends.entries import (
    LEASED,
    READY,
    Claimed,
    Entry,
    Fact,
    LaneRecord,
    Lease,
    Leases,
    QueueStats,
    Reaped,
    Record,
    listed,
)
from djqueue.backends.guards import Guard, OnceGuard, Span, remembering
from djqueue.backends.lanes import BaseLanes
from djqueue.backends.stores import RESULTS
from djqueue.exceptions import InvalidQueueError
from djqueue.flow.gates import Lane, is_blocked, resumed
from djqueue.messages.failures import with_error
from djqueue.utils import log_safely, plain
from djqueue.utils import priority as checked_priority

logger = logging.getLogger(__name__)

LONGEST_NAME, LONGEST_OWNER = 95, 100
SLOTS = 16
"""The number of rows that count completed entries, so that threads and processes seldom wait for each other."""
TRIES = 3
"""How often a claim by a rate limit tries to spend without a lock, before it waits for the lock."""
FOR_EVER = 100 * 365 * 86400
"""Seconds for which an id is remembered if only a count bounds it."""
REPLAYED = "It was completed before: somebody put it again who writes to the store."
PAGE = 50
"""How many lanes one read looks into."""
UNSEEN = 0.05
"""Seconds for which a full claim may miss lanes that other processes filled."""
SOON = 0.005
"""Seconds after which to retry lanes that another transaction has locked."""
ROUNDS = 20
"""How often at most a read-only verb takes the tickets of lanes."""


def _is_laned(lease: Lease) -> bool:
    return bool(token_of(lease).lane)


def _is_counted(lease: Lease) -> bool:
    return token_of(lease).is_counted


class DatabaseQueue(LeasedQueue):
    """A queue in the database of the Django alias ``connection`` ("" is the default one).

    ``put`` joins the transaction of its caller: the entry is there if and when that commits. ``remember_done``
    (seconds or a timedelta) and ``keep_done`` (a count, kept to within a hundredth) bound for how long the ids of
    completed entries are kept and refused; without either they are forgotten at once. With ``remember_done`` alone
    100,000 are kept. With ``lifo``, entries in no lane leave in the reverse order of arrival at equal priority.
    ``notify``, on PostgreSQL: whether consumers that wait are notified of work, or the alias by which they listen.
    ``timeout`` (seconds or a timedelta): within which a consumer notices that a connection was dropped; None: never.

    Raises InvalidQueueError if there is no such alias, the name is too long or an option cannot be. Does not connect.
    """

    settles_with_claim = True
    features = FEATURES
    options = frozenset({"REMEMBER_DONE", "KEEP_DONE", "LIFO", "NOTIFY", "TIMEOUT"})
    history: DatabaseHistory
    on_commit = None
    bytes_at_once = BATCH_BYTES

    def __init__(
        self,
        name: str,
        connection: str | None = "",
        remember_done: Span = None,
        keep_done: int | None = None,
        lifo: bool = False,
        notify: bool | str | None = None,
        timeout: float | timedelta | None = TIMEOUT,
    ):
        super().__init__(name, connection)
        self.database, self._timeout = alias_of(connection), checks.known_timeout(timeout)
        self._notify = checks.known_notify(notify)
        if len(self.base_name) > LONGEST_NAME:
            raise InvalidQueueError(f"The queue NAME {name!r} is too long: it may have {LONGEST_NAME} characters.")
        self.store = self._facts = DatabaseStore(name, connection)
        remember, keep = remembering(remember_done, keep_done)
        self._marks = self._facts.key("done:") if remember else ""
        self._remember = micros(min(remember, FOR_EVER))
        self._facts.bound = (self._marks, keep)
        self._unswept, self._lifo, self._unanswered = 0, lifo, Unanswered()
        self._db = Database(self.database, self.name, notifies=self._notify is not False)
        self._listens_by: str = self._notify if isinstance(self._notify, str) else self.database
        self._found = 0
        self._claims, self._looks = Claims(self._db), Looks(self._db)
        self.history = DatabaseHistory(self._db)
        self._vacuum = Vacuum(self._db)
        self._swept, self._looked_at = "", 0

    @cached_property
    def failed(self) -> DatabaseQueue | None:
        """The failed queue. It remembers no ids: an entry that is completed there may be put again."""
        if self.name.endswith(FAILED_SUFFIX):
            return None
        return self._sibling(DatabaseQueue, self.name + FAILED_SUFFIX, lifo=self._lifo, notify=False)

    # ---- put

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None = None) -> list[bool]:
        """Raises ValueError for an id, command or lane that is too long.

        What an entry was refused for because that waits is not claimed before the caller's transaction ends.
        """
        if guards and self.store is not self._facts:
            return super().put(entries, guards)
        arrivals = self._arrivals(entries, guards or [None] * len(entries))
        accepted: set[str] = set()
        for batch in batches(arrivals.values()):
            accepted |= self._insert(batch)
        told = []
        for entry in entries:
            told.append(entry.id in accepted)
            accepted.discard(entry.id)  # a second entry of this id is refused
        return told

    def put_new(self, entry: Entry) -> bool:
        """One statement without a transaction, unless it enters a lane or ids are remembered."""
        if entry.gate or self._marks or self.failed is None:
            return self.put([entry])[0]
        return bool(self._db.run(self._db.sql.insert, [arrival_of(entry, lifo=self._lifo)]))

    def _put_one(self, entry: Entry) -> bool:
        return self.put([entry])[0]

    def _arrivals(self, entries: Sequence[Entry], guards: Sequence[Guard | None]) -> dict[str, NewRow]:
        """The first of each id."""
        arrivals: dict[str, NewRow] = {}
        for entry, guard in zip(entries, guards, strict=True):
            if entry.id not in arrivals:
                key = "" if guard is None else self._facts.key(guard.key)
                arrivals[entry.id] = arrival_of(entry, key, guard, self._lifo)
        return arrivals if self.failed is not None else {id: one.in_no_lane() for id, one in arrivals.items()}

    def _insert(self, arrivals: list[NewRow]) -> set[str]:
        kinds = {type(arrival.guard) for arrival in arrivals} - {NoneType}
        insert, ruled = self._inserting(kinds), bool(kinds - {OnceGuard})
        gated = [arrival for arrival in arrivals if arrival.entry.gate]
        entered = {arrival.id: lane for arrival in gated if (lane := arrival.lane(ruled))}
        if not entered:
            return self._db.run(insert, arrivals)
        self._claims.stir()
        return self._db.run(self._db.sql.insert_in_lanes, arrivals, insert, entered)

    def _inserting(self, kinds: set[type]) -> Callable[[Dialect, Sequence[NewRow]], set[str]]:
        if kinds - {OnceGuard}:
            return lambda sql, some: put_guarded(sql, some, self._marks)
        if self._marks:
            return lambda sql, some: sql.insert_checked(some, self._marks)
        return self._db.sql.insert_guarded if kinds else self._db.sql.insert

    # ---- claim and reap

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """At equal priority lanes and entries in none take turns; a full claim may miss lanes that other processes
        filled or opened in the last 50 milliseconds."""
        return self._claim_by(lambda ask: self._claim_and_look(ask, ahead), limit, lease, owner, begin)

    def exchange(
        self,
        done: Sequence[Lease],
        limit: int = 0,
        lease: float = 60.0,
        owner: str = "",
        ahead: int = 0,
        history: Sequence[bytes] = (),
    ) -> tuple[list[Lease], Claimed]:
        """One transaction, and on PostgreSQL one statement, if no lane was touched and no ids are remembered."""
        pairs = plain_pairs(done) if sum(map(len, history)) <= BATCH_BYTES else []
        if not (pairs and limit) or self._marks or self.failed is None or self._claims.are_stirred:
            return super().exchange(done, limit, lease, owner, ahead, history)
        ended = ended_by(done, history)
        gone: Collection[int] | None = None

        def claim(ask: ClaimRequest) -> Claimed:
            nonlocal gone
            gone, claimed = self._claims.exchange(pairs, self._counter, ask, ahead, ended)
            self._claims.look_behind()
            return claimed

        claimed = self._claim_by(claim, limit, lease, owner, begin=False)
        self.history.kept(len(ended))
        return [lease for lease in done if gone is None or token_of(lease).seq in gone], claimed

    def _claim_by(
        self, claim: Callable[[ClaimRequest], Claimed], limit: int, lease: float, owner: str, begin: bool
    ) -> Claimed:
        """In a caller's transaction a claim that fails is rolled back with that; else it may have gone unanswered."""
        self._disown()
        ask = self._ask(limit, lease, owner, begin)
        is_joined = joined(connections[self._db.alias])
        with nullcontext() if is_joined else self._unanswered.asking(ask.token, lease):
            claimed = claim(ask)
        self._found += bool(claimed)
        self._vacuum.claimed += len(claimed)
        return self._without_replays(claimed)

    def _claim_and_look(self, ask: ClaimRequest, ahead: int) -> Claimed:
        claimed = self._claim(ask, ahead)
        self._claims.look_behind()
        return claimed

    def _claim(self, ask: ClaimRequest, ahead: int = 0) -> Claimed:
        return claim_failed(self._db, ask) if self.failed is None else self._claims.claim(ask, ahead)

    def claim_within(
        self, rate_limit: RateLimit, limit: int = 1, lease: float = 60.0, owner: str = "", begin: bool = True
    ) -> Claimed:
        """One statement or one transaction, if there is something to claim and the rate limit has room at a glance."""
        if self.store is not self._facts:
            return super().claim_within(rate_limit, limit, lease, owner, begin)
        return self._claim_by(lambda ask: self._claim_within(rate_limit, ask), limit, lease, owner, begin)

    def _claim_within(self, rate_limit: RateLimit, ask: ClaimRequest) -> Claimed:
        claimed, most = Claimed(), ask.limit
        for _ in range(TRIES if self.failed is not None else 0):
            look = self._looks.look(self._facts.shared, rate_limit)
            if look.nothing is not None:  # it is empty, and so it is false
                return look.nothing
            there, claimed = claim_paid(look, self._facts.shared, rate_limit, ask, most, self._claims.paid)
            if claimed or not there:
                break
            most = there
        claimed = self._looks.found(claimed or self._claim_as_granted(ask, rate_limit))
        self._claims.look_behind()
        return claimed

    def _claim_as_granted(self, ask: ClaimRequest, rate_limit: RateLimit) -> Claimed:
        def claim(count: int, now: int) -> Claimed:
            return self._claim(ask._replace(limit=count, since=str(now)))

        return self._db.run(claim_within, self._facts.shared, rate_limit, ask.limit, claim, self.release)

    def _without_replays(self, claimed: Claimed) -> Claimed:
        """Fail entries that are remembered as done: only a write to the tables by hand can have put them again."""
        ids = [lease.entry.id for lease in claimed]
        if not (self._marks and (done := self._db.run(self._db.sql.marked, self._marks, ids))):
            return claimed
        replays = [_replayed(lease) for lease in claimed if lease.entry.id in done]
        log_safely(logger, logging.WARNING, "%d messages were completed before, and have failed now", len(replays))
        self.fail(replays)
        return Claimed([lease for lease in claimed if lease.entry.id not in done], claimed.retry_after, claimed.reason)

    def _disown(self) -> None:
        """Give back the entries of claims whose answers were lost."""
        if tokens := self._unanswered.tokens():
            if self._db.run(lanes.disown, tokens):
                self._claims.stir()

    def _ask(self, limit: int, lease: float, owner: str, begin: bool = True) -> ClaimRequest:
        token = secrets.randbits(62) | 1  # 0: no holder
        lifo = self._lifo and self.failed is not None
        begun = ALL if begin else NONE
        return ClaimRequest(self.name, limit, micros(lease), token, owner[:LONGEST_OWNER], lifo, begun=begun)

    def _settle_in(self) -> None:
        if self.failed is not None:
            self._claims.refresh_lanes(self._ask(0, 0.0, ""))

    def reap(self, limit: int = 100, by: float = inf) -> Reaped:
        self._disown()
        count, now, next, laned = self._db.run(self._db.sql.reap, limit, micros(by))
        if laned and count < limit:
            count += self._db.run(lanes.reap, limit - count, micros(by))
            self._claims.stir()
        return Reaped(count, 0.0 if count >= limit else seconds_to(next, now), now / 1e6)

    def reclaim(self, owner: str, limit: int = 100) -> int:
        """Of an owner whose name was too long to be kept, nothing: others may have the same beginning."""
        if len(owner) > LONGEST_OWNER:
            return 0
        count = self._db.run(self._db.sql.reclaim, owner, limit)
        if count < limit and (laned := self._db.run(lanes.reclaim, owner, limit - count)):
            count += laned
            self._claims.stir()
        return count

    def sweep(self, limit: int = 1000) -> int:
        """Correct the counts of lanes, and restore lanes whose rows are gone.

        A lane that counts entries as out which are not would be closed for ever. The entries of a lane without a row
        would never leave.
        """
        if self.failed is None:  # a failed queue has no lanes
            return 0
        names = self._db.run(self._db.sql.lanes_out, self._swept, limit)
        self._swept = names[-1] if len(names) == limit else ""
        wrong = self._db.run(lanes.recount, names) if names else []
        self._looked_at, gone = self._db.run(lanes.restore, self._looked_at, limit)
        for name in [*wrong, *gone]:
            text = "%s: what is known of lane %s was not what is in the table; it goes on"
            log_safely(logger, logging.WARNING, text, self.name, plain(name), extra={"queue": self.alias})
        if wrong or gone:
            self._claims.stir()
        return len(wrong) + len(gone)

    def vacuum(self) -> float:
        """On PostgreSQL, if this process has claimed since the last call and the user of its connection may do it."""
        if connections[self.database].vendor != "postgresql":
            return inf
        self._vacuum.run()
        return VACUUM_EVERY

    # ---- what a holder does

    def complete(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        leases = listed(leases)
        finish = Completion(self._counter, self._marks, self._remember)
        kept, told = self._kept(leases, facts), _told(leases, history)

        def say(sql: Dialect, held: Sequence[Lease]) -> Iterable[tuple]:
            return sql.complete(pairs_of(held), finish, kept_of(held, kept), ended_of(held, told))

        done = self._by_holder(leases, say, _is_counted, facts=kept, history=told)
        self._sweep(len(done))
        self.history.kept(len(told))
        return self._with_facts([lease for lease, _ in done], leases, facts)

    def begin(self, leases: Sequence[Lease]) -> list[Lease]:
        marked = self._by_holder(leases, lambda sql, held: sql.mark_begun(pairs_of(held)), lambda lease: False)
        return [replace(lease, begun=True) for lease, _ in marked]

    def defer(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        laned = [lease for lease in leases if is_ours(lease) and token_of(lease).lane]
        to = self._db.run(lanes.defer, laned, micros(seconds)) if laned else None
        return [] if to is None else [replace(lease, claimed=to / 1e6) for lease in laned]

    def touch(self, leases: Leases, lease: float = 60.0) -> list[Lease]:
        leases = listed(leases)
        held = self._by_holder(leases, lambda sql, held: sql.touch(pairs_of(held), micros(lease)), lambda lease: False)
        return [replace(lease, until=row[1] / 1e6) for lease, row in held]

    def release(self, leases: Leases) -> list[Lease]:
        leases = listed(leases)
        back = self._by_holder(leases, lambda sql, held: sql.release(said_of(held, delay_of)))
        return [lease for lease, _ in back]

    def fail(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)  # what has failed stays here
        into, places = self.failed.name, {id(lease): place for place, lease in enumerate(leases)}
        kept, told = self._kept(leases, facts), _told(leases, history)

        def say(sql: Dialect, held: Sequence[Lease]) -> Iterable[tuple]:
            said = said_of(held, lambda lease: places[id(lease)])
            return sql.fail(into, said, kept_of(held, kept), ended_of(held, told))

        failed = self._by_holder(leases, say, _is_counted, facts=kept, history=told)
        self.history.kept(len(told))
        return self._with_facts([lease for lease, _ in failed], leases, facts)

    def _kept(self, leases: Sequence[Lease], facts: Sequence[Fact | None]) -> dict[object, tuple]:
        """The rows of the facts that are kept in the statement that settles: they are in the same tables."""
        if not facts or self.store is not self._facts:
            return {}
        pairs = zip(leases, facts, strict=True)
        return {lease.token: self._facts.row_of(fact) for lease, fact in pairs if fact is not None and is_ours(lease)}

    def _with_facts(self, ours: list[Lease], leases: Sequence[Lease], facts: Sequence[Fact | None]) -> list[Lease]:
        """In a step of its own only where the store is another."""
        return ours if self.store is self._facts else super()._with_facts(ours, leases, facts)

    def _by_holder(
        self,
        leases: Sequence[Lease],
        say: lanes.Say,
        in_lanes: Callable[[Lease], bool] = _is_laned,
        facts: Mapping[object, tuple] | None = None,
        history: Mapping[object, bytes] | None = None,
    ) -> list[tuple[Lease, tuple]]:
        """Each lease that was still held, with the row that proves it; a row begins with its seq.

        ``in_lanes``: whether the change may open the lane of a lease. ``facts`` and ``history`` are written with it.
        """
        mine = [lease for lease in leases if is_ours(lease)]
        laned = [lease for lease in mine if in_lanes(lease)]
        others = [lease for lease in mine if not in_lanes(lease)]
        rows: dict[object, tuple] = {}
        for some, is_laned in ((others, False), (laned, True)):
            for held in rounds(some, facts or {}, history or {}):
                batch = [*held.values()]
                said = self._db.run(lanes.settle, batch, say) if is_laned else self._db.run(say, batch)
                rows |= {held[row[0]].token: row for row in said}
        if laned:
            self._claims.stir()
        return [(lease, rows[lease.token]) for lease in mine if lease.token in rows]

    def _sweep(self, done: int) -> None:
        """Forget the oldest ids; now and then only, as that counts them all."""
        self._unswept += done
        if self._marks and self._unswept >= max(1, self._facts.bound[1] // 100):
            self._unswept = 0
            self._db.run(self._db.sql.surplus, *self._facts.bound, BATCH)

    # ---- time and connection

    def now(self) -> float:
        return self._facts.now()

    @property
    def connection_key(self) -> Hashable:
        return ("database", self.database)

    def describe(self) -> str:
        connection = connections[self.database]
        settings = connection.settings_dict
        host = f" at {settings['HOST']}" if settings.get("HOST") else ""
        return f"{connection.vendor} database {settings['NAME']}{host} ({self.database})"

    def check(self) -> list[CheckMessage]:
        return [*checks.check(self._db.alias, in_use=True), *self._check_options()]

    def _check_options(self) -> Iterator[CheckMessage]:
        yield from checks.check_notify(self._db.alias, self._notify)
        yield from checks.check_timeout(self._db.alias, self._timeout, is_given="timeout" in self._given)

    def close(self) -> None:
        """Close the calling thread's connection, unless a transaction is open on it."""
        if not joined(connections[self.database]):
            connections[self.database].close()

    def serving(self) -> AbstractContextManager[None]:
        aliases = {self._db.alias, self._listens_by}
        return nullcontext() if self._timeout is None else watch.serving(aliases, self._timeout)

    @property
    def _counter(self) -> str:
        """The key under which this thread counts."""
        return self._counters[(os.getpid() + threading.get_native_id()) % SLOTS]

    # ---- waiting

    @property
    def _delivery(self) -> Delivery:
        return delivery_of(self._db.alias, self._listens_by)

    @cached_property
    def _can_listen(self) -> bool:
        if self._notify is False or connections[self.database].vendor != "postgresql":
            return False
        from django.db.backends.postgresql.psycopg_any import is_psycopg3

        return is_psycopg3

    def bell(self, beside: Sequence[Self] = ()) -> Bell:
        """On PostgreSQL what rings are notifications of other transactions; elsewhere queues are polled."""
        if not self._can_listen:
            return Bell()
        queues = [self, *beside]
        return PostgresBell(
            self._delivery, {queue.name for queue in queues}, lambda: sum(queue._found for queue in queues)
        )

    @cached_property
    def _counters(self) -> list[str]:
        """Keys that no fact can have, as no name has a space in it."""
        return [f"{self.name} done {slot}" for slot in range(SLOTS)]

    # ---- for operators

    def requeue(self, ids: Iterable[str]) -> int:
        if self.failed is None:
            return 0
        return sum(self._db.run(_requeued, self.failed.name, chunk) for chunk in chunks(ids))

    def find(self, id: str) -> Record | None:
        rows = self._db.run(self._db.sql.find, id) if is_text(id) else []
        return next((record_of(row, self._lifo) for row in rows), None)

    def holders(self, queues: Sequence[Self], id: str) -> list[Self]:
        if not is_text(id):
            return []
        names = [name for queue in queues for name in (queue.name, f"{queue.name}{FAILED_SUFFIX}")]
        found = {name.removesuffix(FAILED_SUFFIX) for name in self._db.run(self._db.sql.queues_of, id, names)}
        keys = {queue._facts.key(f"{RESULTS}{id}"): queue.name for queue in queues}
        found |= {keys[key] for key in self._db.run(self._db.sql.get_many, list(keys))}
        return [queue for queue in queues if queue.name in found or queue.store is not queue._facts]

    def remove(self, ids: Iterable[str], facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> int:
        if facts or history:
            return sum(map(self._end_waiting, ids, facts or repeat(None), history or repeat(b"")))
        return sum(self._noted(self._db.sql.remove, chunk) for chunk in chunks(ids))

    def _end_waiting(self, id: str, fact: Fact | None, record: bytes) -> int:
        kept = [] if fact is None or self.store is not self._facts else [self._facts.row_of(fact)]

        def end(sql: Dialect, ids: Sequence[str]) -> int:
            count = sql.remove(ids)
            if count and kept:
                sql.put(kept)
            if count and record:
                sql.keep_records([(0, id, record)])
            return count

        count = self._noted(end, [id]) if is_text(id) else 0
        self.history.kept(int(count and bool(record)))
        return self._with_ends([id] * count, [id], [] if kept else [fact])

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        priority = checked_priority(priority)
        own = priority if self._lifo else ~priority
        return sum(self._noted(self._db.sql.reprioritise, chunk, own, ~priority) for chunk in chunks(ids))

    def promote(self, ids: Iterable[str]) -> int:
        self._claims.stir()
        verb = self._db.sql.make_due if self.failed is None else _promoted  # a failed queue has no lanes
        return sum(self._db.run(verb, chunk) for chunk in chunks(ids))

    def _noted(self, verb: Callable, ids: Sequence[str], *args) -> int:
        """Change entries that wait; their lanes will be looked at."""
        self._claims.stir()
        if self.failed is None:  # a failed queue has no lanes
            return self._db.run(verb, ids, *args)
        return self._db.run(_changed, verb, ids, *args)

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        return is_text(id) and self._db.run(self._db.sql.amend, id, was, data)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Finds what is too old by a step in the index, and counts no further than to ``most``."""
        trimmed = 0 if age is None else self._db.run(self._db.sql.trim_older, micros(age), limit)
        if most is not None and trimmed < limit:
            trimmed += self._db.run(self._db.sql.trim_surplus, most, limit - trimmed)
        return trimmed

    @cached_property
    def lanes(self) -> BaseLanes:
        return LanesInDatabase(self)

    def peek(self, state: str, limit: int = 50, after: str | None = None, last: bool = False) -> list[Record]:
        """Entries in lanes come after entries in none, lane by lane."""
        if state not in STATES:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(dict.fromkeys(STATES))}.")
        if last:
            backwards = not self._lifo or self.failed is None
            rows = self._db.run(self._db.sql.peek, [STATES.index(READY)], limit, (), backwards)
            return [record_of(row, self._lifo) for row in rows]
        if state != LEASED:
            self._db.run(self._db.sql.promote)
            self._settle_in()
        *parts, lane = after.split(".", 3) if after else ("",)
        place = [int(part) for part in parts]
        found = [] if lane else self._peek_own(state, limit, place)
        if state == READY and self.failed is not None:
            found += self._peek_lanes(limit - len(found), lane, place)
        return found

    def _peek_own(self, state: str, limit: int, place: list[int]) -> list[Record]:
        backwards = state == READY and self._lifo and self.failed is not None
        numbers = [number for number, name in enumerate(STATES) if name == state]
        found = self._db.run(self._db.sql.peek, numbers, limit, place, backwards)
        rows = sorted(found, key=lambda row: (row[-3], row[12], row[0]), reverse=backwards)  # sort_key, sort_at, seq
        return [record_of(row, self._lifo) for row in rows[:limit]]

    def _peek_lanes(self, limit: int, lane: str, place: list[int]) -> list[Record]:
        """From a place in a lane on, in the order of their names."""
        rows = [*self._db.run(self._db.sql.peek, [number_of(lane)], limit, place)] if lane else []
        names = {number_of(lane): lane}
        while limit > len(rows) and (page := self._db.run(self._db.sql.lane_page, lane, PAGE)):
            order = {number: order for order, (_, number) in enumerate(page)}
            found = self._db.run(self._db.sql.peek, [*order], limit - len(rows))
            rows += sorted(found, key=lambda row: (order[row[15]], row[-3], row[12], row[0]))
            names |= {number: name for name, number in page}
            lane = page[-1][0]
        return [record_of(row, self._lifo, names[row[15]]) for row in rows[:limit]]

    def flush(self) -> None:
        for state in FLUSHED:
            place: tuple | None = ()
            while place is not None:
                place = self._db.run(self._db.sql.flush, state, place)
        for numbers in self._numbers() if self.failed is not None else ():
            self._flush_lanes(numbers)
        self._db.run(self._db.sql.call_lanes)  # some of them have become empty
        self._claims.stir()

    def _flush_lanes(self, numbers: list[int]) -> None:
        while numbers:
            least = self._db.run(self._db.sql.flush_lanes, numbers)
            numbers = [] if least is None else [number for number in numbers if number >= least]

    def _numbers(self) -> Iterator[list[int]]:
        """The lanes of the queue in which something may wait, some at a time."""
        name, made = "", (0, 0)
        while page := self._db.run(self._db.sql.lane_page, name, PAGE):
            yield [number for _, number in page]
            name = page[-1][0]
        while page := self._db.run(self._db.sql.ticket_page, made, PAGE):
            yield list({number for *_, number in page})
            made = page[-1][:2]

    def stats(self) -> QueueStats:
        """Counts stop at 100,000."""
        failed_name = self.failed.name if self.failed is not None else ""
        row = self._db.run(self._db.sql.stats, failed_name, self._counters)
        own, laned, due, later_due, delayed, later, leased, out, failed, done, now, *heads = row
        oldest = min((moment for moment in heads if moment is not None), default=None)
        return QueueStats(
            ready=min(own + laned + due + later_due, CAP),
            delayed=min(delayed + later, CAP),
            leased=min(leased + out, CAP),
            failed=failed if failed_name else None,
            done=int(done or 0),
            oldest=None if oldest is None else max(0.0, (now - oldest) / 1e6),
            capped=CAP,
        )

    def __len__(self) -> int:
        """Counts them all: in milliseconds up to some 10,000."""
        return self._db.run(self._db.sql.length)


def _told(leases: Sequence[Lease], history: Sequence[bytes]) -> dict[object, bytes]:
    """The records that are kept, by token."""
    pairs = zip(leases, history, strict=True) if history else ()
    return {lease.token: record for lease, record in pairs if record and is_ours(lease)}


def _replayed(lease: Lease) -> Lease:
    """The lease, with an error that gives the reason of its failure."""
    entry = lease.entry
    errors = with_error(entry.errors, at=lease.claimed, attempt=entry.attempts, reason=REPLAYED)
    return replace(lease, entry=replace(entry, errors=errors, delay=0.0, hold=""))


def _changed(sql: Dialect, verb: Callable[..., int], ids: Sequence[str], *args: int) -> int:
    with sql.writing():
        if found := sql.lanes_of(sql.queue, ids):
            sql.leave_tickets([(name, number, "") for name, number, _ in found])
        return verb(sql, ids, *args)


def _promoted(sql: Dialect, ids: Sequence[str]) -> int:
    with sql.writing():
        if found := sql.lanes_of(sql.queue, ids):  # which may not be there yet
            sql.leave_tickets(found)
        return sql.make_due(ids)


def _requeued(sql: Dialect, failed: str, ids: Sequence[str]) -> int:
    with sql.writing():
        if found := sql.lanes_of(failed, ids):
            sql.leave_tickets(found)
        return sql.requeue(failed, ids)


# ---- Lanes, for operators


class LanesInDatabase(BaseLanes):
    """The lanes of a queue in a database, for operators."""

    def __init__(self, queue: DatabaseQueue):
        super().__init__(queue._cannot)
        self._queue, self._db = queue, queue._db

    def page(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        return self._found("name > %s ORDER BY name LIMIT %s", [after or "", limit])

    def get(self, name: str) -> LaneRecord | None:
        return next(iter(self._found("name = %s", [name])), None)

    def _found(self, which: str, params: list) -> list[LaneRecord]:
        self._queue._settle_in()
        rows = self._db.run(self._db.sql.lane_rows, which, params)
        out = lanes.out(self._db.run(self._db.sql.in_flight))
        return [lane_record_of(row, waiting, LANE_CAP, out[row[1]]) for row, waiting in rows]

    def peek(self, name: str, limit: int = 50, after: str | None = None) -> list[Record]:
        if self._queue.failed is None:  # a failed queue has no lanes
            return []
        self._db.run(self._db.sql.promote)
        self._queue._settle_in()
        place = [int(part) for part in after.split(".", 3)[:3]] if after else []
        rows = self._db.run(self._db.sql.peek, [number_of(name)], limit, place)
        return [record_of(row, self._queue._lifo, name) for row in rows]

    def pause(self, name: str, why: str) -> None:
        """Raises ValueError for a name that no lane can have."""
        if not 0 < len(name) <= LONGEST["lane"]:
            raise ValueError(f"A lane's name has {len(name)} characters; it may have 1 to {LONGEST['lane']}.")
        self._queue._settle_in()
        self._change(name, lambda lane, now: replace(lane, paused_reason=why or "paused"), make=True)

    def resume(self, name: str) -> bool:
        return self._change(name, lambda lane, now: resumed(lane) if is_blocked(lane, now) else lane)

    def _change(self, name: str, change: Callable[[Lane, int], Lane], make: bool = False) -> bool:
        self._queue._claims.stir()
        return self._db.run(lanes.change_lane, name, change, make)


# ---- What a claim brings: of what is in no lane by one statement, as if there were no lanes, and of lanes


class Claims:
    """The claims of one queue object."""

    def __init__(self, database: Database):
        self._db = database
        self._stirred = False
        self._look_at = 0.0
        self._laned_last = False
        self._was_full = False
        self._has_rates = False
        """Whether the last claim saw lanes that only rates hold up, and none else."""

    @property
    def are_stirred(self) -> bool:
        """Whether the next claim looks at the lanes first."""
        return self._stirred

    def stir(self) -> None:
        """Let the next claim look at the lanes first: an entry arrived in one, or one may have opened."""
        self._stirred = True

    def claim(self, ask: ClaimRequest, ahead: int) -> Claimed:
        """Units of work, the first to leave first. At equal priority lanes and entries in none take turns.

        That holds for all entries that waited when the claim began, except in lanes that other processes filled or
        opened less than UNSEEN ago: a claim that is full without them looks for them only in :meth:`look_behind`.
        """
        if (self._stirred or self._has_rates) and (claimed := self._spent(ask, ahead)) is not None:
            return claimed
        if self._stirred:
            laned, soon = self._laned(ask, ahead, self.glance())
            missing = ask.limit - sum(unit is not None for unit in laned)
            own, again, _ = self._own(ask, missing) if missing else ([], 0.0, None)
            return _merged(ask, laned, own, min(soon, again))
        return self._filled(ask, ahead, *self._own(ask, ask.limit))

    def _spent(self, ask: ClaimRequest, ahead: int) -> Claimed | None:
        """A claim by one statement, if nothing but rates holds lanes up; else None, and nothing was changed."""
        spent = self._db.run(self._db.sql.spend, ask, ahead, self._laned_last)
        if spent is not None and spent.made:
            spent = self._db.run(self._db.sql.spend, ask, ahead, self._laned_last)
        self._has_rates = spent is not None and (spent.is_any or spent.next is not None)
        if spent is None:
            return None
        leases = [lease_of(row, ask) for row in spent.rows]
        self._stirred, self._was_full = spent.stirs, False
        if leases:
            self._laned_last = bool(token_of(leases[-1]).lane)
        if len(leases) >= ask.limit:
            return Claimed(leases, 0.0)
        if self._stirred:
            return Claimed(leases, 0.0 if leases else SOON)
        soonest = min((moment for moment in (spent.delayed, spent.next) if moment is not None), default=None)
        return Claimed(leases, seconds_to(soonest, spent.now))

    def exchange(
        self, pairs: Sequence[tuple], counter: str, ask: ClaimRequest, ahead: int, ended: Sequence[tuple]
    ) -> tuple[Collection[int] | None, Claimed]:
        """The seqs of what was completed (None: all), and a claim as if no lane had been touched."""
        ask = ask._replace(look=not self._was_full)
        completed, taken = self._db.run(self._db.sql.exchange, pairs, counter, ask, ended)
        if taken.more and not taken.rows:
            taken = self._db.run(self._db.sql.claim, ask)
        return completed, self._filled(ask, ahead, *self._seen(taken, ask, ask.limit))

    def _filled(self, ask: ClaimRequest, ahead: int, own: list[Lease], again: float, glance: Glance | None) -> Claimed:
        """What was claimed in no lane, and behind it what lanes have, up to the limit."""
        if len(own) >= ask.limit:
            return Claimed(own, again)
        rest, glance = ask._replace(limit=ask.limit - len(own)), glance or self.glance()
        if glance.stirs and (spent := self._spent(rest, ahead)) is not None:
            return Claimed([*own, *spent], min(again, spent.retry_after) if len(own) + len(spent) < ask.limit else 0.0)
        laned, soon = self._laned(rest, ahead, glance)
        return _merged(ask, [None] * len(own) + [unit for unit in laned if unit], own, min(soon, again))

    def paid(self, ask: ClaimRequest, payment: Payment) -> tuple[int, list[Lease]]:
        """What is in no lane and paid for, if it is as much as was asked for; and how much there is: 0 if that is not
        to be known by one statement."""
        if self._stirred:
            return 0, []
        there, rows = self._db.run(self._db.sql.claim_paid, ask, payment)
        self._was_full = bool(rows)
        return there, _in_order(rows, ask)

    def refresh_lanes(self, ask: ClaimRequest) -> None:
        """Put lanes where they belong, as far as claims have not done so."""
        for _ in range(ROUNDS):
            glance = self.glance()
            if not (glance.ticket or glance.rises or glance.falls_due):
                break
            self._db.run(lanes.claim_turns, ask, glance, self._db.run(lanes.take_tickets, glance), 0, False)

    def look_behind(self) -> None:
        """After a claim, which may have been full without lanes: now and then only."""
        if self._was_full and not self._stirred and time.monotonic() >= self._look_at:
            self._stirred = self.glance().stirs
            self._look_at = time.monotonic() + UNSEEN

    def _own(self, ask: ClaimRequest, limit: int) -> tuple[list[Lease], float, Glance | None]:
        """What is in no lane, and seconds until there may be more."""
        taken = self._db.run(self._db.sql.claim, ask._replace(limit=limit, look=not self._was_full))
        return self._seen(taken, ask, limit)

    def _seen(self, taken: ClaimResult, ask: ClaimRequest, limit: int) -> tuple[list[Lease], float, Glance | None]:
        """The leases of a claim in no lane, and what it saw."""
        self._was_full = len(taken.rows) >= limit
        return _in_order(taken.rows, ask), _retry_after(taken, limit), taken.glance

    def _laned(self, ask: ClaimRequest, ahead: int, glance: Glance) -> tuple[list[list[Lease] | None], float]:
        """The units of lanes, None for one in no lane that comes before; and seconds until there may be more."""
        self._stirred = glance.stirs
        if not glance.stirs:
            self._look_at = time.monotonic() + UNSEEN
            return [], seconds_to(glance.next, glance.now)
        tickets, last = self._db.run(lanes.take_tickets, glance), self._laned_last
        turns, self._laned_last, held_back = self._db.run(lanes.claim_turns, ask, glance, tickets, ahead, last)
        units = [
            unit and [lease_of(row, ask, unit.run, unit.is_counted, not at) for at, row in enumerate(unit.rows)]
            for unit in turns
        ]
        units = [unit for unit in units if unit is None or unit]
        if held_back or len(units) >= ask.limit:
            return units, 0.0
        glance = self.glance()
        self._stirred = glance.stirs
        if glance.stirs:
            return units, 0.0 if any(units) else SOON
        return units, seconds_to(glance.next, glance.now)

    def glance(self) -> Glance:
        return self._db.run(self._db.sql.glance)


def _merged(ask: ClaimRequest, laned: list[list[Lease] | None], own: list[Lease], again: float) -> Claimed:
    """The units of lanes, where None stands for an entry in no lane, and the remaining entries in no lane."""
    rest = iter(own)
    units = [unit for one in laned if (unit := one or [*islice(rest, 1)])]
    units += [[lease] for lease in rest]
    leases = [lease for unit in units for lease in unit]
    return Claimed(leases, 0.0 if len(units) >= ask.limit else again)


def _in_order(rows: Iterable[tuple], ask: ClaimRequest) -> list[Lease]:
    """In what order a database returns the rows it has changed is its own affair."""
    return [lease_of(row, ask) for row in sorted(rows, key=order_of, reverse=ask.lifo)]


def _retry_after(taken: ClaimResult, limit: int) -> float:
    return 0.0 if taken.more or len(taken.rows) >= limit else seconds_to(taken.next, taken.now)


def claim_failed(database: Database, ask: ClaimRequest) -> Claimed:
    """From a failed queue, which knows no lanes and is in the order of the failures."""
    taken = database.run(database.sql.claim, ask._replace(look=False))
    return Claimed([lease_of(row, ask) for row in sorted(taken.rows, key=place_of)], _retry_after(taken, ask.limit))
