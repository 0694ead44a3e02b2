"""``django-admin queue_resume``: let go on what queue_pause has paused."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.management.arguments import add_json
from djqueue.management.base import OperatorCommand
from djqueue.management.commands.queue_pause import add_what, change_lane, what
from djqueue.operations.queues import asking_stores
from djqueue.words import printable


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
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = [(kind, name, options["queue"]) for kind, name in what(options)]
        if bool(wanted or options["lane"] is not None) == options["all"]:
            raise CommandError("Name queues, a --command, a --schedule or a --lane, or else give --all.", returncode=2)
        if options["lane"] is not None:
            return change_lane(self, options, "--resume")
        if options["all"]:
            with asking_stores():
                wanted = [(one.kind, one.name, one.queue or None) for one in operations.pauses()]
            if not wanted:
                self.say("Nothing is paused. queue_lanes shows lanes that are.")
        return self._resume(wanted)

    def _resume(self, wanted: Sequence[tuple[str, str, str | None]]) -> None:
        with self.outcome("resume", (f"{kind} {name}" for kind, name, _ in wanted)) as outcome:
            for kind, name, queue in wanted:
                with asking_stores():
                    was_paused = operations.resume(kind, name, queue)
                if was_paused:
                    outcome.did(what=[f"{kind} {name}"])
                else:
                    outcome.refuse(f"{kind} {name}", "it was not paused")
                self.say(f"{kind.capitalize()} {printable(name)} {'is resumed' if was_paused else 'was not paused'}")
