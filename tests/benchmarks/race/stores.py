"""Where the messages of an entrant are: a Redis server, a PostgreSQL database or a SQLite file of its own.

``renew`` puts it back to what it was when it was prepared, and ``asked`` counts what the server was asked to do.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

import psycopg
import redis

from tests.support import servers

ASKED = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = %s"
CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
LONGEST_REST = 3.0


class RedisStore:
    """An empty server."""

    def __init__(self, folder: Path):
        self._server = servers.Redis(folder / "redis").start()
        servers.at_exit_of_this_process(self._server.stop)
        self._client = redis.Redis.from_url(self._server.url)
        self.url = self._server.url

    def prepared(self) -> None:
        """It needs nothing."""

    def renew(self) -> None:
        self._client.flushall()

    def rest(self) -> None:
        """All is counted at once."""

    def asked(self) -> int:
        """Round trips: requests that were read; what a script calls is none."""
        return self._client.info("stats")["total_reads_processed"] - 1

    @property
    def version(self) -> str:
        return f"Redis {self._client.info('server')['redis_version']}"


class PostgresStore:
    """A database of one server, with PostgreSQL's own settings: every commit is on the disk."""

    _server: servers.Postgres | None = None

    def __init__(self, folder: Path):
        cls = type(self)
        if cls._server is None:
            cls._server = servers.Postgres(folder.parent / "postgres", "-c", "fsync=on").start()
            servers.at_exit_of_this_process(cls._server.stop)
        self._name = folder.name.replace("-", "_")
        self._admin = psycopg.connect(cls._server.url, autocommit=True)
        self._admin.execute(f"CREATE DATABASE {self._name}")
        self.url = cls._server.url.replace("/postgres?", f"/{self._name}?")

    def prepared(self) -> None:
        self._admin.execute(f"CREATE DATABASE {self._name}_empty TEMPLATE {self._name}")

    def renew(self) -> None:
        self._admin.execute(f"DROP DATABASE {self._name} WITH (FORCE)")
        self._admin.execute(f"CREATE DATABASE {self._name} TEMPLATE {self._name}_empty")

    def rest(self) -> None:
        """Until the connections of those who were killed are closed: then their transactions are counted."""
        end = time.monotonic() + LONGEST_REST
        while self._admin.execute(CONNECTED, [self._name]).fetchone()[0] and time.monotonic() < end:
            time.sleep(0.01)

    def asked(self) -> int:
        """Transactions."""
        return int(self._admin.execute(ASKED, [self._name]).fetchone()[0])

    @property
    def version(self) -> str:
        return f"PostgreSQL {self._admin.info.server_version // 10_000}.{self._admin.info.server_version % 10_000}"


class SqliteStore:
    """A file."""

    def __init__(self, folder: Path):
        self._path = folder / "queue.sqlite3"
        self.url = str(self._path)

    def prepared(self) -> None:
        for path in self._files:
            shutil.copy(path, path.with_name(f"empty-{path.name}"))

    def renew(self) -> None:
        for path in self._files:
            path.unlink()
        for path in self._path.parent.glob(f"empty-{self._path.name}*"):
            shutil.copy(path, path.with_name(path.name.removeprefix("empty-")))

    def rest(self) -> None:
        """Nothing is counted."""

    def asked(self) -> None:
        """No server counts it."""

    @property
    def _files(self) -> list[Path]:
        return [*self._path.parent.glob(f"{self._path.name}*")]

    @property
    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"


STORES = {"redis": RedisStore, "postgres": PostgresStore, "sqlite": SqliteStore}


def lacking(store: str) -> str:
    """Why there can be no such store here, in a sentence; "" if there can."""
    return servers.missing(store) if store in servers.KINDS else ""
