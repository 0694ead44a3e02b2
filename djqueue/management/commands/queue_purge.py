"""``django-admin queue_purge``: deletes all that waits in queues, or has failed."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management.arguments import add_asking, add_json
from djqueue.management.base import OperatorCommand
from djqueue.operations import purging
from djqueue.operations.outcomes import REFUSED
from djqueue.operations.queues import asking, chosen
from djqueue.words import count, number


class Command(OperatorCommand):
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
            raise CommandError("Name the queues that are to be purged.", returncode=2)
        queues, failed = chosen(aliases), options["failed"]
        with self.outcome("purge", (queue.alias for queue in queues)) as outcome:
            if not self.confirmed(_question(queues, failed), options["interactive"]):
                return outcome.fail(REFUSED)
            for queue in queues:
                with asking(queue):
                    deleted = purging.purge(queue, failed)
                outcome.did(deleted, queue.alias, [queue.alias])
                self.say(f"{number(deleted)} deleted in {queue.alias}")


def _question(queues: Sequence[BaseQueue], failed: bool) -> str:
    told = []
    for queue in queues:
        with asking(queue):
            there, capped = purging.count(queue, failed), queue.stats().capped
        told.append(f"{count(there, capped)} in {queue.alias}")
    return f"All that {'has failed' if failed else 'waits'} will be deleted: {', '.join(told)}."
