"""``django-admin queue_history``: what became of messages that have ended."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from djqueue.backends.base import BaseQueue
from djqueue.backends.history import bounds
from djqueue.management.arguments import add_filters, argument, limit
from djqueue.management.base import OperatorCommand
from djqueue.operations.filters import ENQUEUED
from djqueue.operations.finding import AN_ID, LEAST_PART
from djqueue.operations.history import EndedMessage, HistoryFilter, Row, selected
from djqueue.operations.queues import asking, chosen, with_feature
from djqueue.running.ends import STATUSES
from djqueue.words import parse_span


class Command(OperatorCommand):
    help = (
        "Shows what became of messages that have ended, the newest first: done, failed, expired, discarded or "
        "cancelled. How many are remembered, and for how long, is said by the setting QUEUE_HISTORY."
    )
    examples = """
        manage.py queue_history                          the last ones of all queues
        manage.py queue_history --status failed --since 1h
        manage.py queue_history --command 'shop.*' --exception KeyError
        manage.py queue_history --id 01d4f3a9            what became of this one
        manage.py queue_history --json --limit 1000      for programs
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add_filters(parser, ENQUEUED, ("command", "exception"))
        add("--status", action="append", choices=STATUSES, help="only what ended so; may be repeated")
        since = "only what ended since: 90s, 30m, 12h, 7d or 4w ago, or a date and time"
        add("--since", "--newer", type=_since, metavar="WHEN", help=since)
        add("--id", metavar="ID", help=f"only this message: {AN_ID}")
        add("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        add("--json", action="store_true", help="a list of objects, with whole ids and times in UTC")
        add("--full-ids", action="store_true", help="whole ids, instead of their ends")

    def handle(self, *args: Any, **options: Any) -> None:
        queues, others = with_feature(chosen(options["queues"]), "history", asked_for=bool(options["queues"]))
        if others:
            self.stderr.write(others)
        most = options["limit"]
        rows = merge(*(_selected(queue, options) for queue in queues), key=lambda row: -row.end.ended)
        found = list(islice(rows, most + 1))
        without = () if len(queues) > 1 else ("queue",)
        shown = [EndedMessage.of(row) for row in found[:most]]
        self.write_report(shown, _nothing(options["id"]), without=without, full_ids=options["full_ids"])
        if len(found) > most:
            self.say("… and more: see --limit")


def _selected(queue: BaseQueue, options: dict[str, Any]) -> Iterator[Row]:
    """The selected records of a queue, newest first."""
    given = {name: options[name] for name in ("command", "exception", "id") if options[name]}
    since = options["since"]
    with asking(queue):
        since = 0.0 if since is None else since.timestamp() if isinstance(since, datetime) else queue.now() - since
        wanted = HistoryFilter(options["status"] or STATUSES, since=since, **given)
        yield from selected(queue, wanted, options["limit"] + 1)


def _nothing(id: str | None) -> str:
    if bounds() is None:
        return "QUEUE_HISTORY keeps no records: give it 'age' and 'count', or remove it to have its default."
    if id and len(id) < LEAST_PART:
        return f"No message has the id {id}; a part of an id has at least {LEAST_PART} characters."
    return "No message that has ended is remembered, or none matches."


@argument
def _since(text: str) -> float | datetime:
    """Seconds ago, or a moment, in Django's time zone unless it has one."""
    try:
        when = parse_datetime(text)
    except ValueError:
        when = None
    if when is not None:
        return timezone.make_aware(when) if timezone.is_naive(when) else when
    try:
        return parse_span(text)
    except ValueError as error:
        raise ValueError(f"{error} Or a date and time, as in 2030-01-31T12:00.") from None
