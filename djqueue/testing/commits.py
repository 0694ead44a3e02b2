"""The transaction of a test: what waits for a commit that never comes, and how commands run within it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from unittest import mock

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry
from djqueue.enqueueing.producer import OnceCommitted, _put_or_report, _signal

logger = logging.getLogger(__name__)


def refuse_eager() -> None:
    """Raises RuntimeError if calls are run where they are made: a test would see an empty queue, and believe it."""
    if conf.get("QUEUE_ALWAYS_EAGER"):
        raise RuntimeError(
            "QUEUE_ALWAYS_EAGER is on: every call runs where it is made, and nothing ever waits in a queue. "
            "Turn it off here: @override_settings(QUEUE_ALWAYS_EAGER=False), or memory_queues()."
        )


def commit() -> None:
    """Run what the transaction of a TestCase keeps for its commit, once and in order, and at once what that registers.

    Not while the test itself has an ``atomic()`` block open: that may still be rolled back. Nor what ``setUpTestData``
    left, which belongs to no test.
    """
    for connection in connections.all(initialized_only=True):
        if _is_the_tests(connection):
            run_registered(connection, _of_the_class(connection))


def send() -> None:
    """Send what waits for the commit of a TestCase, under the same conditions; all other callbacks stay."""
    for connection in connections.all(initialized_only=True):
        if _is_the_tests(connection):
            others = [savepoints for savepoints, callback, _ in connection.run_on_commit if not _sends(callback)]
            run_registered(connection, [*_of_the_class(connection), *others])


def pending() -> Iterator[tuple[BaseQueue, Entry]]:
    """What is to be sent when a transaction commits, in the order of the calls, database by database."""
    for callback in _waiting():
        if _sends(callback):
            queue, parcels = callback.args
            yield from ((queue, parcel.entry) for parcel in parcels)


def others_waiting() -> int:
    """How many callbacks wait for the commit that are not djqueue's."""
    return sum(getattr(callback, "func", None) not in (_put_or_report, _signal) for callback in _waiting())


def _waiting() -> Iterator[Callable]:
    for connection in connections.all(initialized_only=True):
        for _, callback, _ in registered(connection, _of_the_class(connection)):
            yield callback


def _sends(callback: Callable) -> bool:
    return isinstance(callback, OnceCommitted) and callback.func is _put_or_report


Savepoints = list[set]
"""Of callbacks: the savepoints they stand in, each set an object of its own that says which callback it is.

Django makes its list anew when a savepoint is rolled back, and the callback itself may be registered twice.
"""


def registered(connection: BaseDatabaseWrapper, before: Savepoints) -> list[tuple]:
    """The on_commit callbacks that wait, without those that did ``before``."""
    return [one for one in connection.run_on_commit if not any(one[0] is old for old in before)]


def run_registered(connection: BaseDatabaseWrapper, before: Savepoints) -> None:
    """Run them, and at once those that they register, as after a commit. What one raises is raised, unless it was
    registered as robust."""
    while waiting := registered(connection, before):
        savepoints, callback, robust = waiting[0]
        connection.run_on_commit = [one for one in connection.run_on_commit if one[0] is not savepoints]
        others = [one[0] for one in connection.run_on_commit]
        _run(callback, robust)
        run_registered(connection, others)


@contextmanager
def one_command() -> Iterator[None]:
    """Around the run of a command within the transaction of a test, which it can neither break nor close.

    Where it has broken the transaction, by an error of the database, all that it did there is undone.
    """
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(mock.patch.object(connection, "close", _stay_open))
                stack.enter_context(_savepoint(connection.alias))
        yield


@contextmanager
def _savepoint(alias: str) -> Iterator[None]:
    atomic = transaction.atomic(alias)
    atomic._from_testcase = True  # like those around it, so that a durable block may stand in it
    atomic.__enter__()
    try:
        yield
    finally:
        with suppress(DatabaseError):  # of PostgreSQL, as the transaction was broken; it is whole again
            atomic.__exit__(None, None, None)


def _stay_open() -> None:
    """A worker's connection may be closed at any time; this one holds the transaction of the test."""


def _run(callback: Callable[[], object], robust: bool) -> None:
    try:
        callback()
    except Exception:
        if not robust:
            raise
        logger.exception("An on_commit callback failed")


def _is_the_tests(connection: BaseDatabaseWrapper) -> bool:
    """Whether the only transaction that is open is that of the TestCase."""
    blocks = connection.atomic_blocks
    return bool(blocks) and all(block._from_testcase for block in blocks)


def _of_the_class(connection: BaseDatabaseWrapper) -> Savepoints:
    """What was registered before the savepoint of the test, if there is one: pytest-django has a transaction alone."""
    if sum(block._from_testcase for block in connection.atomic_blocks) < 2:
        return []
    return [savepoints for savepoints, *_ in connection.run_on_commit if not savepoints]
