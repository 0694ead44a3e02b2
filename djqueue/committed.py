"""What is done when a transaction commits, even if a callback of somebody else raises before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper


class OnceCommitted:
    """A call that waits for a commit, and is made once, whoever makes it."""

    def __init__(self, func: Callable[..., object], *args: Any):
        self.func, self.args, self._made = func, args, False

    def __call__(self) -> None:
        if not self._made:
            self._made = True
            self.func(*self.args)


def when_committed(alias: str, func: Callable[..., object], *args: Any) -> None:
    """Call this when the open transaction of a database commits; never, if it is rolled back.

    Django drops all callbacks behind one that raises. The transaction has committed nevertheless, so these are called
    before that exception goes on to who left the transaction.
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
