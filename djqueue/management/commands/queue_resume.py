"""``django-admin queue_resume``: let go on what queue_pause has paused."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.management.base import OperatorCommand
from djqueue.management.commands.queue_pause import add_what, change_lane, what
from djqueue.management.tables import printable, told


class Command(OperatorCommand):
    help = "Resumes queues, a command, a schedule or a lane that queue_pause has paused."
    examples = """
        manage.py queue_resume mail slow
        manage.py queue_resume --command shop.commands.charge
        manage.py queue_resume --lane shop.commands.ship:7
        manage.py queue_resume --all
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_what(parser)
        parser.add_argument("--all", action="store_true", help="all that is paused, but lanes")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = [(kind, name, options["queue"]) for kind, name in what(options)]
        if bool(wanted or options["lane"] is not None) == options["all"]:
            raise CommandError("Name queues, a --command, a --schedule or a --lane, or else give --all.", returncode=2)
        if options["lane"] is not None:
            return change_lane(self, options, "--resume")
        with told():
            if options["all"]:
                wanted = [(one.kind, one.name, one.queue or None) for one in operations.pauses()]
                if not wanted:
                    self.stdout.write("Nothing is paused. queue_lanes shows lanes that are.")
            for kind, name, queue in wanted:
                now = "is resumed" if operations.resume(kind, name, queue) else "was not paused"
                self.stdout.write(f"{kind.capitalize()} {printable(name)} {now}")
