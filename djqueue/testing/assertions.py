"""What waits in the queues of a test, assertions about it, and calls that wait for a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest import mock

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Record, walk
from djqueue.backends.entries import DELAYED, READY
from djqueue.classes import QueueCommand
from djqueue.enqueueing.command import Call, Command, CommandClass, as_command
from djqueue.enqueueing.on_commit import OnceCommitted, Savepoints, outermost, registered, run_registered
from djqueue.enqueueing.producer import sent_by
from djqueue.exceptions import UnknownCommand
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.utils import seconds
from djqueue.wiring import queues

NEAR = 1.0
"""Seconds by which a delay may differ from the one in a test: some time passes between a call and its arrival."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A message that a queue has accepted, or will when the transaction commits.

    Two are equal if their ``id``, ``command`` and ``queue_name`` are. All else is read from the message when it is
    asked for; that raises LookupError if the message was gone before it could be read.
    """

    id: str
    command: str
    """The command's name, ``"app.commands.churn_data"``."""
    queue_name: str
    """The alias of its queue."""
    entry: Entry | None = field(default=None, compare=False, repr=False)
    at: float | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, queue: BaseQueue, entry: Entry, at: float | None = None) -> Enqueued:
        """The message of an entry of a queue, due at a moment."""
        return cls(entry.id, entry.command, queue.alias, entry, at)

    @property
    def args(self) -> tuple:
        """The positional arguments, decoded."""
        return self._arguments[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, decoded."""
        return self._arguments[1]

    @property
    def priority(self) -> int:
        """The priority that the call gave, or its command."""
        return self._entry.priority

    @property
    def delay(self) -> float:
        """Seconds, to the millisecond, from its arrival in the queue until it is due; 0 if it is due at once."""
        entry = self._entry
        if self.at is not None:
            return max(0.0, round(self.at - entry.created, 3))
        return entry.delay or max(0.0, round(entry.run_at - queues[self.queue_name].now(), 3))

    @property
    def run_at(self) -> datetime:
        """When it is due, in UTC, by the queue's clock. For a message that is not sent yet: as if it were sent now."""
        at = self.at if self.at is not None else queues[self.queue_name].now() + self.delay
        return datetime.fromtimestamp(at, UTC)

    @property
    def _entry(self) -> Entry:
        if self.entry is None:
            raise LookupError(f"message {self.id} of {self.command} was gone before its contents could be looked at")
        return self.entry

    @property
    def _arguments(self) -> tuple[tuple, dict[str, Any]]:
        return open_entry(queues[self.queue_name], self._entry).arguments()

    def __str__(self) -> str:
        try:
            call = spelled(self.command, *self._arguments)
        except Exception as error:  # any error: the list in a failure message must not fail itself
            call = f"{self.command}(…) whose arguments cannot be read: {error}"
        return f"{call} in {self.queue_name!r}"


def spelled(name: str, args: Sequence, kwargs: Mapping[str, Any]) -> str:
    """A call as it is written in code."""
    return f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def waiting(queue_name: str | None = None) -> list[Enqueued]:
    """All messages that wait now, due or not, in the queue of that alias or in all: the ready and the delayed ones, and
    those to be sent when a transaction commits.

    Calls that wait for the commit of a TestCase are sent. While the test itself has an ``atomic()`` block open they are
    read without sending: whether ``debounce`` or ``unique`` will let them through is not known then.

    Raises NotSupported if a backend cannot look into its queue, RuntimeError while ``QUEUE_ALWAYS_EAGER`` is on.
    """
    refuse_eager()
    send()
    aliases = list(queues) if queue_name is None else [queue_name]
    there = [Enqueued.of(queues[alias], one.entry, one.at) for alias in aliases for one in _records(queues[alias])]
    return there + [Enqueued.of(queue, entry) for queue, entry in pending() if queue.alias in aliases]


def _records(queue: BaseQueue) -> Iterator[Record]:
    for state in (READY, DELAYED):
        yield from walk(queue, state)


# ---- assertions


AnyCommand = Command | QueueCommand | type[CommandClass] | str


def assert_enqueued(
    command: AnyCommand | None = None,
    args: Sequence | None = None,
    kwargs: Mapping[str, Any] | None = None,
    count: int | None = None,
    queue_name: str | None = None,
    *,
    delay: float | timedelta | None = None,
    priority: int | None = None,
    **unknown: Any,
) -> list[Enqueued]:
    """The calls of ``command`` that wait; AssertionError, with a list of all waiting calls, if there are none.

    ``command`` is a command, one with options (``command.using(queue_name="slow")`` waits there), a class of a command,
    an object of a QueueCommand (with that data), or a name; None is any. With ``args`` or ``kwargs`` only calls of
    exactly these arguments count, positional or by name; ``delay`` is compared to within a second. ``count`` is how
    many there must be; without it, any number but none. Raises TypeError if the arguments do not fit the command, or
    are given one by one, UnknownCommand for a name that is not registered, and what :func:`waiting` raises.
    """
    _refuse(args, kwargs, unknown)
    wanted = Wanted.of(command, args, kwargs, queue_name, delay, priority)
    there = waiting(wanted.queue_name)
    found = [one for one in there if wanted.is_met_by(one)]
    if (count is None and not found) or (count is not None and len(found) != count):
        raise AssertionError(_complaint(wanted, count, len(found), there))
    return found


def assert_not_enqueued(
    command: AnyCommand | None = None,
    args: Sequence | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue_name: str | None = None,
    **unknown: Any,
) -> None:
    """:func:`assert_enqueued` with ``count=0``; without a command: nothing waits at all."""
    _refuse(args, kwargs, unknown)
    assert_enqueued(command, args, kwargs, 0, queue_name)


def _refuse(args: object, kwargs: object, unknown: Mapping[str, Any]) -> None:
    """Raises TypeError for arguments that are given as one calls the command."""
    if unknown:
        lacking = f"there is no option {', '.join(unknown)}"
        raise TypeError(f"{lacking}: what the command is called with goes into kwargs, as in kwargs={unknown!r}")
    if isinstance(args, str | bytes) or not isinstance(args, Sequence | None):
        raise TypeError(f"args is {args!r}: give a tuple, as in args=({args!r},)")
    if not isinstance(kwargs, Mapping | None):
        raise TypeError(f"kwargs is {kwargs!r}: give a dict.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The calls that a test looks for."""

    command: Command | None
    call: Call | None
    bound: dict[str, object] | None
    """The arguments of ``call`` by name."""
    queue_name: str | None
    delay: float | None
    priority: int | None

    @classmethod
    def of(cls, command: AnyCommand | None, args, kwargs, queue_name, delay, priority) -> Wanted:
        command = as_command(command)
        if isinstance(command, Command) and command is not command.declared and queue_name is None:
            queue_name = command.policy.queue_name
        if isinstance(command, QueueCommand):
            args = (command.get_data(),) if args is None and kwargs is None else args
        delay = None if delay is None else seconds(delay, "delay")
        found = command_of(command)
        if args is None and kwargs is None:
            return cls(found, None, None, queue_name, delay, priority)
        if found is None:
            raise TypeError("args and kwargs belong to a command: name it.")
        call = Call(tuple(args or ()), dict(kwargs or {}))
        return cls(found, call, _bound(found, call), queue_name, delay, priority)

    def is_met_by(self, one: Enqueued) -> bool:
        return (
            (self.command is None or one.command == self.command.name)
            and (self.delay is None or abs(one.delay - self.delay) <= NEAR)
            and (self.priority is None or one.priority == self.priority)
            and (self.command is None or self.bound is None or self._is_call(one, self.command))
        )

    def _is_call(self, one: Enqueued, command: Command) -> bool:
        try:
            return _bound(command, Call(one.args, one.kwargs)) == self.bound
        except Exception:  # a call that cannot be read, or does not fit any more, is none; the failure message lists it
            return False

    def __str__(self) -> str:
        name = "any command" if self.command is None else self.command.name
        what = name if self.call is None else spelled(name, *self.call)
        where = "" if self.queue_name is None else f" in {self.queue_name!r}"
        also = {"delay": self.delay, "priority": self.priority}
        return what + where + "".join(f" with {name} {value:g}" for name, value in also.items() if value is not None)


def _bound(command: Command, call: Call) -> dict[str, object]:
    """The arguments by name, defaults too: the same for two forms of one call."""
    try:
        return command.identity(call, _PLAIN)[0]
    except TypeError as error:
        raise TypeError(f"{command.name}: {error}") from None


_PLAIN = Policy()


def command_of(given: AnyCommand | None) -> Command | None:
    """The command that was given. Raises TypeError for what is none, UnknownCommand for an unknown name."""
    if given is None:
        return None
    known = type(given) if isinstance(given, QueueCommand) else given
    found = _named(known) if isinstance(known, str) else as_command(known)
    if not isinstance(found, Command):
        raise TypeError(f"{given!r} is no command: give a command, its class or name, or an object of a QueueCommand.")
    return found.declared


def _named(name: str) -> Command:
    ending_so = [command.name for command in registry if command.name.endswith(f".{name}")]
    if name not in registry and len(ending_so) == 1:
        raise UnknownCommand(f"{name} is not a registered command. Is {ending_so[0]} meant?")
    return cast(Command, registry[name])


def _complaint(wanted: Wanted, count: int | None, found: int, there: list[Enqueued]) -> str:
    if count is None:
        first = f"{wanted} is not enqueued."
    else:
        first = f"{wanted} is enqueued {_times(found)}, not {_times(count)}."
    lines = [first, "There waits:" if there else "Nothing waits.", *(f"  {one}" for one in there)]
    if others := others_waiting():
        lines.append(
            f"Callbacks of transaction.on_commit() that wait for a commit: {others}. capture_enqueued() runs them."
        )
    return "\n".join(lines)


def _times(count: int) -> str:
    return {1: "once"}.get(count, f"{count} times")


# ---- The transaction of a test: what waits for a commit that never comes, and how commands run within it


def refuse_eager() -> None:
    """Raises RuntimeError if calls are run where they are made: a test would see an empty queue, and pass wrongly."""
    if conf.get("QUEUE_ALWAYS_EAGER"):
        raise RuntimeError(
            "QUEUE_ALWAYS_EAGER is on: every call runs where it is made, and nothing ever waits in a queue. "
            "Turn it off here: @override_settings(QUEUE_ALWAYS_EAGER=False), or memory_queues()."
        )


def commit() -> None:
    """Run the on_commit callbacks of a TestCase, once and in order, and at once the callbacks that these register.

    Not while the test itself has an ``atomic()`` block open: that may still be rolled back. Nor the callbacks of
    ``setUpTestData``, which belong to no test.
    """
    for connection in connections.all(initialized_only=True):
        if _is_the_tests(connection):
            run_registered(connection, _of_the_class(connection))


def send() -> None:
    """Send the calls that wait for the commit of a TestCase, when :func:`commit` would; all other callbacks stay."""
    for connection in connections.all(initialized_only=True):
        if _is_the_tests(connection):
            others = [savepoints for savepoints, callback, _ in connection.run_on_commit if not sent_by(callback)]
            run_registered(connection, [*_of_the_class(connection), *others])


def pending() -> Iterator[tuple[BaseQueue, Entry]]:
    """The calls that are sent when a transaction commits, in their order, database by database."""
    for callback in _waiting():
        yield from sent_by(callback)


def others_waiting() -> int:
    """How many callbacks wait for the commit that are not djqueue's."""
    return sum(not isinstance(callback, OnceCommitted) for callback in _waiting())


def _waiting() -> Iterator[Callable]:
    for connection in connections.all(initialized_only=True):
        for _, callback, _ in registered(connection, _of_the_class(connection)):
            yield callback


@contextmanager
def one_command() -> Iterator[None]:
    """A block for the run of a command within the transaction of a test: it can neither break nor close that.

    If it has broken the transaction, by an error of the database, all that it did there is undone.
    """
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(mock.patch.object(connection, "close", _stay_open))
                stack.enter_context(_savepoint(connection.alias))
        yield


@contextmanager
def _savepoint(alias: str) -> Iterator[None]:
    atomic = outermost(alias)
    atomic.__enter__()
    try:
        yield
    finally:
        with suppress(DatabaseError):  # PostgreSQL raises, as the transaction was broken; it is usable again
            atomic.__exit__(None, None, None)


def _stay_open() -> None:
    """Does nothing in place of ``close()``: this connection holds the transaction of the test."""


def _is_the_tests(connection: BaseDatabaseWrapper) -> bool:
    """Whether the transaction of the TestCase is the only one that is open."""
    blocks = connection.atomic_blocks
    return bool(blocks) and all(block._from_testcase for block in blocks)


def _of_the_class(connection: BaseDatabaseWrapper) -> Savepoints:
    """The callbacks from before the savepoint of the test, if there is one: pytest-django has only a transaction."""
    if sum(block._from_testcase for block in connection.atomic_blocks) < 2:
        return []
    return [savepoints for savepoints, *_ in connection.run_on_commit if not savepoints]
