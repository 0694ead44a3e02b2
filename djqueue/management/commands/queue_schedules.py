"""``django-admin queue_schedules``: when schedules tick, and the result of the last tick; runs and removes them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management.acting import ActionCommand, action_in, add_actions
from djqueue.operations.queues import chosen, of_each
from djqueue.operations.schedules import ScheduleRow, schedules
from djqueue.operations.targets import Target
from djqueue.running.pauses import SCHEDULE


class Command(ActionCommand):
    help = """
        Shows the periodic commands and the schedules that were made at run time: when each is due next, when it was
        last, and what became of that message. queue_pause --schedule pauses one, queue_resume --schedule resumes it.
    """
    examples = """
        manage.py queue_schedules
        manage.py queue_schedules --run shop.commands.nightly     send its call now, too
        manage.py queue_schedules --remove "report for 7"
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--json", action="store_true", help="as JSON: what was done, or a list, with times in UTC")
        add_actions(parser, SCHEDULE)

    def handle(self, *args: Any, **options: Any) -> None:
        if given := action_in(options, SCHEDULE):
            action, name = given
            return self.act(action.verb, [(action, Target(name=name))])
        return self._list(chosen(options["queues"]))

    def _list(self, queues: list[BaseQueue]) -> None:
        found, failures = of_each(queues, lambda queue: schedules([queue]))
        self.write_report(found, "" if failures else "There are no schedules.", without=_left_out(queues, found))
        if failures:
            raise CommandError("\n".join(failures))


def _left_out(queues: Sequence[BaseQueue], found: Sequence[ScheduleRow]) -> list[str]:
    """The columns that say nothing here: a periodic command is its own schedule."""
    says = {"queue": len(queues) > 1, "command": any(one.made for one in found)}
    return ["origin", "zone", "missed", *(name for name, is_said in says.items() if not is_said)]
