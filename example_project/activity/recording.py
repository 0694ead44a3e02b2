"""djqueue's signals, written down."""

import time
from functools import partial

from activity.models import Event
from djqueue import signals

RECORDED = ("started", "completed", "retried", "failed", "discarded", "released")
LONGEST_REASON = 300
KEPT = 3600.0
"""Seconds for which an event is kept."""


def listen() -> None:
    """Record the events of all commands from now on."""
    for kind in RECORDED:
        getattr(signals, kind).connect(partial(record, kind), weak=False, dispatch_uid=f"activity-{kind}")


def record(kind: str, sender: str, *, id: str, queue_name: str, **told) -> None:
    Event.objects.create(
        kind=kind,
        command=sender.rpartition(".")[2],
        queue=queue_name,
        message=id,
        attempt=told.get("attempt", 0),
        at=time.time(),
        seconds=told.get("seconds", told.get("delay")),
        reason=(told.get("reason") or "")[:LONGEST_REASON],
    )


def prune() -> int:
    """Delete old events; how many there were."""
    return Event.objects.filter(at__lt=time.time() - KEPT).delete()[0]
