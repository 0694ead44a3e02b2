"""Statements that PostgreSQL parses and plans once for a connection: that takes it longer than to run them.

They are prepared and run by the protocol, past Django's cursor, which would cost as much as the server: by psycopg 3,
without a transaction, and where no statements are wrapped or logged and no cursors are replaced. Tools that patch the
classes of Django's cursors do not see them. A pooler of transactions may give each transaction another session, and a
prepared statement belongs to one. Where one is not found, its database has none from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import is_psycopg3

from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.dialect import NAMED, Dialect, codes

if is_psycopg3:
    from django.db.backends.postgresql.base import Cursor, ServerBindingCursor
    from psycopg import Connection, errors, generators
    from psycopg.adapt import Transformer
    from psycopg.pq import ExecStatus

PREPARED_AFTER = 5
"""How often a connection runs a statement before it prepares it, which is a round trip: one of a web request may never
do."""
MOST_PREPARED = 16
"""The most statements that a connection prepares: the largest take 1.4 MB each of the server's memory."""
LOST = {"26000", "0A000"}
"""What PostgreSQL says of a statement that is not prepared in this session, or whose table has changed."""
TYPE_OF = {
    **dict(zip(text.ARRIVING.split(", "), text.ARRIVING_TYPES, strict=True)),
    "queue": "text",
    "lease": "bigint",
    "token": "bigint",
    "owner": "text",
    "ahead": "int",
    "laned_last": "int",
}
"""The types of parameters."""


class Type(NamedTuple):
    """How a parameter of a type is sent."""

    oid: int
    is_binary: int
    """1: as its bytes. A text as a text would end at its first NUL, without an error."""
    encode: Callable[[Any], bytes]


SENT = {
    "text": Type(25, 1, str.encode),
    "bytea": Type(17, 1, bytes),
    "int": Type(23, 0, b"%d".__mod__),
    "bigint": Type(20, 0, b"%d".__mod__),
}

_runs: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
"""By connection of the driver: how often it ran each statement, and once more for having prepared it."""
_without: set[str] = set()
"""The aliases of databases where a prepared statement was not found."""


class Prepared(NamedTuple):
    """A statement as it is prepared, and how its parameters are sent."""

    name: bytes
    sql: bytes
    parameters: Sequence[tuple[str, Callable[[Any], bytes]]]
    """Their names, in order, with what makes bytes of their values."""
    formats: Sequence[int]
    oids: Sequence[int]


@lru_cache(maxsize=64)
def prepared(sql: str) -> Prepared:
    """From a statement with named parameters."""
    names = list(dict.fromkeys(NAMED.findall(sql)))
    numbered = NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).replace("%%", "%").encode()
    types = [SENT[TYPE_OF[name]] for name in names]
    parameters = [(name, type.encode) for name, type in zip(names, types, strict=True)]
    name = f"djqueue_{sha256(numbered).hexdigest()[:16]}".encode()
    return Prepared(name, numbered, parameters, [type.is_binary for type in types], [type.oid for type in types])


def rows_of(session: Dialect, sql: str, params: dict[str, object], is_text: bool) -> list[tuple]:
    """The rows of a filled statement that connections run often. ``is_text``: all of its columns are texts."""
    connection = session.connection
    if session.joined or connection.alias in _without or not _may_be_passed(connection):
        return session.fetch(sql, params)
    connection.validate_thread_sharing()
    runs = _runs.setdefault(connection.connection, {})
    count = runs.get(sql, 0)
    if count < PREPARED_AFTER:
        if count or _has_place(runs):
            runs[sql] = count + 1
        return session.fetch(sql, params)
    statement = prepared(sql)
    try:
        with connection.wrap_database_errors, connection.connection.lock:
            if count == PREPARED_AFTER:
                _prepare(connection.connection, statement)
                runs[sql] = count + 1
            result = _execute(connection.connection, statement, params)
            return _texts(result) if is_text else _loaded(connection.connection, result)
    except DatabaseError as error:
        if LOST.isdisjoint(codes(error)):
            raise
    _without.add(connection.alias)
    return session.fetch(sql, params)


def _has_place(runs: dict[str, int]) -> bool:
    """Whether another statement may be counted, once those that are not prepared are forgotten if there are many."""
    if len(runs) >= MOST_PREPARED:
        for sql in [sql for sql, count in runs.items() if count <= PREPARED_AFTER]:
            del runs[sql]
    return len(runs) < MOST_PREPARED


def _may_be_passed(connection: Any) -> bool:
    """Whether each statement of a connection may be sent past its cursor: no wrapper, no log, no cursor of its own.

    Tools replace ``cursor()`` of a connection; tests of Django that are without a database do so as well.
    """
    raw = connection.connection
    return (
        is_psycopg3
        and type(raw) is Connection
        and raw.cursor_factory in (Cursor, ServerBindingCursor)
        and not raw.pgconn.pipeline_status
        and getattr(connection.cursor, "__func__", None) is BaseDatabaseWrapper.cursor
        and not connection.execute_wrappers
        and not connection.queries_logged
    )


def _prepare(raw: Any, statement: Prepared) -> None:
    raw.pgconn.send_prepare(statement.name, statement.sql, statement.oids)
    try:
        _answer(raw)
    except errors.DuplicatePreparedStatement:  # as its name is made of its text, it is the same
        pass


def _execute(raw: Any, statement: Prepared, params: dict[str, object]) -> Any:
    values = [encode(params[name]) for name, encode in statement.parameters]
    raw.pgconn.send_query_prepared(statement.name, values, statement.formats)
    return _answer(raw)


def _loaded(raw: Any, result: Any) -> list[tuple]:
    """The rows, as a cursor of this connection would make them."""
    transformer = Transformer(raw)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


def _texts(result: Any) -> list[tuple]:
    columns = range(result.nfields)
    return [tuple(result.get_value(row, column).decode() for column in columns) for row in range(result.ntuples)]


def _answer(raw: Any) -> Any:
    """Interrupted by a signal as any statement of psycopg is."""
    results = raw.wait(generators.execute(raw.pgconn))
    if not results:
        raise errors.InternalError("there is no answer to a statement")
    result = results[-1]
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result)
    return result
