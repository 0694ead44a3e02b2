"""The records of the page: which visitor called which command."""

import time
from collections.abc import Sequence

from activity import recording
from djqueue import Result
from djqueue.enqueueing.command import Command
from tryit.models import Call, Customer, Reading

KEPT = 3600.0
"""Seconds for which a call is kept."""
SPAN = 30.0
MOST_OF_ONE, MOST_OF_ALL = 200, 2000
"""No more calls than this in 30 seconds: of one visitor, and of all."""


def call(visitor: str, command: Command, arguments: Sequence[tuple], labels: Sequence[str] = ()) -> list[Result]:
    """Call a command for a visitor, once for each tuple of arguments, and record the calls."""
    now, results = time.time(), command.enqueue_many([(visitor, *rest) for rest in arguments])
    Call.objects.bulk_create(
        Call(
            visitor=visitor,
            command=command.__name__,
            message=result.id,
            label=label,
            enqueued=result.enqueued is not False,
            at=now,
        )
        for result, label in zip(results, labels or [""] * len(results), strict=True)
    )
    return results


def latest(visitor: str, command: Command) -> Result | None:
    """The handle of a visitor's last call of a command."""
    found = Call.objects.filter(visitor=visitor, command=command.__name__).last()
    return found and Result(found.message)


def is_too_much(visitor: str) -> bool:
    """Whether a visitor, or all visitors together, made too many calls lately."""
    lately = Call.objects.filter(at__gt=time.time() - SPAN)
    return lately.filter(visitor=visitor).count() >= MOST_OF_ONE or lately.count() >= MOST_OF_ALL


def prune() -> None:
    """Delete old calls, and the rows of visitors without calls."""
    Call.objects.filter(at__lt=time.time() - KEPT).delete()
    present = Call.objects.values("visitor")
    Reading.objects.exclude(visitor__in=present).delete()
    Customer.objects.exclude(visitor__in=present).delete()
    recording.prune()
