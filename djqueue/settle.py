"""From verdicts back to the queue: the finish page."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from djqueue import events
from djqueue.backends.base import BaseQueue, Lease
from djqueue.policies import Outcome, Verdict, settled

logger = logging.getLogger(__name__)

VERBS = {
    Outcome.DONE: "complete",
    Outcome.UNTRIED: "release",
    Outcome.HANDED_BACK: "release",
    Outcome.DEAD: "bury",
}
"""The verb of the queue that each outcome calls for."""


def settle(queue: BaseQueue, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    """Act on verdicts, one round trip per verb, and tell what came of it. Repeating it is harmless."""
    for verb in dict.fromkeys(VERBS[verdict.outcome] for _, verdict in finished):
        _settle_alike(queue, verb, [pair for pair in finished if VERBS[pair[1].outcome] == verb])


def _settle_alike(queue: BaseQueue, verb: str, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    leases = [lease for lease, _ in finished]
    if verb != "complete":
        now = queue.now()
        leases = [settled(lease, verdict, now) for lease, verdict in finished]
    ours = {(lease.entry.id, lease.token) for lease in getattr(queue, verb)(leases)}
    for lease, verdict in finished:
        (_tell if (lease.entry.id, lease.token) in ours else _tell_late)(queue, lease, verdict)


def _tell(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    entry = lease.entry
    about = {"id": entry.id, "queue_name": queue.alias}
    match verdict.outcome:
        case Outcome.DONE:
            about |= {"attempt": entry.attempts, "value": verdict.value, "seconds": verdict.seconds}
            events.emit(events.completed, entry.label, **about)
        case Outcome.DEAD:
            about |= {"attempt": entry.attempts, "exception": verdict.exception, "reason": verdict.reason}
            events.emit(events.failed, entry.label, **about)
        case _:
            events.emit(events.released, entry.label, **about, reason=verdict.reason)


def _tell_late(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    extra = {"message_id": lease.entry.id, "command": lease.entry.label, "queue": queue.alias}
    logger.warning("%s (message %s): somebody else holds it by now", lease.entry.label, lease.entry.id, extra=extra)
    events.emit(events.lease_lost, lease.entry.label, id=lease.entry.id, queue_name=queue.alias)
