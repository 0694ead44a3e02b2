"""The contract between djqueue and a store: queues of entries, and small shared facts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import NoReturn, Self

from djqueue import conf
from djqueue.backends import fallback
from djqueue.backends.entries import (
    FAILED,
    PAGE,
    Claimed,
    Entry,
    Fact,
    LaneRecord,
    Lease,
    QueueStats,
    Reaped,
    Record,
    Refusal,
)
from djqueue.backends.guards import AnyGuard, Debounce, Guard, Unique
from djqueue.backends.items import ItemVerbs
from djqueue.backends.stores import BaseStore, Budget, NoStore
from djqueue.exceptions import InvalidMessage, NotSupported
from djqueue.messages.envelope import new_id
from djqueue.utils import clock, seconds, tell

__all__ = [
    "AnyGuard",
    "BaseQueue",
    "BaseStore",
    "Budget",
    "Claimed",
    "Debounce",
    "Entry",
    "Fact",
    "Guard",
    "LaneRecord",
    "Lease",
    "LeasedQueue",
    "NoStore",
    "QueueStats",
    "Reaped",
    "Record",
    "Refusal",
    "Unique",
]

logger = logging.getLogger(__name__)

FAILED_SUFFIX = f":{FAILED}"
FEATURES = frozenset(
    {
        "durable",
        "lease",
        "fence",
        "begin",
        "idempotent",
        "transaction",
        "priority",
        "order",
        "lanes",
        "shards",
        "inspect",
        "count",
        "facts",
    }
)
"""What backends can do; docs/reference/backends.rst says what each means."""
REAP_EVERY = 1.0
"""Seconds between two times that :meth:`BaseQueue.reserve` reaps, at least."""
REAP_BATCH = 100
NOTICE = 1.0  # seconds after which who waits for a throttle looks whether it has changed


class OperatorVerbs:
    """The part of the contract that no consumer needs."""

    def find(self, id: str) -> Record | None:
        """The entry of that id, if it waits or is leased."""
        raise self._cannot("find")

    def remove(self, ids: Iterable[str]) -> int:
        """Delete entries that wait (never leased ones); how many."""
        raise self._cannot("remove")

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        """Give an entry that waits another body if its body is still ``was``; True if so."""
        raise self._cannot("amend")

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Delete up to ``limit`` failed messages, the oldest first: the surplus over ``most``, or older than ``age`` s.

        For queues of failed messages, as ``queue.failed``: they have no lanes and one priority, and are in the order
        of the failures. Of any other queue it may pass over what waits in lanes. A backend of four verbs knows no ages.
        """
        surplus = 0 if most is None else min(limit, len(self) - most)
        return sum(self.read() is not None for _ in range(surplus))

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        """Up to ``limit`` records of one state, in the order in which they come up, behind the cursor ``after``."""
        raise self._cannot("peek")

    def walk(self, state: str, most: float = inf) -> Iterator[Record]:
        """Up to ``most`` records of one state, looked at page by page."""
        after = None
        while most > 0 and (page := self.peek(state, int(min(PAGE, most)), after)):
            yield from page
            most, after = most - len(page), page[-1].cursor

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        """Give entries that wait another priority; how many."""
        raise self._cannot("reprioritise")

    def lanes(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        """Up to ``limit`` lanes that hold something or remember something, behind the cursor ``after``."""
        raise self._cannot("lanes")

    def lane(self, name: str) -> LaneRecord | None:
        """What is known of a lane, if anything is."""
        raise self._cannot("lane")

    def pause_lane(self, name: str, why: str) -> None:
        """Let nothing more leave a lane until :meth:`resume_lane`; what is out goes on."""
        raise self._cannot("pause_lane")

    def resume_lane(self, name: str) -> bool:
        """Open a lane that is paused, or held for a time; whether it was."""
        raise self._cannot("resume_lane")

    def _cannot(self, verb: str) -> NotSupported:
        own = type(self).__name__
        return NotSupported(f"{own} has only the four verbs and cannot {verb}(); derive it from LeasedQueue.")


class _Told(threading.local):
    """What a queue told the calling thread."""

    refusal: Refusal | None = None


class _Reaping:
    """When one queue object reaps for the loops that claim from it; moments are monotonic."""

    def __init__(self) -> None:
        self._due = self._next = -inf

    @property
    def due(self) -> bool:
        """Whether the latest time was long enough ago."""
        return time.monotonic() >= self._due

    @property
    def left(self) -> float:
        """Seconds until a lease may run out that was seen the latest time, but not before it is due again."""
        return max(0.0, self._next - time.monotonic())

    def reap(self, queue: BaseQueue) -> int:
        """How many leases ran out; their entries can be claimed again."""
        self._due = self._next = time.monotonic() + REAP_EVERY  # first: of several threads one does it
        reaped = queue.reap(REAP_BATCH)
        self._next = max(self._due, time.monotonic() + reaped.next)
        if reaped.count:
            text = "%s: %d leases ran out; their holders died or lost touch"
            tell(logger, logging.WARNING, text, queue.alias, reaped.count)
        return reaped.count


class BaseQueue(ItemVerbs, OperatorVerbs):
    """A queue in four verbs; all the others work over them, at most once.

    A third party writes ``__init__(name, connection)``, ``write``, ``read``, ``flush`` and ``__len__``, and the queue
    works with the consumer. ``read`` removes, so what a worker holds when it dies is lost. A backend that can do better
    derives from :class:`LeasedQueue`.
    """

    features: frozenset[str] = frozenset({"order", "count", "facts"})
    """What this backend can do, of :data:`FEATURES`. Commands that need another feature are refused."""
    options: frozenset[str] = frozenset()
    """The names (upper case) that this class takes in ``OPTIONS``, beside those that every queue has."""
    on_commit: str | None = "default"
    """The database alias whose commit an enqueue waits for; None sends at once (``OPTIONS["ON_COMMIT"]``)."""
    notifies: bool = False
    """Whether :meth:`wait_for_work` ends early when work comes, so that an idle consumer need not look often."""
    poll: float = 0.1
    """Seconds between two looks of :meth:`reserve` at an empty queue."""
    bytes_at_once: float = inf
    """So many bytes of entries are put in one step; more of them take several, of which a later one may fail."""
    alias: str = "default"
    """Its key in QUEUES; given by the composition root."""
    database: str | None = None
    """The database alias that holds it, if one does."""
    store: BaseStore = None  # type: ignore[assignment]  # until the composition root gives it one
    """The facts of this queue; given by the composition root where the backend brings none."""

    _lease: float | None = None
    _given: Mapping[str, object] = {}
    """The options that it was made with: its error queue has the same."""

    def __new__(cls, *args, **options):
        # Here and not in __init__, which a third party need not call, nor pass its own options on to.
        queue = super().__new__(cls)
        queue._given = {name: value for name, value in options.items() if name not in ("name", "connection")}
        queue._told, queue._reaping = _Told(), _Reaping()
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
        """Delete all that waits, due or not. What is leased or dead stays."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many wait, the delayed ones included, the leased ones not."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True  # an empty queue is still a queue

    # ---- what the consumer calls: working defaults over the four

    def put(self, entries: Sequence[Entry], guards: Sequence[AnyGuard | None] | None = None) -> list[bool]:
        """Accept entries in their order; tells of each whether it was accepted.

        An id that waits or is leased already is refused, and so is an entry whose guard says so; guard and entry are
        decided in one atomic step where the backend can. Raises QueueFull if the store takes no more.
        """
        return [
            self._put_one(entry) if guard is None else fallback.put_guarded(self, entry, guard, self._put_one)
            for entry, guard in zip(entries, guards or [None] * len(entries), strict=True)
        ]

    def _put_one(self, entry: Entry) -> bool:
        self.write(fallback.pack(fallback.stamped(entry, self.now())))
        return True

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """Lease up to ``limit`` units of work for ``lease`` seconds; never waits. Their ``attempts`` are one higher.

        A unit is a due entry, or a run of a lane. Of the units, ``ahead`` would wait for a worker: what is throttled
        is none of these. The first entry of each unit begins with the claim (``lease.begun``), unless it was lost
        before, or ``begin`` is False: then it begins when who runs it says so, by :meth:`begin`.
        What a claim took whose answer never came is given back by the next claim or reap, and counts as nothing.
        """
        due, early, now = [], {}, self.now()
        try:
            fallback.read_due(self, limit, now, due, early)
        except Exception:
            if not due:
                raise
            tell(logger, logging.ERROR, "Reading stopped half way.", exc_info=True, extra={"queue": self.alias})
            return Claimed(due, retry_after=0.0)
        return Claimed(due, retry_after=0.0 if len(due) >= limit else min(early.values(), default=inf))

    def claim_within(
        self, budget: Budget, limit: int = 1, lease: float = 60.0, owner: str = "", begin: bool = True
    ) -> Claimed:
        """Claim what a budget allows. One atomic step where the backend can; what is not there spends nothing."""
        return fallback.claim_within(self, budget, limit, lease, owner, begin)

    def reserve(self, limit: int = 1, lease: float = 60.0, owner: str = "", wait: float = 0.0) -> Claimed:
        """Claim; while there is nothing, wait_for_work and claim again until ``wait`` seconds are over.

        If there is nothing it reaps, at most once a second, so that loops of one's own take over from those that died.
        A throttle says when the next may leave: until then who waits looks once a second, as its limit may change.
        """
        deadline = time.monotonic() + wait
        while True:
            claimed = self._begin_lost(self._claim_or_take_over(limit, lease, owner))
            left = deadline - time.monotonic()
            if claimed or left <= 0:
                self._told.refusal = claimed.refusal
                return claimed
            if claimed.reason:
                self.wait_until(min(left, claimed.retry_after), NOTICE)
            elif claimed.retry_after:
                self.wait_until(min(left, claimed.retry_after, self._reaping.left), self.poll)

    def _claim_or_take_over(self, limit: int, lease: float, owner: str) -> Claimed:
        claimed = self.claim(limit, lease, owner)
        is_empty = not claimed and claimed.retry_after > 0 and not claimed.reason
        if is_empty and self._reaping.due and self._reaping.reap(self):
            return self.claim(limit, lease, owner)
        return claimed

    def _begin_lost(self, claimed: Claimed) -> Claimed:
        """Say of what was lost before that it begins: who reserves runs it now."""
        if late := [lease for lease in claimed if lease.entry.lost and not lease.begun]:
            begun = {lease.entry.id: lease for lease in self.begin(late)}
            claimed[:] = [begun.get(lease.entry.id, lease) for lease in claimed]
        return claimed

    @property
    def refusal(self) -> Refusal | None:
        """Why the latest ``pop``, ``take`` or ``reserve`` of this thread had nothing; None if it had something."""
        return self._told.refusal

    def begin(self, leases: Sequence[Lease]) -> list[Lease]:
        """Note that they begin to run: from now on that start is lost if their lease runs out.

        Returns those that were still ours. One whose lease has run out is not to be begun: others may have it soon.
        """
        return [replace(lease, begun=True) for lease in leases]

    def defer(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Have the windows of their lanes count them as if they left in ``seconds``: so much later they may begin.

        Returns them with that moment as ``claimed``; nothing if one left too long ago to be counted, or in no lane.
        """
        return []

    def complete(self, leases: Sequence[Lease], facts: Sequence[Fact | None] = ()) -> list[Lease]:
        """Done: forget them. Returns those that were still ours.

        ``facts``, if given, has one of each lease, or None: it is kept in :attr:`store` if the lease was still ours,
        in the same atomic step where the backend can.
        """
        return self._with_facts(list(leases), leases, facts)

    def touch(self, leases: Sequence[Lease], lease: float = 60.0) -> list[Lease]:
        """Hold them for ``lease`` more seconds from now. Returns those still ours, with their new ``until``."""
        return list(leases)

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        """Put them back as ``lease.entry`` now says: counts, errors, and a delay if it has one.

        Without a delay an entry goes back to its old place. Of one in a lane ``entry.hold`` says what waits with it.
        Returns those that were still ours.
        """
        return fallback.write_back(self, leases, self.now())

    def fail(self, leases: Sequence[Lease], facts: Sequence[Fact | None] = ()) -> list[Lease]:
        """Move them to the end of :attr:`dead`, the error queue, as ``lease.entry`` now says. Returns those still ours.

        There they stand in the order in which they died, whatever their priorities. ``facts`` are kept as ``complete``
        keeps them. In an error queue itself, which has no other, it puts them back.
        """
        if self.failed is None:
            return self.release(leases)
        self.failed.put([lease.entry for lease in leases])
        return self._with_facts(list(leases), leases, facts)

    def _with_facts(self, ours: list[Lease], leases: Sequence[Lease], facts: Sequence[Fact | None]) -> list[Lease]:
        """Keep the facts of those leases that were ours, in a step of its own; gives those leases.

        A store that fails costs the facts, and not the work.
        """
        held = {(lease.entry.id, lease.token) for lease in ours}
        pairs = zip(leases, facts, strict=True) if facts else ()
        kept = [fact for lease, fact in pairs if fact is not None and (lease.entry.id, lease.token) in held]
        try:
            if kept:
                self.store.put_many(kept)
        except Exception as error:
            text, extra = "The results of %d messages could not be kept", {"queue": self.alias}
            tell(logger, logging.ERROR, text, len(kept), exc_info=error, extra=extra)
        return ours

    def requeue(self, ids: Iterable[str]) -> int:
        """Move entries from the error queue back as if they were new, in one atomic step; how many."""
        raise self._cannot("requeue")

    def reap(self, limit: int = 100, by: float = inf) -> Reaped:
        """Make up to ``limit`` expired leases claimable again; those that had begun are counted as lost.

        The others cost nothing. Later than ``by`` (epoch seconds, by the store's clock) nothing is done: a call that
        a store answers only after it was away comes too early for those who could not extend their leases meanwhile.
        """
        return Reaped()

    def sweep(self, limit: int = 1000) -> int:
        """Look through about ``limit`` messages for those that stand in no line, on from where the last sweep stopped.

        What is whole goes back to its line, the rest to :attr:`dead`; each is logged. How many these were: none, unless
        somebody changed the store by hand, or a restore was partial.
        """
        return 0

    def stats(self) -> QueueStats:
        """Counts; see :class:`QueueStats`."""
        return QueueStats(ready=len(self), failed=None if self.failed is None else len(self.failed))

    # ---- time and connection

    def now(self) -> float:
        """The store's clock, epoch seconds. Raises whatever the client raises if the store is out of reach."""
        return time.time()

    def wait_for_work(self, seconds: float, beside: Sequence[BaseQueue] = ()) -> bool:
        """Sleep for up to ``seconds``; True if woken because work may have come.

        A blocking backend wakes for this queue and for those ``beside`` it, which have the same :attr:`feed`.
        """
        time.sleep(seconds)
        return False

    def wait_until(self, due: float, pause: float, beside: Sequence[BaseQueue] = ()) -> bool:
        """:meth:`wait_for_work` for ``pause`` seconds, or until something may leave in ``due`` seconds, if sooner.

        It is to end in time: override it where a wait may be late.
        """
        return self.wait_for_work(min(due, pause), beside)

    @property
    def connection_key(self) -> Hashable:
        """Queues of one feed share a connection, and one thread asks for all of them."""
        return (type(self), self.connection if isinstance(self.connection, str) else id(self.connection))

    @property
    def server(self) -> Hashable:
        """Queues of one server are away together: for all of them one thread settles, one extends leases, and so on."""
        return self.connection_key

    def describe(self) -> str:
        """Where this queue lives, for people; never a password."""
        return type(self).__name__

    def check(self) -> list:
        """What is wrong with the server behind this queue, as Django check messages. Connects."""
        return []

    def close(self) -> None:
        """Give up the calling thread's connection, if it holds one."""

    # ---- names

    @property
    def unthrottled(self) -> BaseQueue:
        """The queue of the backend itself: this one, or the queue within a ThrottledQueue."""
        return self

    @property
    def base_name(self) -> str:
        """The name that signatures bind to: an error queue has that of the queue it belongs to."""
        return self.name.removesuffix(FAILED_SUFFIX)

    @cached_property
    def own_budget(self) -> str:
        """The name of the budget that a throttle of this queue alone has."""
        return f"queue:{self.name}"

    @cached_property
    def failed(self) -> BaseQueue | None:
        """The error queue, a queue of the same kind; it has none itself."""
        if self.name.endswith(FAILED_SUFFIX):
            return None
        return type(self)(self.name + FAILED_SUFFIX, self.connection, **self._given)

    def _sibling(self, backend: type[BaseQueue], name: str, **options) -> Self:
        """The queue of another name that the ``__init__`` of ``backend`` makes, otherwise as this one.

        The class of this one may be somebody's own, whose ``__init__`` takes other arguments.
        """
        other = copy(self)
        other._told, other._reaping = _Told(), _Reaping()
        for attribute in [one for one in vars(other) if isinstance(getattr(type(other), one, None), cached_property)]:
            delattr(other, attribute)
        backend.__init__(other, name, self.connection, **options)
        return other


REQUIRED = ("put", "claim", "complete", "touch", "release", "fail", "stats", "flush")
"""The verbs that every :class:`LeasedQueue` has to write."""


def _missing(verb: str) -> Callable[..., NoReturn]:
    def refuse(self: BaseQueue, *args: object, **kwargs: object) -> NoReturn:
        raise self._cannot(verb)

    return refuse


class LeasedQueue(BaseQueue):
    """A queue with leases, at least once: the base of a backend that writes the leased verbs.

    Required are ``put``, ``claim``, ``complete``, ``touch``, ``release``, ``fail``, ``stats`` and ``flush``, and
    ``reap`` unless leases run out by themselves in the store. With "inspect" in :attr:`features`, operators need
    ``requeue``, ``find``, ``remove``, ``amend``, ``peek``, ``reprioritise`` and ``trim`` too. ``write``, ``read`` and
    ``__len__`` come with this class, and all else has a working default. A call of a required verb that is missing
    raises NotSupported, which names it.
    """

    features = FEATURES - {"transaction", "begin", "lanes", "shards"}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for verb in REQUIRED:
            if getattr(cls, verb) is getattr(BaseQueue, verb):
                setattr(cls, verb, _missing(verb))

    def _cannot(self, verb: str) -> NotSupported:
        return NotSupported(
            f"{type(self).__name__} lacks {verb}(): write it, as its LeasedQueue has no default for it."
        )

    def write(self, data: str) -> None:
        """Put ``data`` as an entry of its own, behind all others of its priority. Raises QueueFull as ``put`` does."""
        self.put([Entry(data.encode(), new_id())])

    def read(self) -> str | None:
        """Claim and complete the next due entry, at most once; its body, None when nothing is due.

        What is no text, as the message of a command, is put aside as ``take`` does it, and InvalidMessage is raised.
        """
        lease = self.first_of(self.reserve(1))
        if lease is None:
            return None
        try:
            text = lease.entry.body.decode()
        except UnicodeDecodeError as error:
            self._put_aside(lease, "read() met what is no text")
            raise InvalidMessage("it is no text that write() put: take() items, have a consumer run calls") from error
        self.complete([lease])
        return text

    def __len__(self) -> int:
        stats = self.stats()
        return stats.ready + (stats.delayed or 0)


class Unanswered:
    """The tokens of one queue object's claims that raised, each until its leases would have run out.

    They are kept for so long because the server may still be at work on what a lost connection asked of it.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}

    @contextmanager
    def asking(self, token: int, lease: float) -> Iterator[None]:
        """Around a claim of so many seconds: its token is remembered if it raises."""
        asked = clock()
        try:
            yield
        except BaseException:
            with self._lock:
                self._until[token] = asked + lease
            raise

    def tokens(self) -> list[int]:
        """Those that are not over yet."""
        if not self._until:
            return []
        with self._lock:
            now = clock()
            self._until = {token: until for token, until in self._until.items() if until > now}
            return list(self._until)
