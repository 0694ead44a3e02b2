"""A part of a pump: what has ended, until the store has answered that it knows."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from djqueue.backends.base import BaseQueue, Lease
from djqueue.consumer.announcer import Settled
from djqueue.consumer.crew import Crew
from djqueue.consumer.in_flight import Mailbox, Message
from djqueue.consumer.loop import (
    FIRST_PAUSE,
    Slow,
    Starvation,
    how_to_log,
    pause_after,
    recycle_connections,
    slow_since,
)
from djqueue.messages.failures import text_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.history import is_kept, record_of
from djqueue.running.reporting import report
from djqueue.running.settle import Settlement, proof_of, send, settlement_of
from djqueue.utils import clock

logger = logging.getLogger(__name__)

BATCH = 1000
"""Messages that one call settles."""
PROMPTLY = 0.002
"""Seconds that what is done may wait for a claim to settle it."""
DONE = "done"
"""The kind of what a queue settles with a claim: it is complete, and has no result to keep."""


class Pending:
    """Messages of one queue whose settlements need one verb. What the store does not take delays no others."""

    def __init__(self, queue: BaseQueue):
        self.queue = queue
        self.waiting: deque[Message] = deque()
        self.not_before = 0.0
        self.failures = 0
        self.since = 0.0
        """When the first of those that wait was added."""
        self.starvation = Starvation()
        """Of its settlements: the claims between them may do well."""

    def next(self) -> list[Message]:
        """Those to send now: fewer after each failure, as the store may never take one of them."""
        size = min(max(1, BATCH >> self.failures), len(self.waiting))
        return [self.waiting[number] for number in range(size)]

    def take(self) -> list[Message]:
        return [self.waiting.popleft() for _ in range(min(BATCH, len(self.waiting)))]

    def put_off(self, count: int, pause: float) -> None:
        """The first ones were not taken: others come before them, after a pause."""
        self.waiting.rotate(-count)
        self.not_before = clock() + pause


class Settling:
    """The messages of one server that wait for the answer to their settlement."""

    def __init__(self, mail: Mailbox, crew: Crew):
        self._mail, self._crew = mail, crew
        self._pending: dict[tuple[int, str], Pending] = {}

    def __len__(self) -> int:
        """How many ends wait for the store. From any thread."""
        return len(self._mail.outbox) + sum(len(pending.waiting) for pending in list(self._pending.values()))

    @property
    def starves(self) -> bool:
        return any(pending.starvation.lasts for pending in list(self._pending.values()))

    def add(self, message: Message, settlement: Settlement) -> None:
        """Settle a message so."""
        message.final, queue = settlement, message.queue
        kind = settlement.verdict.outcome.effect.verb
        if kind == "complete" and settlement.fact is None and queue.settles_with_claim:
            kind = DONE
        if (pending := self._pending.get((id(queue), kind))) is None:
            pending = self._of(queue, kind)
        if not pending.waiting:
            pending.since = clock()
        pending.waiting.append(message)

    def _of(self, queue: BaseQueue, kind: str) -> Pending:
        return self._pending.setdefault((id(queue), kind), Pending(queue))

    def put_back(self, messages: Sequence[Message], reason: str, delay: float = 0.0) -> int:
        """Give messages back that no worker has begun; how many. That counts as no attempt.

        Without a delay they keep their places.
        """
        verdict, count = Verdict(Outcome.RETURNED, reason, delay=delay), 0
        for message in messages:
            if message.final is None:
                count += 1
                self.add(message, settlement_of(message.queue, message.lease, verdict, self._crew.owner))
                self._crew.announcer.put(partial(report, message.queue, message.lease, verdict))
        return count

    # ---- with a claim

    def take_done(self, queue: BaseQueue) -> tuple[list[Message], list[bytes]]:
        """What a claim from a queue is to settle, and the records for its history, if it keeps one."""
        batch = self._of(queue, DONE).take()
        return batch, self._records_of(queue, batch)

    def doubt(self, queue: BaseQueue, batch: Sequence[Message]) -> None:
        """The claim that was to settle these was not answered."""
        for message in batch:
            message.in_doubt = True
        self._of(queue, "complete").waiting.extend(batch)

    def settled_with_claim(
        self, queue: BaseQueue, batch: Sequence[Message], held: Sequence[Lease], claimed: Sequence[Lease]
    ) -> None:
        """The claim was answered, with the leases that were still held."""
        if len(held) < len(batch):
            claimed_ids = {lease.entry.id for lease in claimed}
            again = [message for message in batch if message.lease.entry.id in claimed_ids]
            # Their leases had run out, and this claim has them: they are settled by the new ones.
            self._of(queue, "complete").waiting.extend(again)
            batch = [message for message in batch if message not in again]
        if batch:
            self._gone(queue, batch, held, self._mail.asked_at)

    # ---- by calls of its own

    def settle_all(self) -> None:
        """Settle all that has ended. Raises Slow."""
        for (_, kind), pending in list(self._pending.items()):
            if kind == DONE:
                self._of(pending.queue, "complete").waiting.extend(pending.waiting)
                pending.waiting.clear()
        self.settle_apart()

    def settle_late(self) -> None:
        """Settle what could have been settled with a claim, and has waited for long enough. Raises Slow."""
        late = clock() - PROMPTLY
        if any(one.waiting and one.since <= late for (_, kind), one in self._pending.items() if kind == DONE):
            self.settle_all()

    def settle_apart(self) -> None:
        """Settle what is not settled with a claim. Raises Slow."""
        for (_, kind), pending in list(self._pending.items()):
            while kind != DONE and pending.waiting and clock() >= pending.not_before:
                self._flush(pending, kind)

    def pauses(self, now: float) -> Iterator[float]:
        """In how many seconds something is to be settled."""
        for (_, kind), pending in self._pending.items():
            if pending.waiting:
                yield (pending.since + PROMPTLY if kind == DONE else pending.not_before) - now

    def _flush(self, pending: Pending, verb: str) -> None:
        batch, sent = pending.next(), clock()
        try:
            held = send(pending.queue, verb, self._settlements_of(pending.queue, verb, batch))
        except Exception as error:
            self._put_off(pending, verb, batch, error)
            if slow_since(sent):
                raise Slow from error
            return
        for _ in batch:  # first: the answer of the store is final, whatever fails here
            pending.waiting.popleft()
        pending.failures = 0
        pending.starvation.end()
        self._gone(pending.queue, batch, held)

    def _put_off(self, pending: Pending, verb: str, batch: Sequence[Message], error: Exception) -> None:
        recycle_connections()
        starves = pending.starvation.add(error)
        for message in batch:
            message.in_doubt = True
        pending.failures += 1
        pause = FIRST_PAUSE if starves else pause_after(pending.failures)
        pending.put_off(len(batch), pause)
        level, shown = how_to_log(error, pending.failures)
        text = "%s() of %d messages of %s failed: %s; trying again in %.1f s"
        args = verb, len(batch), pending.queue.alias, text_of(error).rstrip("."), pause
        self._crew.announcer.log(logger, level, text, *args, exc_info=shown)

    def _settlements_of(self, queue: BaseQueue, verb: str, batch: Sequence[Message]) -> list[Settlement]:
        """What is sent: by the leases that are held now, and with the records of what is simply done."""
        sent = [one for message in batch if (one := message.as_sent()) is not None]  # all have one
        records = [] if verb == "release" else self._records_of(queue, batch)
        return [one._replace(record=record) for one, record in zip(sent, records, strict=True)] if records else sent

    def _records_of(self, queue: BaseQueue, batch: Sequence[Message]) -> list[bytes]:
        """A record of each message for the history of its queue; none if it keeps no history."""
        if not (batch and is_kept(queue)):
            return []
        owner = self._crew.owner
        return [
            final.record or record_of(one.lease, final.verdict, owner, (one.began or one.asked) - one.asked + ran)
            for one in batch
            if (final := one.final) is not None and (ran := final.verdict.seconds) >= 0.0
        ]

    # ---- the answer of the store

    def _gone(
        self, queue: BaseQueue, messages: Sequence[Message], held: Sequence[Lease], at: float | None = None
    ) -> None:
        """These are in flight no more, whether they were still ours or not.

        What that opened is claimed from a moment on (monotonic): now, or ``at`` another.
        """
        mail, own, opens = self._mail, id(queue), False
        mail.settled_at = time.monotonic() if at is None else at  # first: who sees nothing in flight must see this too
        for message in messages:
            entry = message.lease.entry
            if mail.table.get((own, entry.id)) is message:  # else it went back, and this process has claimed it again
                del mail.table[own, entry.id]
            opens = opens or bool(entry.gate)
        applied = _late(messages, held) if len(held) < len(messages) else ()
        mail.is_to_look = mail.is_to_look or opens
        for other in self._crew.mailboxes:
            if other.awaits_suspect:
                other.look_now()
        self._crew.announcer.settled(Settled(queue, messages, held, applied))

    def was_applied(self, message: Message) -> None:
        """The answer to the settlement of a message was lost, and it has arrived."""
        for (own, _), pending in self._pending.items():
            if own == id(message.queue):
                with suppress(ValueError):
                    pending.waiting.remove(message)
        self._gone(message.queue, [message], [message.lease])


def _late(messages: Sequence[Message], held: Sequence[Lease]) -> set[tuple[str, object]]:
    """Mark what another process holds by now; what an earlier call settled, whose answer was lost."""
    now, ours, applied = clock(), {proof_of(lease) for lease in held}, set()
    for message in messages:
        if (proof := proof_of(message.lease)) not in ours:
            if message.in_doubt and not message.lapsed(now):
                applied.add(proof)
            else:
                message.lost = True
    return applied
