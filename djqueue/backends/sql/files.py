"""The file of an SQLite database: a connection to one that was replaced, by a restore say, reads what nobody writes."""

from __future__ import annotations

import logging
import os
from weakref import WeakKeyDictionary

from django.db.backends.signals import connection_created

from djqueue.logs import tell

logger = logging.getLogger(__name__)

File = tuple[int, int]

_opened: WeakKeyDictionary = WeakKeyDictionary()
"""Of each Django connection the one to the database, and what its file was when that was opened."""


def leave_replaced(connection) -> None:
    """Close a connection whose file is another one now, so that the next statement opens that."""
    raw = connection.connection
    if raw is None or (now := _file_of(connection)) is None:
        return
    seen, was = _opened.get(connection, (None, None))
    if seen is not raw:
        _opened[connection] = raw, now
    elif now != was:
        text = "The file of the database %r was replaced; this connection is opened anew"
        tell(logger, logging.WARNING, text, connection.alias)
        connection.close()


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


def _note(connection, **kwargs) -> None:
    if connection.vendor == "sqlite" and (file := _file_of(connection)) is not None:
        _opened[connection] = connection.connection, file


connection_created.connect(_note, dispatch_uid="djqueue.backends.sql.files")
