"""What the page *Try it* shows, as plain values: its script draws them."""

import time
from collections import defaultdict
from datetime import UTC, datetime

from django.db.models import Count

from activity.models import Event
from tryit import records
from tryit.cards import CARDS, Card
from tryit.commands import import_rows
from tryit.models import Call, Reading

ENDS = {"completed": "done", "retried": "retried", "failed": "failed", "discarded": "discarded", "released": "released"}
OVER = ("completed", "failed", "discarded")
SHOWN = 600.0
"""Seconds: what was called earlier is not shown."""
EVERY, TICKS = 30, 11
"""Seconds between two runs of the periodic command, and how many of them are shown."""


def state(visitor: str) -> dict:
    """The state of each card for a visitor; ``busy`` while a call is under way."""
    now = time.time()
    cards = {card.name: _card(card, visitor, now) for card in CARDS if card.actions}
    busy = any(card["busy"] for card in cards.values())
    return {"now": now, "busy": busy, "cards": cards | {"tidy_up": _periodic(now)}}


def _card(card: Card, visitor: str, now: float) -> dict:
    found = Call.objects.filter(visitor=visitor, command=card.name, at__gt=now - SHOWN)
    calls = list(found.reverse()[:1] if card.single else found)
    calls = _newest([_call(call, events) for call, events in _with_events(calls)], card.quiet)
    more = EXTRAS[card.draws](visitor, calls) if card.draws in EXTRAS else {}
    return {"calls": calls, "busy": any(call["end"] is None for call in calls), **more}


def _with_events(calls: list[Call]) -> list[tuple[Call, list[Event]]]:
    events = defaultdict(list)
    for event in Event.objects.filter(message__in=[call.message for call in calls]):
        events[event.message].append(event)
    return [(call, events[call.message]) for call in calls]


def _call(call: Call, events: list[Event]) -> dict:
    """A call with its attempts, and when it ended: None if it is under way."""
    over = bool(events) and events[-1].kind in OVER
    end = events[-1].at if over else None if call.enqueued else call.at
    return {"at": call.at, "label": call.label, "put": call.enqueued, "attempts": _attempts(events), "end": end}


def _attempts(events: list[Event]) -> list[dict]:
    attempts = []
    for event in events:
        if event.kind == "started":
            attempts.append({"began": event.at, "ended": None, "outcome": "", "reason": "", "next": None})
        elif attempts:
            wait = event.at + (event.seconds or 0) if event.kind == "retried" else None
            attempts[-1] |= {"ended": event.at, "outcome": ENDS[event.kind], "reason": event.reason, "next": wait}
    return attempts


def _newest(calls: list[dict], quiet: float) -> list[dict]:
    """The calls since the last quiet time: nothing was under way, and no call came."""
    shown: list[dict] = []
    for call in calls:
        ends = [one["end"] for one in shown]
        if ends and None not in ends and call["at"] > max(ends) + quiet:
            shown = []
        shown.append(call)
    return shown


def _progress(visitor: str, calls: list[dict]) -> dict:
    result = records.latest(visitor, import_rows) if calls else None
    progress = result and result.progress
    return {"share": progress.done / progress.total if progress else 0, "status": result.status if result else ""}


def _batches(visitor: str, calls: list[dict]) -> dict:
    if not calls:
        return {"sizes": []}
    since = datetime.fromtimestamp(calls[0]["at"], UTC)
    stored = Reading.objects.filter(visitor=visitor, stored__gte=since).values("stored")
    return {"sizes": [row["size"] for row in stored.annotate(size=Count("pk")).order_by("stored")]}


def _attempt(visitor: str, calls: list[dict]) -> dict:
    last = calls[-1]["attempts"][-1:] if calls else []
    failed = bool(last) and last[0]["outcome"] == "failed" and calls[-1]["end"] is not None
    return {"failed": failed, "reason": last[0]["reason"] if failed else ""}


EXTRAS = {"progress": _progress, "batch": _batches, "attempts": _attempt}


def _periodic(now: float) -> dict:
    started = Event.objects.filter(command="tidy_up", kind="started", at__gt=now - EVERY * TICKS)
    return {"ticks": [event.at for event in started], "next": (now // EVERY + 1) * EVERY, "every": EVERY, "busy": False}
