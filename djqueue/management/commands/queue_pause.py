"""``django-admin queue_pause``: pause queues, a command, a schedule or a lane; list what is paused."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.management.acting import ActionCommand
from djqueue.management.arguments import span
from djqueue.operations.acting import LANE, NAMED
from djqueue.operations.pausing import PauseRow, each_once
from djqueue.operations.queues import chosen, of_each
from djqueue.operations.targets import Target
from djqueue.running.pauses import COMMAND, QUEUE, SCHEDULE


class Command(ActionCommand):
    help = """
        Pauses queues, a command, a schedule or a lane for all consumers, until queue_resume or for a time; without
        arguments, shows what is paused.

        Consumers notice within about a second, and what they have begun goes on. From a paused queue nothing is
        claimed. Messages of a paused command go back as often as they are claimed, later each time, and no attempt is
        counted. A paused schedule enqueues nothing; what becomes of its missed ticks says its own rule, as if no
        consumer had run. queue_lanes shows the lanes, the paused ones too.
    """
    examples = """
        manage.py queue_pause                                       what is paused
        manage.py queue_pause mail slow --reason "the mail server is down"
        manage.py queue_pause mail --for 30m
        manage.py queue_pause --command shop.commands.charge
        manage.py queue_pause --schedule shop.commands.digest -q mail
        manage.py queue_pause --lane shop.commands.ship:7 --reason "out of paper"
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_what(parser)
        parser.add_argument("--reason", metavar="TEXT", default="", help="why, for others who see the pause")
        parser.add_argument("--for", type=span, dest="for_", metavar="AGE", help="end it by itself after 90s, 30m, 12h")
        parser.add_argument("--force", action="store_true", help="also what is not known here, but no queue")
        parser.add_argument("--json", action="store_true", help="as JSON: what was done, or a list of what is paused")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = what(options)
        if not wanted:
            return self._list(options["queue"])
        if LANE in dict(wanted) and options["for_"] is not None:
            raise CommandError("A lane is paused until it is resumed: leave out --for.", returncode=2)
        if LANE not in dict(wanted):
            _refuse_local(options["queues"] or ([options["queue"]] if options["queue"] else None))
        how = {"why": options["reason"], "seconds": options["for_"], "force": options["force"]}
        return self.act("pause", [(NAMED[f"pause_{kind}"], target_of(options, name, **how)) for kind, name in wanted])

    def _list(self, alias: str | None) -> None:
        listed, failures = of_each(chosen([alias] if alias else None), lambda queue: operations.pauses([queue.alias]))
        none = "" if failures else "Nothing is paused. queue_lanes shows lanes that are."
        self.write_report([PauseRow.of(one) for one in each_once(listed)], none)
        if failures:
            raise CommandError("\n".join(failures))


def add_what(parser: ArgumentParser) -> None:
    """Add the arguments that say what is paused or resumed."""
    add = parser.add_argument
    add("queues", nargs="*", metavar="queue", help="the alias of a queue")
    add("--command", metavar="NAME", help="this command: its full name")
    add("--schedule", metavar="NAME", help="this schedule: of a periodic command its full name")
    add("--lane", metavar="NAME", help="this lane, as queue_lanes shows it; nothing else with it")
    add("-q", "--queue", metavar="ALIAS", help="with one of these: only in this queue (default: all)")


def what(options: dict[str, Any]) -> list[tuple[str, str]]:
    """The kind and the name of the target. Raises CommandError for arguments that do not go together."""
    named = [(kind, options[kind]) for kind in (COMMAND, SCHEDULE, LANE) if options[kind] is not None]
    if options["queue"] and options["queues"]:
        raise CommandError("-q says where a command or a schedule is meant: name queues without it.", returncode=2)
    if options["lane"] is not None and (len(named) > 1 or options["queues"]):
        raise CommandError("--lane stands alone, but for -q: name the rest in a call of its own.", returncode=2)
    return [*((QUEUE, alias) for alias in dict.fromkeys(options["queues"])), *named]


def target_of(options: dict[str, Any], name: str, **how: Any) -> Target:
    """The target that a name stands for, in the given queue or in all."""
    return Target(name=name, queues=[options["queue"]] if options["queue"] else [], **how)


def _refuse_local(aliases: list[str] | None) -> None:
    """Raises CommandError if all the queues of the target are in memory."""
    queues = chosen(aliases)
    if all(queue.store.is_local for queue in queues):
        names = ", ".join(queue.alias for queue in queues)
        text = f"Only the process of their consumer sees what is in memory ({names})"
        raise CommandError(f"{text}: call djqueue.operations.pause() there.", returncode=2)
