"""Commands by name."""

from __future__ import annotations

import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from threading import RLock
from typing import Any, Protocol

from django.apps import apps

from djqueue.discovery import import_module_of, is_discovered, is_findable, object_of
from djqueue.exceptions import QueueError, UnknownCommand
from djqueue.hints import answering
from djqueue.messages.codecs import Arguments
from djqueue.policies.policy import Policy, disagreement
from djqueue.timetables import Rule
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

LONGEST_SEARCH = 5.0
"""Seconds to wait for another thread's search: it may import a module whose import waits for this one."""
LOOK_AGAIN = 60.0
"""Seconds until a command that was not found is looked for again."""
MOST_UNKNOWN = 1000
"""How many names of commands that were not found are remembered."""


class Observer(Protocol):
    """Is notified of each attempt at a call of its command through Django's tasks; a job is what runs."""

    def begun(self, job: Any) -> None: ...
    def returned(self, value: Any) -> Any: ...
    def ended(self, job: Any, verdict: Any) -> None: ...


class Runnable(Protocol):
    """The part of a command that the registry needs; :class:`djqueue.enqueueing.command.Command` has it."""

    name: str
    func: Callable[..., Any]
    policy: Policy
    batched: bool
    is_async: bool
    observer: Observer | None

    @property
    def rule(self) -> Rule | None: ...
    @property
    def declared(self) -> Runnable: ...
    def as_asked(self, func: object, call: Arguments) -> Arguments: ...
    def as_made(self, call: Arguments) -> Arguments: ...
    def bind(self, call: Arguments) -> inspect.BoundArguments: ...


Adapter = Callable[[object, str], Runnable | None]
"""Makes the command of a name of the object that a module has by that name; None if it can make none of it."""


@answering("registry")
class Registry:
    """All commands of this process by name, ``"app.commands.churn_data"``."""

    def __init__(self) -> None:
        self.adapters: list[Adapter] = []
        """Asked in turn for a command that its module has not registered."""
        self._commands: dict[str, Runnable] = {}
        self._late: set[str] = set()
        """The commands whose modules were imported after Django's setup, on which a consumer cannot rely."""
        self._unknown: dict[str, tuple[float, str]] = {}
        """When a command was looked for that was not found, and why it was not."""
        self._searching = RLock()
        self._searches = 0
        """How many searches are under way, one inside the other; changed by who holds the lock."""
        self._unfinished: set[str] = set()
        """The commands registered during a search: the import of their modules may still fail."""

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
        if self._searches:
            self._unfinished.add(command.name)
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
        """The command of that name, if it is registered. Nothing is imported."""
        return self._commands.get(name)

    def find(self, name: str) -> Runnable:
        """The command of that name; its module is imported if need be. Raises UnknownCommand, which says why.

        Only for names whose signature was verified, or that the project's own code gives.
        """
        if (command := self._commands.get(name)) is not None and name not in self._unfinished:
            return command
        is_alone = self._searching.acquire(timeout=LONGEST_SEARCH)
        self._searches += is_alone
        try:
            at, why = self._unknown.pop(name, (-inf, ""))
            if time.monotonic() - at >= LOOK_AGAIN:
                at, why = time.monotonic(), self._search(name)
            if (command := self._commands.get(name)) is not None:
                return command
            if len(self._unknown) >= MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = at, why
        finally:
            if is_alone:
                self._end_search()
        raise UnknownCommand(f"unknown command {name!r}: {why}")

    def _end_search(self) -> None:
        self._searches -= 1
        if not self._searches:
            self._unfinished.clear()
        self._searching.release()

    def _search(self, name: str) -> str:
        """Import the module of a command, which registers it, or have an adapter make it; why there is none."""
        before = set(self._commands)
        try:
            module = import_module_of(name)
            return "" if name in self._commands else self._adapt(object_of(name, module), name)
        except UnknownCommand as error:
            self._drop_unfinished(before)
            if error.__cause__ is not None:
                log_safely(logger, logging.WARNING, "%s cannot be imported", name, exc_info=error.__cause__)
            return str(error)

    def _adapt(self, found: object, name: str) -> str:
        """Register what an adapter makes of an object; why there is no command."""
        for adapter in self.adapters:
            if (command := adapter(found, name)) is not None:
                self.register(command)
                return ""
        if inspect.isfunction(found):
            return "it is a function, not a command: decorate it with queue_command"
        return f"it is {_kind(found)}, which is not registered as a command"

    def _drop_unfinished(self, before: set[str]) -> None:
        """Remove new commands of modules that could not be imported to their end: what they use may be missing."""
        for command in self:
            if command.name not in before and command.func.__module__ not in sys.modules:
                self.unregister(command)

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
        """The commands that a consumer does not find: neither imported at the start, nor found by their names."""
        return [command for command in self._late_ones() if command.rule is None and not is_findable(command.name)]

    def unscheduled(self) -> list[Runnable]:
        """The commands whose schedule a consumer does not know, as their modules are not imported at the start."""
        return [command for command in self._late_ones() if command.rule is not None]

    def _late_ones(self) -> Iterator[Runnable]:
        return (one for one in self if one.name in self._late and not is_discovered(one.func.__module__))

    def reset(self) -> None:
        self._commands, self._late, self._unknown = {}, set(), {}
        self._unfinished.clear()


def _both_stand(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether two functions of one name are in the same text: a module that is executed again replaces its own."""
    spec = getattr(sys.modules.get(new.__module__), "__spec__", None)
    first_time = getattr(spec, "_initializing", False)
    ours, theirs = (getattr(inspect.unwrap(func), "__globals__", None) for func in (old, new))
    return first_time and ours is theirs and _line(old) != _line(new)


def _kind(found: object) -> str:
    return (
        f"the class {found.__qualname__}"
        if isinstance(found, type)
        else f"an object of the class {type(found).__name__}"
    )


def _line(func: Callable[..., Any]) -> int:
    return inspect.unwrap(func).__code__.co_firstlineno


registry = Registry()


def registered(name: str) -> Runnable:
    """The command of that name; pickles refer to this function. Raises UnknownCommand."""
    return registry.find(name)
