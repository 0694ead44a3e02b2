"""``django-admin queue_resume``: let go on what queue_pause has paused."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.management.base import OperatorCommand
from djqueue.management.commands.queue_pause import add_what, what
from djqueue.management.tables import printable, told


class Command(OperatorCommand):
    help = "Resumes queues, a command or a schedule that queue_pause has paused. queue_lanes resumes a lane."
    examples = """
        manage.py queue_resume mail slow
        manage.py queue_resume --command shop.commands.charge
        manage.py queue_resume --all
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_what(parser)
        parser.add_argument("--all", action="store_true", help="all that is paused, but lanes")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = [(kind, name, options["queue"]) for kind, name in what(options)]
        if bool(wanted) == options["all"]:
            raise CommandError("Name queues, a --command or a --schedule, or else give --all.", returncode=2)
        with told():
            if options["all"]:
                wanted = [(one.kind, one.name, one.queue or None) for one in operations.pauses()]
                if not wanted:
                    self.stdout.write("Nothing is paused. queue_lanes shows lanes that are.")
            for kind, name, queue in wanted:
                now = "is resumed" if operations.resume(kind, name, queue) else "was not paused"
                self.stdout.write(f"{kind.capitalize()} {printable(name)} {now}")
