"""``django-admin queue_consumers``: which consumers there are, what they do, and orders to one of them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.backends.base import BaseQueue
from djqueue.exceptions import QueueError
from djqueue.management.acting import ActionCommand, action_in, add_actions
from djqueue.management.tables import report, width_of
from djqueue.operations.acting import CONSUMER
from djqueue.operations.clocks import Clocks
from djqueue.operations.consumers import ConsumerRow
from djqueue.operations.queues import chosen, of_each
from djqueue.operations.reports import as_json
from djqueue.operations.targets import Target
from djqueue.running.consumers import GONE, ConsumerRecord
from djqueue.running.shared import shared_stores
from djqueue.words import NONE, counted, full_moment, printable

SPARABLE = ("memory", "ran", "release", "version", "up")
"""What a narrow terminal does not show, in this order; --show does."""


class Command(ActionCommand):
    help = """
        Shows the consumers of the queues: how busy each is, what it has run for the longest time, and when it was last
        heard of. A consumer reports every 5 seconds. After 15 seconds without a word it is "gone": it was
        killed, or stands still. One that stopped by itself is not shown.

        A consumer that is "quiet" claims nothing more, ends what it runs, and waits. One that is ordered to stop
        ends as by SIGTERM: what manages its process may start another.
    """
    examples = """
        manage.py queue_consumers
        manage.py queue_consumers -q mail --json
        manage.py queue_consumers --show web-1:4242         all of one, by its name or a part of it
        manage.py queue_consumers --quiet web-1:4242        let it claim nothing more
        manage.py queue_consumers --stop web-1:4242
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--json", action="store_true", help="as JSON: what was done, or a list, with times in UTC")
        help = "all that is known of one consumer: its name, or a part that no other has"
        add_actions(parser, CONSUMER).add_argument("--show", metavar="NAME", help=help)

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        if given := action_in(options, CONSUMER):
            action, name = given
            return self.act(action.verb, [(action, Target(name=name))])
        stores = {shared.queues[0]: [queue.alias for queue in shared.queues] for shared in shared_stores(queues)}
        several, failures = of_each(stores, lambda queue: operations.consumers(stores[queue]))
        each = {one.name: one for one in several}  # one may serve queues of two stores
        found = sorted(each.values(), key=lambda one: (one.host, one.pid))
        if options["show"] is not None:
            return self._show(found, options["show"], options["json"], failures)
        if options["json"] or found or not failures:
            self._list(found, Clocks())
            unheard = ", ".join(queue.alias for queue in queues if not _is_heard_of(queue))
            if unheard and not options["json"]:
                text = "Consumers of queues in memory, or without a store, are not heard of in other processes: "
                self.stderr.write(text + unheard)
        if failures:
            raise CommandError("\n".join(failures))

    def _list(self, found: Sequence[ConsumerRecord], clocks: Clocks) -> None:
        rows = [ConsumerRow.of(one) for one in found]
        none = "There is no consumer: manage.py queue_consumer starts one."
        self.write_report(rows, none, clocks=clocks, without=_left_out(rows, clocks, width_of(self.stdout)))

    def _show(self, found: Sequence[ConsumerRecord], part: str, is_json: bool, failures: Sequence[str]) -> None:
        try:
            [one] = [one for one in found if one.name == operations.named(part, found)]
        except QueueError as error:  # a store that cannot be asked may know it
            raise CommandError("\n".join([str(error), *failures])) from error
        self.stdout.write(json.dumps(as_json(ConsumerRow.of(one))) if is_json else self._page(one))

    def _page(self, one: ConsumerRecord) -> str:
        coroutines = f", {counted(one.coroutines, 'coroutine')}" if one.coroutines else ""
        lines = {
            "consumer": one.name,
            "state": one.state,
            "host": one.host,
            "process": f"{one.pid}, started by {one.parent}",
            "release": one.release or NONE,
            "djqueue": one.version or NONE,
            "queues": ", ".join(one.queues),
            "workers": counted(one.threads, "thread") + coroutines,
            "ran": counted(one.ran, "message"),
            "memory": f"{one.memory:,.0f} MiB",
            "started": full_moment(one.started),
            "last seen": full_moment(one.at),
            "knows": counted(len(one.known), "command"),
            "runs": counted(one.busy, "message"),
        }
        known = [self.paint(f"{title:10}", "MIGRATE_LABEL") + printable(value) for title, value in lines.items()]
        runs = ConsumerRow.of(one).running
        shown = report(runs, full_ids=True, paint=self.paint) if runs else ""
        return "\n".join([*known, *(["", shown] if shown else [])])


def _left_out(rows: Sequence[ConsumerRow], clocks: Clocks, width: int | None) -> list[str]:
    """The columns that say nothing here, and on a narrow terminal the less important ones."""
    without = ["version"] if len({one.version for one in rows}) == 1 else []
    without += ["at"] if all(one.state != GONE for one in rows) else []
    for name in SPARABLE:
        if width and rows and max(map(len, report(rows, clocks=clocks, without=without).splitlines())) > width:
            without.append(name)
    return without


def _is_heard_of(queue: BaseQueue) -> bool:
    return any(not shared.store.is_local for shared in shared_stores([queue]))
