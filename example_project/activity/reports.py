"""The page *Queues* and the page *Failed messages*, as plain values."""

import time
from collections import Counter
from datetime import UTC, datetime

from activity.models import Event
from djqueue import queues
from djqueue.operations.failed import call_of
from djqueue.operations.messages import last_error
from djqueue.operations.paging import messages_of
from djqueue.words import duration

ENDS = {"completed": "done", "failed": "failed", "retried": "retried", "discarded": "discarded"}
"""The kinds of event that end an attempt, and the word for each."""
BARS, BAR = 60, 5.0
"""The number of bars in the picture, and the seconds that each stands for."""
RECENT = 15
MOST_FAILED = 100


def counts() -> list[dict]:
    """How many messages there are of each state in each queue, in the words of all of djqueue."""
    rows = []
    for alias in queues:
        stats = queues[alias].stats()
        shown = {"ready": stats.ready, "delayed": stats.delayed, "running": stats.leased, "failed": stats.failed}
        rows.append({"alias": alias, **shown, "done": stats.done})
    return rows


def activity() -> dict:
    """What happened in the last minutes: bars for a picture, the rate of the last one, and the newest attempts."""
    now = time.time()
    ended = Event.objects.filter(kind__in=ENDS)
    lately = list(ended.filter(at__gt=now - BARS * BAR).values_list("kind", "at"))
    return {
        "now": now,
        "bar_seconds": BAR,
        "bars": _bars(lately, now),
        "per_minute": sum(at > now - 60 for _, at in lately),
        "recent": [_line(event) for event in ended.order_by("-at", "-pk")[:RECENT]],
    }


def _bars(events: list[tuple[str, float]], now: float) -> list[dict]:
    """One for each five seconds by the clock, so that a bar does not change once its time is over."""
    numbers = range(int(now // BAR) - BARS + 1, int(now // BAR) + 1)
    counted = Counter((int(at // BAR), kind) for kind, at in events)
    return [{word: counted[number, kind] for kind, word in ENDS.items()} for number in numbers]


def _line(event: Event) -> dict:
    took = event.kind == "completed" and event.seconds is not None
    return {
        "id": event.pk,
        "time": clock(event.at),
        "command": event.command,
        "kind": ENDS[event.kind],
        "told": duration(event.seconds) if took else event.reason,
    }


def failed(for_staff: bool) -> list[dict]:
    """The newest failed messages of all queues; only the staff may see their arguments and tracebacks."""
    able = [queue for queue in map(queues.__getitem__, queues) if "inspect" in queue.features]
    found = [(queue, one) for queue in able for one in messages_of(queue, ["failed"])]
    found.sort(key=lambda one: one[1].at, reverse=True)
    return [_failed(*one, for_staff) for one in found[:MOST_FAILED]]


def _failed(queue, one, for_staff: bool) -> dict:
    shown = {
        "id": one.id,
        "queue": queue.alias,
        "command": one.command.rpartition(".")[2],
        "about": one.description,
        "when": datetime.fromtimestamp(one.at, UTC),
        "attempts": one.attempts,
        "reason": one.reason,
    }
    secret = (
        {"call": call_of(queue, one.entry)[0], "traceback": last_error(one.entry, "traceback")} if for_staff else {}
    )
    return shown | secret


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
