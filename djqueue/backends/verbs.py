"""The verbs of a queue that a consumer and operators call, with defaults over four verbs that read and write text."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any, Self

from django.core.checks import CheckMessage

from djqueue import conf, signals
from djqueue.backends.bells import Bell
from djqueue.backends.deadlines import within
from djqueue.backends.entries import (
    DELAYED,
    FAILED,
    PAGE,
    Claimed,
    Entry,
    Fact,
    Lease,
    Leases,
    QueueStats,
    Reaped,
    Record,
    Refusal,
    due,
    listed,
    pack,
    stamped,
    unpack,
    untried,
)
from djqueue.backends.guards import DebounceGuard, Decision, DedupMark, Guard, decide
from djqueue.backends.history import BaseHistory
from djqueue.backends.lanes import BaseLanes
from djqueue.backends.stores import BaseStore, Grant, RateLimit
from djqueue.exceptions import NotSupported
from djqueue.utils import clock, log_safely, seconds

logger = logging.getLogger(__name__)

FAILED_SUFFIX = f":{FAILED}"
FEATURES = frozenset(
    "durable lease fence begin idempotent transaction priority order lanes shards inspect count facts history".split()
)
"""What backends can do; docs/reference/backends.rst explains each."""


class _LastClaim(threading.local):
    """The last refusal, of the calling thread."""

    refusal: Refusal | None = None


class FourVerbs:
    """A queue in four verbs, which all others use by default; what it is called, what it can do and where it lives."""

    features: frozenset[str] = frozenset({"order", "count", "facts"})
    """What this backend can do, of :data:`FEATURES`. Commands that need another feature are refused."""
    options: frozenset[str] = frozenset()
    """The names (upper case) that this class takes in ``OPTIONS``, next to the options of every queue."""
    async_unsafe = False
    """Whether a call is refused in the thread of an event loop; of a queue in a database Django itself refuses it."""
    on_commit: str | None = "default"
    """The database alias whose commit an enqueue waits for; None sends at once (``OPTIONS["ON_COMMIT"]``)."""
    settles_with_claim: bool = False
    """Whether :meth:`exchange` is one round trip, so that a busy consumer settles with its next claim."""
    poll: float = 0.1
    """Seconds between two looks of :meth:`reserve` at an empty queue."""
    bytes_at_once: float = inf
    """Bytes of entries that are put in one step; more of them take several steps, and a later one may fail."""
    alias: str = "default"
    """Its key in QUEUES; given by the composition root."""
    database: str | None = None
    """The database alias that holds it, if one does."""
    store: BaseStore = None  # type: ignore[assignment]
    """The facts of this queue; given by the composition root where the backend brings none."""
    history: BaseHistory = BaseHistory()
    """The records of what has ended; by default none."""

    _lease: float | None = None
    _given: Mapping[str, object] = {}
    """The options that it was made with; its failed queue has the same."""
    _last_claim: _LastClaim
    _reap_at: float
    _may_expire: float
    _empty_until: float
    """When :meth:`reserve` may reap again, when a lease may run out that it saw then, and until
    when an empty queue is not asked again (monotonic clock)."""

    def __new__(cls, *args: object, **options: object) -> Self:
        # Not in __init__, which a third party need not call, nor pass its own options to.
        queue = super().__new__(cls)
        queue._given = {name: value for name, value in options.items() if name not in ("name", "connection")}
        queue._last_claim, queue._reap_at, queue._may_expire, queue._empty_until = _LastClaim(), -inf, -inf, -inf
        return queue

    def __init__(self, name: str, connection: object = None, **options):
        self.name, self.connection = name, connection

    @property
    def lease(self) -> float:
        """Seconds for which a claim holds unless it is extended: ``OPTIONS["LEASE"]``, or QUEUE_LEASE."""
        if self._lease is not None:
            return self._lease
        return seconds(conf.get("QUEUE_LEASE"), "QUEUE_LEASE", least=0.1)

    @lease.setter
    def lease(self, seconds: float) -> None:
        self._lease = seconds

    # ---- the four verbs

    def write(self, data: str) -> None:
        """Put ``data`` at the end of the queue."""
        raise NotImplementedError

    def read(self) -> str | None:
        """Take the next data off the queue; None when there is none."""
        raise NotImplementedError

    def flush(self) -> None:
        """Delete all that waits, due or not. What is leased or has failed stays."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many wait, the delayed ones included, the leased ones not."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True  # an empty queue is still a queue

    # ---- time and place

    def now(self) -> float:
        """The store's clock, epoch seconds. Raises whatever the client raises if the store is out of reach."""
        return time.time()

    @property
    def connection_key(self) -> Hashable:
        """Queues of one key share a connection, and one thread of a consumer claims from all of them."""
        return (type(self), self.connection if isinstance(self.connection, str) else id(self.connection))

    @property
    def server(self) -> Hashable:
        """Queues of one server fail together: one thread of a consumer settles for all, and so on."""
        return self.connection_key

    def describe(self) -> str:
        """Where this queue lives, for people; never a password."""
        return type(self).__name__

    # ---- names

    @property
    def base_name(self) -> str:
        """The name that signatures bind to: for a failed queue, the name of the queue it belongs to."""
        return self.name.removesuffix(FAILED_SUFFIX)

    @cached_property
    def own_rate_limit(self) -> str:
        """The name of the rate limit that a throttle of this queue alone has."""
        return f"queue:{self.name}"

    @cached_property
    def failed(self) -> Self | None:
        """The failed queue, a queue of the same kind; it has none itself."""
        if self.name.endswith(FAILED_SUFFIX):
            return None
        return type(self)(self.name + FAILED_SUFFIX, self.connection, **self._given)

    @cached_property
    def lanes(self) -> BaseLanes:
        """Its lanes, for operators. Raises NotSupported if it has none."""
        return BaseLanes(self._cannot)

    def _sibling(self, backend: type[FourVerbs], name: str, **options: object) -> Self:
        """A queue of another name, made by the ``__init__`` of ``backend``: a subclass's ``__init__`` may differ."""
        other = copy(self)
        other._last_claim, other._reap_at, other._may_expire, other._empty_until = _LastClaim(), -inf, -inf, -inf
        for attribute in [one for one in vars(other) if isinstance(getattr(type(other), one, None), cached_property)]:
            delattr(other, attribute)
        backend.__init__(other, name, self.connection, **options)
        return other

    def _cannot(self, verb: str) -> NotSupported:
        own = type(self).__name__
        return NotSupported(f"{own} has only the four verbs and cannot {verb}(); derive it from LeasedQueue.")


SHORTER = {"exchange": ("complete", "claim"), "put_new": ("put",)}
"""Verbs that are a shorter way of doing others, which a class may override without them."""


def _place(cls: type, verb: str) -> int:
    """The place among the bases of a class of the one whose verb it has."""
    return next(place for place, base in enumerate(cls.__mro__) if verb in vars(base))


class ConsumerVerbs(FourVerbs):
    """What a consumer calls, with working defaults over the four verbs. Messages are delivered at most once."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for shorter, parts in SHORTER.items():
            if min(_place(cls, part) for part in parts) < _place(cls, shorter):
                setattr(cls, shorter, vars(ConsumerVerbs)[shorter])  # which calls what this class overrides

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None = None) -> list[bool]:
        """Accept entries in their order; returns for each whether it was accepted.

        An id that waits or is leased already is refused, and so is an entry that its guard refuses; guard and entry are
        decided in one atomic step where the backend can. Raises QueueFull if the store takes no more.
        """
        return [
            self._put_one(entry) if guard is None else self._put_if_allowed(entry, guard)
            for entry, guard in zip(entries, guards or [None] * len(entries), strict=True)
        ]

    def put_new(self, entry: Entry) -> bool:
        """:meth:`put` one entry without a guard, whose id is new; a backend may take a shorter way."""
        return self.put([entry])[0]

    def _put_one(self, entry: Entry) -> bool:
        self.write(pack(stamped(entry, self.now())))
        return True

    # Here queue and store may be two technologies: no step is atomic over both.

    def _put_if_allowed(self, entry: Entry, guard: Guard) -> bool:
        try:
            decision, was = self._decided(entry, guard)
        except Exception as error:
            if not isinstance(guard, DebounceGuard):
                raise
            return self._put_undecided(entry, error)
        if not decision.accept or decision.mark is None:
            return False
        accepted = False
        try:
            accepted = self._put_one(replace(entry, run_at=0.0, delay=decision.delay) if decision.delay else entry)
        finally:
            if not accepted and was is None:
                self.store.drop(guard.key, decision.mark.written())
            elif not accepted and was is not None:
                self.store.swap(guard.key, decision.mark.written(), was, decision.ttl)
        return accepted

    def _decided(self, entry: Entry, guard: Guard) -> tuple[Decision, bytes | None]:
        """What the guard decides, once its mark is written, and the mark before; no other write came in between."""
        while True:
            now, was = self.store.now(), self.store.get(guard.key)
            mark = None if was is None else DedupMark.read(was)
            # What became of an entry is not known here, nor can it be postponed: it waits until it was to be due.
            state = DELAYED if mark is not None and mark.at > now * 1e6 else None
            decision = decide(guard, entry, mark, state, now)
            mark = decision.mark if decision.accept else None
            if mark is None or self.store.swap(guard.key, was, mark.written(), decision.ttl):
                return decision, was

    def _put_undecided(self, entry: Entry, error: Exception) -> bool:
        """A debounced command may run too often, but must not be forgotten."""
        text = "%s: the store of %s cannot say whether a debounced call counts, so it does"
        log_safely(logger, logging.ERROR, text, entry.command, self.alias, exc_info=error)
        signals.emit(signals.debounce_failed, entry.command, id=entry.id, queue_name=self.alias, exception=error)
        return self._put_one(entry)

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """Lease up to ``limit`` units of work for ``lease`` seconds; never waits. Their ``attempts`` are one higher.

        A unit is a due entry, or a run of a lane. The last ``ahead`` of the units would wait for a worker, so none of
        these is throttled. The first entry of each unit begins with the claim (``lease.begun``), unless it was lost
        before, or ``begin`` is False: then it begins when its worker calls :meth:`begin`.
        If the answer of a claim is lost, the next claim or reap gives its entries back, and it counts as nothing.
        """
        leases: list[Lease] = []
        early: dict[str, float] = {}
        try:
            self._read_due(limit, self.now(), leases, early)
        except Exception:
            if not leases:
                raise
            log_safely(logger, logging.ERROR, "Reading stopped half way.", exc_info=True, extra={"queue": self.alias})
            return Claimed(leases, retry_after=0.0)
        return Claimed(leases, retry_after=0.0 if len(leases) >= limit else min(early.values(), default=inf))

    def _read_due(self, limit: int, now: float, leases: list[Lease], early: dict[str, float]) -> None:
        """Read until ``limit`` are due or all entries were seen; ``early`` gets the seconds until the rest are due.

        Entries that are not due are written to the end at once, so that a crash loses one at most.
        """
        left = inf
        while len(leases) < limit and left > 0 and (text := self.read()) is not None:
            entry = unpack(text)
            if entry.run_at <= now:
                leases.append(Lease(replace(entry, attempts=entry.attempts + 1), claimed=now))
            else:
                self.write(pack(entry))
                left = 0 if entry.id in early else min(left, len(self))
                early[entry.id] = entry.run_at - now
            left -= 1

    def exchange(
        self,
        done: Sequence[Lease],
        limit: int = 0,
        lease: float = 60.0,
        owner: str = "",
        ahead: int = 0,
        history: Sequence[bytes] = (),
    ) -> tuple[list[Lease], Claimed]:
        """Complete leases and claim, in one round trip where the backend can: a busy worker does both together.

        Returns what :meth:`complete` returns, without facts, and what :meth:`claim` returns, with ``begin=False``.
        A ``limit`` of 0 claims nothing. Repeating it after an error is harmless.
        """
        held: list[Lease] = []
        if done:  # only a backend that has the feature gets records
            held = self.complete(done, (), history) if history else self.complete(done)
        claimed = self.claim(limit, lease, owner, ahead, begin=False) if limit else Claimed(retry_after=0.0)
        return held, claimed

    def claim_within(
        self, rate_limit: RateLimit, limit: int = 1, lease: float = 60.0, owner: str = "", begin: bool = True
    ) -> Claimed:
        """Claim what a rate limit allows. One atomic step where the backend can; what is not there spends nothing.

        This default spends first, claims then, and hands back what was not used: a crash in between costs slots, and
        no entry.
        """
        store = self.store.shared
        grant = store.acquire(rate_limit, limit)
        if not grant.count:
            return Claimed((), grant.retry_after, grant.reason)
        claimed = Claimed()
        try:
            claimed = self.claim(grant.count, lease, owner, begin=begin)
        finally:
            if len(claimed) < grant.count:
                store.release(rate_limit, grant, grant.count - len(claimed))
        return self._as_granted(claimed, grant, rate_limit, limit)

    def _as_granted(self, claimed: Claimed, grant: Grant, rate_limit: RateLimit, limit: int) -> Claimed:
        """No more than the rate limit allows, though a run may be longer than asked for; and when more may come."""
        spent = grant.count
        if len(claimed) < spent or len(claimed) == spent == limit:
            return claimed
        if len(claimed) > spent:
            grant = self.store.shared.acquire(rate_limit, len(claimed) - spent)
            spent += grant.count
        if surplus := claimed[spent:]:
            self.release([untried(lease) for lease in surplus])
        return Claimed(claimed[:spent], grant.retry_after, grant.reason)

    def begin(self, leases: Sequence[Lease]) -> list[Lease]:
        """Note that entries begin to run: from now on the attempt is lost if the lease runs out.

        Returns the leases that were still held; a lease that has run out is not.
        """
        return [replace(lease, begun=True) for lease in leases]

    def defer(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Have the windows of their lanes count them as if they left in ``seconds``, so that they may begin later.

        Returns them with that moment as ``claimed``; nothing if one left too long ago to be counted, or in no lane.
        """
        return []

    def complete(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        """Done: forget the entries of one lease or many. Returns those that were still held.

        ``facts``, if given, has one for each lease, or None: it is kept in :attr:`store` if the lease was still held,
        in the same atomic step where the backend can. ``history``, if given, has a record for each lease, or b"" for
        none: it is kept if the lease was still held, in the same atomic step, by backends with that feature.
        """
        leases = listed(leases)
        return self._with_facts(list(leases), leases, facts)

    def touch(self, leases: Leases, lease: float = 60.0) -> list[Lease]:
        """Hold one lease or many for ``lease`` seconds from now. Returns those still held, with their new ``until``."""
        leases = listed(leases)
        return list(leases)

    def release(self, leases: Leases) -> list[Lease]:
        """Put back the entries of one lease or many as ``lease.entry`` is now: counts, errors, and a delay if any.

        Without a delay an entry goes back to its old place. In a lane ``entry.hold`` is what waits with it. Returns
        the leases that were still held.
        """
        leases = listed(leases)
        now = self.now()
        written: list[Lease] = []
        for lease in leases:
            try:
                self.write(pack(due(lease.entry, now)))
            except Exception:
                if not written:  # else a retry would repeat the written ones
                    raise
                extra = {"queue": self.alias, "message_id": lease.entry.id}
                log_safely(
                    logger, logging.ERROR, "An entry could not be put back and is lost.", exc_info=True, extra=extra
                )
            else:
                written.append(lease)
        return written

    def fail(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        """Move the entries of one lease or many to the end of :attr:`failed`, as each ``lease.entry`` is now.

        Returns the leases that were still held. The failed queue is in the order of failure, whatever the priorities.
        ``facts`` and ``history`` are kept as by ``complete``. A failed queue has no other, so it puts them back.
        """
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)
        self.failed.put([lease.entry for lease in leases])
        return self._with_facts(list(leases), leases, facts)

    def _with_facts(self, ours: list[Lease], leases: Sequence[Lease], facts: Sequence[Fact | None]) -> list[Lease]:
        """Keep the facts of the leases that were held, in a separate step; if that fails, only the facts are lost."""
        held = {(lease.entry.id, lease.token) for lease in ours}
        pairs = zip(leases, facts, strict=True) if facts else ()
        kept = [fact for lease, fact in pairs if fact is not None and (lease.entry.id, lease.token) in held]
        try:
            if kept:
                self.store.put_many(kept)
        except Exception as error:
            text, extra = "The results of %d messages could not be kept", {"queue": self.alias}
            log_safely(logger, logging.ERROR, text, len(kept), exc_info=error, extra=extra)
        return ours

    def reap(self, limit: int = 100, by: float = inf) -> Reaped:
        """Make up to ``limit`` expired leases claimable again; attempts that had begun are counted as lost.

        Others are not counted. Later than ``by`` (epoch seconds, by the store's clock) nothing is done: a store that
        was unreachable may run the call late, before consumers could extend their leases again.
        """
        return Reaped()

    def reclaim(self, owner: str, limit: int = 100) -> int:
        """Make up to ``limit`` leases of an ``owner`` that is dead claimable again, as :meth:`reap` does; how many.

        If the owner lives after all, its tokens are worth as much as after the end of its leases. By default nothing
        is given back before that.
        """
        return 0

    def sweep(self, limit: int = 1000) -> int:
        """Look through about ``limit`` messages for any that no claim would find, on from where the last sweep stopped.

        Complete ones are restored, the rest go to :attr:`failed`; each is logged. Returns how many these were: none,
        unless the store was changed by hand, or restored in part.
        """
        return 0

    def vacuum(self) -> float:
        """Free what completed messages have left in the store, if it is much; seconds until it shall be called again.

        Only for a store that becomes slower by it, and does not free it soon enough by itself. All others say: never.
        """
        return inf

    # ---- time and connection

    def bell(self, beside: Sequence[Self] = ()) -> Bell:
        """What the calling thread waits with for work to come, to this queue or those ``beside`` it. Does not connect.

        These have the same :attr:`connection_key`. By default it never rings: then the queues are polled.
        """
        return Bell()

    deadline = staticmethod(within)
    """Around calls of this thread, of whatever queue: one that a store does not answer in so many seconds raises."""

    def check(self) -> list[CheckMessage]:
        """What is wrong with the server behind this queue, as Django check messages. Connects."""
        return []

    def serving(self) -> AbstractContextManager[None]:
        """Around what a consumer does: meanwhile a connection that was dropped silently is noticed, within seconds."""
        return nullcontext()

    def close(self) -> None:
        """Give up the calling thread's connection, if it holds one."""


class OperatorVerbs(FourVerbs):
    """What operators call, and producers that change what waits: see also ``history`` and ``lanes``."""

    def stats(self) -> QueueStats:
        """Counts; see :class:`QueueStats`."""
        return QueueStats(ready=len(self), failed=None if self.failed is None else len(self.failed))

    def find(self, id: str) -> Record | None:
        """The entry of that id, if it waits or is leased."""
        raise self._cannot("find")

    def holders(self, queues: Sequence[Self], id: str) -> list[Self]:
        """Those of some queues of this class and server that may know a message, or its result.

        This default returns all of them. A backend that can ask one question about all of them does so.
        """
        return list(queues)

    def remove(self, ids: Iterable[str], facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> int:
        """Delete entries that wait (never leased ones); how many.

        ``facts`` and ``history``, if given, are for the ids as those of :meth:`complete` are for leases: the
        records of the end of each that did wait. One atomic step for each id where the backend can.
        """
        raise self._cannot("remove")

    def _with_ends(
        self, gone: Collection[str], ids: Iterable[str], facts: Sequence[Fact | None], history: Sequence[bytes] = ()
    ) -> int:
        """Keep, in a step of its own, the records of the end of those ids that are gone; how many are."""
        by_id = dict(zip(ids, facts, strict=True)) if facts else {}
        if kept := [fact for id, fact in by_id.items() if fact is not None and id in gone]:
            self.store.put_many(kept)
        records = dict(zip(ids, history, strict=True)) if history else {}
        if ended := [id for id, record in records.items() if record and id in gone]:
            self.history.keep(ended, [records[id] for id in ended])
        return len(gone)

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        """Give an entry that waits another body if its body is still ``was``; True if so."""
        raise self._cannot("amend")

    def requeue(self, ids: Iterable[str]) -> int:
        """Move entries from the failed queue back as if they were new, in one atomic step; how many."""
        raise self._cannot("requeue")

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Delete up to ``limit`` failed messages, the oldest first: the surplus over ``most``, or older than ``age`` s.

        For queues of failed messages, as ``queue.failed``: they have no lanes and one priority, and are in the order
        of the failures. Of any other queue it may pass over what waits in lanes. A backend of four verbs knows no ages.
        """
        surplus = 0 if most is None else min(limit, len(self) - most)
        return sum(self.read() is not None for _ in range(surplus))

    def peek(self, state: str, limit: int = 50, after: str | None = None, last: bool = False) -> list[Record]:
        """Up to ``limit`` records of one state, in the order in which they come up, behind the cursor ``after``.

        With ``last``, of what is ready and in no lane, the last of their order first: of a failed queue those that
        failed last.
        """
        raise self._cannot("peek")

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        """Give entries that wait another priority; how many."""
        raise self._cannot("reprioritise")

    def promote(self, ids: Iterable[str]) -> int:
        """Let delayed entries be due now: they wait in their places, or enter their lanes; how many these were."""
        raise self._cannot("promote")


def walk(queue: OperatorVerbs, state: str, most: float = inf) -> Iterator[Record]:
    """Up to ``most`` records of one state, read page by page."""
    after = None
    while most > 0 and (page := queue.peek(state, int(min(PAGE, most)), after)):
        yield from page
        most, after = most - len(page), page[-1].cursor


class Unanswered:
    """The tokens of one queue object's claims that raised, each until its leases would have run out.

    The server may still be at work on what a lost connection asked for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[Any, float] = {}

    @contextmanager
    def asking(self, token: int | str, lease: float) -> Iterator[None]:
        """Around a claim for ``lease`` seconds: its token is remembered if it raises."""
        asked = clock()
        try:
            yield
        except BaseException:
            with self._lock:
                self._until[token] = asked + lease
            raise

    def tokens(self) -> list[Any]:
        """The tokens that have not expired."""
        if not self._until:
            return []
        with self._lock:
            now = clock()
            self._until = {token: until for token, until in self._until.items() if until > now}
            return list(self._until)
