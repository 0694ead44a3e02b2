"""Queues on Redis (6.2 or later) or Valkey (7.2 or later).

Every verb is one script, one round trip and one atomic step; a plain call is one command, which the next script takes
in. All keys of a queue and of its failed queue share the hash tag ``{prefix:name}``, so they live in one slot of a
cluster; ``scripts/common.lua`` documents them. Except for ``put``, which raises QueueFull then, every verb works on a
server that is full.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, repeat
from math import inf
from typing import Any, Self

from django.core.checks import CheckMessage
from redis.exceptions import ConnectionError

from djqueue.backends.base import FAILED_SUFFIX, FEATURES, LeasedQueue, RateLimit, Unanswered
from djqueue.backends.bells import Bell
from djqueue.backends.deadlines import is_over
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
from djqueue.backends.guards import Guard, Span, remembering
from djqueue.backends.lanes import BaseLanes
from djqueue.backends.redis import protocol
from djqueue.backends.redis.bells import RedisBell
from djqueue.backends.redis.connection import RedisKeyOfWrongType, RedisLink, check_server, connections
from djqueue.backends.redis.history import RedisHistory, records_of
from djqueue.backends.redis.scripts import Script, script
from djqueue.backends.redis.store import Keys, RedisStore
from djqueue.backends.stores import RESULTS, unreadable
from djqueue.exceptions import InvalidQueueError
from djqueue.utils import clock, log_safely, plain
from djqueue.utils import priority as checked_priority

__all__ = ["RedisBlockingQueue", "RedisQueue", "RedisStore", "connections"]

logger = logging.getLogger(__name__)

STATES = (READY, DELAYED, LEASED)
NAME_FIRST = "it comes first, RedisQueue('jobs', connection)."
_LIKE_A_CONNECTION = re.compile(r"://|^[\w.-]+:\d{4,5}(:\d+)?$")
LONGEST_IN_INBOX = 4096
"""Bytes of a body in the inbox, as a script takes in many at once."""
TAKEN_IN_BY = 64
"""One of so many calls takes in what is in the inbox, if no consumer does: by its id, as processes may be short."""
UTF8 = "utf-8", "surrogatepass"
ENVELOPES_AT_ONCE, BODIES_AT_ONCE = 100, 10
"""Entries that a sweep looks at in one call, as the server does nothing else meanwhile; bodies may be large."""


class RedisQueue(LeasedQueue):
    """A queue on Redis that consumers poll at intervals.

    ``connection`` is ``"host:port:db"``, a ``redis://``, ``rediss://`` or ``unix://`` URL, or a client of redis-py
    (without ``decode_responses``, and with its retries off). Some nodes of a cluster are
    ``redis+cluster://host:port,host:port``, the Sentinels of a primary ``redis+sentinel://host:port,host:port/service/0``;
    both also with ``rediss+``. ``prefix`` keeps two sites on one server apart.
    ``remember_done`` (seconds or a timedelta) or ``keep_done`` (a count; 100,000 if only the former is given) let the
    queue remember the ids of completed entries and refuse them; each costs the server about 100 bytes. With ``lifo``,
    entries in no lane leave in the reverse order of arrival at equal priority. Raises InvalidQueueError.
    """

    settles_with_claim = True
    features = FEATURES - {"transaction"}
    options = frozenset({"PREFIX", "REMEMBER_DONE", "KEEP_DONE", "LIFO"})
    bytes_at_once = protocol.BYTES_AT_ONCE
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
        if not isinstance(name, str):
            raise TypeError(f"The name of a queue is a {type(name).__name__}: {NAME_FIRST}")
        if _LIKE_A_CONNECTION.search(name):
            raise InvalidQueueError(f"The name of a queue looks like a connection: {NAME_FIRST}")
        super().__init__(name, connection)
        if not isinstance(prefix, str):
            raise InvalidQueueError(f"OPTIONS['PREFIX'] of a Redis queue is {prefix!r}: give a text.")
        self.prefix, self._link, self._keys = prefix, RedisLink(connection), Keys(prefix, name)
        self.store = self._own_store = RedisStore(name, connection, prefix)
        self.history = RedisHistory(self.call)
        self._unanswered, self._swept = Unanswered(), ("env", b"0")
        self._recounted: bytes | str = "0"
        self._scripts: dict[str, tuple[Script, list[bytes]]] = {}
        self._lifo = lifo
        remember, self._keep = remembering(remember_done, keep_done)
        self._remember = protocol.microseconds(remember) if remember else ""
        self._inbox, bell = self._keys.part("inbox"), self._keys.part("bell")
        self._ring: list[tuple] = [(b"LPUSH", bell, b"1")] if self.rings else []
        is_failed = name.endswith(FAILED_SUFFIX)
        self._has_inbox = self._inbox_is_open = not (lifo or remember or is_failed or self._link.is_cluster)

    @cached_property
    def failed(self) -> RedisQueue | None:
        if self.name.endswith(FAILED_SUFFIX):
            return None
        return self._sibling(RedisQueue, self.name + FAILED_SUFFIX, prefix=self.prefix)

    # ---- what the consumer calls

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None = None) -> list[bool]:
        """As in the contract. More than 1,000 entries or 8 MiB go in several calls, of which a later one may raise."""
        pairs = zip(entries, guards or [None] * len(entries), strict=True)
        portions = protocol.portions(pairs, size=lambda pair: len(pair[0].body))
        return [accepted for some in portions for accepted in self._put(some)]

    def put_new(self, entry: Entry) -> bool:
        """As in the contract. Most small plain entries go into the inbox: by one command, without a script."""
        fits = not entry.priority and len(entry.body) <= LONGEST_IN_INBOX and " " not in entry.id
        if self._inbox_is_open and fits and hash(entry.id) % TAKEN_IN_BY and protocol.is_plain(entry):
            words = f"{entry.id} {entry.command}".encode(*UTF8)
            try:
                replies = self._link.execute_many([(b"XADD", self._inbox, b"*", words, entry.body), *self._ring])
            except ConnectionError:
                return self._put([(entry, None)], repeats=True)[0]
            if isinstance(replies[0], bytes):
                self._inbox_is_open = isinstance(replies[-1], bytes | int)
                return True
        try:
            accepted = self.put([entry])[0]
        except Exception:
            self._inbox_is_open = False  # until a script puts one: nothing is left there that no script takes in
            raise
        self._inbox_is_open = self._has_inbox
        return accepted

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        if limit < 1:
            return Claimed((), 0.0)
        sizes = (min(limit, protocol.AT_ONCE), ahead, protocol.AT_ONCE)
        return self._claim("claim", sizes, lease, (int(begin), protocol.text(owner), self._remember))

    def claim_within(
        self, rate_limit: RateLimit, limit: int = 1, lease: float = 60.0, owner: str = "", begin: bool = True
    ) -> Claimed:
        if limit < 1:
            return Claimed((), 0.0)
        shared = self.store.shared
        if not isinstance(shared, RedisStore):
            return super().claim_within(rate_limit, limit, lease, owner, begin)
        keys = shared.rate_limit_keys(rate_limit, self._keys.part("meta"))
        sizes = (min(limit, protocol.AT_ONCE), protocol.AT_ONCE)
        said = (int(begin), protocol.text(owner), self._remember, *rate_limit.window.written())
        claimed = self._claim("claim_within", sizes, lease, said, keys)
        if claimed.reason == "unreadable":
            raise unreadable(rate_limit)
        return claimed

    def _claim(self, name: str, sizes: tuple, lease: float, said: tuple, keys: Sequence[bytes] = ()) -> Claimed:
        self._disown()
        token, span = secrets.token_hex(protocol.TOKEN // 2), protocol.microseconds(lease)
        with self._unanswered.asking(token, lease):
            reply = self.call(name, *sizes, span, token, *said, keys=keys)
        return self._claimed(reply, token, span)

    def _claimed(self, reply: list, token: str, span: int) -> Claimed:
        """What was claimed, from the reply of a script."""
        now, again, why, faults, units, begun, _, *rows = reply
        leases, unread = protocol.leases_of(rows, units, begun, token, now / 1e6, (now + span) / 1e6)
        if faults or unread:
            self._put_faults_aside(token, [*faults, *unread])
        return Claimed(leases, protocol.until(again), why.decode())

    def exchange(
        self,
        done: Sequence[Lease],
        limit: int = 0,
        lease: float = 60.0,
        owner: str = "",
        ahead: int = 0,
        history: Sequence[bytes] = (),
    ) -> tuple[list[Lease], Claimed]:
        tokens = protocol.tokens_of(done)
        if limit < 1 or tokens is None:
            return super().exchange(done, limit, lease, owner, ahead, history)
        self._disown()
        token, span = secrets.token_hex(protocol.TOKEN // 2), protocol.microseconds(lease)
        ends, sizes = (self.rings, self._remember, self._keep), (min(limit, protocol.AT_ONCE), ahead, protocol.AT_ONCE)
        ids = [protocol.text(one.entry.id) for one in done]
        said = *ends, *sizes, span, token, protocol.text(owner), tokens, *records_of(history), *ids
        try:
            with self._unanswered.asking(token, lease):
                reply = self.call("exchange", *said)
        except ConnectionError:
            return self._completed_again(done, history), self.claim(limit, lease, owner, ahead, begin=False)
        except RedisKeyOfWrongType:  # where it claims, it has completed: the next claim raises this again
            return self._completed_again(done, history), Claimed((), 0.0)
        return _but(done, reply[6]), self._claimed(reply, token, span)

    def _completed_again(self, leases: Sequence[Lease], history: Sequence[bytes]) -> list[Lease]:
        said = self.rings, self._remember, self._keep, *records_of(history), 2, *chain(*map(protocol.proof, leases))
        return self._settle_some("complete", leases, said, repeats=True)[0]

    def _disown(self) -> None:
        """Give back the entries of claims whose replies were lost."""
        cursor, tokens = None, self._unanswered.tokens()
        while tokens and cursor != b"0":
            cursor = self.call("disown", self.rings, cursor or "0", protocol.AT_ONCE, *tokens)

    def _put_faults_aside(self, token: str, faults: Sequence[bytes]) -> None:
        """Move entries that cannot be run to the failed queue: id and reason of each.

        They are leased, so if that fails they return when the lease is over; the rest of the claim is not affected.
        """
        for id, why in zip(*[iter(faults)] * 2, strict=True):
            text = "Message %s of queue %s is put aside: %s"
            names = plain(protocol.untext(id)), self.name, why.decode()
            log_safely(logger, logging.ERROR, text, *names, extra={"queue": self.alias})
        try:
            self.call("aside", self.rings, token, *faults)
        except Exception as error:
            text, extra = "What is to be put aside stays leased", {"queue": self.alias}
            log_safely(logger, logging.ERROR, text, exc_info=error, extra=extra)

    def _put_unread_aside(self, ids: Sequence[bytes]) -> None:
        """Move entries whose envelopes cannot be read to the failed queue."""
        if ids:
            self._put_faults_aside("", [word for id in ids for word in (id, protocol.UNREADABLE)])

    def begin(self, leases: Sequence[Lease]) -> list[Lease]:
        return [replace(lease, begun=True) for lease in self._settle("begin", leases, (), protocol.proof)]

    def complete(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        args = self.rings, self._remember, self._keep
        return self._end("complete", listed(leases), facts, history, args, protocol.proof)

    def defer(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        if not 0 < len(leases) <= protocol.AT_ONCE:
            return []
        said = [value for lease in leases for value in (*protocol.proof(lease), protocol.microseconds(lease.claimed))]
        to = int(self.call("defer", protocol.microseconds(seconds), *said))
        return [replace(lease, claimed=to / 1e6) for lease in leases] if to else []

    def touch(self, leases: Leases, lease: float = 60.0) -> list[Lease]:
        leases = listed(leases)
        touched, span = [], protocol.microseconds(lease)
        for some in protocol.slices(leases):
            ours, now = self._settle_some("touch", some, [span, *chain(*map(protocol.proof, some))])
            until = (now + span) / 1e6
            touched += [Lease(one.entry, one.token, one.claimed, until, one.run, one.begun) for one in ours]
        return touched

    def release(self, leases: Leases) -> list[Lease]:
        leases = listed(leases)
        return self._settle("release", leases, (self.rings,), protocol.returned)

    def fail(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)  # a failed message stays here
        return self._end("fail", leases, facts, history, (self.rings,), protocol.verdict)

    def _end(
        self,
        name: str,
        leases: Sequence[Lease],
        facts: Sequence[Fact | None],
        history: Sequence[bytes],
        args: Sequence,
        tell: Callable,
    ) -> list[Lease]:
        """Run what ends entries with their records, and with the facts if the store is the one that the queue made."""
        if not any(facts) and not history:
            step = len(tell(leases[0])) if leases else 0
            return self._settle(name, leases, (*args, *records_of(()), step), tell)
        is_own = any(facts) and self.store is self._own_store
        none = [None] * len(leases)
        endings = zip(leases, facts if is_own else none, history or none, strict=True)
        portions = protocol.portions(endings, size=_size_of_ending)
        ours = [lease for some in portions for lease in self._end_some(name, some, is_own, args, tell)]
        return ours if is_own else self._with_facts(ours, leases, facts)

    def _end_some(
        self, name: str, endings: Sequence[tuple], with_facts: bool, args: Sequence, tell: Callable
    ) -> list[Lease]:
        before, keys = len(self._script(name)[1]), []
        said: list[tuple] = []
        for lease, fact, _ in endings:
            if fact is not None:
                keys.append(self._keys.fact(fact.key))
            said.append((*tell(lease), *protocol.fact_args(fact, before + len(keys))) if with_facts else tell(lease))
        args = *args, *records_of([record or b"" for *_, record in endings]), len(said[0]), *chain(*said)
        return self._settle_some(name, [lease for lease, *_ in endings], args, keys)[0]

    def requeue(self, ids: Iterable[str]) -> int:
        if self.failed is None:
            return 0
        return self._sum("requeue", ids, self.rings)

    def reap(self, limit: int = 100, by: float = inf) -> Reaped:
        self._disown()
        most, until = max(0, min(limit, protocol.AT_ONCE)), protocol.microseconds(by)
        reaped, next, unread, now = self.call("reap", most, self.rings, until)
        self._put_unread_aside(unread)
        return Reaped(reaped, protocol.until(next), now / 1e6)

    def reclaim(self, owner: str, limit: int = 100) -> int:
        """In portions: it looks at all that is leased."""
        count, cursor = 0, b""
        while count < limit and cursor != b"0":
            most, looked_at = min(limit - count, protocol.AT_ONCE), (cursor or "0", protocol.AT_ONCE)
            cursor, reclaimed, unread = self.call("reclaim", most, self.rings, *looked_at, protocol.text(owner))
            count += reclaimed
            self._put_unread_aside(unread)
        return count

    def sweep(self, limit: int = 1000) -> int:
        """As in the contract; envelopes first, then bodies if there are more of them."""
        fixed, is_over = 0, False
        while limit > 0 and not is_over:
            part, cursor = self._swept
            at_once = min(limit, ENVELOPES_AT_ONCE if part == "env" else BODIES_AT_ONCE)
            cursor, surplus, back, failed = self.call("sweep", self.rings, part, cursor, at_once)
            self._tell_of_orphans(back, failed)
            fixed, limit = fixed + len(back) + len(failed), limit - at_once
            if cursor != b"0":
                self._swept = part, cursor
            else:
                self._swept = ("body" if part == "env" and surplus > 0 else "env"), cursor
                is_over = self._swept[0] == "env"
        return fixed + self._recount()

    def _recount(self) -> int:
        """Correct some lanes that are not at their place, or whose number in flight is wrong; how many."""
        self._recounted, wrong = self.call("recount", self.rings, self._recounted, protocol.AT_ONCE)
        for name in wrong:
            text, extra = "%s: lane %s was in a wrong place or had a wrong count; corrected", {"queue": self.alias}
            log_safely(logger, logging.ERROR, text, self.name, plain(protocol.untext(name)), extra=extra)
        return len(wrong)

    def _tell_of_orphans(self, back: Sequence[bytes], failed: Sequence[bytes]) -> None:
        for ids, text in ((back, "went back to its own"), (failed, "was put among the failed")):
            for id in ids:
                names = plain(protocol.untext(id)), self.name, text
                log_safely(logger, logging.ERROR, "Message %s of queue %s stood in no line and %s", *names)

    # ---- for operators

    def find(self, id: str) -> Record | None:
        found = self.call("find", protocol.text(id))
        return protocol.found_record(*found) if found else None

    def holders(self, queues: Sequence[Self], id: str) -> list[Self]:
        if self._link.is_cluster:  # each queue is in a slot of its own
            return super().holders(queues, id)
        asked = [question for queue in queues for question in queue._questions(id)]
        answers = zip(*[iter(self._link.execute_many(asked))] * (len(asked) // len(queues)), strict=True)
        told = zip(queues, answers, strict=True)
        return [queue for queue, some in told if any(some) or queue.store is not queue._own_store]

    def _questions(self, id: str) -> list[tuple[object, ...]]:
        """Commands of which one has an answer if the queue may know a message, also while that ends or is requeued."""
        waits = ("HEXISTS", self._keys.part("env"), protocol.text(id))
        failed = ("HEXISTS", self._keys.part("failed_env"), protocol.text(id))
        return [waits, failed, ("EXISTS", self._keys.fact(f"{RESULTS}{id}"), self._inbox), waits]

    def remove(self, ids: Iterable[str], facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> int:
        if facts or history:
            return sum(map(self._end_waiting, ids, facts or repeat(None), history or repeat(b"")))
        return self._sum("remove", ids)

    def _end_waiting(self, id: str, fact: Fact | None, record: bytes) -> int:
        own = fact if self.store is self._own_store else None
        said = protocol.fact_args(own, len(self._script("cancel")[1]) + 1)
        keys = [] if own is None else [self._keys.fact(own.key)]
        is_gone = bool(self.call("cancel", protocol.text(id), *records_of([record]), *said, keys=keys))
        return self._with_ends([id] if is_gone else [], [id], [fact] if fact is not own else [])

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        return bool(self.call("amend", protocol.text(id), was, data))

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        return self._sum("reprioritise", dict.fromkeys(ids), checked_priority(priority))

    def promote(self, ids: Iterable[str]) -> int:
        return self._sum("promote", dict.fromkeys(ids), self.rings)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Deletes 1,000 at a time, of the 32 highest priorities. Entries in lanes stay: a failed queue has none."""
        bounds = ("" if most is None else most, "" if age is None else protocol.microseconds(age))
        trimmed = 0
        while (some := min(limit - trimmed, protocol.AT_ONCE)) > 0:
            trimmed += (deleted := self.call("trim", *bounds, some))
            if deleted < some:
                break
        return trimmed

    @cached_property
    def lanes(self) -> BaseLanes:
        return LanesOnRedis(self)

    def peek(self, state: str, limit: int = 50, after: str | None = None, last: bool = False) -> list[Record]:
        if state not in STATES:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(STATES)}.")
        if limit < 1:
            return []
        if last:
            return protocol.seen_records(READY, self.call("newest", limit))
        return self._peek(state, limit, after)

    def _peek(self, state: str, limit: int, after: str | None, lane: str = "") -> list[Record]:
        score, _, member = (after or "").partition(" ")
        asked = state, min(limit, protocol.AT_ONCE), score, protocol.text(member), protocol.text(lane)
        return protocol.seen_records(state, self.call("peek", *asked))

    def stats(self) -> QueueStats:
        """Exact counts, whatever the size; the oldest entry is looked for in the 32 highest priorities."""
        ready, delayed, leased, failed, done, oldest = self.call("stats")
        age = None if oldest < 0 else oldest / 1e6
        return QueueStats(ready, delayed, leased, None if self.failed is None else failed, done, age)

    def flush(self) -> None:
        """Deletes 1,000 at a time, and no more than waited when it began."""
        deleted, left = self.call("flush", protocol.AT_ONCE, 1)
        while left > 0 and deleted > 0:
            deleted, _ = self.call("flush", min(left, protocol.AT_ONCE), 0)
            left -= deleted

    # ---- time and connection

    def now(self) -> float:
        return self.call("now") / 1e6

    @property
    def connection_key(self) -> Hashable:
        """The server; on a cluster the queue itself, as no command takes bells of two slots."""
        return (self.server, self.prefix, self.name) if self._link.is_cluster else self.server

    @property
    def server(self) -> Hashable:
        return (type(self), id(self._link.client))

    def describe(self) -> str:
        return self._link.where

    def check(self) -> list[CheckMessage]:
        return check_server(self._link)

    # ---- the calls

    def call(self, name: str, *args: object, keys: Sequence[bytes] = ()) -> Any:
        """The reply of a script, which is not repeated. ``keys`` come behind those that it names itself."""
        script, own = self._script(name)
        return self._link.run(script, [*own, *keys] if keys else own, args)

    def call_again(
        self, name: str, *args: object, keys: Sequence[bytes] = (), again: str = "", repeats: bool = False
    ) -> tuple[Any, bool]:
        """The reply of a script that is called again if the connection breaks within the deadline, and whether it was.

        ``again`` is the script for that if it is another one; ``repeats`` says that the connection broke before.
        """
        began = clock()
        if not repeats:
            try:
                return self.call(name, *args, keys=keys), False
            except ConnectionError:
                if is_over(clock() - began):
                    raise
        return self.call(again or name, *args, keys=keys), True

    def _script(self, name: str) -> tuple[Script, list[bytes]]:
        """A script and its keys."""
        if name not in self._scripts:
            found = script(name, self._lifo)
            self._scripts[name] = found, [self._keys.part(key) for key in found.keys]
        return self._scripts[name]

    def _sum(self, name: str, ids: Iterable[str], *args: object) -> int:
        """Run a script over ids, some at a time; the sum of its replies."""
        return sum(self.call(name, *args, *map(protocol.text, some)) for some in protocol.slices(ids))

    def _put(self, pairs: Sequence[tuple[Entry, Guard | None]], repeats: bool = False) -> list[bool]:
        """Put entries, again if the connection breaks; ``repeats`` says that it did."""
        name, keys = "put", []
        said: list[object] = [self.rings, self._remember]
        for entry, guard in pairs:
            if entry.gate or guard is not None:
                name = "put_guarded"
            if guard is not None:
                keys.append(self._keys.fact(guard.key))
            said += protocol.accepted(entry, guard)
        (known, refused), repeats = self.call_again(name, *said, keys=keys, again="put_again", repeats=repeats)
        # What was known to a repeated call was put by the first one, whose reply was lost.
        out = set(refused) if repeats else {*refused, *known}
        return [number not in out for number in range(1, len(pairs) + 1)] if out else [True] * len(pairs)

    def _settle(self, name: str, leases: Sequence[Lease], args: Sequence, tell: Callable) -> list[Lease]:
        """Run a script over leases, some at a time; those that were held."""
        each = ((some, [*args, *chain(*map(tell, some))]) for some in protocol.slices(leases))
        return [lease for some, said in each for lease in self._settle_some(name, some, said)[0]]

    def _settle_some(
        self, name: str, leases: Sequence[Lease], said: Sequence, keys: Sequence[bytes] = (), repeats: bool = False
    ) -> tuple[list[Lease], int]:
        """Run a script over leases, again if the connection breaks; those that were held, and the time."""
        (now, *lost), repeats = self.call_again(name, *said, keys=keys, repeats=repeats)
        return _but(leases, lost, now / 1e6 if repeats else inf), now


def _but(leases: Sequence[Lease], lost: Sequence[int], settled: float = inf) -> list[Lease]:
    """The leases without those of the numbers, which were not held any more.

    A repeated call gives the time by which it was repeated: what it misses and has not run out then was held, as the
    first call has settled it.
    """
    out = {number for number in lost if leases[number - 1].until <= settled}
    return [lease for number, lease in enumerate(leases, 1) if number not in out]


def _size_of_ending(ending: tuple[Lease, Fact | None, bytes | None]) -> int:
    _, fact, record = ending
    return (0 if fact is None else len(fact.value)) + len(record or b"")


class LanesOnRedis(BaseLanes):
    """The lanes of a queue on Redis, for operators."""

    def __init__(self, queue: RedisQueue):
        super().__init__(queue._cannot)
        self._queue = queue

    def page(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        behind = "-" if after is None else protocol.text(f"+{after}")
        return self._found(min(limit, protocol.AT_ONCE), behind) if limit > 0 else []

    def get(self, name: str) -> LaneRecord | None:
        return next(iter(self._found(0, protocol.text(name))), None)

    def _found(self, limit: int, place: str | bytes) -> list[LaneRecord]:
        return [protocol.lane_of(*found) for found in self._queue.call("lanes_of", limit, place)]

    def peek(self, name: str, limit: int = 50, after: str | None = None) -> list[Record]:
        return self._queue._peek(READY, limit, after or "lanes ", name) if name and limit > 0 else []

    def pause(self, name: str, why: str) -> None:
        self._queue.call("pause_lane", protocol.text(name), protocol.text(why or "paused"))

    def resume(self, name: str) -> bool:
        return bool(self._queue.call("resume_lane", self._queue.rings, protocol.text(name)))


class RedisBlockingQueue(RedisQueue):
    """A queue on Redis that wakes waiting consumers when work comes. Producers must use this class too: they wake."""

    rings = 16

    def bell(self, beside: Sequence[Self] = ()) -> Bell:
        """As in the contract. A client that is not of redis-py itself is polled."""
        if not self._link.has_connections:
            return Bell()
        return RedisBell(self._link, [queue._keys.part("bell") for queue in (self, *beside)])
