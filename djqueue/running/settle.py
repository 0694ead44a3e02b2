"""Settling: from verdicts back to the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from djqueue import signals
from djqueue.backends.base import BaseQueue, Fact, Lease
from djqueue.backends.entries import log_extra
from djqueue.policies.outcomes import Verdict, settled
from djqueue.running.attempts import note
from djqueue.running.history import is_kept, record_of
from djqueue.running.result_store import fact_of
from djqueue.utils import log_safely, plain

logger = logging.getLogger(__name__)


class Settlement(NamedTuple):
    """All that the store is sent about the end of a run. Code of the project has been called for it already."""

    lease: Lease
    """As the verdict leaves it: with its counts, its delay and its errors."""
    verdict: Verdict
    fact: Fact | None = None
    """The result, if it is kept."""
    record: bytes = b""
    """The record for the history; b"" for none."""


def settlement_of(
    queue: BaseQueue, lease: Lease, verdict: Verdict, owner: str = "", elapsed: float | None = None
) -> Settlement:
    """What the store is sent about a verdict, which came ``elapsed`` seconds after the claim, if that is known."""
    verb = verdict.outcome.effect.verb
    left = lease if verb == "complete" else _settled(queue, lease, verdict, owner)
    if verb == "release":  # more is to come: there is no result yet
        return Settlement(left, verdict)
    fact = fact_of(queue, left, verdict) if verdict.keep else None
    return Settlement(left, verdict, fact, record_of(lease, verdict, owner, elapsed) if is_kept(queue) else b"")


def settle(queue: BaseQueue, finished: Sequence[tuple[Lease, Verdict]], owner: str = "") -> None:
    """Settle leases by their verdicts and send the signals, one round trip per verb."""
    settlements = [settlement_of(queue, lease, verdict, owner) for lease, verdict in finished]
    for verb in dict.fromkeys(verdict.outcome.effect.verb for _, verdict in finished):
        alike = [one for one in settlements if one.verdict.outcome.effect.verb == verb]
        announce(queue, alike, send(queue, verb, alike))


def send(queue: BaseQueue, verb: str, settlements: Sequence[Settlement]) -> Sequence[Lease]:
    """Send settlements of one verb to the store, in one round trip; the leases that were still held.

    Repeating it is harmless.
    """
    leases = [one.lease for one in settlements]
    if verb == "release":
        _note_attempts(queue, settlements)
        return queue.release(leases)
    facts, records = [one.fact for one in settlements], [one.record for one in settlements]
    history = [records] if any(records) else []  # only a backend that has the feature gets some
    held: Sequence[Lease] = getattr(queue, verb)(leases, facts if any(facts) else (), *history)
    return held


def _note_attempts(queue: BaseQueue, settlements: Sequence[Settlement]) -> None:
    """Keep who ran attempts of Django's tasks that count and raised nothing: no error of their entries names them."""
    silent = [
        (lease.entry, verdict.attempts[-1])
        for lease, verdict, *_ in settlements
        if verdict.attempts and verdict.exception is None and verdict.outcome.effect.counts
    ]
    if silent:
        note(queue, silent)


def announce(
    queue: BaseQueue,
    settlements: Sequence[Settlement],
    held: Sequence[Lease],
    was_applied: Callable[[Lease], bool] = lambda lease: False,
) -> None:
    """Send the signals of leases that were still ``held`` when they were settled; report the others as lost.

    ``was_applied`` says whether a lease that is gone was settled by an earlier call of this process, whose answer was
    lost: that is so if no other process can have had it by now.
    """
    all_ours = len(held) == len(settlements)
    ours = set() if all_ours else {proof_of(lease) for lease in held}
    for lease, verdict, *_ in settlements:
        is_ours = all_ours or proof_of(lease) in ours or was_applied(lease)
        (_report if is_ours else _report_late)(queue, lease, verdict)


def _settled(queue: BaseQueue, lease: Lease, verdict: Verdict, owner: str) -> Lease:
    """The lease with its verdict's counts and error; without an exception that cannot be written, so others settle."""
    try:
        return settled(lease, verdict, owner)
    except Exception as error:
        text = "What %s (message %s) failed with cannot be written down"
        names = plain(lease.entry.command), plain(lease.entry.id)
        log_safely(logger, logging.ERROR, text, *names, exc_info=error, extra=log_extra(queue.alias, lease.entry))
        return settled(lease, verdict._replace(exception=None), owner)


def proof_of(lease: Lease) -> tuple[str, object]:
    """The key that identifies a lease: its entry's id and its token."""
    return lease.entry.id, lease.token


def _report(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    effect = verdict.outcome.effect
    if effect.signal.receivers:
        entry = lease.entry
        named = {name: entry.attempts if name == "attempt" else getattr(verdict, name) for name in effect.carried}
        signals.emit(effect.signal, entry.command, id=entry.id, queue_name=queue.alias, **named)


def _report_late(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    text = "%s (message %s): another consumer holds it by now"
    names = plain(lease.entry.command), plain(lease.entry.id)
    log_safely(logger, logging.WARNING, text, *names, extra=log_extra(queue.alias, lease.entry, event="lease_lost"))
    signals.emit(signals.lease_lost, lease.entry.command, id=lease.entry.id, queue_name=queue.alias)
