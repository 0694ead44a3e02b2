"""Running the statements of one verb on the thread's connection: again after a deadlock, never twice on a dead one."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, OperationalError, connections, transaction

from djqueue.backends.database.sqlite_file import is_undecodable, leave_replaced, put_types_right
from djqueue.messages.failures import release
from djqueue.utils import tell

log = logging.getLogger(__name__)

PAUSES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.8)
"""Upper bounds of the pauses, in seconds, after which a statement that met a deadlock is tried again."""

PASSING = {"40P01", "40001", 1213, 1205, "database is locked", "database table is locked"}
"""What deadlocks and lock timeouts are called by PostgreSQL, MariaDB and SQLite."""


class Session:
    """A cursor for the statements of one verb. In them NOW stands for the database's clock, in µs since 1970."""

    __slots__ = ("connection", "cursor", "now")

    def __init__(self, connection, cursor, now: str):
        self.connection, self.cursor, self.now = connection, cursor, now

    def rows(self, sql: str, params: Any = ()) -> list[tuple]:
        """Every row of a statement that returns rows."""
        self.cursor.execute(sql.replace("NOW", self.now), params)
        return self.cursor.fetchall()

    def count(self, sql: str, params: Any = ()) -> int:
        """How many rows a statement changed."""
        self.cursor.execute(sql.replace("NOW", self.now), params)
        return self.cursor.rowcount

    @property
    def joined(self) -> bool:
        """Whether a transaction of the caller is open, or any statement would open one."""
        return joined(self.connection)

    def atomic(self, savepoint: bool = False):
        """A transaction, or the caller's."""
        return transaction.atomic(using=self.connection.alias, savepoint=savepoint)


def joined(connection) -> bool:
    """Whether a transaction of the caller is open on a connection, or any statement would open one."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def run(alias: str, now: str, work: Callable, *args) -> Any:
    """``work(session, *args)``, repeated after a deadlock unless the transaction is the caller's: that must see it.

    After any other failure the connection is closed, under the same condition, so that the next call finds a new one.
    """
    connection = connections[alias]
    if connection.vendor == "sqlite":
        leave_replaced(connection, joined)
    for pause in PAUSES:
        try:
            return _once(connection, now, work, args)
        except OperationalError as error:
            if joined(connection) or not passing(error):
                raise
            tell(log, logging.DEBUG, "database %s: %s; trying again", alias, error)
        time.sleep(pause * random.uniform(0.3, 1))
    return _once(connection, now, work, args)


def _once(connection, now: str, work: Callable, args: tuple) -> Any:
    try:
        with connection.cursor() as cursor:
            return work(Session(connection, cursor, now), *args)
    except (OperationalError, InterfaceError) as error:
        release([error])  # a cursor that another thread frees waits for this connection, which may wait for that thread
        if not (joined(connection) or passing(error)):
            if is_undecodable(error):  # not repeated, as what could not be read may have been changed
                put_types_right(connection)
            connection.close()
        raise
    except (TypeError, ValueError, AttributeError):
        if connection.vendor != "sqlite" or joined(connection) or not put_types_right(connection):
            raise
        return _once(connection, now, work, args)


def passing(error: Exception) -> bool:
    """Whether this is a deadlock or a lock timeout, after which the same statement may well succeed."""
    cause = error.__cause__ or error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return not PASSING.isdisjoint((code, *cause.args[:1]))
