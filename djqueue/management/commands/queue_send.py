"""``django-admin queue_send``: enqueues one call of a command."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from djqueue.enqueueing.command import Command as QueuedCommand
from djqueue.enqueueing.command import as_command
from djqueue.exceptions import InvalidQueueError, QueueError, UnknownCommand
from djqueue.management.arguments import add_json
from djqueue.management.base import OperatorCommand
from djqueue.operations.actions import record
from djqueue.operations.outcomes import ActionResult
from djqueue.registry import registry
from djqueue.results import Result
from djqueue.utils import nearest
from djqueue.wiring import queues

WRONG_USAGE = TypeError, ValueError, InvalidQueueError


class Command(OperatorCommand):
    help = (
        "Enqueues one call of a command. Arguments are JSON: a list of the positional ones, or an object of those that "
        "are given by name. Its options are those that the command declares, but for the ones given here."
    )
    examples = """
        manage.py queue_send shop.commands.send_receipt '["ann@example.com", 42]'
        manage.py queue_send shop.commands.send_receipt '{"to": "ann@example.com", "order": 42}'
        manage.py queue_send shop.commands.nightly --delay 600
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("name", help="the command, as in shop.commands.send_receipt; its last part will do if no other has it")
        add("arguments", nargs="?", type=_arguments, default=[], help="a JSON list, or a JSON object")
        add(
            "-q",
            "--queue",
            metavar="ALIAS",
            dest="queue_name",
            help="send it to this queue instead",
        )
        add("--delay", type=float, metavar="SECONDS", help="due after this time")
        add("--priority", type=int, metavar="NUMBER", help="higher goes first")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        command, given = _command(options["name"]), options["arguments"]
        changes = {name: options[name] for name in ("queue_name", "delay", "priority") if options[name] is not None}
        with self.outcome("send", [command.name]) as outcome:
            try:
                call = command.using(**changes) if changes else command
                result = call.enqueue(**given) if isinstance(given, dict) else call.enqueue(*given)
            except (QueueError, TypeError, ValueError) as error:
                text = "\n".join([str(error), *getattr(error, "__notes__", ())])
                raise CommandError(text, returncode=2 if isinstance(error, WRONG_USAGE) else 1) from error
            self._tell(command.name, result, outcome)

    def _tell(self, name: str, result: Result, outcome: ActionResult) -> None:
        queue = result.queue_name
        outcome.more = {"id": result.id, "queue": queue, "command": name, "enqueued": result.enqueued}
        if result.enqueued:
            outcome.did(1, queue, [name])
            record(queues[queue], "send", name, 1)
            return self.say(f"{result.id} is in the queue {queue}")
        twin = result.duplicate_of
        why = f"{twin.id if twin else 'another call'} waits or runs for it"
        outcome.refuse(name, why)
        return self.say(f"Not enqueued: {why}")


def _arguments(text: str) -> Any:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} is no JSON: {error}. Quote it for the shell, as in '[\"text\", 7]'."
        ) from None
    if not isinstance(given, list | dict):
        raise ArgumentTypeError(f"{text!r} is neither a list nor an object: give '[{text}]' for one argument.")
    return given


def _command(name: str) -> QueuedCommand[..., Any]:
    """The command of a name, or of the last part of one. Raises CommandError."""
    alike = [one.name for one in registry if one.name.endswith(f".{name}")]
    try:
        found = as_command(registry.find(alike[0] if len(alike) == 1 else name))
    except UnknownCommand as error:
        meant = alike or [one for one in [nearest(name, [command.name for command in registry])] if one]
        hint = f". Did you mean {' or '.join(meant)}?" if meant else ""
        raise CommandError(f"{error}{hint}", returncode=2) from error
    if not isinstance(found, QueuedCommand):
        raise CommandError(f"{name} is no command that can be sent.", returncode=2)
    return found
