"""Messages at SQS: sent, received, given back, deleted, ten in a call; and what FIFO queues need besides.

A message at SQS cannot be changed, so changes are noted in the store. SQS gives out nothing more of a FIFO group while
a message of it is in flight.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import NamedTuple, TypeVar

from djqueue.backends.entries import Entry, Lease, due, pack, stamped, unpack, untried
from djqueue.backends.sqs import connection
from djqueue.backends.sqs.connection import LONGEST_KEPT, BatchReply, Receipt, SqsLink, clock
from djqueue.backends.stores import BaseStore
from djqueue.backends.verbs import ConsumerVerbs
from djqueue.exceptions import MessageTooLarge, NotSupported, PartialEnqueueError, QueueError
from djqueue.flow.gates import Gate
from djqueue.utils import log_safely

T = TypeVar("T")


def runs(leases: Sequence[Lease], waiting: Collection[str]) -> tuple[list[Lease], list[Lease]]:
    """The runs of the lanes among what was received, and what has to wait. One that was lost once leaves alone."""
    together: list[Lease] = []
    behind: list[Lease] = []
    firsts: dict[str, list[Entry]] = {}
    for lease in leases:
        entry, shut = lease.entry, [*waiting, *(one.entry.lane for one in behind)]
        run = firsts.setdefault(entry.lane, [])
        if entry.lane and (entry.lane in shut or not _joins(run, entry)):
            behind.append(lease)
        else:
            run.append(entry)
            together.append(replace(lease, run=entry.lane))
    return together, behind


def units(leases: Sequence[Lease]) -> int:
    """How many units of work they are."""
    return sum(not lease.run for lease in leases) + len({lease.run for lease in leases if lease.run})


def _joins(run: Sequence[Entry], entry: Entry) -> bool:
    """Whether an entry may leave behind these."""
    most = Gate.read(entry.gate).max_run if entry.gate else inf
    return not run or (len(run) < most and not entry.lost and not run[0].lost)


# ---- The messages of one queue

logger = logging.getLogger(__name__)

TRAVEL = 1.0  # seconds that an answer may have been on its way: its leases began when it was sent
GROWTH = 512  # bytes by which the counts of a message may grow on its way through retries
ASKED_FOR = ["ApproximateReceiveCount", "SentTimestamp"]


class Received(NamedTuple):
    """What a look at the queue gave: how many messages, leases on those that are due, and seconds to the others."""

    seen: int
    leases: list[Lease]
    retry_after: float


class Messages:
    """Over one link. Receipts note what is settled, so that a call that raised can be repeated."""

    def __init__(self, queue: ConsumerVerbs, link: SqsLink, is_fifo: bool):
        self._queue, self._link, self._is_fifo = queue, link, is_fifo
        self._has_lanes = is_fifo and queue.name == queue.base_name

    # ---- out

    def send(self, entries: Sequence[Entry]) -> None:
        """Send entries. Raises MessageTooLarge before any is sent, PartialEnqueueError if SQS takes only some."""
        messages, ids = self.outgoing(entries), [entry.id for entry in entries]
        accepted: list[str] = []
        for some in connection.portions(messages, self._link.largest):
            theirs, behind = ids[: len(some)], ids[len(some) :]
            try:
                reply = self._link.batch("send_message_batch", some)
            except Exception as error:
                if not accepted:
                    raise
                raise PartialEnqueueError(accepted, dict.fromkeys(theirs, str(error)), behind) from error
            accepted += numbered(theirs, reply.done)
            if reasons := reply.refused | reply.failed:
                named = {theirs[number]: reason for number, reason in reasons.items()}
                raise PartialEnqueueError(accepted, named, behind)
            ids = behind

    def outgoing(self, entries: Sequence[Entry]) -> list[dict]:
        """The messages of new entries. Raises MessageTooLarge."""
        now, most = time.time(), self._link.largest - GROWTH
        messages = [self._message(stamped(entry, now), now, repeat=False) for entry in entries]
        for entry, message in zip(entries, messages, strict=True):
            if (size := len(message["MessageBody"])) > most:
                text = f"message {entry.id} ({entry.command}) has {size} bytes as SQS carries it, {most} are allowed"
                raise MessageTooLarge(f"{text}; pass a reference to large data")
        return messages

    # ---- in

    def receive(self, count: int, seconds: float, wait: int) -> Received:
        """Up to ``count``, each held for ``seconds``; what is not due goes back at once, and counts as nothing."""
        asked = clock()
        answer = self._link.call(
            "receive_message",
            MaxNumberOfMessages=count,
            VisibilityTimeout=connection.whole(seconds),
            WaitTimeSeconds=wait,
            AttributeNames=ASKED_FOR,
        )
        since, now = max(asked, clock() - TRAVEL), time.time()
        found = [self._lease(message, since, now, seconds) for message in answer.get("Messages", ())]
        early = [lease for lease in found if lease.entry.run_at > now]
        self._put_off(early)
        due = [self._begun(lease) for lease in found if lease.entry.run_at <= now]
        if self._has_lanes:
            due, behind = runs(due, {lease.entry.lane for lease in early})
            self._put_off([untried(lease) for lease in behind])
        return Received(len(found), due, min((lease.entry.run_at - now for lease in early), default=inf))

    def _lease(self, message: dict, since: float, now: float, seconds: float) -> Lease:
        attributes = message["Attributes"]
        receives, sent = int(attributes["ApproximateReceiveCount"]), int(attributes["SentTimestamp"]) / 1000
        entry, counted = unpack(message["Body"]), 0
        if self._is_fifo and receives > 1:
            entry, counted = self._noted(entry)
        receipt = Receipt(entry.id, message["ReceiptHandle"], receives, counted, sent, since, seconds)
        return Lease(entry, receipt, now, now + seconds)

    def _begun(self, lease: Lease) -> Lease:
        """Each further receive began a start, and only the last of them is not lost."""
        entry, starts = lease.entry, lease.token.receives - lease.token.counted
        return replace(lease, entry=replace(entry, attempts=entry.attempts + starts, lost=entry.lost + starts - 1))

    def _put_off(self, early: Sequence[Lease]) -> None:
        try:
            if early and self._is_fifo:
                self.leave(early)
            elif early:
                self.move(early, self)
        except Exception:  # they return when their leases end
            extra = {"queue": self._queue.alias}
            log_safely(logger, logging.ERROR, "What is not due could not be put off.", exc_info=True, extra=extra)

    # ---- back, over, and out of the way

    def settle(self, leases: Iterable[Lease], act: Callable[[list[Lease]], None], late: bool = False) -> list[Lease]:
        """Act on leases that are not settled; returns those that were still held.

        With ``late`` also on leases that ran out, which are not returned.
        """
        mine = [lease for lease in leases if self._is_ours(lease) and lease.token.begin()]
        heard = False
        try:
            todo = [lease for lease in mine if not lease.token.settled]
            gone = {lease.token for lease in todo if lease.token.late}
            act([lease for lease in todo if late or lease.token not in gone])
            heard = True
            return [lease for lease in mine if lease.token.settled and lease.token not in gone]
        finally:
            for lease in mine:
                lease.token.end(heard)

    def _is_ours(self, lease: Lease) -> bool:
        return isinstance(lease.token, Receipt) and lease.token.id == lease.entry.id

    def finish(self, leases: Sequence[Lease]) -> None:
        """Delete. Raises QueueError if SQS could not."""
        for some in connection.slices(leases):
            reply = self._delete(some)
            deleted = numbered(some, reply.done)
            for lease in deleted:
                lease.token.settled = True
            self._forget(deleted)
            complain("deleted", reply)

    def _delete(self, leases: Sequence[Lease]) -> BatchReply:
        entries = [{"ReceiptHandle": lease.token.handle} for lease in leases]
        return self._link.batch("delete_message_batch", entries)

    def leave(self, leases: Sequence[Lease]) -> None:
        """Let them stay where they are, until they are due. Raises QueueError if SQS could not."""
        now = time.time()
        for some in connection.slices(leases):
            entries = [due(lease.entry, now) for lease in some]
            for lease, entry in zip(some, entries, strict=True):
                self._note(entry, lease.token.receives)
            spans = [lease.token.span(entry.run_at - now) for lease, entry in zip(some, entries, strict=True)]
            reply = self._show(some, spans)
            for lease in numbered(some, reply.done):
                lease.token.settled = True
            complain("given back", reply)

    def move(self, leases: Sequence[Lease], to: Messages) -> None:
        """Send entries as new messages, then delete the old ones. Raises QueueError if SQS did not take them."""
        now, left = time.time(), iter(leases)
        messages = [to._anew(due(lease.entry, now), now) for lease in leases]
        for some in connection.portions(messages, to._link.largest):
            theirs = list(islice(left, len(some)))
            reply = to._link.batch("send_message_batch", some)
            sent = numbered(theirs, reply.done)
            for lease in sent:
                lease.token.settled = True
            self._delete_old(sent)
            complain("sent", BatchReply(reply.done, {}, reply.refused | reply.failed))

    def _anew(self, entry: Entry, now: float) -> dict:
        message = self._message(entry, now)
        if len(message["MessageBody"]) <= self._link.largest:
            return message
        return self._message(replace(entry, errors=""), now)  # it was put without errors, and fitted

    def _message(self, entry: Entry, now: float, repeat: bool = True) -> dict:
        """The message of an entry, in the group of its lane; without a lane in a group of its own."""
        group = entry.lane if self._has_lanes and entry.lane else entry.id
        return connection.outgoing(entry, now, group if self._is_fifo else "", repeat)

    def _delete_old(self, sent: Sequence[Lease]) -> None:
        """Delete old messages. If this fails they return when leases end; sending the new again would be worse."""
        for some in connection.slices(sent):
            try:
                reply = self._delete(some)
                complain("deleted", BatchReply(reply.done, {}, reply.refused | reply.failed))
            except Exception:
                ids = [lease.entry.id for lease in some]
                extra = {"queue": self._queue.alias, "message_ids": ids}
                text = "Messages were sent again, but the old ones are still there."
                log_safely(logger, logging.ERROR, text, exc_info=True, extra=extra)
            self._forget(some)

    def _forget(self, leases: Sequence[Lease]) -> None:
        """Drop what was noted about them."""
        for lease in leases:
            if lease.token.counted:
                self._store.drop(self._key(lease.entry))

    # ---- what became of entries since they were sent, in the store of their queue

    def _note(self, entry: Entry, receives: int) -> None:
        """Write down all of an entry but its body, as it is after that receive."""
        head = pack(replace(entry, body=b""))
        self._store.put(self._key(entry), f"{receives} {head}".encode(), LONGEST_KEPT)

    def _noted(self, entry: Entry) -> tuple[Entry, int]:
        """The entry as it is, and how many receives that counts."""
        value = self._store.get(self._key(entry))
        if value is None:
            return entry, 0
        counted, _, head = value.decode().partition(" ")
        return replace(unpack(head), body=entry.body), int(counted)

    @property
    def _store(self) -> BaseStore:
        if self._queue.store is None:
            text = "has no store: a FIFO queue notes there what it gives back."
            raise NotSupported(f"The SQS queue {self._link.name} {text}")
        return self._queue.store

    def _key(self, entry: Entry) -> str:
        return f"sqs:{self._link.name}:{entry.id}"

    # ---- held

    def hold(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Hold messages for ``seconds`` from now; returns the leases that are still held."""
        ours, began, now = [], clock(), time.time()
        held = [one for one in leases if self._is_ours(one) and not one.token.reported and not one.token.late]
        for some in connection.slices(lease for lease in held if lease.token.span(seconds)):
            reply = self._show(some, [lease.token.span(seconds) for lease in some])
            for lease in numbered(some, reply.done):
                lease.token.until = began + seconds
                ours.append(replace(lease, until=now + seconds))
            complain("held on to", reply)
        return ours

    def show(self, leases: Iterable[Lease]) -> None:
        """Make messages visible again at once, unchanged; one more receive is counted."""
        for some in connection.slices(leases):
            self._show(some, [0] * len(some))

    def _show(self, leases: Sequence[Lease], spans: Sequence[int]) -> BatchReply:
        entries = [
            {"ReceiptHandle": lease.token.handle, "VisibilityTimeout": span}
            for lease, span in zip(leases, spans, strict=True)
        ]
        return self._link.batch("change_message_visibility_batch", entries)


def numbered(values: Sequence[T], numbers: Iterable[int]) -> list[T]:
    """The values of these numbers, in their order."""
    return [values[number] for number in sorted(numbers)]


def complain(what: str, reply: BatchReply) -> None:
    """Raise QueueError for what SQS failed to do, after the rest is done."""
    if reply.failed:
        reason = next(iter(reply.failed.values()))
        raise QueueError(f"{len(reply.failed)} messages could not be {what} by SQS ({reason})")
