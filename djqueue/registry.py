"""Commands by name, and where they are found."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from djqueue.exceptions import QueueError, UnknownCommand
from djqueue.messages.codecs import Arguments
from djqueue.policies.policy import Policy, disagreement
from djqueue.timetables import Rule


class Runnable(Protocol):
    """The part of a command that the registry needs; :class:`djqueue.enqueueing.command.Command` has it."""

    name: str
    func: Callable[..., Any]
    policy: Policy
    batched: bool
    is_async: bool

    @property
    def rule(self) -> Rule | None: ...
    @property
    def declared(self) -> Runnable: ...
    def as_asked(self, func: object, call: Arguments) -> Arguments: ...
    def as_made(self, call: Arguments) -> Arguments: ...
    def bind(self, call: Arguments) -> inspect.BoundArguments: ...


class Registry:
    """All commands of this process by name, ``"app.commands.churn_data"``."""

    def __init__(self) -> None:
        self._commands: dict[str, Runnable] = {}
        self._late: set[str] = set()
        """The commands whose modules were imported after Django's setup, on which a consumer cannot rely."""

    def register(self, command: Runnable) -> None:
        """Add a command. Executing a module again replaces its commands.

        Raises QueueError for two of one name, and for two that mean different throttles by one name; TypeError for a
        copy that ``using()`` made.
        """
        if command.declared is not command:
            raise TypeError(f"{command.name} is declared already: what using() returns is a copy of it for calls.")
        known = self._commands.get(command.name)
        if known is not None and _both_stand(known.func, command.func):
            raise QueueError(
                f"{command.name} is declared twice: at line {_line(known.func)} and line {_line(command.func)} "
                f"of {command.func.__module__}. Rename one of them."
            )
        if known is None:  # a module that is executed again is about to replace its other commands, too
            self.refuse_another_throttle(command.name, command.policy)
        if known is None and apps.ready:
            self._late.add(command.name)
        self._commands[command.name] = command

    def refuse_another_throttle(self, name: str, policy: Policy) -> None:
        """Raises QueueError if these options mean another throttle than some command does by the same name."""
        plan = policy.plan
        if plan is None or not plan.shared:
            return
        for other in self:
            if difference := disagreement(plan, other.policy.plan):
                raise QueueError(
                    f"{name} and {other.name} share the throttle {plan.shared!r}, but say different things of "
                    f"it: {difference}. Say the same in both, or give one of them another name."
                )

    def unregister(self, command: Runnable | str) -> None:
        """Remove a command; one that is not there is no error."""
        self._commands.pop(command if isinstance(command, str) else command.name, None)

    def get(self, name: str) -> Runnable | None:
        return self._commands.get(name)

    def __getitem__(self, name: str) -> Runnable:
        """Raises UnknownCommand."""
        if name not in self._commands:
            raise UnknownCommand(f"{name} is not a registered command. Is its module imported?")
        return self._commands[name]

    def __contains__(self, command: object) -> bool:
        return getattr(command, "name", command) in self._commands

    def __iter__(self) -> Iterator[Runnable]:
        return iter(list(self._commands.values()))

    def __len__(self) -> int:
        return len(self._commands)

    def periodic(self) -> list[Runnable]:
        """The commands that have a schedule, in the order of their declaration."""
        return [command for command in self if command.rule is not None]

    def unfound(self) -> list[Runnable]:
        """The commands that a consumer may not find: no ``commands.py`` of an installed app has or imports them."""
        found = {f"{app.name}.commands" for app in apps.get_app_configs()}
        return [command for command in self if command.name in self._late and command.func.__module__ not in found]

    def reset(self) -> None:
        self._commands, self._late = {}, set()


def _both_stand(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether two functions of one name are in the same text: a module that is executed again replaces its own."""
    spec = getattr(sys.modules.get(new.__module__), "__spec__", None)
    first_time = getattr(spec, "_initializing", False)
    ours, theirs = (getattr(inspect.unwrap(func), "__globals__", None) for func in (old, new))
    return first_time and ours is theirs and _line(old) != _line(new)


def _line(func: Callable[..., Any]) -> int:
    return inspect.unwrap(func).__code__.co_firstlineno


registry = Registry()


def registered(name: str) -> Runnable:
    """The command of that name; pickles refer to this function. Raises UnknownCommand."""
    return registry[name]


def autodiscover() -> None:
    """Import ``commands.py`` of every installed app. An error in one of them is raised."""
    for app in apps.get_app_configs():
        try:
            import_module(f"{app.name}.commands")
        except Exception as error:
            if module_has_submodule(app.module, "commands"):
                error.add_note(f"In commands.py of the app {app.name}, which djqueue imports at the start.")
                raise
