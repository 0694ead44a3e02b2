"""From verdicts back to the queue: the finish page."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from djqueue import events
from djqueue.backends.base import BaseQueue, Lease
from djqueue.logs import about, plain, tell
from djqueue.policies import Outcome, Verdict, settled

logger = logging.getLogger(__name__)

VERBS = {
    Outcome.DONE: "complete",
    Outcome.UNTRIED: "release",
    Outcome.NOT_NOW: "release",
    Outcome.HANDED_BACK: "release",
    Outcome.DEAD: "bury",
}
"""The verb of the queue that each outcome calls for."""


def settle(queue: BaseQueue, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    """Act on verdicts and tell what came of it, one round trip per verb."""
    for verb in dict.fromkeys(VERBS[verdict.outcome] for _, verdict in finished):
        settle_alike(queue, verb, [pair for pair in finished if VERBS[pair[1].outcome] == verb])


def settle_alike(queue: BaseQueue, verb: str, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    """The same for verdicts that call for one verb, in one round trip. Repeating it is harmless."""
    leases = [lease if verb == "complete" else settled(lease, verdict) for lease, verdict in finished]
    ours = {(lease.entry.id, lease.token) for lease in getattr(queue, verb)(leases)}
    for lease, verdict in finished:
        (_tell if (lease.entry.id, lease.token) in ours else _tell_late)(queue, lease, verdict)


def _tell(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    entry = lease.entry
    named = {"id": entry.id, "queue_name": queue.alias}
    match verdict.outcome:
        case Outcome.DONE:
            named |= {"attempt": entry.attempts, "value": verdict.value, "seconds": verdict.seconds}
            events.emit(events.completed, entry.label, **named)
        case Outcome.DEAD:
            named |= {"attempt": entry.attempts, "exception": verdict.exception, "reason": verdict.reason}
            events.emit(events.failed, entry.label, **named)
        case _:
            events.emit(events.released, entry.label, **named, reason=verdict.reason)


def _tell_late(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    text = "%s (message %s): somebody else holds it by now"
    names = plain(lease.entry.label), plain(lease.entry.id)
    tell(logger, logging.WARNING, text, *names, extra=about(queue, lease.entry))
    events.emit(events.lease_lost, lease.entry.label, id=lease.entry.id, queue_name=queue.alias)
