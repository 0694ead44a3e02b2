"""``django-admin queue_resume``: resumes what queue_pause has paused."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.management.acting import ActionCommand
from djqueue.management.arguments import add_json
from djqueue.management.commands.queue_pause import add_what, target_of, what
from djqueue.operations.acting import NAMED
from djqueue.operations.queues import asking_stores


class Command(ActionCommand):
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
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = [(kind, target_of(options, name)) for kind, name in what(options)]
        if bool(wanted) == options["all"]:
            raise CommandError("Name queues, a --command, a --schedule or a --lane, or else give --all.", returncode=2)
        if options["all"]:
            with asking_stores():
                wanted = [(one.kind, target_of({"queue": one.queue}, one.name)) for one in operations.pauses()]
            if not wanted:
                self.say("Nothing is paused. queue_lanes shows lanes that are.")
        self.act("resume", [(NAMED[f"resume_{kind}"], target) for kind, target in wanted])
