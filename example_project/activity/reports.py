"""The page *Queues* and the page *Failed messages*, as plain values."""

import time
from collections import Counter
from datetime import UTC, datetime

from activity.models import Event
from djqueue import queues
from djqueue.messages.failures import errors_of

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
    last = int(now // BAR)
    counted = Counter((int(at // BAR), kind) for kind, at in events)
    return [{word: counted[number, kind] for kind, word in ENDS.items()} for number in range(last - BARS + 1, last + 1)]


def _line(event: Event) -> dict:
    took = event.kind == "completed" and event.seconds is not None
    return {
        "id": event.pk,
        "time": clock(event.at),
        "command": event.command,
        "kind": ENDS[event.kind],
        "told": f"{1000 * event.seconds:,.0f} ms" if took else event.reason,
    }


def failed(with_traceback: bool) -> list[dict]:
    """The newest failed messages of all queues, without their arguments; with tracebacks for those who may see them."""
    found = []
    for alias in queues:
        errors = queues[alias].failed
        if errors is not None and "inspect" in errors.features:
            found += [_failed(alias, record, with_traceback) for record in errors.walk("ready", len(errors))]
    return sorted(found, key=lambda row: row["at"], reverse=True)[:MOST_FAILED]


def _failed(alias: str, record, with_traceback: bool) -> dict:
    entry, last = record.entry, (errors_of(record.entry.errors) or [{}])[-1]
    return {
        "id": entry.id,
        "queue": alias,
        "command": entry.command.rpartition(".")[2],
        "at": record.at,
        "when": datetime.fromtimestamp(record.at, UTC),
        "about": last.get("description", ""),
        "attempts": entry.attempts,
        "reason": last.get("reason", ""),
        "traceback": last.get("traceback", "") if with_traceback else "",
    }


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
