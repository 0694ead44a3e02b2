"""The types of the values in SQLite: a column keeps whatever somebody wrote into it by hand, of any type, and as text
also what cannot be decoded."""

from __future__ import annotations

import logging
import time
from math import inf

from django.apps import apps
from django.db import models

from djqueue.utils import tell

logger = logging.getLogger(__name__)

EVERY = 1.0
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
    if time.monotonic() - _looked.get(connection.alias, -inf) < EVERY:
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
