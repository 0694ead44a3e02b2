"""Commands as classes, and the invoker that enqueues and runs them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, ClassVar, Never, Protocol, TypeVar, Unpack, overload

from django.conf import settings
from django.utils import timezone

from djqueue.backends.base import BaseQueue
from djqueue.enqueueing.command import Command, CommandClass, PeriodicCommand, named_after
from djqueue.policies.options import CommandOptions
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.results import Result
from djqueue.running.executor import serve
from djqueue.timetables import Rule
from djqueue.wiring import queues

R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class QueueCommand(CommandClass[Command[..., Any]], abstract=True):
    """A command as a class: subclass it and write :meth:`execute`. Subclassing registers.

    ``options`` are the options of :func:`~djqueue.decorators.queue_command`. A base of your own classes, without
    ``execute``, is declared with ``class Base(QueueCommand, abstract=True)``, and is not registered itself. A class
    that lacks ``execute`` and is not abstract is refused with a TypeError.
    """

    def __init__(self, data: Any = None):
        self.data = data

    @classmethod
    def _declared(cls) -> Command[..., Any]:
        policy = Policy.of(**cls.options)
        return Command(_runner(cls), policy, sample_call=((None,), {}))

    def get_data(self) -> Any:
        """The data of this call."""
        return self.data

    def set_data(self, data: Any) -> None:
        """Replace the data, before it is enqueued."""
        self.data = data

    def execute(self) -> Any:
        """Do the work, with ``self.data``."""
        raise NotImplementedError(f"{type(self).__name__} has no execute().")


class PeriodicQueueCommand(QueueCommand, abstract=True):
    """A command that is enqueued at every minute for which :meth:`validate_datetime` returns True.

    Both methods are written in the class or in a base of it; a class that lacks one is refused with a TypeError.
    ``missed`` and ``max_lateness``: see :func:`~djqueue.decorators.periodic_command`.
    """

    missed: ClassVar[str] = "latest"
    max_lateness: ClassVar[float | timedelta] = timedelta(hours=1)

    @classmethod
    def _declared(cls) -> Command[..., Any]:
        rule, policy, run = Rule.of(cls.missed, cls.max_lateness), Policy.of(**cls.options), _runner(cls)
        _written(cls, PeriodicQueueCommand, "validate_datetime", "self, dt")
        return PeriodicCommand(run, policy, cls().validate_datetime, rule)

    def validate_datetime(self, dt: datetime) -> bool:
        """Whether it is due at this minute."""
        raise NotImplementedError(f"{type(self).__name__} has no validate_datetime().")


def _runner(cls: type[QueueCommand]) -> Callable[..., Any]:
    def run(data: Any = None) -> Any:
        return cls(data).execute()

    return named_after(cls, run, _written(cls, QueueCommand, "execute", "self"))


def _written(cls: type, base: type, method: str, arguments: str) -> Callable[..., Any]:
    """A method of a class. Raises TypeError if it is still that of the base."""
    written: Callable[..., Any] = getattr(cls, method)
    if written is getattr(base, method):
        raise TypeError(
            f"{cls.__qualname__} has no {method}(): write def {method}({arguments}), or declare it as a base of other "
            f"classes: class {cls.__name__}({base.__name__}, abstract=True)."
        )
    return written


class Executable(Protocol[R_co]):
    """An object of a :class:`QueueCommand` class, by what its ``execute`` returns."""

    @classmethod
    def command(cls) -> Command[..., Any]: ...
    def get_data(self) -> Any: ...
    def execute(self) -> R_co: ...


class Invoker:
    """The default queue as scripts use it: enqueue a command, run the next one here, empty the queue."""

    @property
    def queue(self) -> BaseQueue:
        """The default queue."""
        return queues["default"]

    @overload
    def enqueue(
        self, command: Executable[Coroutine[Any, Any, T]], *args: Never, **options: Unpack[CommandOptions]
    ) -> Result[T]: ...
    @overload
    def enqueue(self, command: Executable[R], *args: Never, **options: Unpack[CommandOptions]) -> Result[R]: ...
    def enqueue(self, command: Any, *args: Never, **options: Unpack[CommandOptions]) -> Result[Any]:
        """Send a command object to its queue; ``options`` override the options of its class.

        Raises TypeError for anything else, and whatever :meth:`Command.enqueue` raises.
        """
        if not isinstance(command, QueueCommand):
            raise TypeError(f"invoker.enqueue() takes an object of a QueueCommand class, not {_instead(command)}")
        if args:
            raise TypeError(f"invoker.enqueue() takes one object, which has its data: {type(command).__name__}(data).")
        return command.command().using(**options).enqueue(command.get_data())

    def dequeue(self) -> str | None:
        """Run the next message here and now; its id, or None if there is none.

        An exception of the command is raised here, after the message was settled: it is back in the queue to be tried
        again, or in the failed queue.
        """
        held = next(iter(self.queue.reserve(1, self.queue.lease)), None)
        if held is None:
            return None
        verdict = serve(self.queue, held)
        if verdict.exception is not None:
            raise verdict.exception
        return held.entry.id

    def write(self, message: str) -> None:
        """Put a raw message."""
        self.queue.write(message)

    def read(self) -> str | None:
        """Take the next raw message off the queue."""
        return self.queue.read()

    def flush(self) -> None:
        """Delete all waiting messages."""
        self.queue.flush()

    def enqueue_periodic_commands(self, dt: datetime | None = None) -> None:
        """Enqueue every periodic command that is due at this minute; called twice, it enqueues twice.

        The scheduler of a consumer does not use this: it enqueues each tick once.
        """
        if dt is None:
            dt = timezone.localtime() if settings.USE_TZ else datetime.now()
        for command in registry.periodic():
            if isinstance(command, PeriodicCommand) and command.validate_datetime(dt):
                command.enqueue()


def _instead(command: object) -> str:
    if isinstance(command, type) and issubclass(command, QueueCommand):
        return f"the class itself: make an object of it, {command.__name__}(data)."
    if isinstance(command, Command):
        return f"the command of a function: call it, or use {command.__name__}.enqueue(...)."
    if isinstance(command, str) and registry.get(command) is not None:
        return f"the name of a command: import {command.rpartition('.')[2]}, and call it."
    return f"{command!r}."


invoker = Invoker()
