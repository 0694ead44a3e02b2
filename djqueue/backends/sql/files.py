"""The file of an SQLite database: a connection to one that was replaced, by a restore say, reads what nobody writes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from django.db import OperationalError
from django.db.backends.signals import connection_created

from djqueue.utils import tell

logger = logging.getLogger(__name__)

File = tuple[int, int]
EVERY = 0.01
"""s: how often the file of a connection is looked at, at most. Looking is 8 % of a call that puts one message."""


class Opened(NamedTuple):
    """The connection of the driver that a connection of Django has, and its file when it was opened."""

    raw: object
    file: File
    look_at: float
    """When the file is to be looked at again (monotonic)."""


_opened: WeakKeyDictionary = WeakKeyDictionary()
"""By the connection of Django."""


def leave_replaced(connection, joined: Callable[..., bool]) -> None:
    """Close a connection whose file is another one now, so that the next statement opens that.

    Raises OperationalError if a transaction of the caller is open (``joined``): what it wrote is in the old file.
    """
    raw, opened = connection.connection, _opened.get(connection)
    known = opened is not None and opened.raw is raw
    if raw is None or (known and time.monotonic() < opened.look_at) or (file := _file_of(connection)) is None:
        return
    if not known or file == opened.file:
        _note(connection, file)
    else:
        text = "The file of the database %r was replaced; this connection is opened anew"
        tell(logger, logging.WARNING, text, connection.alias)
        is_joined = joined(connection)
        connection.close()  # of a transaction: it is rolled back, and closed at its end
        if is_joined:
            raise OperationalError(
                f"The file of the database {connection.alias!r} was replaced: begin the transaction anew"
            )


def _note(connection, file: File) -> None:
    _opened[connection] = Opened(connection.connection, file, time.monotonic() + EVERY)


def _file_of(connection) -> File | None:
    """None: in memory, or not there at this moment."""
    name = str(connection.settings_dict["NAME"])
    if not name or name.startswith((":memory:", "file:")):
        return None
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _created(connection, **kwargs) -> None:
    if connection.vendor == "sqlite" and (file := _file_of(connection)) is not None:
        _note(connection, file)


connection_created.connect(_created, dispatch_uid="djqueue.backends.sql.files")
