"""The system checks of a database that holds queues."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, NotSupportedError, connections

from djqueue.backends.database.silence import VENDORS, is_pooled, tcp_options
from djqueue.exceptions import InvalidQueueError
from djqueue.models import QueueFact, QueueHistory, QueueLane, QueueMessage, QueueTicket
from djqueue.utils import seconds

FLOORS = {"postgresql": (14,), "mariadb": (10, 6), "sqlite": (3, 35)}
TABLES = QueueMessage, QueueLane, QueueTicket, QueueFact, QueueHistory
LACKING = "djqueue.W205"
PATIENCE = 20
"""Seconds that a writer on SQLite should wait for another one."""


def check(alias: str, in_use: bool = False) -> list[CheckMessage]:
    """Vendor, version, tables, and on SQLite its settings. Connects.

    If a database that is ``in_use`` lacks its tables, the settings can wait.
    """
    connection = connections[alias]
    try:
        with connection.cursor():
            return [*_server(connection, in_use)]
    except (DatabaseError, NotSupportedError, OSError) as error:
        hint = "Start the server, or correct DATABASES or the queue's CONNECTION."
        return [Error(f"The database {alias!r} of a queue cannot be used: {error}", hint=hint, id="djqueue.E201")]


def _server(connection: Any, in_use: bool = False) -> Iterator[CheckMessage]:
    name, (vendor, version) = f"The database {connection.alias!r}", _vendor(connection)
    if vendor not in FLOORS:
        hint = "Let CONNECTION name a database on PostgreSQL, MariaDB or SQLite."
        yield Error(f"{name} is {vendor}, which cannot hold a queue.", hint=hint, id="djqueue.E202")
        return
    if version < FLOORS[vendor]:
        hint = f"djqueue needs {vendor} {_dotted(FLOORS[vendor])} or later."
        yield Error(f"{name} is {vendor} {_dotted(version)}.", hint=hint, id="djqueue.E203")
    if not connection.settings_dict.get("AUTOCOMMIT", True):
        hint = "Remove AUTOCOMMIT from it, or let CONNECTION name another alias in DATABASES."
        yield Warning(f"{name} of a queue has AUTOCOMMIT off: djqueue cannot serve it.", hint=hint, id="djqueue.W206")
    lacking = [*_tables(connection)]
    yield from lacking
    if vendor == "sqlite" and not (in_use and lacking):
        yield from _sqlite(connection)


def _vendor(connection: Any) -> tuple[str, tuple[int, ...]]:
    """The name and version of the server. The latter of PostgreSQL is one number, such as 150018."""
    if connection.vendor == "postgresql":
        return "postgresql", (connection.pg_version // 10000,)
    if connection.vendor == "mysql":
        return ("mariadb" if connection.mysql_is_mariadb else "mysql"), connection.mysql_version
    if connection.vendor == "sqlite":
        return "sqlite", connection.Database.sqlite_version_info
    return connection.vendor, ()


def _tables(connection: Any) -> Iterator[CheckMessage]:
    there = connection.introspection.table_names()
    missing = [model._meta.db_table for model in TABLES if model._meta.db_table not in there]
    if missing:
        # A warning only: these checks also run before commands of other apps that want a database.
        database = "" if connection.alias == "default" else f" --database {connection.alias}"
        yield Warning(
            f"The database {connection.alias!r} of a queue lacks: {', '.join(missing)}.",
            hint=f"Run: manage.py migrate djqueue{database} (and see that DATABASE_ROUTERS allow it).",
            id=LACKING,
        )


def _sqlite(connection: Any) -> Iterator[CheckMessage]:
    """A queue has many writers, and SQLite's defaults are for one."""
    advice = "Put into OPTIONS of this database: "
    with connection.cursor() as cursor:
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    if mode not in ("wal", "memory"):
        hint = f'{advice}"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL".'
        message = f"SQLite database {connection.alias!r}: journal_mode is {mode}, not WAL."
        yield Warning(message, hint=hint, id="djqueue.W202")
    if (getattr(connection, "transaction_mode", None) or "").upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        hint = f'{advice}"transaction_mode": "IMMEDIATE". A transaction that reads before it writes may fail otherwise.'
        message = f"SQLite database {connection.alias!r}: transaction_mode is not IMMEDIATE."
        yield Warning(message, hint=hint, id="djqueue.W203")
    timeout = connection.settings_dict["OPTIONS"].get("timeout", 5)
    if timeout < PATIENCE:
        message = f"SQLite database {connection.alias!r}: a writer waits {timeout} seconds for another."
        yield Warning(message, hint=f'{advice}"timeout": {PATIENCE}.', id="djqueue.W204")


def known_notify(notify: object) -> bool | str | None:
    """The option NOTIFY of a queue. Raises InvalidQueueError."""
    if notify is None or isinstance(notify, bool) or isinstance(notify, str) and notify in connections:
        return notify
    known = ", ".join(sorted(connections))
    raise InvalidQueueError(f"OPTIONS['NOTIFY'] is {notify!r}: give True, False, or an alias in DATABASES: {known}.")


def check_notify(alias: str, notify: bool | str | None) -> Iterator[CheckMessage]:
    """The option NOTIFY, which only PostgreSQL has."""
    for name in {alias, notify} - {None, True, False} if notify else ():
        if (vendor := connections[name].vendor) != "postgresql":
            message = f"OPTIONS['NOTIFY'] of a queue needs PostgreSQL; the database {name!r} is {vendor}."
            yield Warning(message, hint="Remove it: the queue is polled.", id="djqueue.W207")


def known_timeout(timeout: object) -> float | None:
    """The option TIMEOUT of a queue. Raises InvalidQueueError."""
    try:
        return None if timeout is None else seconds(timeout, "OPTIONS['TIMEOUT']", least=1)
    except (TypeError, ValueError) as error:
        raise InvalidQueueError(f"{error}; None switches it off.") from None


def check_timeout(alias: str, timeout: float | None, is_given: bool) -> Iterator[CheckMessage]:
    """The option TIMEOUT, where dropped connections are noticed late or never. Connects if it was given."""
    connection = connections[alias]
    if timeout is None or connection.vendor not in VENDORS:
        if is_given and timeout is not None:
            message = f"OPTIONS['TIMEOUT'] of a queue means nothing: the database {alias!r} is {connection.vendor}."
            yield Warning(message, hint="Remove it.", id="djqueue.W208")
        return
    late = f"Connections to the database {alias!r} that a firewall has dropped are noticed late"
    if str(connection.settings_dict["OPTIONS"].get("keepalives", 1)) == "0":
        yield Warning(
            f"{late}: its keepalives are off.", hint="Remove 'keepalives' from its OPTIONS.", id="djqueue.W208"
        )
    if is_given and (lacking := [name for name in tcp_options(timeout) if not hasattr(socket, name)]):
        hint = "Run consumers on Linux, or remove TIMEOUT from OPTIONS of the queue."
        yield Warning(f"{late}: this platform has no {', '.join(lacking)}.", hint=hint, id="djqueue.W208")
    if is_given and is_pooled(alias):
        hint = "Connect directly, by an alias of the queue's own, or remove TIMEOUT from OPTIONS of the queue."
        message = f"{late} if their packets are acknowledged: a pooler stands between."
        yield Warning(message, hint=hint, id="djqueue.W208")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
