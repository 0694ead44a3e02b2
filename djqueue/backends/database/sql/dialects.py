"""Every statement of the database backend, a module per vendor over what they have in common.

A dialect speaks in rows, integers and microseconds; :mod:`djqueue.backends.database.rows` turns them into entries.
"""

from __future__ import annotations

from djqueue.backends.database.sql.mariadb import MariaDB
from djqueue.backends.database.sql.messages import Dialect
from djqueue.backends.database.sql.postgresql import PostgreSQL
from djqueue.backends.database.sql.sqlite import SQLite
from djqueue.exceptions import NotSupported

__all__ = ["DIALECTS", "Dialect", "dialect_of"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect() for dialect in (PostgreSQL, SQLite, MariaDB)}
"""One of each; they hold no state."""


def dialect_of(connection) -> Dialect:
    """The dialect of a Django connection; connects if the vendor alone does not tell. Raises NotSupported."""
    name = connection.vendor
    if name == "mysql" and connection.mysql_is_mariadb:
        name = "mariadb"
    if name not in DIALECTS:
        raise NotSupported(
            f"The database {connection.alias!r} is {name}; a queue can be on: {', '.join(sorted(DIALECTS))}."
        )
    return DIALECTS[name]
