"""System checks of commands: can each be sent where its options say, and run there?"""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage, register

from djqueue.backends.base import BaseQueue
from djqueue.checks.catalogue import TAG, near, say
from djqueue.checks.queues import configs, made
from djqueue.checks.settings import accepted
from djqueue.enqueueing.command import Command
from djqueue.registry import registry


@register(TAG)
def check_commands(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E011, E012, E013."""
    aliases = [config.alias for config in configs()]
    queues = {config.alias: queue for config, queue in made()}
    for command in registry:
        alias = command.policy.queue_name
        if aliases and alias not in aliases:
            yield say("E011", command=command.name, key=alias, near=near(alias, aliases))
        if alias in queues:
            yield from _lacking(command, queues[alias])
        if command.policy.serializer and not accepted(command.policy.serializer):
            yield say(
                "E013", where=f"The serializer of the command {command.name}", serializer=command.policy.serializer
            )


@register(TAG)
def check_throttles(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E016: a throttle that commands share by its name is of one queue."""
    first: dict[str, Command] = {}
    for command in registry:
        shared = command.policy.plan and command.policy.plan.shared
        other = first.setdefault(shared, command) if shared else command
        if other.policy.queue_name != command.policy.queue_name:
            aliases = f"{other.policy.queue_name!r} and {command.policy.queue_name!r}"
            yield say("E016", command=other.name, other=command.name, key=shared, aliases=aliases)


def _lacking(command: Command, queue: BaseQueue) -> Iterator[CheckMessage]:
    if lacking := command.policy.unsupported(queue.features):
        backend = type(queue.unthrottled).__name__
        yield say("E012", command=command.name, alias=queue.alias, backend=backend, lacking=lacking)
