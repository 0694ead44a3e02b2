"""``django-admin queue_purge``: deletes all messages that wait in queues, or have failed."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from djqueue.management.acting import ActionCommand
from djqueue.management.arguments import add_asking, add_json
from djqueue.operations.acting import NAMED
from djqueue.operations.queues import chosen
from djqueue.operations.targets import Target


class Command(ActionCommand):
    help = (
        "Deletes all messages that wait in a queue, due or not. What runs goes on, and what has failed stays, unless "
        "--failed is given: then only what has failed is deleted. It asks first."
    )
    examples = """
        manage.py queue_purge mail
        manage.py queue_purge mail --failed --no-input
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queues", nargs="*", metavar="queue", help="the alias of a queue")
        help = "the same; may be repeated"
        parser.add_argument("-q", "--queue", action="append", dest="more", default=[], metavar="ALIAS", help=help)
        parser.add_argument("--failed", action="store_true", help="delete what has failed instead")
        add_asking(parser, "messages are deleted")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = [*options["queues"], *options["more"]]
        if not aliases:
            raise CommandError("Name the queues to purge.", returncode=2)
        action = NAMED["purge_failed" if options["failed"] else "purge"]
        self.act("purge", [(action, Target(name=queue.alias)) for queue in chosen(aliases)], options["interactive"])
