"""``django-admin queue_consumers``: which consumers there are, and what they do; orders to one of them."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from djqueue import operations
from djqueue.backends.base import BaseQueue
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import Cell, table, width_of
from djqueue.operations.queues import asking_stores, chosen
from djqueue.running.consumers import ConsumerRecord
from djqueue.running.shared import shared_stores
from djqueue.words import NONE, age, counted, cut, cut_middle, cut_start, full_moment, number, printable, short_names

HEAD = ("consumer", "state", "busy", "runs", "for", "ran", "MiB", "release", "djqueue", "up", "seen", "queues")
RIGHT = ("busy", "for", "ran", "MiB", "up", "seen")
RELEASE = 12
"""Characters of a release in the table."""
SPARABLE = ("MiB", "ran", "release", "djqueue", "up")
"""What a narrow terminal does not show, in this order; --show does."""
CUTS = {"consumer": cut_middle, "runs": cut_start, "queues": cut_middle}
ROLES = {"gone": "ERROR", "quiet": "WARNING", "stopping": "WARNING"}
ORDERS = {
    "quiet": (operations.quiet, "claims nothing more"),
    "resume": (operations.resume_consumer, "claims again"),
    "stop": (operations.stop, "stops"),
    "forget": (operations.forget, "is not shown any more"),
}
"""What each order does, and what is said when it was given."""


class Command(OperatorCommand):
    help = """
        Shows the consumers of the queues: how busy each is, what it has run for the longest time, and when it was last
        heard of. A consumer tells of itself every 5 seconds. After 15 seconds without a word it is "gone": it was
        killed, or stands still. One that stopped by itself is not shown.

        A consumer that is "quiet" claims nothing more, ends what it runs, and waits. One that is told to stop ends as
        by SIGTERM: what manages its process may start another.
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
        add("--json", action="store_true", help="as JSON: what was done, or a list, with times in epoch seconds")
        verbs = parser.add_mutually_exclusive_group()
        verb = verbs.add_argument
        verb("--show", metavar="NAME", help="all that is known of one consumer: its name, or a part that no other has")
        verb("--quiet", metavar="NAME", help="have it claim nothing more; what it runs goes on")
        verb("--resume", metavar="NAME", help="have a quiet one claim again")
        verb("--stop", metavar="NAME", help="have it stop")
        verb("--forget", metavar="NAME", help="show one that is gone no more")

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        for verb, (order, said) in ORDERS.items():
            if options[verb] is not None:
                with self.outcome(verb, [options[verb]]) as outcome:
                    with asking_stores():
                        outcome.what = [order(options[verb])]
                    outcome.did(what=outcome.what)
                    return self.say(f"{printable(outcome.what[0])} {said}")
        with asking_stores():
            found = operations.consumers(queue.alias for queue in queues)
        if options["show"] is not None:
            self._show(found, options["show"], options["json"])
        elif options["json"]:
            self.stdout.write(json.dumps([asdict(one) for one in found]))
        else:
            with asking_stores():
                now = next((shared.store.now() for shared in shared_stores(queues)), time.time())
            self._list(found, now)
            if unheard := ", ".join(queue.alias for queue in queues if not _is_heard_of(queue)):
                text = "Consumers of queues in memory, or without a store, are not heard of in other processes: "
                self.stderr.write(text + unheard)

    def _list(self, found: Sequence[ConsumerRecord], now: float) -> None:
        if not found:
            return self.stdout.write("There is no consumer: manage.py queue_consumer starts one.")
        rows, width = _rows(found, now), width_of(self.stdout)
        without = _left_out(found, rows, width)
        form: Any = {"cuts": CUTS, "without": without, "spared": "consumer", "width": width}
        self.stdout.write(table(HEAD, rows, RIGHT, paint=self.paint, **form))

    def _show(self, found: Sequence[ConsumerRecord], part: str, as_json: bool) -> None:
        with asking_stores():
            [one] = [one for one in found if one.name == operations.named(part, found)]
        self.stdout.write(json.dumps(asdict(one)) if as_json else self._page(one))

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
        runs = [[printable(run.id), printable(run.command), age(one.at - run.since)] for run in one.running]
        shown = table(("id", "command", "for"), runs, ("for",), paint=self.paint) if runs else ""
        return "\n".join([*known, *(["", shown] if shown else [])])


def _left_out(found: Sequence[ConsumerRecord], rows: list[list[str]], width: int | None) -> list[str]:
    """The columns that say nothing here, and on a narrow terminal those that one can do without."""
    without = [] if any(one.release for one in found) else ["release"]
    without += ["djqueue"] if len({one.version for one in found}) == 1 else []
    without += ["seen"] if all(one.is_alive for one in found) else []
    for name in SPARABLE:
        if width and max(map(len, table(HEAD, rows, without=without).splitlines())) > width:
            without.append(name)
    return without


def _is_heard_of(queue: BaseQueue) -> bool:
    return any(not shared.store.is_local for shared in shared_stores([queue]))


def _rows(found: Sequence[ConsumerRecord], now: float) -> list[list[str]]:
    """The cells below :data:`HEAD`, at a moment by the clock of the store."""
    names = short_names({run.command for one in found for run in one.running})
    return [
        [
            Cell.of(printable(one.name), "SQL_KEYWORD"),
            Cell.of(one.state, ROLES.get(one.state, "")),
            f"{number(one.busy)}/{number(one.threads + one.coroutines)}",
            printable(names[one.running[0].command]) if one.running else NONE,
            age(one.at - one.running[0].since) if one.running else NONE,
            number(one.ran),
            f"{one.memory:,.0f}",
            cut(one.release, RELEASE) or NONE,
            printable(one.version) or NONE,
            age(one.at - one.started),
            f"{age(max(0.0, now - one.at))} ago",
            printable(", ".join(one.queues)),
        ]
        for one in found
    ]
