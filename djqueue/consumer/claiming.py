"""A part of a pump: how many messages to claim, from which queue, and when; and how they get to the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from djqueue import signals
from djqueue.backends.base import BaseQueue, Claimed, Lease
from djqueue.backends.bells import Bell
from djqueue.consumer.crew import Crew
from djqueue.consumer.filters import FILTERS, PutOff
from djqueue.consumer.in_flight import Mailbox, Message, units_of
from djqueue.consumer.loop import FailureBackoff, Slow, is_for_want, slow_since
from djqueue.consumer.operators import SilenceLog
from djqueue.consumer.pace import Prefetch
from djqueue.consumer.settling import Settling
from djqueue.running.executor import is_coroutine
from djqueue.running.result_store import are_cancelled
from djqueue.utils import clock

logger = logging.getLogger(__name__)

UNSETTLED = 500
"""Ends that wait for the store above which nothing is claimed: a kill would repeat them."""
UNANNOUNCED = 500
"""Answers and records that wait for the announcer above which nothing is claimed."""
STALE = 1.0
"""Seconds after which a message that no worker has taken goes back, as another process may be free."""
NAP = 0.5
"""Seconds between two checks whether what is paused, or waits for a suspect, may be claimed."""
PRESENTLY = 0.01
"""Seconds: an entry that can be claimed within this time is there, but another process is claiming it."""
CROWDED = 0.05
"""Seconds between two checks while nothing is claimed, as it would wait for a worker, or too much waits elsewhere."""
PRECISELY = 1.0
"""Seconds by which the moment that is awaited must change to be logged again."""


class Claiming:
    """Claims from the queues of one server what the workers can begin."""

    def __init__(
        self,
        name: str,
        queues: Sequence[BaseQueue],
        mail: Mailbox,
        crew: Crew,
        settling: Settling,
        bells: Sequence[Bell],
    ):
        self.queues, self.mail, self.crew, self.settling, self._bells = list(queues), mail, crew, settling, bells
        self.put_off = PutOff(crew.operators)
        self.prefetch = Prefetch(crew.pool)
        self.open: list[BaseQueue] = self.queues
        """The queues that are not paused, in the order in which they are asked."""
        log = crew.announcer.log
        self._of = {id(queue): FailureBackoff(f"claim() of {queue.alias}", log) for queue in queues}
        """The backoff of each queue that fails while other queues of this server answer."""
        self._all, self._promoting = FailureBackoff(name, log), FailureBackoff(f"promote() of {name}", log)
        """The backoff of all of them while none answers."""
        self._unknown: list[BaseQueue] = []
        """The queues whose pauses are not known."""
        self._silence_log = SilenceLog(log)
        self._answered: tuple[BaseQueue, Sequence[Lease]] | None = None
        """What was claimed and is not in the table yet."""
        self._taken: list[Message] = []
        """What is in the table and is not with the workers yet; it goes back if a step between the two raises."""
        self._unpaid = 0
        """How many of those are not charged to the run limit."""
        self._answers = False
        """Whether a store has answered the latest claim."""
        self._ahead = self._idle = 0
        self.is_found = False
        """Whether the latest claim found something."""
        self.is_more = False
        """Whether there is more to claim than the latest claim brought."""
        self._again = 0.0
        """In how many seconds, after the latest claim, there is something to claim."""
        self._awaited = inf
        """When the next message was said to be due (epoch seconds)."""

    @property
    def failures(self) -> int:
        """How many times in a row no queue has answered a claim."""
        return self._all.count

    @property
    def starves(self) -> bool:
        return any(backoff.starvation.lasts for backoff in [*self._of.values(), self._all])

    @property
    def unanswered(self) -> list[str]:
        """The aliases of the queues whose store did not answer the latest claim, or not yet what is paused."""
        unknown, queues = self._unknown, list(self.queues)
        return [one.alias for one in queues if not self._answers or self._is_failing(one) or one in unknown]

    # ---- when, and how many

    def claim(self) -> None:
        """Claim what workers can begin, and settle what is done with it. Raises Slow."""
        mail, crew = self.mail, self.crew
        self._find_open()
        mail.is_to_look = self.is_more = self.is_found = False
        room = self._room() if self.open else 0
        is_first = room > 0 and not self._all.left and self._is_first()
        limit = crew.run_limit.take(room) if is_first else 0
        mail.starves_for_room = bool(self.open) and room <= 0
        if not self.open:
            crew.suspects.stop_awaiting(self)
            mail.dry = mail.in_vain = time.monotonic()
        if limit > 0:
            began = clock()
            try:
                self._claim_up_to(limit)
            finally:
                crew.suspects.stop_awaiting(self, began)
        else:
            self._answers = not self._all.count  # or it was not to ask
            self._again = max(self._again, CROWDED)

    def _find_open(self) -> None:
        """Which queues may be asked now; nothing is claimed from those whose pauses are not known."""
        unknown = self.crew.operators.unknown_of(self.queues)
        if len(unknown) < len(self._unknown):
            self.mail.dry = None  # first: one that was not asked is asked now
        self._unknown = unknown
        self.mail.is_uncertain = bool(unknown)
        if unknown:
            self._silence_log.note(unknown)
        if len(self.put_off) and not self._promoting.left:
            self._promote_resumed()
        self.open = [queue for queue in self.queues if self.crew.operators.may_claim(queue)]

    def _promote_resumed(self) -> None:
        sent = clock()
        try:
            self.put_off.promote_resumed()
        except Exception as error:
            self._promoting.add(error)
            if slow_since(sent):
                raise Slow from error
        else:
            self._promoting.end()

    def _room(self) -> int:
        pool, crew = self.crew.pool, self.crew
        self._ahead, self._idle = self.prefetch.measure(time.monotonic()), pool.idle
        self.mail.low_water = max(len(pool.workers) - 1, self._ahead // 2)
        most = crew.suspects.most(self)
        self.mail.awaits_suspect = most < inf
        if len(self.settling) > UNSETTLED:
            self.settling.settle_all()
            return 0
        if len(crew.announcer) > UNANNOUNCED:
            return 0
        if most < inf:
            return min(int(most), self._idle)
        return max(0, self._idle + self._ahead - pool.ahead)

    def _is_first(self) -> bool:
        """Whether those whose queues come before these leave the next claim to them, if the order is strict."""
        crew, mail = self.crew, self.mail
        if not crew.strict or mail.awaits_suspect:  # the others wait for its suspect
            return True
        before = crew.mailboxes[: crew.mailboxes.index(mail)]
        asks = [one for one in before if not (one.is_stopping or one.is_failing or one.in_vain >= mail.asked_at)]
        for one in asks:
            one.look_now()
        return not asks

    def pauses(self, now: float) -> Iterator[float]:
        """In how many seconds it is worth while to claim, as far as the bells do not say it."""
        if self.mail.awaits_suspect:  # not for ever
            yield NAP
        pool = self.crew.pool
        if self.mail.starves_for_room:
            if pool.idle:  # what waits for the store or the announcer holds it up
                yield CROWDED
            return
        if pool.waiting > self.mail.low_water:  # the workers have enough for now
            return
        if self.is_more and pool.idle + self._ahead > pool.ahead:
            yield 0.0
        if len(self.open) < len(self.queues) or len(self.put_off):
            yield NAP
        yield from (backoff.left for backoff in self._of.values() if backoff.count)
        if self._all.count:
            yield self._all.left
        elif self.open:
            yield self._again

    # ---- the claim

    def _claim_up_to(self, limit: int) -> None:
        """Ask the queues in turn until one has something."""
        for bell in self._bells:
            bell.disarm()
        self.mail.asked_at = time.monotonic()
        again, is_throttled, answers = inf, False, 0
        failed: list[tuple[BaseQueue, Exception]] = []
        found: tuple[BaseQueue, Claimed, float] | None = None
        since = sent = clock()
        try:
            for queue in [one for one in self.open if not self._of[id(one)].left] or self.open:
                sent = clock()
                try:
                    claimed = self._claim_from(queue, limit)
                except Exception as error:
                    failed.append((queue, error))
                    # What it answered goes back first; or its server is unreachable, as are its other queues.
                    if self._answered is not None or slow_since(sent):
                        break
                    continue
                answers += 1
                again, is_throttled = min(again, claimed.retry_after), is_throttled or bool(claimed.reason)
                if claimed:
                    found = queue, claimed, sent
                    break  # the other queues are asked in the next turn
        finally:
            surplus = self._unpaid = self._pay((len(self._answered[1]) if self._answered else 0) - limit)
        # 0: entries are there, but another process is claiming them, or none shall be claimed that would wait here
        self._again = again or (PRESENTLY if self._idle else CROWDED)
        if found is None and again > PRESENTLY:
            self.mail.in_vain = self.mail.asked_at
        if found is not None:
            self.mail.dry = None
            self.is_found = True
            self.is_more = not found[1].retry_after or len(self.open) > 1
            self._had_its_turn(found[0])
            self._adopt(*found, surplus)
        self._pass_over(failed, len(failed) > 0 and answers == 0, since)
        if found is None and again > PRESENTLY and not (failed or any(map(self._is_failing, self.open))):
            self._note_dry(again, is_throttled, self.mail.asked_at)

    def _pass_over(self, failed: Sequence[tuple[BaseQueue, Exception]], is_alone: bool, since: float) -> None:
        """A queue that fails delays no other; if no queue answers, the store is unreachable, which is reported once.

        Raises Slow.
        """
        self._answers = not is_alone
        if not is_alone:
            self._all.end()
        self.mail.is_failing = is_alone
        if not failed:
            return
        for queue, error in failed:
            self._had_its_turn(queue)
            if not is_alone:
                self._of[id(queue)].add(error)
        if is_alone:
            errors = [error for _, error in failed]
            self._all.add(next(filter(is_for_want, errors), errors[0]))
        if slow_since(since):
            raise Slow

    def _is_failing(self, queue: BaseQueue) -> bool:
        return self._of[id(queue)].count > 0

    def _note_dry(self, again: float, throttled: bool, began: float) -> None:
        """Nothing is there to claim: say so, the first time."""
        announcer = self.crew.announcer
        if self.mail.dry is None:
            for queue in self.open:
                if signals.empty.receivers:
                    announcer.put(partial(signals.emit, signals.empty, queue.alias, queue_name=queue.alias))
        due = time.time() + again
        if self.mail.dry is None or not (due == self._awaited or abs(due - self._awaited) < PRECISELY):
            self._awaited, aliases = due, ", ".join(queue.alias for queue in self.open)
            cause = "the throttle of a queue" if throttled else "a delay, a lane or a throttle"
            until = f"; the next in {again:.1f} s, by {cause}" if again < inf else ""
            about = {"event": "idle", "queue": aliases, **({"delay": again} if again < inf else {})}
            self.crew.announcer.log(logger, logging.DEBUG, "%s: nothing to claim now%s", aliases, until, extra=about)
        self.mail.dry = began

    def _claim_from(self, queue: BaseQueue, limit: int) -> Claimed:
        """What was claimed of a queue. Raises what the store raises."""
        crew, self._answered = self.crew, None
        lease, ahead = crew.lease_of(queue), max(0, limit - self._idle)
        if not queue.settles_with_claim:
            claimed = queue.claim(limit, lease, crew.owner, ahead, begin=False)
            self._answered = queue, claimed
        else:
            is_failing = self._all.count or self._is_failing(queue)  # then it carries nothing
            batch, records = ([], []) if is_failing else self.settling.take_done(queue)
            history = [records] if records else []  # only a backend that has the feature gets some
            leases = [message.lease for message in batch]
            try:
                held, claimed = queue.exchange(leases, limit, lease, crew.owner, ahead, *history)
            except Exception:
                self.settling.doubt(queue, batch)
                raise
            self._answered = queue, claimed
            self.settling.settled_with_claim(queue, batch, held, claimed)
        self._of[id(queue)].end()
        return claimed

    def _pay(self, more: int) -> int:
        """Charge the run limit for messages beyond a claim's limit, as a run is several; how many it does not allow."""
        if more <= 0:
            self.crew.run_limit.give(-more)
            return 0
        return more - self.crew.run_limit.take(more)

    def _had_its_turn(self, queue: BaseQueue) -> None:
        """Ask this queue last from now on; queues that had nothing keep their places."""
        if not self.crew.strict:
            self.queues.remove(queue)
            self.queues.append(queue)

    # ---- adopt

    def _adopt(self, queue: BaseQueue, claimed: Claimed, asked: float, surplus: int) -> None:
        """Take over what was claimed, and give it to the workers."""
        about = {"event": "claimed", "queue": queue.alias, "count": len(claimed)}
        self.crew.announcer.log(logger, logging.DEBUG, "%s: claimed %d", queue.alias, len(claimed), extra=about)
        fresh, behind = self._entered(queue, claimed, asked)
        self._taken, self._answered = [*fresh, *behind], None
        self.settling.put_back(behind, "what is before it runs")
        surplus -= len(claimed) - len(fresh)
        self._unpaid = 0
        if surplus > 0:
            self.settling.put_back(fresh[-surplus:], "the limit is reached")
            del fresh[-surplus:]
        else:
            self.crew.run_limit.give(-surplus)
        for keep in FILTERS:
            fresh, back = keep(self, queue, fresh)
            for messages, reason, delay in back:
                self.put_back(messages, reason, delay)
        self._note_cancelled(queue, fresh)
        if self.mail.is_stopping:  # since the filters
            self.put_back(fresh, "the consumer stops")
            fresh = []
        units = units_of(fresh)
        if self.crew.pool.coroutines is not None:
            for unit in units:
                unit[0].is_coroutine = len(unit) == 1 and is_coroutine(unit[0].lease)
        self.crew.pool.submit(units)
        self._taken = []

    def _entered(self, queue: BaseQueue, claimed: Sequence[Lease], asked: float) -> tuple[list[Message], list[Message]]:
        """New messages, and those behind one in its lane that is here already, which goes on under its new lease."""
        fresh: list[Message] = []
        runs: set[str] = set()
        firsts: dict[str, Message] = {}
        for lease in claimed:
            old = self.mail.table.get((id(queue), lease.entry.id)) if lease.entry.attempts > 1 else None
            if old is not None and not self._was_applied(old):
                self._go_on(old, lease, asked)
                runs.add(lease.run)
                continue
            message = self._enter(queue, lease, asked)
            if lease.run:
                first = firsts.setdefault(lease.run, message)
                message.first = None if first is message else first
            fresh.append(message)
        behind = [one for one in fresh if one.lease.run and one.lease.run in runs] if runs else []
        return [one for one in fresh if one not in behind] if behind else fresh, behind

    def _enter(self, queue: BaseQueue, lease: Lease, asked: float) -> Message:
        message = self.mail.table[id(queue), lease.entry.id] = Message(self.mail, queue, lease, asked)
        return message

    def _was_applied(self, old: Message) -> bool:
        """Whether an entry comes again as the store took its settlement, the answer to which was lost."""
        if not old.in_doubt or old.lapsed(clock()):
            return False
        self.settling.was_applied(old)
        return True

    @staticmethod
    def _go_on(old: Message, lease: Lease, asked: float) -> None:
        """Continue under a new lease of the same entry: its start is neither lost nor counted again."""
        before = old.lease.entry
        counted = replace(lease.entry, attempts=before.attempts, lost=before.lost)
        old.lease, old.touched, old.span = replace(lease, entry=counted), asked, lease.until - lease.claimed
        old.lost = old.in_doubt = False

    def _note_cancelled(self, queue: BaseQueue, messages: Sequence[Message]) -> None:
        """Ask, before messages begin, which of them were cancelled in an earlier run. Workers ask no store."""
        again = [message for message in messages if message.lease.entry.attempts > 1]
        if not again:
            return
        try:
            cancelled = are_cancelled(queue, [message.lease.entry for message in again])
        except Exception as error:  # running them does less harm
            text = "It cannot be known whether messages of %s are cancelled"
            self.crew.announcer.log(
                logger, logging.ERROR, text, queue.alias, exc_info=error, extra={"queue": queue.alias}
            )
            return
        for message, was in zip(again, cancelled, strict=True):
            message.cancelled = was

    def stop(self) -> None:
        """Close the queues: some backends received entries while they slept, which no claim has taken yet."""
        if not self.mail.has_stopped.is_set():
            self.crew.suspects.stop_awaiting(self)
            for queue in self.queues:
                with suppress(Exception):
                    queue.close()
            self.mail.has_stopped.set()

    def return_untaken(self) -> None:
        """Give back what was claimed when a step after that raised. That counts as no attempt."""
        if self._answered is not None:
            queue, claimed = self._answered
            for lease in claimed:
                known = self.mail.table.get((id(queue), lease.entry.id))
                is_entered = known is not None and known.lease is lease
                self._taken += [known] if known and is_entered else self._entered(queue, [lease], clock())[0]
            self._answered = None
        if self._taken:
            self._hand_back("it could not be given to a worker")
            left_over = [one for one in self._taken if one.worker is None and self.mail.holds(one)]
            returned = self.settling.put_back(left_over, "it could not be given to a worker")
            self.crew.run_limit.give(max(0, returned - self._unpaid))
            self._taken, self._unpaid = [], 0

    def put_back(self, messages: Sequence[Message], reason: str, delay: float = 0.0) -> None:
        """Give messages back that no worker has begun. Others may run in their place."""
        self.crew.run_limit.give(self.settling.put_back(messages, reason, delay))

    def hand_back_stale(self, now: float) -> None:
        """Give back what no worker has taken for long."""
        for message in self.mail.table.values():
            if message.worker is None and message.final is None and message.first is None:
                if now - message.asked > STALE:
                    self._hand_back("every worker is busy")
                    return

    def _hand_back(self, reason: str) -> None:
        """Give back what no worker has taken, whichever pump has claimed it."""
        for unit in self.crew.pool.take_back():
            if unit[0].mail is self.mail:
                self.put_back(unit, reason)
            else:
                unit[0].mail.take_back(unit, reason)
