"""How functions and classes become commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from djqueue.enqueueing.batch import BatchFunction
from djqueue.enqueueing.command import Command, PeriodicCommand, refuse_generator
from djqueue.flow.limits import Batch
from djqueue.policies.options import OneCallOptions
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.timetables import Rule, crontab, interval
from djqueue.utils import takes

__all__ = ["crontab", "periodic_command", "queue_command"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Command[..., Any])


@overload
def queue_command(func: Callable[P, R], /) -> Command[P, R]: ...
@overload
def queue_command(
    *, batch: None = None, **options: Unpack[OneCallOptions]
) -> Callable[[Callable[P, R]], Command[P, R]]: ...
@overload
def queue_command(
    *, batch: int | Batch, **options: Unpack[OneCallOptions]
) -> Callable[[Callable[..., Any]], BatchFunction]: ...
def queue_command(func=None, /, **options):
    """Make a function a command: calling it puts the call into the queue and returns at once.

    Use it bare or with options. Durations are seconds or timedeltas.

    * Where and when: ``queue_name`` (an alias of QUEUES), ``priority`` (higher first), ``delay`` or ``run_after`` (a
      datetime), ``ttl`` (after which it is not run any more).
    * If it fails: ``retry_on`` (exceptions, or a dictionary with a backoff or a RetryPolicy for each), ``retries`` or
      ``max_attempts``, ``backoff`` (a wait, a Backoff, or a function of the failures and the exception), ``max_lost``
      (how many attempts may be lost with their worker). Few libraries raise Python's ConnectionError: list
      ``requests.exceptions.RequestException``, ``httpx.TransportError``, ``smtplib.SMTPException``, or OSError.
    * If it is called often: ``debounce`` (with ``always_delay``, ``extend`` and ``max_wait``, ``merge``), ``unique``
      ("queued", "running", or for a time), ``key`` (a function of the arguments; calls for which it returns the same
      are equal). ``debounce``, ``unique`` and ``concurrency`` may be a Debounce, a Unique and a Concurrency, each with
      a key of its own.
    * In which order and how many: ``shard`` (with ``failure_policy`` and ``max_run``), ``concurrency`` (for each
      ``key`` if there is one), ``throttle`` (a Throttle or several), ``batch`` (a number or a Batch).
    * While it runs: ``time_limit`` (with ``timeout_action``), ``lease``, ``result_ttl`` (how long its result is kept).
    * In the message: ``serializer`` ("pickle", "json"), ``models`` ("pickle", or "reference" to read model instances
      again when the command runs).
    * Where it is shown: ``describe`` (a function of the arguments that returns a short text, for logs, lists and
      screens), ``sensitive`` (names of parameters, or True for all: where arguments are shown, these are ``***``).

    ``delay``, ``ttl`` and ``debounce`` may be functions without arguments: they are called once per call.

    A type checker knows the arguments of a command and what its results are. With ``batch`` it knows neither: the
    function takes a list of calls, so a call may have any arguments, and its handle is a ``Result[Any]``.

    Raises TypeError for what is not a function of a module, for a generator, for unknown options and for functions that
    cannot take the arguments of a call, ValueError for bad values and for options that exclude each other.
    """
    policy = Policy.of(**options)
    kind = BatchFunction if policy.batch else Command
    return declare(func, policy, kind) if func is not None else lambda func: declare(func, policy, kind)


def periodic_command(
    validate_datetime: Callable[[datetime], bool] | None = None,
    /,
    *,
    every: float | timedelta | None = None,
    missed: str = "latest",
    max_lateness: float | timedelta = timedelta(hours=1),
    **options: Unpack[OneCallOptions],
) -> Callable[[Callable[P, R]], PeriodicCommand[P, R]]:
    """Enqueue a function on a schedule. A call of it runs it here, at once.

    ``validate_datetime`` is a :func:`crontab`, or any callable that is given the local time of a minute and says
    whether the function is due then. Instead of it ``every`` is a duration in seconds, of a second at least, or a
    timedelta: the function is due whenever the seconds since 1970-01-01 UTC are a multiple of it, so that all
    consumers agree. Ticks at which no consumer ran: ``missed="latest"`` runs the newest of them, ``"all"`` each,
    ``"skip"`` none; in no case one older than ``max_lateness`` (seconds or a timedelta).

    Raises TypeError if the function requires parameters or is a generator, ValueError for bad values.
    """
    schedule = _schedule(validate_datetime, every)
    rule = Rule.of(missed, max_lateness)
    policy = Policy.of(**options)
    return lambda func: make_periodic(func, policy, schedule, rule)


@singledispatch
def make_periodic(func: Any, policy: Policy, *rest: Any) -> Any:
    """Register the periodic command of a function, or of another object that is decorated with a schedule."""
    refuse_arguments(_module_level(func))
    return declare(func, policy, PeriodicCommand, *rest)


def _schedule(given: Any, every: object) -> Callable[[datetime], bool]:
    """What says when a command is due. Raises TypeError or ValueError for anything that cannot."""
    if every is not None:
        if given is not None:
            raise TypeError("periodic_command: a crontab and every= exclude each other: give one of them.")
        return interval(every)
    if isinstance(given, str):
        raise TypeError(f"{given!r} is no schedule: write @periodic_command(crontab.parse({given!r})).")
    if isinstance(given, timedelta | int | float):
        raise TypeError(f"{given!r} is no schedule: write @periodic_command(every={given!r}).")
    if given is crontab or not takes(given, 1):
        raise TypeError(
            f"{given!r} is no schedule: write @periodic_command(crontab(hour=0, minute=0)) or "
            "@periodic_command(every=seconds), or give a callable of one datetime."
        )
    return given  # type: ignore[no-any-return]


def declare(func: Callable, policy: Policy, kind: type[C], *rest: Any) -> C:
    """Make a function a command of a kind, and register it. Raises TypeError for what cannot be one."""
    command = kind(_module_level(func), policy, *rest)
    registry.register(command)
    return command


def refuse_arguments(func: Callable) -> None:
    """Raises TypeError for a function that cannot be called without arguments."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(func).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]
    if required:
        raise TypeError(
            f"{func.__module__}.{func.__qualname__} is periodic and cannot be given arguments, "
            f"but requires {', '.join(required)}: give defaults, or use queue_command."
        )


def _module_level(func: Callable) -> Callable:
    """The function itself, if a consumer can find it by module and name."""
    if isinstance(func, str):
        raise TypeError(f"{func!r} is not a function: options are given by name, as in queue_name={func!r}.")
    if isinstance(func, Command):
        raise TypeError(
            f"{func.name} is a command already: decorate it once. Options go into that decorator, and what "
            "periodic_command makes can be sent by hand too, with .enqueue()."
        )
    if not inspect.isfunction(func):
        raise TypeError(f"{func!r} is not a function: decorate functions of a module, or subclass QueueCommand.")
    if func.__qualname__ != func.__name__ or func.__name__ == "<lambda>":
        raise TypeError(
            f"{func.__qualname__} is a lambda, a method or nested: a command is a function of a module. Another "
            "decorator below this one needs functools.wraps."
        )
    refuse_generator(func)
    return func
