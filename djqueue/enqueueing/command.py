"""What a function becomes: a command, which can be called, enqueued, and given other options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any, ClassVar, Generic, Never, ParamSpec, Self, TypeVar, Unpack, cast, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async

from djqueue.enqueueing.producer import Call, Terms, send
from djqueue.enqueueing.signatures import ASKED, misplaced, refuse_misfits, refuse_unknown_sensitive, unexpected
from djqueue.hints import answering
from djqueue.messages.codecs import Arguments
from djqueue.policies.options import IDLE_TIMEOUT, CommandOptions
from djqueue.policies.policy import Policy, asked
from djqueue.registry import Observer, registered, registry
from djqueue.results import Result
from djqueue.timetables import Rule
from djqueue.utils import as_asked, takes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound="Command[..., Any]")

Calls = Iterable[tuple[Any, ...] | dict[str, Any] | Call]
"""Calls as they are given to ``enqueue_many``."""


@answering("command")
class Command(Generic[P, R]):
    """A function that a consumer can run.

    Calling it enqueues: ``command(...)`` is ``command.enqueue(...)``. ``command.call(...)`` runs it here and now.
    For a type checker ``Command[P, R]`` has the parameters ``P`` of its function, and what that returns is ``R``.
    """

    inline = False
    """Whether calling it runs it here instead."""
    batched = False
    """Whether it is given several calls at once."""
    whole = False
    """Whether all calls that are sent together are put together, or none."""
    kept = False
    """Whether a worker keeps an object for it, between its batches."""
    origin: Any = None
    """The task of Django that it was made of, if it was."""
    observer: Observer | None = None
    """Is notified of each attempt at a call through Django's tasks."""
    call_signature: ClassVar[inspect.Signature | None] = None
    """That of its calls, if it is not that of its function."""
    terms: Terms | None = None
    """What its last call was sent by."""
    rule: Rule | None = None
    """For a periodic command: what becomes of ticks at which no consumer ran."""

    def __init__(self, func: Callable[P, R], policy: Policy, sample_call: Arguments | None = None):
        self.func = func
        self.policy = policy
        self.sample_call = sample_call
        """A call that functions of the arguments must take, if the signature does not say it."""
        self.declared = self
        """The command as it is declared: for a copy that :meth:`using` made, the one in the registry."""
        self.name = f"{func.__module__}.{func.__qualname__}"
        if policy.batch and not self.batched:
            raise ValueError(f"{self.name} is given one call at a time: batch is for queue_command and BatchCommand.")
        if policy.idle_timeout is not None and not self.kept:
            raise ValueError(f"{self.name}: {IDLE_TIMEOUT}")
        self.is_async = iscoroutinefunction(func)
        self._signature = self.call_signature or inspect.signature(func)
        self._simple = _simple_counts(self._signature)
        """The numbers of positional arguments alone that fit: a quick test, as ``bind`` is slow."""
        refuse_unknown_sensitive(self.name, self._signature, policy)
        refuse_misfits(self.name, self._signature, policy, self.sample_call)
        self.__doc__, self.__module__, self.__wrapped__ = func.__doc__, func.__module__, func
        self.__name__, self.__qualname__ = func.__name__, func.__qualname__

    def __repr__(self) -> str:
        what = f"{type(self).__name__} {self.name}"
        if self.declared is self:
            return f"<{what}>"
        changed = ", ".join(f"{name}={value!r}" for name, value in self.policy.beside(self.declared.policy).items())
        return f"<{what} using({changed}): call .enqueue(...) on it>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Commands are pickled by name, never by value; a changed copy is pickled with its options."""
        if self.declared is self:
            return registered, (self.name,)
        return with_policy, (self.declared, self.policy)

    @overload
    def enqueue(self: Command[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...
    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[Any]:
        """Send one call to the queue; returns a handle with its ``id``.

        Raises TypeError if the arguments do not fit the signature or cannot be encoded, MessageTooLarge, QueueFull,
        or StoreError if the store cannot be used.
        """
        call = args, kwargs
        if kwargs or len(args) not in self._simple:
            self._fit(call)
        return send(self, [(call, self.policy)])[0]

    __call__ = enqueue

    @overload
    async def aenqueue(self: Command[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...
    @overload
    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[Any]:
        """:meth:`enqueue` for async code."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    @overload
    def enqueue_many(self: Command[P, Coroutine[Any, Any, T]], calls: Calls, **options: Never) -> list[Result[T]]: ...
    @overload
    def enqueue_many(self, calls: Calls, **options: Never) -> list[Result[R]]: ...
    def enqueue_many(self, calls: Calls, **options: Never) -> list[Result[Any]]:
        """Send many calls, a round trip per thousand. Each is a tuple of positional or a dict of keyword arguments.

        On the database all are sent or none. Elsewhere an error of the store may come after the first thousands have
        been sent. Options are given to :meth:`using`.
        """
        if options:
            hint = misplaced(self.__name__, (), options, "enqueue_many")
            raise TypeError(f"{self.name}: enqueue_many() takes calls alone{hint}")
        if not isinstance(calls, Iterable):
            raise TypeError(f"{self.name}: enqueue_many() takes a list of calls, as in [(1,), (2,)], not {calls!r}.")
        return send(self, self.prepared([Call.of(given) for given in calls], self.policy))

    @overload
    async def aenqueue_many(
        self: Command[P, Coroutine[Any, Any, T]], calls: Calls, **options: Never
    ) -> list[Result[T]]: ...
    @overload
    async def aenqueue_many(self, calls: Calls, **options: Never) -> list[Result[R]]: ...
    async def aenqueue_many(self, calls: Calls, **options: Never) -> list[Result[Any]]:
        """:meth:`enqueue_many` for async code."""
        return await sync_to_async(self.enqueue_many)(calls, **options)

    def using(self, *given: Never, **options: Unpack[CommandOptions]) -> Self:
        """A copy of this command with other options: ``send.using(delay=30, queue_name="slow").enqueue(...)``.

        Raises TypeError or ValueError that names the option, QueueError for another throttle of a name that is taken.
        """
        if given:
            name = "delay" if isinstance(given[0], int | float | timedelta) else "queue_name"
            raise TypeError(f"{self.name}: options are given by name, as in using({name}={given[0]!r}).")
        policy = self.policy.using(**options)
        declared = self.declared.policy
        policy.overrides(declared)  # so that what cannot travel is refused here
        if policy.idle_timeout != declared.idle_timeout:
            raise ValueError(f"{self.name}: {IDLE_TIMEOUT}")
        if not ASKED.isdisjoint(options):
            refuse_misfits(self.name, self._signature, policy, self.sample_call)
        if policy.throttle != declared.throttle:
            registry.refuse_another_throttle(f"using() of {self.name}", policy)
        return with_policy(self, policy)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here, now; returns what it returns: a coroutine to be awaited if it is async."""
        try:
            return self.func(*args, **kwargs)
        except TypeError as error:
            if hint := misplaced(self.__name__, self._signature.parameters, self._unbound(args, kwargs)):
                error.add_note(hint.removeprefix(". "))
            raise

    def identity(self, call: Arguments, policy: Policy) -> tuple[dict[str, object], object]:
        """The arguments of a call by name, defaults too, and what their key makes of them, if there is one."""
        bound = self.bind(call)
        bound.apply_defaults()
        key = policy.guard_key
        return bound.arguments, asked(key, self.as_asked(key, call), self.name) if key else None

    def as_asked(self, func: object, call: Arguments) -> Arguments:
        """The arguments of a call for a function that takes them: as they came, or all by name."""
        return as_asked(func, self._signature, call)

    def as_made(self, call: Arguments) -> Arguments:
        """A call as its caller made it, from what its message carries, or from its item in a batch."""
        return call

    def bind(self, call: Arguments) -> inspect.BoundArguments:
        """The arguments of a call by the names of the parameters. Raises TypeError if they do not fit."""
        return self._signature.bind(*call[0], **call[1])

    def merged(self, merge: Callable[..., Any], waits: Arguments, new: Arguments) -> Call:
        """What the option ``merge`` makes of a call that waits and a new one; TypeError if it does not fit."""
        collected = merge(Call(*waits), Call(*new))
        if not isinstance(collected, tuple | list | dict):
            raise TypeError(
                f"{self.name}: merge returned {collected!r}; return a tuple of arguments, a dict, or a Call."
            )
        collected = Call.of(collected)
        try:
            self._fit(collected)
        except TypeError as error:
            error.add_note(
                "That is what merge= returned: a tuple is a call's positional arguments, a dict its keywords."
            )
            raise
        return collected

    def prepared(self, calls: Sequence[Arguments], policy: Policy) -> list[tuple[Arguments, Policy]]:
        """Calls as they are sent, each with its options. Raises as :meth:`enqueue` does for what cannot be."""
        for call in calls:
            if call[1] or len(call[0]) not in self._simple:
                self._fit(call)
        return [(call, policy) for call in calls]

    def prepared_again(self, call: Arguments, policy: Policy) -> list[tuple[Arguments, Policy]]:
        """A call that was prepared and stored before, as it is sent now."""
        return self.prepared([call], policy)

    def _fit(self, call: Arguments) -> None:
        try:
            self.bind(call)
        except TypeError as error:
            hint = misplaced(self.__name__, self._signature.parameters, call[1])
            why = unexpected(self._signature.parameters, call[1]) or str(error)
            raise TypeError(f"{self.name}: {why}{hint or f'. Call it as {self._written()}'}") from None

    def _unbound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments, if the function cannot take them at all; otherwise none."""
        try:
            inspect.signature(self.func).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return kwargs
        return {}

    def _written(self) -> str:
        """The command with its parameters, as its author wrote them, without types."""
        parameters = [one.replace(annotation=one.empty) for one in self._signature.parameters.values()]
        return f"{self.__name__}{inspect.Signature(parameters)}"


def with_policy(command: C, policy: Policy) -> C:
    """A copy of a command with these options, unchecked; pickles refer to this function."""
    changed = object.__new__(type(command))
    changed.__dict__.update(command.__dict__, policy=policy, terms=None)
    return changed


@singledispatch
def as_command(given: object) -> Any:
    """The command that stands for an object, as for a class or a task of Django; the object itself if there is none."""
    return given.command() if isinstance(given, type) and issubclass(given, CommandClass) else given


class InlineCommand(Command[P, R]):
    """A command whose calls run it here and now; :meth:`enqueue` sends it."""

    inline = True
    __call__ = Command.call  # type: ignore[assignment]  # no handle: the value


class PeriodicCommand(InlineCommand[P, R]):
    """A command that the scheduler enqueues. Calling it runs it here, inline; :meth:`enqueue` sends it by hand."""

    def __init__(self, func: Callable[P, R], policy: Policy, validate_datetime: Callable[[datetime], bool], rule: Rule):
        super().__init__(func, policy, sample_call=((), {}))
        if policy.guarded:
            raise ValueError(
                f"{self.name}: debounce and unique are not for periodic commands: a tick is enqueued once anyway."
            )
        if policy.plan and callable(policy.plan.key) and not takes(policy.plan.key, 0):
            raise ValueError(
                f"{self.name}: a tick has no arguments, so shard and key must be functions of none, or fixed."
            )
        self.validate_datetime = validate_datetime
        self.rule: Rule = rule


def refuse_generator(func: Callable[..., Any]) -> None:
    """Raises TypeError for a generator: calling it makes an iterator, and nothing of its body would run."""
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise TypeError(
            f"{func.__module__}.{func.__qualname__} is a generator (it has a yield), and nothing iterates over it: "
            "a command does its work and returns."
        )


class CommandClass(Generic[C]):
    """The base of commands that are written as classes: subclassing registers, unless it is ``abstract=True``."""

    options: ClassVar[dict[str, Any]] = {}
    """The options of :func:`~djqueue.decorators.queue_command`."""

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        """``class Base(QueueCommand, abstract=True)`` is not registered itself."""
        super().__init_subclass__(**kwargs)
        if "<locals>" in cls.__qualname__:  # a consumer could not find it by module and name
            raise TypeError(f"{cls.__qualname__} is nested in a function: a command is a class of a module.")
        if not abstract:
            registry.register(cls._declared())

    @classmethod
    def _declared(cls) -> C:
        """The command of this class. Raises TypeError or ValueError for a class that cannot be one."""
        raise NotImplementedError

    @classmethod
    def command(cls) -> C:
        """The command that is registered for this class."""
        return cast(C, registry[f"{cls.__module__}.{cls.__qualname__}"])


def named_after(cls: type, run: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` as the function of a class, whose method does the work. Raises TypeError for a generator."""
    refuse_generator(method)
    run.__signature__ = inspect.signature(run)
    run.__wrapped__ = method  # whose line distinguishes classes of one name
    if iscoroutinefunction(method):
        markcoroutinefunction(run)
    for name in ("__module__", "__qualname__", "__name__", "__doc__"):
        setattr(run, name, getattr(cls, name))
    return run  # type: ignore[no-any-return]


def _simple_counts(signature: inspect.Signature) -> range:
    parameters = signature.parameters.values()
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return range(0)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return range(sum(p.default is p.empty for p in positional), sys.maxsize if is_open else len(positional) + 1)
