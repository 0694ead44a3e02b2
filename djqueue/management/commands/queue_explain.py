"""``django-admin queue_explain``: why a message does not run, or a queue does not move, and what to do about it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import report, width_of
from djqueue.operations import paging
from djqueue.operations.explaining import UNKNOWN, Explanation, explain, explain_message, explain_queue
from djqueue.operations.finding import Found, find, unclear
from djqueue.operations.queues import asking, chosen, of_each
from djqueue.operations.reports import as_json
from djqueue.utils import nearest
from djqueue.wiring import queues as all_queues
from djqueue.words import number, printable


class Command(OperatorCommand):
    help = (
        "Says why messages do not run, or what became of them: paused, throttled, not due, behind another message, "
        "held by a consumer, unknown to all consumers, failed, cancelled, done. Without ids it says why queues do not "
        "move."
    )
    examples = """
        manage.py queue_explain                    every queue
        manage.py queue_explain mail               a queue, by its alias
        manage.py queue_explain 01d4f3a9           a message, by its id or a part of it
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        help = "of a message: whole, or a part if it has not ended; or the alias of a queue"
        parser.add_argument("ids", nargs="*", metavar="id", help=help)
        help = "only in this queue; may be repeated (default: all)"
        parser.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
        parser.add_argument("--json", action="store_true", help="as JSON: a list of objects")

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        if options["ids"]:
            found = [_named(queues, id) for id in dict.fromkeys(options["ids"])]
            failures: list[str] = []
        else:
            found, failures = of_each(queues, lambda queue: [explain_queue(queue)])
        if options["json"]:
            self.stdout.write(json.dumps(as_json(found)))
        else:
            self.stdout.write("\n\n".join(self._text(one) for one in found))
        if unknown := [one.subject for one in found if one.state == UNKNOWN]:
            failures = [f"Not known: {', '.join(map(_hinted, unknown))}{_bound(queues)}"]
        if failures:
            raise CommandError("\n".join(failures))

    def _text(self, one: Explanation) -> str:
        queue = f"queue {one.queue}" if one.queue not in ("", one.subject) else ""
        about = ", ".join(filter(None, [one.command, queue]))
        head = f"{one.subject}: {one.state}{f' ({about})' if about else ''}"
        reasons = report(one.reasons, width=width_of(self.stdout), paint=self.paint)
        return f"{self.paint(printable(head), 'MIGRATE_HEADING')}\n{reasons}"


def _hinted(id: str) -> str:
    """An unknown name, with a similar alias of a queue."""
    meant = nearest(id, all_queues)
    return f"{id} (did you mean the queue {meant}?)" if meant else id


def _bound(queues: Sequence[BaseQueue]) -> str:
    """Says that there are more messages than are searched for a part of an id; "" if there are not."""
    stats, _ = of_each(queues, lambda queue: [queue.stats()])
    most = max((count or 0 for one in stats for count in (one.ready, one.delayed, one.leased, one.failed)), default=0)
    if most <= paging.MOST_CHECKED:
        return ""
    seen = number(paging.MOST_CHECKED)
    return f". For a part of an id the first {seen} messages of each state are checked: give the whole id"


def _named(queues: list[BaseQueue], name: str) -> Explanation:
    """The explanation of a queue by its alias, or else of a message."""
    for queue in queues:
        if queue.alias == name:
            with asking(queue):
                return explain_queue(queue)
    return _message(queues, name)


def _message(queues: list[BaseQueue], id: str) -> Explanation:
    """The explanation of a message by its id, or by a part of it if it waits, runs or has failed."""
    visible = {queue.alias: queue for queue in queues if "inspect" in queue.features}
    explained = explain(id, queues)
    if explained.state != UNKNOWN:
        return explained
    several, _ = of_each(visible.values(), lambda queue: [find([queue], [id])])
    found = [one for each in several for one in each.matches[id]]
    if len(found) > 1:
        raise unclear(queues, Found({id: found}, all(each.are_all for each in several)))
    return explain_message(visible[found[0].queue], found[0]) if found else explained
