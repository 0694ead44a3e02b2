"""Running a verb on the thread's connection to a database: again after a deadlock, never twice on a dead one.

An SQLite file may be changed by other programs, with text that cannot be decoded, and it may be replaced, for example
by a restore.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import closing
from functools import cached_property, partial
from math import ceil
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connections
from django.db.backends.signals import connection_created

from djqueue.backends.database.silence import asking
from djqueue.backends.database.sql.dialect import Dialect, codes, joined
from djqueue.backends.database.sql.mariadb import MariaDB
from djqueue.backends.database.sql.postgresql import PostgreSQL
from djqueue.backends.database.sql.sqlite import SQLite
from djqueue.backends.deadlines import at_end, current, is_over
from djqueue.exceptions import NotSupported, StoreError, StoreUnreachable, TablesMissing
from djqueue.messages.failures import release
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

T = TypeVar("T")

# ---- Text that cannot be decoded: SQLite keeps as text whatever bytes are cast to it


decoded = methodcaller("decode", "utf-8", "replace")


def replacing(verb: Callable[..., T], dialect: Dialect, args: tuple) -> T:
    """``verb(dialect, …)``, with some characters of text that cannot be decoded replaced, on a connection of SQLite.

    So it is read like any other, and costs at most its own message.
    """
    raw = dialect.connection.connection
    usual, raw.text_factory = raw.text_factory, decoded
    try:
        return verb(dialect, *args)
    finally:
        raw.text_factory = usual


# ---- A file that was replaced, for example by a restore: a connection to the old file reads stale data


File = tuple[int, int]
EVERY = 0.01
"""s: how often the file of a connection is looked at, at most. Looking is 8 % of a call that puts one message."""


class Opened(NamedTuple):
    """The connection of the driver that a connection of Django has, and its file when it was opened."""

    raw: object
    file: File
    look_at: float
    """When the file is to be looked at again (monotonic)."""


_opened: WeakKeyDictionary[Any, Opened] = WeakKeyDictionary()
"""By the connection of Django."""


def leave_replaced(connection: Any) -> None:
    """Close a connection whose file was replaced, so that the next statement opens the new file.

    Raises OperationalError if a transaction of the caller is open: what it wrote is in the old file.
    """
    raw, opened = connection.connection, _opened.get(connection)
    if opened is not None and opened.raw is not raw:
        opened = None
    is_fresh = opened is not None and time.monotonic() < opened.look_at
    if raw is None or is_fresh or (file := _file_of(connection)) is None:
        return
    if opened is None or file == opened.file:
        _note(connection, file)
        return
    text = "The file of the database %r was replaced; this connection is opened again"
    log_safely(logger, logging.WARNING, text, connection.alias)
    is_joined = joined(connection)
    connection.close()  # of a transaction: it is rolled back, and closed at its end
    if is_joined:
        raise OperationalError(
            f"The file of the database {connection.alias!r} was replaced: begin the transaction again"
        )


def _note(connection: Any, file: File) -> None:
    _opened[connection] = Opened(connection.connection, file, time.monotonic() + EVERY)


def _file_of(connection: Any) -> File | None:
    """None: in memory, or not there at this moment."""
    name = str(connection.settings_dict["NAME"])
    if not name or name.startswith((":memory:", "file:")):
        return None
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _created(connection: Any, **kwargs: Any) -> None:
    if connection.vendor == "sqlite" and (file := _file_of(connection)) is not None:
        _note(connection, file)


connection_created.connect(_created, dispatch_uid="djqueue.backends.database.session")


# ---- Running a verb

PAUSES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.8)
"""Upper bounds of the pauses, in seconds, after which a statement that met a deadlock is tried again."""

PASSING = {"40P01", "40001", 1213, 1205, "database is locked", "database table is locked"}
"""What deadlocks and lock timeouts are called by PostgreSQL, MariaDB and SQLite."""


NO_SUCH_TABLE = {"42P01", 1146}
"""What PostgreSQL and MariaDB call a table that is not there."""

DIALECTS: dict[str, type[Dialect]] = {dialect.name: dialect for dialect in (PostgreSQL, SQLite, MariaDB)}


class DatabaseUnreachable(StoreUnreachable, OperationalError):
    """No connection with a database can be opened."""


class Database:
    """The database of one queue, on the connection of the thread; ``notifies``: whether a put wakes who listens."""

    def __init__(self, alias: str, queue: str, notifies: bool = False):
        self.alias, self.queue, self.notifies = alias, queue, notifies

    @cached_property
    def sql(self) -> type[Dialect]:
        """The statements of its vendor. Looked up late, as that may connect."""
        return dialect_of(connections[self.alias])

    def run(self, verb: Callable[..., T], *args: Any) -> T:
        """``verb(session, …)``, repeated after a deadlock unless the transaction is the caller's: that must see it.

        After other failures the connection is closed, under the same condition, so that the next call finds a new one.
        """
        connection = connections[self.alias]
        if connection.vendor == "sqlite":
            leave_replaced(connection)
        began = time.monotonic()
        for pause in PAUSES:
            try:
                return self._once(connection, verb, args)
            except OperationalError as error:
                if joined(connection) or not passing(error) or is_over(time.monotonic() - began + pause):
                    raise
                log_safely(logger, logging.DEBUG, "database %s: %s; trying again", self.alias, error)
            time.sleep(pause * random.uniform(0.3, 1))
        return self._once(connection, verb, args)

    def _once(self, connection: Any, verb: Callable[..., T], args: tuple) -> T:
        try:
            if connection.health_check_enabled:
                connection.close_if_health_check_failed()
            if (seconds := current.seconds) is not None:
                self._keep_deadline(connection, seconds)
            connection.ensure_connection()
            session = self.sql(connection, self.queue, self.notifies)
            try:
                if connection.vendor == "sqlite":
                    return replacing(verb, session, args)
                if (pending := asking(connection.alias, connection.connection)) is None:
                    return verb(session, *args)
                with pending:
                    return verb(session, *args)
            finally:
                session.close()
        except (OperationalError, InterfaceError, ProgrammingError) as error:
            told = in_our_words(connection, error)
            # A cursor that another thread frees waits for this connection, which may wait for that thread.
            release([error])
            if not (joined(connection) or passing(error) or isinstance(error, ProgrammingError)):
                connection.close()
            if told is None:
                raise
            raise told from None

    def _keep_deadline(self, connection: Any, seconds: float) -> None:
        """Have the server cut statements of a connection at the deadline of this thread; in no transaction of a caller.

        A connection that it cuts is in no pool, and closed at the end of the deadline: others must not get it.
        """
        bounded = _bounded.get(connection)
        if joined(connection) or (bounded and (bounded.raw, bounded.seconds) == (connection.connection, seconds)):
            return
        if bounded is None or bounded.seconds != seconds:
            leave_deadline(connection)
            at_end(partial(leave_deadline, connection))
            bounded = Bounded(None, seconds, connection.settings_dict)
        options = in_time(bounded.settings["OPTIONS"], connection.vendor, seconds)
        _bounded[connection] = bounded
        connection.settings_dict = bounded.settings | {"OPTIONS": options}
        connection.ensure_connection()
        with closing(self.sql(connection, self.queue)) as session:
            session.keep_deadline(seconds)
        _bounded[connection] = bounded._replace(raw=connection.connection)


class Bounded(NamedTuple):
    """What a connection of Django has while its thread has a deadline."""

    raw: object
    seconds: float
    settings: dict
    """Its settings before."""


_bounded: WeakKeyDictionary[Any, Bounded] = WeakKeyDictionary()
"""By the connection of Django."""


def leave_deadline(connection: Any) -> None:
    """Close a connection before a deadline begins or ends; the next one is as the settings say."""
    if not joined(connection):
        connection.close()
    if (bounded := _bounded.pop(connection, None)) is not None:
        connection.settings_dict = bounded.settings


SHORTEST_CONNECT = 2
"""Seconds for opening a connection that a driver can count, at least."""


def in_time(options: dict, vendor: str, seconds: float) -> dict:
    """The options of a database, for a connection of one thread that is opened within some seconds."""
    if vendor == "sqlite":
        return options
    own = {name: value for name, value in options.items() if name != "pool"}
    return {"connect_timeout": max(SHORTEST_CONNECT, ceil(seconds))} | own


def dialect_of(connection: Any) -> type[Dialect]:
    """The dialect of a Django connection; connects if the vendor alone does not determine it. Raises NotSupported."""
    name = connection.vendor
    if name == "mysql" and connection.mysql_is_mariadb:
        name = "mariadb"
    if name not in DIALECTS:
        known = ", ".join(sorted(DIALECTS))
        raise NotSupported(f"The database {connection.alias!r} is {name}; a queue can be on: {known}.")
    return DIALECTS[name]


def in_our_words(connection: Any, error: DatabaseError | InterfaceError) -> StoreError | None:
    """The error of a statement as one of ours, if its cause is known; asked before the connection is closed."""
    alias = connection.alias
    if passing(error):
        return None
    if connection.connection is None and isinstance(error, OperationalError):
        why = str(error).strip().partition("\n")[0].rstrip(".")
        fix = "Correct NAME" if connection.vendor == "sqlite" else "Start its server, or correct it"
        text = f"The database {alias!r} cannot be reached: {why}. {fix} in DATABASES."
        return DatabaseUnreachable(text)
    is_missing = str(error).startswith("no such table") or not NO_SUCH_TABLE.isdisjoint(codes(error))
    if not is_missing or not re.search(r"\bdjqueue_[a-z]+\b(?!\.)", str(error)):
        return None
    database = "" if alias == "default" else f" --database {alias}"
    return TablesMissing(f"The tables of djqueue are missing in database {alias!r}: run manage.py migrate{database}.")


def passing(error: Exception) -> bool:
    """Whether this is a deadlock or a lock timeout, after which the same statement may well succeed."""
    return not PASSING.isdisjoint(codes(error))
