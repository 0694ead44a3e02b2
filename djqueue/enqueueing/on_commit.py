"""What waits for a commit: calls of djqueue, each made once, and all other callbacks of ``transaction.on_commit``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

Savepoints = list[set]
"""The savepoints of on_commit callbacks. Each is a set, and identifies its callback.

Django makes a new list when a savepoint is rolled back, and the same callback may be registered twice.
"""


class OnceCommitted:
    """A call that waits for a commit. It is made once, even if several callers try."""

    def __init__(self, func: Callable[..., object], *args: Any):
        self.func, self.args, self._made = func, args, False

    def __call__(self) -> None:
        if not self._made:
            self._made = True
            self.func(*self.args)


def when_committed(alias: str, func: Callable[..., object], *args: Any) -> None:
    """Call this when the open transaction of a database commits; never, if it is rolled back.

    Django drops all callbacks after one that raises. The transaction has committed nevertheless, so these are called
    before that exception reaches the code that left the transaction.
    """
    connection = transaction.get_connection(alias)
    if "run_and_clear_commit_hooks" not in vars(connection):
        connection.run_and_clear_commit_hooks = partial(_run_all, connection, connection.run_and_clear_commit_hooks)
    transaction.on_commit(OnceCommitted(func, *args), using=alias)


def _run_all(connection: BaseDatabaseWrapper, run: Callable[[], None]) -> None:
    connection.validate_no_atomic_block()
    ours = [callback for _, callback, *_ in connection.run_on_commit if isinstance(callback, OnceCommitted)]
    try:
        run()
    except BaseException:
        for call in ours:
            call()
        raise


# ---- For transactions that never commit, of tests and of rehearsals


def savepoints_of(connection: BaseDatabaseWrapper) -> Savepoints:
    """The savepoints of all callbacks that wait now."""
    return [savepoints for savepoints, *_ in connection.run_on_commit]


def registered(connection: BaseDatabaseWrapper, before: Savepoints) -> list[tuple]:
    """The on_commit callbacks that wait now, and did not ``before``."""
    return [one for one in connection.run_on_commit if not any(one[0] is old for old in before)]


def run_registered(connection: BaseDatabaseWrapper, before: Savepoints) -> None:
    """Run the callbacks, and at once those that they register, as after a commit.

    An exception is raised, unless its callback was registered as robust.
    """
    while waiting := registered(connection, before):
        savepoints, callback, robust = waiting[0]
        connection.run_on_commit = [one for one in connection.run_on_commit if one[0] is not savepoints]
        others = savepoints_of(connection)
        _run(callback, robust)
        run_registered(connection, others)


def _run(callback: Callable[[], object], robust: bool) -> None:
    try:
        callback()
    except Exception:
        if not robust:
            raise
        logger.exception("An on_commit callback failed")


def outermost(alias: str) -> transaction.Atomic:
    """An atomic block within which a durable block may be, as within the transaction of a TestCase."""
    block = transaction.atomic(using=alias)
    block._from_testcase = True
    return block
