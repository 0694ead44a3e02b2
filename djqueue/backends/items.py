"""A queue of plain items, for scripts and loops of one's own."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial

from djqueue import conf
from djqueue.backends.bells import Bell
from djqueue.backends.entries import DELAYED, LEASED, PAGE, READY, Claimed, Entry, Lease, Refusal, log_extra, untried
from djqueue.backends.guards import DedupMark, UniqueGuard
from djqueue.backends.verbs import ConsumerVerbs, OperatorVerbs
from djqueue.exceptions import InvalidMessage, QueueError
from djqueue.messages.envelope import new_id, pack_item, unpack_item
from djqueue.messages.failures import with_error
from djqueue.messages.fingerprint import fingerprint
from djqueue.utils import log_safely, seconds, whole
from djqueue.utils import priority as checked_priority

logger = logging.getLogger(__name__)

REAP_EVERY = 1.0
"""Seconds, at least, between two calls of ``reap`` by :meth:`ItemVerbs.reserve`."""
REAP_BATCH = 100
NOTICE = 1.0  # seconds between two looks of a thread that waits for a throttle, as its limit may change
MARK = "item:"
"""Prefix of the deduplication key of a unique item; the key is also the command of its entry."""
TRIES = 100
"""How often an equal item may come or go between two looks at it, before that is an error."""


class ItemVerbs(ConsumerVerbs, OperatorVerbs):
    """A queue of items, for scripts and loops of one's own. Items are signed, as messages are."""

    def push(self, item: object, priority: int = 0, delay: float | timedelta = 0.0, unique: bool = False) -> str:
        """Put one item that the serializer can carry, due after ``delay``; returns its id.

        ``unique``: while an equal item waits, that one takes the new priority instead. One that was taken and is not
        completed does not count. Needs a backend with "inspect". Its mark is deleted by ``pop``, or expires a day after
        the item was due: one that waits longer may get an equal next to it. Raises TypeError or ValueError for a
        priority that is no 32-bit number and for a delay that is no duration, EncodeError for what cannot be carried,
        MessageTooLarge beyond ``QUEUE_MAX_MESSAGE_SIZE``.
        """
        if not unique:
            return self.push_many([item], priority, delay)[0]
        [entry], key = self._entries([item], priority, delay), f"{MARK}{fingerprint(item)}"
        return self._push_unique(replace(entry, command=key), UniqueGuard(key, running=False))

    def _push_unique(self, entry: Entry, guard: UniqueGuard) -> str:
        for _ in range(TRIES):
            if self.put([entry], [guard])[0]:
                return entry.id
            if (waits := self._raised(guard.key, entry.priority)) is not None:
                return waits
        raise QueueError(f"An equal item came and went {TRIES} times in a row; this one was not put.")

    def _raised(self, key: str, priority: int) -> str | None:
        """The id of the item that waits under a key, once it has this priority; None if it left meanwhile."""
        mark = self.store.get(key)
        record = None if mark is None else self.find(DedupMark.read(mark).id)
        if record is None or record.state == LEASED:
            return None
        same = record.entry.priority == priority or self.reprioritise([record.entry.id], priority)
        return record.entry.id if same else None

    def push_many(self, items: Iterable[object], priority: int = 0, delay: float | timedelta = 0.0) -> list[str]:
        """Put any number of items, in their order; returns their ids.

        Raises as :meth:`push` does, before any is put.
        """
        entries = self._entries(items, priority, delay)
        self.put(entries)
        return [entry.id for entry in entries]

    def _entries(self, items: Iterable[object], priority: int, delay: float | timedelta) -> list[Entry]:
        priority, delay, entries = checked_priority(priority), seconds(delay, "delay"), []
        pack = partial(
            pack_item,
            queue=self.base_name,
            serializer=conf.get("QUEUE_SERIALIZER"),
            models=conf.get("QUEUE_MODELS"),
            max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
        )
        for item in items:
            id = new_id()
            entries.append(Entry(pack(item, id=id), id, priority=priority, delay=delay))
        return entries

    def pop(self, timeout: float | timedelta = 0.0, default: object = None) -> object:
        """The next item, at most once; or ``default`` after ``timeout``, in seconds or as a timedelta.

        Then :attr:`refusal` has the reason, and when there may be one. Raises TypeError or ValueError for a
        timeout that is no duration; no value means for ever.
        """
        lease, item = self.take(wait=seconds(timeout, "timeout"))
        if lease is None:
            return default
        if self.complete([lease]) and lease.entry.command.startswith(MARK):
            self._unmark(lease.entry)
        return item

    def _unmark(self, entry: Entry) -> None:
        """Delete the mark of a unique item, unless an equal one was put since. Never raises, as the item is gone."""
        try:
            self.store.drop(entry.command, DedupMark(entry.id).written())
        except Exception as error:
            log_safely(
                logger, logging.WARNING, "The mark of an item in %s is kept for a day", self.name, exc_info=error
            )

    def take(
        self, lease: float | timedelta = 60.0, wait: float | timedelta = 0.0
    ) -> tuple[Lease, object] | tuple[None, None]:
        """The next item with its lease, at least once: then ``complete``, ``touch`` or ``release`` it.

        ``(None, None)`` after ``wait`` without one; both are seconds or timedeltas. An item whose holders died
        ``QUEUE_MAX_LOST`` times goes to the failed queue instead. So does an item that does not verify, and
        InvalidMessage is raised; in a failed queue it stays, and the look counts as nothing. After any other error, as
        of the database that a model is read from, it is put back. Raises TypeError or ValueError for a lease of less
        than a tenth of a second, and for what is no duration.
        """
        leases = self._held(1, seconds(lease, "lease", least=0.1), time.monotonic() + seconds(wait, "wait"))
        if not leases:
            return None, None
        [held] = leases
        try:
            return held, self._item_of(held)
        except InvalidMessage as error:
            self._put_aside(held, f"invalid message: {error}")
            raise
        except Exception:
            self.release(held)
            raise

    def take_many(
        self, limit: int, lease: float | timedelta = 60.0, wait: float | timedelta = 0.0
    ) -> list[tuple[Lease, object]]:
        """Up to ``limit`` items, each with its lease, by one claim; at least one, unless ``wait`` is over before.

        ``complete``, ``touch`` and ``release`` take one lease or many. Items that do not verify or were lost too often
        go to the failed queue, with a line in the log; in a failed queue they stay. Raises ValueError for a limit below
        1, and what :meth:`take` raises for durations and for other errors.
        """
        limit, until = whole(limit, "limit", least=1), time.monotonic() + seconds(wait, "wait")
        held = self._held(limit, seconds(lease, "lease", least=0.1), until)
        taken: list[tuple[Lease, object]] = []
        try:
            for one in held:
                try:
                    taken.append((one, self._item_of(one)))
                except InvalidMessage as error:
                    self._put_aside(one, f"invalid message: {error}")
                    text, extra = "An item of %s cannot be read: %s", log_extra(self.alias, one.entry)
                    log_safely(logger, logging.ERROR, text, self.name, error, extra=extra)
        except Exception:
            self.release(held)
            raise
        return taken

    def reserve(self, limit: int = 1, lease: float = 60.0, owner: str = "", wait: float = 0.0) -> Claimed:
        """Claim up to ``limit`` entries; while there is nothing, wait for work and claim again for ``wait`` seconds.

        It reaps before it claims, at most once a second, so that custom loops take over from processes that died:
        also with a backlog, and while a throttle refuses. Then it retries once a second, as the limit may change.
        """
        deadline = time.monotonic() + wait
        with closing(self.bell()) if wait > 0 else nullcontext(Bell()) as bell:
            while True:
                bell.disarm()
                claimed = self._begin_lost(self._cut(self._claim_or_take_over(limit, lease, owner), limit))
                left = deadline - time.monotonic()
                if claimed or left <= 0:
                    self._last_claim.refusal = claimed.refusal
                    return claimed
                if claimed.reason:
                    bell.wait(min(NOTICE, left, claimed.retry_after))
                elif claimed.retry_after:
                    until_expiry = max(0.0, self._may_expire - time.monotonic())
                    bell.wait(min(self.poll, left, claimed.retry_after, until_expiry))

    def _cut(self, claimed: Claimed, limit: int) -> Claimed:
        """The first of what was claimed; what left its lane with them goes back."""
        if rest := claimed[limit:]:
            self.release([untried(lease) for lease in rest])
            del claimed[limit:]
        return claimed

    def _claim_or_take_over(self, limit: int, lease: float, owner: str) -> Claimed:
        """Reap if that is due and claim; if nothing is there, and the last time something was, reap once more."""
        now = time.monotonic()
        if is_due := now >= self._reap_at:
            self._reap(now)
        claimed = self.claim(limit, lease, owner)
        if claimed or claimed.reason or not claimed.retry_after:
            return claimed
        was_found, self._empty_until = now >= self._empty_until, max(self._empty_until, now + REAP_EVERY)
        if was_found and not is_due:
            self._reap(now)
            claimed = self.claim(limit, lease, owner)
        return claimed

    def _reap(self, now: float) -> None:
        self._reap_at = self._may_expire = now + REAP_EVERY  # first: of several threads one does it
        reaped = self.reap(REAP_BATCH)
        if reaped.count >= REAP_BATCH:
            self._reap_at = now  # more may have run out
        self._may_expire = max(self._reap_at, time.monotonic() + reaped.next)
        if reaped.count:
            text = "%s: %d leases ran out; their holders died or lost touch"
            log_safely(logger, logging.WARNING, text, self.alias, reaped.count)

    def _begin_lost(self, claimed: Claimed) -> Claimed:
        """Begin what was lost before: the caller of ``reserve`` runs it now."""
        if late := [lease for lease in claimed if lease.entry.lost and not lease.begun]:
            begun = {lease.entry.id: lease for lease in self.begin(late)}
            claimed[:] = [begun.get(lease.entry.id, lease) for lease in claimed]
        return claimed

    @property
    def refusal(self) -> Refusal | None:
        """Why the latest ``pop``, ``take`` or ``reserve`` of this thread had nothing; None if it had something."""
        return self._last_claim.refusal

    def _item_of(self, held: Lease) -> object:
        accept, max_size = conf.get("QUEUE_ACCEPT"), conf.get("QUEUE_MAX_MESSAGE_SIZE")
        entry, queue = held.entry, self.base_name
        return unpack_item(entry.body, id=entry.id, queue=queue, accept=accept, max_size=max_size)

    def _held(self, limit: int, lease: float, deadline: float) -> list[Lease]:
        """Leases of items that were not lost too often; items that were go to the failed queue."""
        while claimed := self.reserve(limit, lease, wait=max(0.0, deadline - time.monotonic())):
            if good := [held for held in claimed if not self._is_lost(held)]:
                return good
        return []

    def _is_lost(self, held: Lease) -> bool:
        """Whether its holders died too often: then it is in the failed queue now."""
        if self.failed is None or held.entry.lost < conf.get("QUEUE_MAX_LOST"):
            return False
        reason = f"its holder died: {held.entry.lost} attempts never reported"
        self._put_aside(held, reason)
        text = "An item of %s went to the failed queue: %s"
        log_safely(logger, logging.ERROR, text, self.name, reason, extra=log_extra(self.alias, held.entry))
        return True

    def _put_aside(self, held: Lease, reason: str) -> None:
        """Into the failed queue, with the reason; what is there already stays as it is."""
        entry = held.entry
        if self.failed is None:
            self.release([untried(held)])
            return
        errors = with_error(entry.errors, at=held.claimed, attempt=entry.attempts, reason=reason)
        self.fail([replace(held, entry=replace(entry, errors=errors))])

    def clear(self) -> None:
        """Flush, and forget the marks of unique items that waited; a throttled queue forgets what was spent, too."""
        if "inspect" in self.features:
            self._unmark_waiting(READY)
            self._unmark_waiting(DELAYED)
        self.flush()

    def _unmark_waiting(self, state: str) -> None:
        """Page by page, up to the first without unique items: where they are used, most items are unique."""
        after, marks = None, [""]
        while marks and (page := self.peek(state, PAGE, after)):
            marks = [record.entry.command for record in page if record.entry.command.startswith(MARK)]
            self.store.put_many([(key, b"", 0.0) for key in marks])  # one call, where to drop them is one for each
            self.store.prune(len(marks))
            after = page[-1].cursor
