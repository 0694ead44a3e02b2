"""An SQLite file that others touch: values of other types than their columns have, and a file that was replaced.

SQLite keeps whatever somebody wrote into a column by hand, of any type, and as text also what cannot be decoded.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple
from weakref import WeakKeyDictionary

from django.apps import apps
from django.db import OperationalError, models
from django.db.backends.signals import connection_created

from djqueue.utils import tell

logger = logging.getLogger(__name__)

MEND_EVERY = 1.0
"""Seconds between two times that one database is looked through, at least: it is read from end to end."""
IS_TEXT = "djqueue_is_text"
KINDS = {
    models.IntegerField: ("typeof({0}) NOT IN ('integer', 'null')", "CAST({0} AS INTEGER)"),
    models.BinaryField: ("typeof({0}) NOT IN ('blob', 'null')", "CAST({0} AS BLOB)"),
    models.Field: (f"typeof({{0}}) NOT IN ('text', 'null') OR NOT {IS_TEXT}(CAST({{0}} AS BLOB))", "hex({0})"),
}
"""Which values of a column are odd, and what becomes of one: the number that it begins with, or 0; the bytes that it is
written with."""

_looked: dict[str, float] = {}
"""When each database was looked through, by its alias (monotonic)."""


def put_types_right(connection) -> int:
    """Give every value in the tables the type of its column; how many rows had one of another type."""
    if time.monotonic() - _looked.get(connection.alias, -inf) < MEND_EVERY:
        return 0
    _looked[connection.alias] = time.monotonic()
    with connection.cursor() as cursor:
        connection.connection.create_function(IS_TEXT, 1, _is_text, deterministic=True)
        mended = sum(_mend(cursor, model) for model in apps.get_app_config("djqueue").get_models())
    if mended:
        text = "The database %r had values of other types than their columns in %d rows; they were put right"
        tell(logger, logging.ERROR, text, connection.alias, mended)
    return mended


def is_undecodable(error: Exception) -> bool:
    """Whether text that SQLite has is none."""
    return str(error).startswith("Could not decode to")


def _mend(cursor, model: type[models.Model]) -> int:
    odd, changes = [], []
    for field in model._meta.concrete_fields:
        is_odd, put_right = (part.format(field.column) for part in _kind_of(field))
        odd.append(is_odd)
        changes.append(f"{field.column} = CASE WHEN {is_odd} THEN {put_right} ELSE {field.column} END")
    cursor.execute(f"UPDATE {model._meta.db_table} SET {', '.join(changes)} WHERE {' OR '.join(odd)}")
    return cursor.rowcount


def _kind_of(field: models.Field) -> tuple[str, str]:
    return next(kind for base, kind in KINDS.items() if isinstance(field, base))


def _is_text(written: bytes | None) -> bool:
    try:
        (written or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


# ---- A file that was replaced, by a restore say: a connection to the old one reads what nobody writes any more

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


connection_created.connect(_created, dispatch_uid="djqueue.backends.database.sqlite_file")
