"""System checks of commands: can each be sent where its options say, and run there?"""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage, register

from djqueue.backends.base import BaseQueue
from djqueue.checks.catalogue import TAG, near, say
from djqueue.checks.queues import configs, made
from djqueue.checks.settings import accepted
from djqueue.enqueueing.command import Command
from djqueue.policies.placement import disagreement
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
        if command.policy.codec and not accepted(command.policy.codec):
            yield say("E013", where=f"The codec of the command {command.name}", codec=command.policy.codec)


@register(TAG)
def check_throttles(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E015, E016: what is shared by its name must be one thing."""
    first: dict[str, Command] = {}
    for command in registry:
        if command.policy.plan and command.policy.plan.shared:
            yield from _unlike(first.setdefault(command.policy.plan.shared, command), command)


def _unlike(first: Command, command: Command) -> Iterator[CheckMessage]:
    one, other = first.policy, command.policy
    about = {"command": first.name, "other": command.name, "key": one.plan.shared}
    if difference := disagreement(one.plan, other.plan):
        yield say("E015", **about, difference=difference)
    if one.queue_name != other.queue_name:
        yield say("E016", **about, aliases=f"{one.queue_name!r} and {other.queue_name!r}")


def _lacking(command: Command, queue: BaseQueue) -> Iterator[CheckMessage]:
    if lacking := command.policy.lacking(queue.cannot):
        backend = type(queue.unthrottled).__name__
        yield say("E012", command=command.name, alias=queue.alias, backend=backend, lacking=lacking)
