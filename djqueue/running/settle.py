"""Settling: from verdicts back to the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from djqueue import signals
from djqueue.backends.base import BaseQueue, Lease
from djqueue.backends.entries import log_extra
from djqueue.policies.outcomes import Verdict, settled
from djqueue.running.attempts import note
from djqueue.running.history import is_kept, record_of
from djqueue.running.result_store import fact_of
from djqueue.utils import log_safely, plain

logger = logging.getLogger(__name__)

Finished = Sequence[tuple[Lease, Verdict]]


def settle(queue: BaseQueue, finished: Finished, owner: str = "") -> None:
    """Settle leases by their verdicts and send the signals, one round trip per verb."""
    for verb in dict.fromkeys(verdict.outcome.effect.verb for _, verdict in finished):
        alike = [pair for pair in finished if pair[1].outcome.effect.verb == verb]
        is_over = verb != "release" and is_kept(queue)
        settle_alike(queue, verb, alike, owner, history=[record_of(*pair, owner) for pair in alike] if is_over else ())


def settle_alike(
    queue: BaseQueue,
    verb: str,
    finished: Finished,
    owner: str = "",
    was_applied: Callable[[Lease], bool] = lambda lease: False,
    history: Sequence[bytes] = (),
) -> list[Lease]:
    """:func:`settle` for verdicts that need one verb, in one round trip. Repeating it is harmless.

    Returns the leases that another consumer holds by now.

    ``history`` has a record for each, or b"" for none.

    ``was_applied`` says whether a lease that is gone was settled by an earlier call of this process, whose answer was
    lost: that is so if no other process can have had it by now. It is called after the queue has answered.
    """
    if verb != "complete":
        finished = [(_settled(queue, lease, verdict, owner), verdict) for lease, verdict in finished]
    leases = [lease for lease, _ in finished]
    if verb == "release":  # more is to come: there is no result yet
        _note_attempts(queue, finished)
        applied: Sequence[Lease] = queue.release(leases)
    else:
        facts = [fact_of(queue, lease, verdict) if verdict.keep else None for lease, verdict in finished]
        records = [history] if any(history) else []  # only a backend that has the feature gets some
        applied = getattr(queue, verb)(leases, facts if any(facts) else (), *records)
    return announce(queue, finished, applied, was_applied)


def _note_attempts(queue: BaseQueue, finished: Finished) -> None:
    """Keep who ran attempts of Django's tasks that count and raised nothing: no error of their entries names them."""
    silent = [
        (lease.entry, verdict.attempts[-1])
        for lease, verdict in finished
        if verdict.attempts and verdict.exception is None and verdict.outcome.effect.counts
    ]
    if silent:
        note(queue, silent)


def announce(
    queue: BaseQueue,
    finished: Finished,
    held: Sequence[Lease],
    was_applied: Callable[[Lease], bool] = lambda lease: False,
) -> list[Lease]:
    """Send the signals of leases that were still ``held`` when they were settled; report and return the others."""
    late = []
    all_ours = len(held) == len(finished)
    ours = set() if all_ours else {proof_of(lease) for lease in held}
    for lease, verdict in finished:
        is_ours = all_ours or proof_of(lease) in ours or was_applied(lease)
        (_report if is_ours else _report_late)(queue, lease, verdict)
        if not is_ours:
            late.append(lease)
    return late


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
