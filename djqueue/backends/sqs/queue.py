"""Queues on Amazon SQS, standard and FIFO.

A message is an entry as text (``entries.pack``). SQS counts how often it gave a message out, and a message cannot be
changed. So on a standard queue a released entry is sent as a new message, and the count of a message is exactly the
number of its lost attempts. On a FIFO queue a new message would lose its place; there it stays, and the store of the
queue notes what changed about it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from typing import Self

from django.core.checks import CheckMessage

from djqueue.backends.base import FAILED_SUFFIX, LeasedQueue
from djqueue.backends.entries import Claimed, Entry, Fact, Lease, Leases, QueueStats, listed, untried
from djqueue.backends.guards import Guard
from djqueue.backends.sqs.bells import SqsBell
from djqueue.backends.sqs.connection import (
    AT_ONCE,
    ClientError,
    SqsLink,
    check_link,
    check_options,
    check_store,
    clients,
    clock,
    code_of,
    is_fifo,
    sqs_name,
)
from djqueue.backends.sqs.messages import Messages, Received, units
from djqueue.exceptions import NotSupported, PartialEnqueueError, QueueError
from djqueue.utils import log_safely

__all__ = ["SqsQueue", "clients"]

logger = logging.getLogger(__name__)

LONGEST_POLL = 20  # seconds
POLL_OF_BELL = 1  # seconds of a poll of a thread that waits, which cannot be ended sooner
CERTAIN = 1  # seconds of a poll that asks all servers of SQS, before a queue is taken to be empty
FRESH = 0.1  # seconds for which the result of such a poll is trusted
TOLERANCE = 1.0  # seconds by which the lease of messages that a poll received may be shorter than was asked for
LOOKED_THROUGH = 1000  # messages of the failed queue at which requeue() looks
LOOK = 60.0  # seconds for which it holds them
COUNTS = {
    "ready": "ApproximateNumberOfMessages",
    "delayed": "ApproximateNumberOfMessagesDelayed",
    "leased": "ApproximateNumberOfMessagesNotVisible",
}


class SqsQueue(LeasedQueue):
    """A queue on Amazon SQS.

    ``connection`` is ``"sqs://eu-west-1"``, the address of an endpoint (``"http://127.0.0.1:5000?region=eu-west-1"``),
    ``""`` for boto3's own settings, or a client of boto3. Credentials are found by boto3. The queue at SQS has
    the name ``prefix`` + name + ``suffix``. It is a FIFO queue if ``fifo`` is true or the name ends in ``.fifo``; its
    name there ends so. With ``create`` it is made when it is first used. Raises InvalidQueueError.
    """

    features = frozenset({"durable", "lease", "facts"})
    options = frozenset({"PREFIX", "SUFFIX", "FIFO", "CREATE"})
    poll = float(LONGEST_POLL)

    def __init__(
        self,
        name: str,
        connection: object = None,
        *,
        prefix: str = "",
        suffix: str = "",
        fifo: bool | None = None,
        create: bool = False,
    ):
        super().__init__(name, connection)
        self._options = {"prefix": prefix, "suffix": suffix, "fifo": fifo, "create": create}
        check_options(prefix, suffix, create)
        self.is_fifo = is_fifo(name, fifo)
        self._link = SqsLink(connection, sqs_name(name, prefix, suffix, self.is_fifo), self.is_fifo, create)
        self._messages = Messages(self, self._link, self.is_fifo)
        if self.is_fifo:
            self.features = self.features | {"shards"}
        self._kept: deque[Lease] = deque()
        self._span, self._empty, self._looked = self.lease, False, -inf
        self._polls = 0
        """How many polls of bells go on."""
        self._sent = 0
        """How often something was sent by this object."""

    @cached_property
    def failed(self) -> SqsQueue | None:
        if self.name.endswith(FAILED_SUFFIX):
            return None
        failed_queue = self._sibling(SqsQueue, self.name + FAILED_SUFFIX, **self._options)
        failed_queue.store = self.store
        return failed_queue

    # ---- what the consumer calls

    def put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None = None) -> list[bool]:
        """Ten in a call. Raises MessageTooLarge before any is sent, and PartialEnqueueError if only some are.

        The mark of a guard is written first, in the store of the queue: a crash between the two leaves a mark without a
        message, until its time is over.
        """
        with self._filling():
            return self._put(entries, guards)

    def _put(self, entries: Sequence[Entry], guards: Sequence[Guard | None] | None) -> list[bool]:
        if guards and any(guard is not None for guard in guards):
            self._messages.outgoing(entries)  # refuses what is too large before a mark is written
            return self._put_guarded(entries, guards)
        self._messages.send(entries)
        return [True] * len(entries)

    def _put_guarded(self, entries: Sequence[Entry], guards: Sequence[Guard | None]) -> list[bool]:
        answers = []
        for number, (entry, guard) in enumerate(zip(entries, guards, strict=True)):
            try:
                answers += super().put([entry], [guard])
            except Exception as error:
                if not (number or isinstance(error, PartialEnqueueError)):
                    raise
                reasons = error.reasons if isinstance(error, PartialEnqueueError) else {entry.id: str(error)}
                accepted = [one.id for one, taken in zip(entries, answers, strict=False) if taken]
                behind = [one.id for one in entries[number + 1 :]]
                raise PartialEnqueueError(accepted, reasons, behind) from error
        return answers

    def _put_one(self, entry: Entry) -> bool:
        self._messages.send([entry])
        return True

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """As in the contract, but the first claim that finds nothing takes a second, to be certain."""
        if limit < 1:
            return Claimed((), 0.0)
        self._span, found, more = lease, Claimed(self._take_kept(limit, lease)), True
        while more and (count := units(found)) < limit:
            asked = min(AT_ONCE, limit - count)
            try:
                received = self._look(asked, lease, certain=not found)
            except Exception:
                if not found:
                    raise
                extra = {"queue": self.alias}
                log_safely(logger, logging.ERROR, "Receiving stopped half way.", exc_info=True, extra=extra)
                return Claimed(found, 0.0)
            found += received.leases
            found.retry_after, more = min(found.retry_after, received.retry_after), received.seen == asked
        return Claimed(found, 0.0 if units(found) >= limit else found.retry_after)

    def _look(self, count: int, lease: float, certain: bool) -> Received:
        """A short poll, which may miss messages; then a longer one, unless a longer one was empty just before."""
        if self._empty and (self._polls or clock() - self._looked < FRESH):
            return Received(0, [], inf)
        received = self._messages.receive(count, lease, 0)
        if not received.seen and certain and not self._empty:
            received = self._poll(count, lease, CERTAIN)
        elif received.seen:
            self._empty = False
        return received

    def _poll(self, count: int, lease: float, seconds: int) -> Received:
        """A longer poll, after which it is known whether there is nothing, unless something was sent meanwhile."""
        sent = self._sent
        received = self._messages.receive(count, lease, seconds)
        self._looked = clock()
        self._empty = not received.seen and sent == self._sent
        return received

    @contextmanager
    def _filling(self) -> Iterator[None]:
        """While something is sent. A poll that ends meanwhile or later, and began before, may not have seen it."""
        try:
            yield
        finally:
            self._sent += 1
            self._empty = False

    def _freeing(self) -> AbstractContextManager[None]:
        """While messages end: on a FIFO queue what was behind them in their groups may come then."""
        return self._filling() if self.is_fifo else nullcontext()

    def _take_kept(self, limit: int, lease: float) -> list[Lease]:
        """Messages that a poll has received, held for as long as is asked for now."""
        kept = self._no_longer_kept(limit)
        stale = [one for one in kept if abs(one.until - lease - self.now()) > TOLERANCE]
        return [one for one in kept if one not in stale] + (self._messages.hold(stale, lease) if stale else [])

    def _no_longer_kept(self, limit: float = inf) -> list[Lease]:
        taken: list[Lease] = []
        with suppress(IndexError):  # another thread may have taken the last one
            while len(taken) < limit:
                taken.append(self._kept.popleft())
        return taken

    def complete(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        """Done: delete them. A message whose lease ran out is deleted too, but not returned."""
        leases = listed(leases)
        with self._freeing():
            ours = self._messages.settle(leases, self._messages.finish, late=True)
        return self._with_facts(ours, leases, facts)

    def touch(self, leases: Leases, lease: float = 60.0) -> list[Lease]:
        """As in the contract; but no message can be held for more than twelve hours in all."""
        leases = listed(leases)
        return self._messages.hold(leases, lease)

    def release(self, leases: Leases) -> list[Lease]:
        """As in the contract. A crash between the sending of the new message and the deletion of the old one leaves
        both, and the entry comes twice; on a FIFO queue there is no new one."""
        leases = listed(leases)
        mine = self._messages
        with self._filling():
            return mine.settle(leases, mine.leave if self.is_fifo else lambda some: mine.move(some, mine))

    def fail(self, leases: Leases, facts: Sequence[Fact | None] = (), history: Sequence[bytes] = ()) -> list[Lease]:
        """Send them to the failed queue, then delete them here. A crash between the two leaves both."""
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)
        to = self.failed._messages
        with self._freeing(), self.failed._filling():
            ours = self._messages.settle(leases, lambda some: self._messages.move(some, to))
        return self._with_facts(ours, leases, facts)

    def requeue(self, ids: Iterable[str]) -> int:
        """Send back entries among the first thousand of the failed queue. A crash may leave one in both."""
        if self.failed is None:
            return 0
        wanted, failed_queue = set(ids), self.failed._messages
        looked: list[Lease] = []
        while len(looked) < LOOKED_THROUGH and not wanted <= {lease.entry.id for lease in looked}:
            claimed = self.failed.claim(AT_ONCE, LOOK)
            if not claimed:
                break
            looked += claimed
        fresh = partial(replace, attempts=0, failures=0, lost=0, run_at=0.0, created=self.now())
        chosen = [replace(one, entry=fresh(one.entry)) for one in looked if one.entry.id in wanted]
        with self.failed._filling():
            failed_queue.show(lease for lease in looked if lease.entry.id not in wanted)
        with self._filling():
            return len(failed_queue.settle(chosen, lambda some: failed_queue.move(some, self._messages)))

    # ---- for operators

    def flush(self) -> None:
        """As in the contract, but delayed messages stay while any is leased: SQS deletes them only with all others.

        If nothing is leased it purges, which takes SQS up to a minute; raises QueueError for another purge meanwhile.
        """
        self.complete(self._no_longer_kept())
        counts = self.stats()
        if not counts.leased:
            return self._purge()
        left = counts.ready
        while left > 0 and (found := self._messages.receive(min(AT_ONCE, left), LOOK, 0).leases):
            left -= len(self.complete(found))
        if counts.delayed:
            text = "%s: %d delayed messages stay, as some are leased."
            log_safely(logger, logging.WARNING, text, self._link.where, counts.delayed)

    def _purge(self) -> None:
        try:
            self._link.call("purge_queue")
        except ClientError as error:
            if "PurgeQueueInProgress" not in code_of(error):
                raise
            raise QueueError(f"{self._link.where} was purged less than a minute ago: try again later.") from error

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """As in the contract, by SQS's own approximate count and order."""
        surplus, deleted = 0 if most is None else len(self) - most, 0
        before = self.now() - age if age is not None else -inf
        while deleted < limit and (surplus > deleted or age is not None):
            found = self._messages.receive(min(AT_ONCE, limit - deleted), LOOK, 0).leases
            over = [one for number, one in enumerate(found, deleted) if number < surplus or one.token.sent < before]
            deleted += len(self._messages.settle(over, self._messages.finish))
            rest = [lease for lease in found if lease not in over]
            self._messages.show(rest)
            if rest or not found:
                break
        return deleted

    def stats(self) -> QueueStats:
        """The counts of SQS: approximate, up to a minute old. On a FIFO queue delayed messages count as leased."""
        found = self._link.attributes(*COUNTS.values())
        counts = {name: int(found.get(attribute, 0)) for name, attribute in COUNTS.items()}
        return QueueStats(**counts, failed=None if self.failed is None else len(self.failed))

    # ---- time and connection

    def bell(self, beside: Sequence[Self] = ()) -> SqsBell:
        """A thread that polls. What it receives is kept for the next claim, which gets it at once.

        One poll looks at one queue, so nothing has the same feed, and there is nothing ``beside``.
        """
        return SqsBell(self)

    @property
    def has_kept(self) -> bool:
        """Whether messages that a poll has received wait for a claim."""
        return bool(self._kept)

    def keep_next(self) -> bool:
        """Poll for a second, and keep what comes for the next claim; whether anything came."""
        self._polls += 1
        try:
            self._kept += self._poll(1, self._span, POLL_OF_BELL).leases
        finally:
            self._polls -= 1
        return self.has_kept

    def give_back_kept(self) -> None:
        """Give back messages that no claim took; it counts as nothing."""
        self.release([untried(lease) for lease in self._no_longer_kept()])

    @property
    def connection_key(self) -> Hashable:
        return (self.server, self._link.name)

    @property
    def server(self) -> Hashable:
        return (type(self), self._link.place)

    def describe(self) -> str:
        return self._link.where

    def check(self) -> list[CheckMessage]:
        links = [self._link] if self.failed is None else [self._link, self.failed._link]
        stores = check_store(self.describe(), self.store) if self.is_fifo else []
        return [*stores, *(message for link in links for message in check_link(link))]

    def close(self) -> None:
        """Give back messages that a poll has received and no claim took."""
        self.give_back_kept()

    def _cannot(self, verb: str) -> NotSupported:
        return NotSupported(f"SQS does not show what waits: SqsQueue cannot {verb}().")
