"""Django's database connections in a consumer: checked around commands, and left by the children that these fork."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from djqueue.utils import descriptor_of, log_safely

logger = logging.getLogger(__name__)

BEGUN_BY_HAND: dict[str, Callable[[Any], bool]] = {
    "postgresql": lambda link: link.info.transaction_status != 0,
    "sqlite": lambda link: link.in_transaction,
}
"""Whether there is a transaction that Django does not know of, by vendor; the driver of MySQL does not say it."""


class _Opened(threading.local):
    """The connections that the calling thread has opened, as long as they are open."""

    def __init__(self) -> None:
        self.here: set[BaseDatabaseWrapper] = set()


_opened = _Opened()
_opened_anywhere: WeakSet[BaseDatabaseWrapper] = WeakSet()
_left: list[Any] = []
"""Connections of drivers that a child has left: nothing must be sent to their servers."""


def follow_connections() -> None:
    """Know, from now on, which connections are open, so that they are checked, and are left by forked children.

    Calling it again changes nothing.
    """
    connection_created.connect(_note, dispatch_uid=__name__)


def _note(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    _opened.here.add(connection)
    _opened_anywhere.add(connection)


# ---- Around commands


def check_connections() -> None:
    """Close connections of this thread that are broken or too old, around commands, as Django does around requests.

    A connection that a command left in an open transaction is closed too.
    """
    if not _opened.here:
        return
    for connection in list(_opened.here):
        try:
            _mend(connection)
        except Exception:
            log_safely(logger, logging.WARNING, "A database connection is broken, and is replaced", exc_info=True)
            with suppress(Exception):
                connection.close()
        if connection.connection is None:
            _opened.here.discard(connection)


def _mend(connection: BaseDatabaseWrapper) -> None:
    if connection.in_atomic_block:
        drop(connection)
        _opened.here.discard(connection)
    else:
        connection.close_if_unusable_or_obsolete()
        is_begun = BEGUN_BY_HAND.get(connection.vendor)
        if is_begun is not None and connection.connection is not None and is_begun(connection.connection):
            connection.close()


def drop(connection: BaseDatabaseWrapper) -> None:
    """Close a connection of this thread. Django would hold one that was closed within atomic() to be broken."""
    is_left = connection.in_atomic_block
    connection.close()
    if is_left:
        del connections[connection.alias]


# ---- In children that a command forks. A server sees that a client is gone when no process has its socket: a child
#      that outlives a killed consumer would keep its transactions and locks


def _leave_all() -> None:
    opened = list(_opened_anywhere)
    ours = connections.all(initialized_only=True) if opened else []  # before any is, there may be no settings
    for connection in opened:
        if (descriptor := descriptor_of(connection.connection)) is not None:
            _left.append(connection.connection)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            if connection in ours:
                del connections[connection.alias]  # the next statement of the child opens one of its own


os.register_at_fork(after_in_child=_leave_all)
