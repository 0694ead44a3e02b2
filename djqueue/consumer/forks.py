"""The database connections of a consumer in a child that a command forks: it has none of them.

A server sees that a client is gone when nobody has its socket any more. A child that lives on after its consumer was
killed would keep the transactions of that open, and what they have locked.
"""

from __future__ import annotations

import os
from weakref import WeakSet

from django.db import connections
from django.db.backends.signals import connection_created

_opened: WeakSet = WeakSet()
"""Connections of Django, of all threads."""
_left: list = []
"""Connections of drivers that a child has left: nothing is to be told to their server."""


def leave_in_children() -> None:
    """Have children of this process, from now on, begin with no connection; calling it again changes nothing."""
    connection_created.connect(_note, dispatch_uid=__name__)


def _note(connection, **kwargs) -> None:
    _opened.add(connection)


def _leave_all() -> None:
    ours = connections.all(initialized_only=True)
    for connection in list(_opened):
        if (descriptor := _descriptor_of(connection.connection)) is not None:
            _left.append(connection.connection)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            if connection in ours:
                del connections[connection.alias]  # the next statement of the child opens one of its own


def _descriptor_of(raw: object) -> int | None:
    """Of the socket to a server; None of what is closed, and of SQLite, which has none."""
    fileno = getattr(raw, "fileno", None) or getattr(getattr(raw, "_sock", None), "fileno", None)
    try:
        return None if fileno is None or (number := fileno()) < 0 else number
    except Exception:  # each driver has its own for what is closed
        return None


os.register_at_fork(after_in_child=_leave_all)
