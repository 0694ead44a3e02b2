"""What the pumps and the workers of a consumer share; and what a worker does once it has run a message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from djqueue.backends.base import BaseQueue
from djqueue.consumer.announcer import Announcer
from djqueue.consumer.in_flight import Mailbox, Message
from djqueue.consumer.operators import OperatorChannels
from djqueue.consumer.pace import RunLimit
from djqueue.consumer.pool import Pool
from djqueue.consumer.suspects import Suspects
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.settle import Settlement, settlement_of
from djqueue.utils import clock, log_safely

logger = logging.getLogger(__name__)

DONE = Outcome.DONE


@dataclass(slots=True)
class Crew:
    """What the pumps and the workers of a consumer share."""

    owner: str
    lease_of: Callable[[BaseQueue], float]
    announcer: Announcer
    run_limit: RunLimit
    operators: OperatorChannels
    strict: bool = False
    """Serve the queues in the order given, not in turn."""
    mailboxes: list[Mailbox] = field(default_factory=list)
    """Of the pumps, in the order of their queues."""
    seen_through: set[str] = field(default_factory=set)
    """Commands whose first starts need not be noted: this process has seen one of them done."""
    patience: dict[int, int] = field(default_factory=dict)
    """By the identity of a queue: how many times ``max_lost`` starts may be lost with the whole consumer."""
    pool: Pool = field(init=False)
    suspects: Suspects = field(init=False)

    def messages(self) -> list[Message]:
        """All messages in flight. From any thread."""
        return [message for mail in self.mailboxes for message in list(mail.table.values())]

    def settlement(self, message: Message, verdict: Verdict) -> Settlement:
        """What the store is sent about a verdict on a message. From any thread but that of a pump."""
        asked, now = message.asked, clock()
        elapsed = (message.began or asked) + verdict.seconds - asked if verdict.outcome is DONE else now - asked
        return settlement_of(message.queue, message.lease, verdict, self.owner, elapsed)

    def finish(self, message: Message, verdict: Verdict) -> None:
        """End a message that its worker has run, or must not begin. It does not end the thread."""
        try:
            if verdict.outcome is DONE and message.lease.begun:  # its command was not seen through when it began
                self._see_through(message)
            if verdict.outcome is DONE and not (verdict.keep or verdict.details):
                message.end = end = Settlement(message.lease, verdict)  # the pump makes the records of many at once
            else:
                message.end = end = self._settlement_anyway(message, verdict)
            message.control = None  # each knows the other: what they hold would wait for the garbage collection
            mail, pool = message.mail, self.pool
            mail.outbox.append((message, end))
            if mail.is_asleep and pool.inbox.qsize() <= mail.low_water:  # a worker may stand idle soon
                mail.wake()
            if len(self.mailboxes) > 1:
                self.wake_starving()
        except BaseException as error:
            log_safely(logger, logging.ERROR, "A message could not be finished", exc_info=error)

    def wake_starving(self) -> None:
        """A worker is free: pumps that wait for one may claim for it. From any thread."""
        for mail in self.mailboxes:
            if mail.starves_for_room:
                mail.wake()

    def _settlement_anyway(self, message: Message, verdict: Verdict) -> Settlement:
        """Without its result or its exception, if these cannot be written down."""
        try:
            return self.settlement(message, verdict)
        except Exception as error:
            log_safely(logger, logging.ERROR, "What became of a message cannot be kept", exc_info=error)
            return self.settlement(message, verdict._replace(keep=0.0, exception=None, attempts=None))

    def _see_through(self, message: Message) -> None:
        """Its command is done and the process lives: note no more first starts, unless only one start may be lost."""
        if message.policy is not None and message.policy.most_lost > 1:
            self.seen_through.add(message.lease.entry.command)

    def give_up(self, message: Message, verdict: Verdict) -> None:
        """Settle a message by this verdict unless it ends just now; its worker is not waited for, or died."""
        message.mail.give_up(message, self._settlement_anyway(message, verdict))
