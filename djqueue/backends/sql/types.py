"""The types of the values in SQLite: a column keeps whatever somebody wrote into it by hand, of any type."""

from __future__ import annotations

import logging
import time
from math import inf

from django.apps import apps
from django.db import models

from djqueue.logs import tell

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two times that one database is looked through, at least: it is read from end to end."""
KINDS = {models.IntegerField: ("integer", "CAST({0} AS INTEGER)"), models.BinaryField: ("blob", "CAST({0} AS BLOB)")}
TEXT = ("text", "hex({0})")
"""What a value of another type becomes: a number that it may begin with, or 0; the bytes that it is written with."""

_looked: dict[str, float] = {}
"""When each database was looked through, by its alias (monotonic)."""


def put_types_right(connection) -> int:
    """Give every value in the tables the type of its column; how many rows had one of another type."""
    if time.monotonic() - _looked.get(connection.alias, -inf) < EVERY:
        return 0
    _looked[connection.alias] = time.monotonic()
    with connection.cursor() as cursor:
        mended = sum(_mend(cursor, model) for model in apps.get_app_config("djqueue").get_models())
    if mended:
        text = "The database %r had values of other types than their columns in %d rows; they were put right"
        tell(logger, logging.ERROR, text, connection.alias, mended)
    return mended


def _mend(cursor, model: type[models.Model]) -> int:
    kinds = {field.column: _kind_of(field) for field in model._meta.concrete_fields}
    odd = {column: f"typeof({column}) NOT IN ('{kind}', 'null')" for column, (kind, _) in kinds.items()}
    changes = (
        f"{name} = CASE WHEN {odd[name]} THEN {to.format(name)} ELSE {name} END" for name, (_, to) in kinds.items()
    )
    cursor.execute(f"UPDATE {model._meta.db_table} SET {', '.join(changes)} WHERE {' OR '.join(odd.values())}")
    return cursor.rowcount


def _kind_of(field: models.Field) -> tuple[str, str]:
    return next((kind for base, kind in KINDS.items() if isinstance(field, base)), TEXT)
