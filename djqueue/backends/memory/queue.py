"""A queue and a store inside this process: everything that the contract asks for, gone when the process ends."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from math import inf
from typing import Self

from djqueue.backends import entries
from djqueue.backends.base import FAILED_SUFFIX, FEATURES, LeasedQueue, RateLimit
from djqueue.backends.entries import (
    DELAYED,
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
from djqueue.backends.guards import Decision, DedupMark, Finished, Guard, Span, decide, remembering
from djqueue.backends.lanes import BaseLanes
from djqueue.backends.memory.bells import MemoryBell, Ringer
from djqueue.backends.memory.history import MemoryHistory
from djqueue.backends.memory.lanes import Item, MemoryLanes, us
from djqueue.backends.memory.store import MemoryStore, at_one_moment
from djqueue.flow.board import Line
from djqueue.utils import priority as checked_priority

__all__ = ["MemoryQueue", "MemoryStore"]

IN_LANES = "lanes"
"""The first word of the cursors of what waits in lanes."""


class MemoryQueue(LeasedQueue):
    """A queue that lives in this object: for development, for tests, and for work that may die with its process.

    ``remember_done`` (seconds or a timedelta) and ``keep_done`` (a count; 100,000 if only the former is given) bound
    for how long the ids of completed entries are remembered and refused; without either they are forgotten at once.
    With ``lifo``, entries in no lane leave in the reverse order of arrival at equal priority. Raises
    InvalidQueueError for invalid values. All verbs take time logarithmic in the size of the queue, but
    ``peek``, which looks at all entries of its state, and ``flush``.
    """

    settles_with_claim = True
    features = FEATURES - {"durable", "transaction"}
    options = frozenset({"REMEMBER_DONE", "KEEP_DONE", "LIFO"})
    async_unsafe = True
    """As of a queue in a database: so tests find the calls that production would refuse."""
    clock: Callable[[], float] = staticmethod(time.time)
    """The clock by which leases, delays and facts are judged; tests put their own here."""

    def __init__(self, name, connection=None, remember_done: Span = None, keep_done: int | None = None, lifo=False):
        super().__init__(name, connection)
        self._lifo, self.own_rate_limit = bool(lifo), f"queue:{name}:{secrets.token_hex(4)}"  # its name is not unique
        self._lock, self._arrivals, self._ringer = threading.RLock(), count(), Ringer()
        self._items: dict[str, Item] = {}
        self._lines = {READY: Line(), DELAYED: Line(), LEASED: Line()}
        self._oldest, self._lanes = Line(), MemoryLanes()
        self.history = MemoryHistory(self._lock, self.now)
        self._done, self._finished = 0, Finished(*remembering(remember_done, keep_done))
        self.store = self._own_store = MemoryStore(name)
        self._own_store._lock, self._own_store.clock = self._lock, self.now
        self.failed = None
        if self.name.endswith(FAILED_SUFFIX):
            return
        self.failed = failed = self._sibling(MemoryQueue, name + FAILED_SUFFIX)
        failed._lock, failed._arrivals, failed.clock = self._lock, self._arrivals, self.now
        failed._own_store._lock = self._lock

    # ---- what the consumer calls

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None = None) -> list[bool]:
        pairs = list(zip(entries, guards or [None] * len(entries), strict=True))
        with self._lock:
            now = self.now()
            self._finished.forget(now)
            accepted = [self._accept(entry, guard, now) for entry, guard in pairs]
        if any(accepted):
            self._ringer.ring()
        return accepted

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        with self._lock:
            now, leases, units = self.now(), [], 0
            self._promote(now)
            for turn in self._lanes.units(self._rank_in_no_lane, limit, ahead, us(now)):
                items = [self._items[self._lines[READY].first()]] if turn is None else self._lanes.taken(turn)
                lend = partial(self._lend, now=now, seconds=lease, owner=owner, run=turn.run if turn else "")
                leases += [lend(item, begun=begin and item is items[0]) for item in items]
                units += 1
            more = units == limit or self._lanes.first_rank() is not None
            return Claimed(leases, retry_after=0.0 if more else self._until_more(now))

    def claim_within(
        self, rate_limit: RateLimit, limit: int = 1, lease: float = 60.0, owner: str = "", begin: bool = True
    ) -> Claimed:
        with self._lock, at_one_moment(self):
            return super().claim_within(rate_limit, limit, lease, owner, begin)

    def _rank_in_no_lane(self) -> int | None:
        id = self._lines[READY].first()
        return None if id is None else self._items[id].rank

    def _until_more(self, now: float) -> float:
        """Seconds until a delayed entry is due or a lane opens by itself."""
        opens = self._lanes.next_moment()
        until_open = inf if opens is None else max(0.0, (opens - us(now)) / 1e6)
        return min(self._until_first(DELAYED, now), until_open)

    def begin(self, leases: Sequence[Lease]) -> list[Lease]:
        with self._lock:
            now, ours = self.now(), []
            for lease, item in self._ours(leases):
                if item.state == LEASED and item.at > now:
                    item.begun = True
                    ours.append(replace(lease, begun=True))
            return ours

    def defer(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        with self._lock:
            now, ours = self.now(), list(self._ours(leases))
            to = now + seconds
            done = [self._lanes.defer(item, us(lease.claimed), us(to), us(now)) for lease, item in ours]
            return [replace(lease, claimed=to) for lease in leases] if done and all(done) else []

    def complete(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        leases = listed(leases)
        with self._lock:
            now, ours = self.now(), []
            for lease, item in self._ours(leases):
                self._take_out(item)
                self._let_go(item, now)
                self._finished.add(lease.entry.id, now)
                ours.append(lease)
            self._done += len(ours)
            self._with_facts(ours, leases, facts)
            self._with_history(ours, leases, history)
        self._wake_for(ours)
        return ours

    def touch(self, leases: Leases, lease: float = 60.0) -> list[Lease]:
        leases = listed(leases)
        with self._lock:
            until, ours = self.now() + lease, []
            for held, item in self._ours(leases):
                if item.state == READY and item.begun:  # reaped, and not taken: its holder lives
                    item.entry = replace(item.entry, lost=item.entry.lost - 1)
                self._stand(item, LEASED, until)
                ours.append(replace(held, until=until))
            return ours

    def release(self, leases: Leases) -> list[Lease]:
        leases = listed(leases)
        with self._lock:
            now, ours = self.now(), []
            for lease, item in self._ours(leases):
                self._give_up(item, lease.entry)
                self._leave(item)
                self._let_go(item, now)
                self._return(item, lease.entry, now)
                ours.append(lease)
        if ours:
            self._ringer.ring()
        return ours

    def fail(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)  # what has failed stays here
        with self._lock:
            now, ours = self.now(), []
            for lease, item in self._ours(leases):
                self._give_up(item, lease.entry)
                self._take_out(item)
                self._let_go(item, now)
                self.failed._take_in(item.requeued(next(self._arrivals), now))
                ours.append(lease)
            self._with_facts(ours, leases, facts)
            self._with_history(ours, leases, history)
        self._wake_for(ours)
        return ours

    def reap(self, limit: int = 100, by: float = inf) -> Reaped:
        with self._lock:
            now, reaped = self.now(), 0
            while now <= by and reaped < limit and self._until_first(LEASED, now) == 0:
                self._lose(self._items[self._lines[LEASED].first()], now)
                reaped += 1
            next = self._until_first(LEASED, now)
        if reaped:
            self._ringer.ring()
        return Reaped(reaped, next, now)

    def reclaim(self, owner: str, limit: int = 100) -> int:
        with self._lock:
            now, leased = self.now(), [item for item in self._items.values() if item.state == LEASED]
            held = [item for item in leased if item.owner == owner][:limit]
            for item in held:
                self._lose(item, now)
        if held:
            self._ringer.ring()
        return len(held)

    # ---- history

    def _with_history(self, ours: Sequence[Lease], leases: Sequence[Lease], history: Sequence[bytes]) -> None:
        if history:
            held = {id(lease) for lease in ours}
            pairs = zip(leases, history, strict=True)
            records = [(lease.entry.id, record) for lease, record in pairs if id(lease) in held]
            self.history.keep([id for id, _ in records], [record for _, record in records])

    # ---- time

    def now(self) -> float:
        return self.clock()

    def bell(self, beside: Sequence[Self] = ()) -> MemoryBell:
        return MemoryBell([queue._ringer for queue in (self, *beside)])

    def describe(self) -> str:
        return "in the memory of this process"

    # ---- one entry, under the lock

    def _accept(self, entry: Entry, guard: Guard | None, now: float) -> bool:
        if entry.id in self._items or entry.id in self._finished:
            return False
        if guard is not None:
            decision = self._rule_on(entry, guard, now)
            if not decision.accept:
                return False
            if decision.delay and decision.mark is not None:
                # Not by the delay: a sum of moments that is rounded down is due before the moment of its mark.
                entry = replace(entry, run_at=decision.mark.at / 1e6, delay=0.0)
        self._take_in(Item(entries.stamped(entry, now), next(self._arrivals), now))
        return True

    def _rule_on(self, entry: Entry, guard: Guard, now: float) -> Decision:
        """What the guard decides; its mark is written, and what it postpones is moved."""
        was = self.store.get(guard.key)
        mark = None if was is None else DedupMark.read(was)
        named = None if mark is None else self._items.get(mark.id)
        decision = decide(guard, entry, mark, None if named is None else named.state, now)
        if decision.mark is not None:
            self.store.put(guard.key, decision.mark.written(), decision.ttl)
        if decision.postpone and named is not None and named.state == DELAYED:
            named.place = decision.postpone / 1e6
            named.entry = replace(named.entry, run_at=named.place)
            self._stand(named, DELAYED, named.place)
        return decision

    def _take_in(self, item: Item) -> None:
        """Add a waiting item; an item of its id that waited or was leased here is removed."""
        if item.entry.id in self._items:
            self._take_out(self._items[item.entry.id])
        item.rank = self._rank(item)
        self._items[item.entry.id] = item
        self._stand(item, DELAYED if item.place > self.now() else READY, item.place)

    def _rank(self, item: Item) -> int:
        return 0 if self.failed is None else -item.entry.priority

    def _take_out(self, item: Item) -> None:
        self._leave(item)
        del self._items[item.entry.id]

    def _lend(self, item: Item, now: float, seconds: float, owner: str, run: str, begun: bool) -> Lease:
        item.entry = replace(item.entry, attempts=item.entry.attempts + 1)
        item.token, item.owner, item.begun = secrets.randbits(62), owner, begun and not item.entry.lost
        self._stand(item, LEASED, now + seconds)
        return Lease(item.entry, item.token, now, now + seconds, run, item.begun)

    def _return(self, item: Item, says: Entry, now: float) -> None:
        """Back it goes; what waits with it does so too."""
        due = now + says.delay if says.delay > 0 else 0.0
        laned = self._is_laned(item)
        if laned and says.hold:
            self._lanes.hold(item, says.hold, us(due), us(now))
            due = 0.0
        self._stand(item, DELAYED if due else READY, due or item.place)

    def _is_laned(self, item: Item) -> bool:
        return bool(item.entry.gate) and self.failed is not None

    def _let_go(self, item: Item, now: float) -> None:
        """Note that an entry that had left its lane has come back or is gone."""
        if self._is_laned(item):
            self._lanes.back(item, us(now))

    def _lose(self, item: Item, now: float) -> None:
        """Put an entry back whose holder is gone."""
        item.entry = replace(item.entry, lost=item.entry.lost + item.begun)
        if self._is_laned(item):
            item.token = None  # its lane goes on: a late worker may not finish what another may have begun
        self._leave(item)
        self._let_go(item, now)
        self._stand(item, READY, item.place)  # the token stays: a late worker may finish it until it is taken

    def _wake_for(self, ours: Sequence[Lease]) -> None:
        """Wake waiting consumers if a lane may have opened."""
        if any(lease.entry.gate for lease in ours):
            self._ringer.ring()

    def _give_up(self, item: Item, says: Entry) -> None:
        """Take the counts and errors of an entry from its holder, and void the holder's token."""
        counts = {name: getattr(says, name) for name in ("attempts", "failures", "lost", "errors")}
        item.entry, item.token, item.owner = replace(item.entry, **counts), None, ""

    def _ours(self, leases: Sequence[Lease]) -> Iterable[tuple[Lease, Item]]:
        """The leases whose token is still valid; one at a time, as each may void the next."""
        for lease in leases:
            item = self._items.get(lease.entry.id)
            if item is not None and item.token is not None and item.token == lease.token:
                yield lease, item

    def _stand(self, item: Item, state: str, at: float) -> None:
        """Move an item to a state: the only method that does."""
        self._leave(item)
        item.state, item.at = state, at
        if state == READY:
            self._oldest.add(item.entry.id, (item.place, item.seq))
        if state == READY and self._is_laned(item):
            self._lanes.come(item, us(self.now()))
        else:
            self._lines[state].add(item.entry.id, self._key(item))

    def _leave(self, item: Item) -> None:
        if item.state == READY and self._is_laned(item):
            self._lanes.go(item, us(self.now()))
        elif item.state:
            self._lines[item.state].drop(item.entry.id)
        self._oldest.drop(item.entry.id)
        item.state = ""

    # ---- time and memory, under the lock

    def _promote(self, now: float) -> None:
        while self._until_first(DELAYED, now) == 0:
            item = self._items[self._lines[DELAYED].first()]
            self._stand(item, READY, item.place)
        self._lanes.wake(us(now))

    def _until_first(self, state: str, now: float) -> float:
        """Seconds until the first item of a state is due or runs out; 0 if it has, infinity if there is none."""
        id = self._lines[state].first()
        return inf if id is None else max(0.0, self._items[id].at - now)

    # ---- Inspection

    def flush(self) -> None:
        with self._lock:
            for item in self._waiting(self._items):
                self._take_out(item)

    def find(self, id: str) -> Record | None:
        with self._lock:
            self._promote(self.now())
            return self._record(self._items[id]) if id in self._items else None

    def remove(self, ids: Iterable[str], facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> int:
        with self._lock:
            waiting = self._waiting(ids := [*ids])
            for item in waiting:
                self._take_out(item)
            return self._with_ends({item.entry.id for item in waiting}, ids, facts, history)

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        with self._lock:
            same = [item for item in self._waiting([id]) if item.entry.body == was]
            for item in same:
                item.entry = replace(item.entry, body=data)
            return bool(same)

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        priority = checked_priority(priority)
        with self._lock:
            waiting = self._waiting(ids)
            for item in waiting:
                state, at = item.state, item.at
                self._leave(item)
                item.entry = replace(item.entry, priority=priority)
                item.rank = self._rank(item)
                self._stand(item, state, at)
            return len(waiting)

    def promote(self, ids: Iterable[str]) -> int:
        with self._lock:
            now = self.now()
            delayed = [item for item in self._waiting(ids) if item.state == DELAYED]
            for item in delayed:
                self._leave(item)
                if item.place > now:
                    item.place, item.entry = now, replace(item.entry, run_at=now)
                self._stand(item, READY, item.place)
        if delayed:
            self._ringer.ring()
        return len(delayed)

    def requeue(self, ids: Iterable[str]) -> int:
        if self.failed is None:
            return 0
        with self._lock:
            now = self.now()
            moved = [item for item in self.failed._waiting(ids) if item.entry.id not in self._items]
            for item in moved:
                self.failed._take_out(item)
                item.entry = replace(item.entry, attempts=0, failures=0, lost=0, created=now)
                self._take_in(item.requeued(next(self._arrivals), now))
        if moved:
            self._ringer.ring()
        return len(moved)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        with self._lock:
            now, trimmed = self.now(), 0
            self._promote(now)
            while trimmed < limit and (id := self._oldest.first()) is not None:
                surplus = most is not None and len(self._oldest) > most
                if not surplus and (age is None or now - self._items[id].place <= age):
                    break
                self._take_out(self._items[id])
                trimmed += 1
            return trimmed

    @cached_property
    def lanes(self) -> BaseLanes:
        return LanesInMemory(self)

    def peek(self, state: str, limit: int = 50, after: str | None = None, last: bool = False) -> list[Record]:
        if state not in self._lines:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(self._lines)}.")
        with self._lock:
            if last:
                return [self._record(self._items[name]) for name in self._lines[READY].last(limit)]
            self._promote(self.now())
            cursor = tuple(json.loads(after)) if after else None
            if cursor and cursor[0] == IN_LANES:
                return self._in_lanes(cursor, limit)
            names = self._lines[state].after(cursor, limit)
            found = [self._record(self._items[name]) for name in names]
            return found + self._in_lanes((IN_LANES,), limit - len(found)) if state == READY else found

    def _in_lanes(self, cursor: tuple, limit: int) -> list[Record]:
        """What waits in lanes, lane by lane."""
        keys = {(IN_LANES, item.entry.lane, *item.key()): item for item in self._lanes.items()}
        behind = sorted(key for key in keys if key > cursor)[:limit]
        return [replace(self._record(keys[key]), cursor=json.dumps(key)) for key in behind]

    def stats(self) -> QueueStats:
        with self._lock:
            now = self.now()
            self._promote(now)
            sizes = {state: len(line) for state, line in self._lines.items()}
            sizes[READY] += len(self._lanes)
            oldest, failed = self._oldest.first(), None if self.failed is None else len(self.failed)
            age = None if oldest is None else max(0.0, now - self._items[oldest].place)
            return QueueStats(**sizes, failed=failed, done=self._done, oldest=age)

    # ---- under the lock

    def _waiting(self, ids: Iterable[str]) -> list[Item]:
        """The items of these ids that are not leased, each once, in the order of the ids."""
        items = [self._items[id] for id in dict.fromkeys(ids) if id in self._items]
        return [item for item in items if item.state != LEASED]

    def _record(self, item: Item) -> Record:
        return Record(item.entry, item.state, item.at, item.owner, cursor=json.dumps(self._key(item)))

    def _key(self, item: Item) -> tuple:
        """The order of an item within its state."""
        key = item.key()
        return (key[0], -key[1], -key[2]) if self._lifo and item.state == READY else key


class LanesInMemory(BaseLanes):
    """The lanes of a queue in memory, for operators."""

    def __init__(self, queue: MemoryQueue):
        super().__init__(queue._cannot)
        self._queue = queue

    def page(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        with self._queue._lock:
            self._queue._promote(self._queue.now())
            return self._queue._lanes.records(limit, after)

    def get(self, name: str) -> LaneRecord | None:
        with self._queue._lock:
            self._queue._promote(self._queue.now())
            return self._queue._lanes.record(name)

    def peek(self, name: str, limit: int = 50, after: str | None = None) -> list[Record]:
        with self._queue._lock:
            self._queue._promote(self._queue.now())
            found = self._queue._in_lanes(tuple(json.loads(after)) if after else (IN_LANES, name), limit)
            return [record for record in found if record.entry.lane == name]

    def pause(self, name: str, why: str) -> None:
        with self._queue._lock:
            self._queue._lanes.pause(name, why, us(self._queue.now()))

    def resume(self, name: str) -> bool:
        with self._queue._lock:
            opened = self._queue._lanes.resume(name, us(self._queue.now()))
        self._queue._ringer.ring()
        return opened
