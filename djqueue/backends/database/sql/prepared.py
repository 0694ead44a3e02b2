"""Statements that PostgreSQL parses and plans once for a connection: that takes it longer than to run them.

They are prepared by SQL, as Django has psycopg prepare none: a pooler of transactions gives each transaction another
session, and a prepared statement belongs to one. Where one is not found, its database has none from then on.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import DatabaseError

from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.dialect import NAMED, Dialect, codes

PREPARED_AFTER = 5
"""How often a connection runs a statement before it prepares it, which is a round trip: one of a web request may never
do."""
EXISTS = "42P05"
"""What PostgreSQL says of a statement that is prepared already; as its name is made of its text, it is the same."""
LOST = {"26000", "0A000"}
"""What it says of a statement that is not prepared in this session, or whose table has changed."""
TYPES = ("text", "bytea", "int", "bigint", "bigint", "text", "text", "text", "int", "int", "int", "text", "bigint")
"""Of ARRIVING."""
TYPE_OF = {"queue": "text", **dict(zip(text.ARRIVING.split(", "), TYPES, strict=True))}
"""The types of parameters."""

_runs: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
"""By connection of the driver: how often it ran each statement, and once more for having prepared it."""
_without: set[str] = set()
"""The aliases of databases where a prepared statement was not found."""


class Prepared(NamedTuple):
    """A statement as it is prepared, and as it is run then."""

    prepare: str
    execute: str


@lru_cache(maxsize=64)
def prepared(sql: str) -> Prepared:
    """From a statement with named parameters."""
    names = list(dict.fromkeys(NAMED.findall(sql)))
    numbered = NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
    name, types = f"djqueue_{sha256(numbered.encode()).hexdigest()[:16]}", ", ".join(map(TYPE_OF.__getitem__, names))
    values = ", ".join(f"%({name})s" for name in names)
    return Prepared(f"PREPARE {name} ({types}) AS {numbered}", f"EXECUTE {name} ({values})")


def rows_of(session: Dialect, sql: str, params: dict[str, object]) -> list[tuple]:
    """The rows of a statement that connections run often.

    It is not prepared within the caller's transaction, which would be lost with it, nor where the server binds the
    parameters, as it takes none there.
    """
    connection = session.connection
    if session.joined or connection.alias in _without or connection.features.uses_server_side_binding:
        return session.rows(sql, params)
    runs = _runs.setdefault(connection.connection, {})
    count = runs.get(sql, 0)
    if count < PREPARED_AFTER:
        runs[sql] = count + 1
        return session.rows(sql, params)
    statement = prepared(sql)
    try:
        if count == PREPARED_AFTER:
            _prepare(session, statement)
            runs[sql] = count + 1
        return session.rows(statement.execute, params)
    except DatabaseError as error:
        if LOST.isdisjoint(codes(error)):
            raise
    _without.add(connection.alias)
    return session.rows(sql, params)


def _prepare(session: Dialect, statement: Prepared) -> None:
    try:
        session.count(statement.prepare, None)
    except DatabaseError as error:
        if EXISTS not in codes(error):
            raise
