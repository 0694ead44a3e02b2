"""``django-admin queue_lanes``: shows why a lane does not run; pauses and resumes it."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management.acting import ActionCommand, action_in, add_actions
from djqueue.management.arguments import add_asking, limit
from djqueue.management.tables import LONGEST_TEXT, report, width_of
from djqueue.operations.acting import LANE
from djqueue.operations.lanes import LaneRow, lanes_of
from djqueue.operations.queues import chosen, of_each, with_feature
from djqueue.operations.targets import Target
from djqueue.operations.throttles import throttle_of
from djqueue.words import cut, printable

MOST_REASONS = 5
"""Reasons that are shown below a table that is too narrow for them."""


class Command(ActionCommand):
    help = """
        Says why messages do not run, though consumers have time: shows the lanes in which they wait, and pauses and
        resumes them.

        Messages of a command with shard=, concurrency=, throttle= or batch= wait in lanes: all of a command in one
        lane, named after the command, or those of each key in their own, such as shop.commands.ship:7. The limits of
        the command decide when the next message may leave its lane and run.

        The state of a lane is "ready" (its next message may run), "scheduled" (a throttle or a retry holds it, and the
        table says for how long), "queued" (it waits for its turn within the limit of the whole command), "busy" (as
        many of its messages run as may), "paused" (until --resume), or "empty" (nothing waits, but a throttle still
        counts what ran). Of a queue with a THROTTLE, a line above the table says how full that is.
    """
    examples = """
        manage.py queue_lanes
        manage.py queue_lanes -q mail --limit 500
        manage.py queue_lanes --pause shop.commands.ship:7 --reason "out of paper"
        manage.py queue_lanes --resume shop.commands.ship:7
        manage.py queue_lanes --skip shop.commands.ship:7
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        add("--json", action="store_true", help="as JSON: what was done, or a list of lanes")
        add_actions(parser, LANE)
        add_asking(parser, "a message is cancelled")
        add("--reason", metavar="TEXT", help="with --pause: what the table will say of it")
        add("--force", action="store_true", help="with --pause: also if no lane and no command has this name")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reason"] is not None and options["pause"] is None:
            raise CommandError("--reason says why a lane is paused: give --pause NAME too.", returncode=2)
        if options["force"] and options["pause"] is None:
            raise CommandError("--force pauses a lane that is not known: give --pause NAME too.", returncode=2)
        if given := action_in(options, LANE):
            action, name = given
            how = {"why": options["reason"] or "", "force": options["force"]}
            target = Target(name=name, queues=options["queues"] or [], **how)
            return self.act(action.verb, [(action, target)], options["interactive"])
        queues, _ = with_feature(chosen(options["queues"]), "lanes", asked_for=bool(options["queues"]))
        return self._list(queues, options["limit"], options["json"])

    def _list(self, queues: list[BaseQueue], most: int, as_json: bool) -> None:
        found, failures = of_each(queues, lambda queue: islice(lanes_of(queue), most + 1))
        if not as_json:
            throttled, more = of_each(queues, _throttles)
            failures = [*dict.fromkeys([*failures, *more])]
            for line in throttled:
                self.stdout.write(line)
        rows, without = [LaneRow.of(one) for one in found[:most]], () if len(queues) > 1 else ("queue",)
        if as_json or not rows:
            self.write_report(rows, "" if failures else "No lane holds or remembers anything.")
        else:
            width = width_of(self.stdout)
            shown = report(rows, without=without, width=width, paint=self.paint)
            self.stdout.write("\n".join([shown, *_cut_reasons(rows, shown, width)]))
        if len(found) > most:
            self.say("… and more: see --limit")
        if failures:
            raise CommandError("\n".join(failures))


def _throttles(queue: BaseQueue) -> list[str]:
    """A line for the throttle of a queue, which also holds up messages that are in no lane."""
    state = throttle_of(queue)
    return [] if state is None else [f"The queue {queue.alias!r} is {state}."]


def _cut_reasons(rows: list[LaneRow], shown: str, width: int | None) -> Iterator[str]:
    """The reasons of pauses that a narrow table had to cut, each with the first lane that has it."""
    lanes = {row.paused_reason: row.name for row in reversed(rows) if cut(row.paused_reason, LONGEST_TEXT) not in shown}
    for reason, lane in islice(reversed(lanes.items()), MOST_REASONS):
        yield "\n" + textwrap.fill(printable(f"{lane}: {reason}"), width or 0, subsequent_indent="  ")
