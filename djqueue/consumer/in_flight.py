"""A message that this process holds, from its claim until it is settled: which states it has, and who changes them.

==============  ==============  =========  ==========================================================================
State           may become      by         when
==============  ==============  =========  ==========================================================================
waiting         taken           worker     it is next in the inbox
waiting         back            pump       the consumer stops, its command is paused, or no worker was free in time
taken           running         worker     :attr:`Message.began` is set
taken, running  ended           worker     :attr:`Message.end` is set, and the message put into the outbox
waiting, taken, given up        pump       a stop, a dead worker or a time limit has so decided; what its worker says
running                                    later only frees the place
ended, back,    settling        pump       :attr:`Message.final` is set; it waits for the store
given up
settling        gone            pump       the store answers, or did so to a call whose answer was lost
settling        in doubt        pump       the call raised: it is sent again
any             lost            pump       the store answers that the lease is not ours any more
any             as it was       pump       this process has claimed it again: it goes on under the new lease
==============  ==============  =========  ==========================================================================

If the pump dies, the main thread takes its place.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from djqueue.backends.base import BaseQueue, Lease
from djqueue.backends.bells import Waker
from djqueue.policies.outcomes import Verdict
from djqueue.policies.policy import Policy
from djqueue.running.context import Control
from djqueue.running.reporting import report
from djqueue.running.settle import Settlement

LONGEST_WAIT = 30.0
"""Seconds: what no worker has taken by then is not extended. It goes back much sooner, unless something is broken."""


@dataclass(slots=True, eq=False)
class Message:
    """A message in flight. Moments are of :func:`djqueue.utils.clock`."""

    # ---- the pump alone assigns these

    mail: Mailbox
    queue: BaseQueue
    lease: Lease
    """As the store has it by now."""
    asked: float
    """The moment just before its claim."""
    is_coroutine: bool = False
    """Whether it is to run on the event loop of the consumer."""
    first: Message | None = None
    """The first message of its unit, which the same worker runs before it; None if it is the first itself."""
    touched: float = field(init=False)
    """When its lease was last extended, or claimed."""
    span: float = field(init=False)
    """For how many seconds it was then held."""
    lost: bool = False
    """Whether the store answered that this process does not hold the lease any more."""
    cancelled: bool = False
    """Whether it was cancelled in an earlier run."""
    in_doubt: bool = False
    """Whether its end was sent to the store, and no answer came."""
    final: Settlement | None = None
    """What the store is to be sent about it: its end, or that it goes back."""

    # ---- its worker alone assigns these

    worker: threading.Thread | None = None
    began: float | None = None
    control: Control | None = None
    """What its command may ask, from when it is about to begin until it has ended."""
    policy: Policy | None = None
    """Its options, once they are known."""
    end: Settlement | None = None
    """How its run ended. Once it is set, the message is in the outbox of its pump."""

    def __post_init__(self) -> None:
        self.touched = self.asked
        self.span = self.lease.until - self.lease.claimed

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and is neither over nor given up."""
        return self.began is not None and self.final is None and self.end is None

    @property
    def awaits_place(self) -> bool:
        """Whether its worker waits until it may run on the event loop: it has not begun then."""
        return self.is_coroutine and self.began is None

    @property
    def own_lease(self) -> float | None:
        """The seconds of its command's option ``lease``; None without one.

        Until that is known the lease of the first of its unit counts: if their worker dies they come back together.
        """
        if self.policy is not None:
            return self.policy.lease
        return None if self.first is None else self.first.own_lease

    def is_abandoned(self, now: float) -> bool:
        """Whether nothing will end it here: its worker died, or no worker ever took it."""
        if self.final is not None or self.end is not None:
            return False
        return now - self.asked > LONGEST_WAIT if self.worker is None else not self.worker.is_alive()

    def as_sent(self) -> Settlement | None:
        """Its settlement, by the lease that is held now: its entry may have been claimed again since it ended."""
        final = self.final
        if final is None or final.lease.token == self.lease.token:
            return final
        return final._replace(lease=replace(final.lease, token=self.lease.token))

    def lapsed(self, now: float) -> bool:
        """Whether another process may hold it by now: a message that has not begun must not begin then."""
        return self.lost or now - self.touched > self.span


def units_of(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages by unit, which one worker runs in order: a run of a lane, or one message alone."""
    units: dict[object, list[Message]] = {}
    for message in messages:
        units.setdefault(message.lease.run or message, []).append(message)
    return list(units.values())


def reported(message: Message, verdict: Verdict) -> Verdict:
    """The verdict, once it is in the log."""
    report(message.queue, message.lease, verdict)
    return verdict


class Mailbox:
    """What other threads hand to the pump of their messages, and what they may know of it."""

    def __init__(self) -> None:
        self._waker = Waker()
        # ---- other threads add to these, and the pump takes from them
        self.outbox: deque[tuple[Message, Settlement]] = deque()
        """What has ended or is given up, and how: of two ends of a message the first one counts."""
        self.back: deque[tuple[list[Message], str]] = deque()
        """Units that no worker has taken, and why they go back."""
        self.beginning: dict[Message, threading.Event] = {}
        self.is_stopping = self.is_to_look = self.is_to_extend = False
        # ---- the pump alone changes these
        self.table: dict[tuple[int, str], Message] = {}
        """All that is in flight, by the identity of its queue and its id."""
        self.is_asleep = False
        self.low_water = 0
        """How few units may wait for a worker before it claims again."""
        self.starves_for_room = False
        """Whether it would claim if a worker were free."""
        self.awaits_suspect = False
        """Whether it would claim more if what is in flight were settled, as a suspect runs, or waits for that."""
        self.is_failing = self.is_uncertain = False
        """Whether no queue answers its claims; whether it is not known of all queues if they are paused."""
        self.dry: float | None = None
        """When the latest claim began, if it found nothing (monotonic); None if it found something."""
        self.asked_at = 0.0
        """When it last claimed (monotonic)."""
        self.in_vain = -inf
        """When it last claimed and the queues that answered had nothing (monotonic)."""
        self.settled_at = time.monotonic()
        """When something was last settled (monotonic): what a claim found before may be less than there is now."""
        self.has_stopped = threading.Event()
        """Set once it claims no more, as it was to stop."""

    def fileno(self) -> int:
        """A descriptor that is readable once it was woken."""
        return self._waker.fileno()

    def wake(self) -> None:
        """Have its next turn begin now."""
        self.is_asleep = False
        self._waker.wake()

    def hear(self) -> None:
        """The pump is awake."""
        self._waker.clear()
        self.is_asleep = False

    def close(self) -> None:
        self._waker.close()

    def look_now(self) -> None:
        """Claim now: a lane may have opened, or what was paused."""
        self.is_to_look = True
        self.wake()

    def extend_now(self) -> None:
        """A lease is to be shorter than it was claimed for."""
        self.is_to_extend = True
        self.wake()

    def begin(self, message: Message, patience: float) -> bool:
        """Note in the store that a message begins; whether it is still ours. Waits ``patience`` seconds at most."""
        self.beginning[message] = answered = threading.Event()
        self.wake()
        if not answered.wait(patience):
            self.beginning.pop(message, None)
        return message.lease.begun

    def give_up(self, message: Message, settlement: Settlement) -> None:
        """Settle a message so, unless it has ended: its worker is not waited for, or died."""
        self.outbox.append((message, settlement))
        self.wake()

    def take_back(self, unit: list[Message], why: str) -> None:
        """Put a unit back that no worker has taken."""
        self.back.append((unit, why))
        self.wake()

    def stop(self) -> None:
        """Claim no more. What is held is extended and settled."""
        self.is_stopping = True
        self.wake()

    def holds(self, message: Message) -> bool:
        return self.table.get((id(message.queue), message.lease.entry.id)) is message

    def has_nothing_since(self, moment: float) -> bool:
        """Whether a claim that began since then (monotonic) found nothing, and all queues are known to be asked."""
        return not self.is_uncertain and (dry := self.dry) is not None and dry >= moment
