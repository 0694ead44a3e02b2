"""The queue backends under test: what each needs, and how a test or another process reaches it.

A test that asks for the fixture `backend` runs once per backend; `@pytest.mark.backends("sqlite", "redis")` narrows
that down. The database of a database backend is set up and emptied by pytest-django, as with `transaction=True`.
"""

import os
import uuid
from dataclasses import dataclass, field

import pytest
from django.db import connections
from django.utils.module_loading import import_string

from tests.support import servers


@dataclass(frozen=True)
class Kind:
    """A backend: its class, the server it needs (or ""), and the database alias its connection names (or "").

    One that is not `everywhere` serves only the tests that name it.
    """

    id: str
    path: str
    server: str = ""
    alias: str = ""
    options: dict = field(default_factory=dict)
    base: dict = field(default_factory=dict)
    """What else its value of the setting QUEUES says."""
    everywhere: bool = True

    def marks(self, database: bool) -> list:
        """What pytest must know: the databases to open and the server that has to be there."""
        aliases = {self.alias} - {""} | ({"default"} if database else set())
        marks = [pytest.mark.server(self.server)] if self.server else []
        marks += [pytest.mark.slow] if self.server == "sqs" else []  # it is reached over HTTP
        return marks + ([pytest.mark.django_db(transaction=True, databases=sorted(aliases))] if aliases else [])


FULL = os.environ.get("DJQUEUE_FULL") == "1"
"""Whether everything runs on everything. In the small size PostgreSQL, MariaDB and the blocking Redis queue, which is
the other one with another bell, serve the contract suites and the tests that name them."""
BLOCKING = "djqueue.backends.redis_backend.RedisBlockingQueue"
SQS = {
    "path": "djqueue.backends.sqs.SqsQueue",
    "server": "sqs",
    "base": {"STORE": "djqueue.backends.memory.MemoryStore"},
    "everywhere": False,
}
KINDS = {
    kind.id: kind
    for kind in (
        Kind("memory", "djqueue.backends.memory.MemoryQueue"),
        Kind("sqlite", "djqueue.backends.database.DatabaseQueue", alias="default"),
        Kind(
            "postgres", "djqueue.backends.database.DatabaseQueue", server="postgres", alias="postgres", everywhere=FULL
        ),
        Kind("mariadb", "djqueue.backends.database.DatabaseQueue", server="mariadb", alias="mariadb", everywhere=FULL),
        Kind("redis", "djqueue.backends.redis_backend.RedisQueue", server="redis"),
        Kind("redis-blocking", BLOCKING, server="redis", everywhere=FULL),
        Kind("redis-cluster", BLOCKING, server="cluster", everywhere=False),
        Kind("redis-sentinel", BLOCKING, server="sentinel", everywhere=False),
        Kind("sqs", options={"CREATE": True}, **SQS),
        Kind("sqs-fifo", options={"CREATE": True, "FIFO": True}, **SQS),
    )
}


@dataclass(frozen=True)
class Backend:
    """One backend for one test. Queues made of it are the test's own: name and Redis prefix occur once."""

    kind: Kind
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def id(self) -> str:
        return self.kind.id

    @property
    def alias(self) -> str:
        """The database alias, or "" where the backend is none."""
        return self.kind.alias

    @property
    def cls(self) -> type:
        return import_string(self.kind.path)

    @property
    def connection(self) -> str:
        """What the setting CONNECTION says."""
        if self.kind.server in ("cluster", "sentinel", "sqs"):
            return servers.address(self.kind.server)
        return redis_connection() if self.kind.server == "redis" else self.kind.alias

    @property
    def options(self) -> dict:
        prefix = {"PREFIX": f"t-{self.tag}"} if self.kind.server and not self.alias else {}
        return prefix | self.kind.options

    def config(self, name: str = "default", **options) -> dict:
        """One value of the setting QUEUES. The same `name` is the same queue all through the test."""
        options = {**self.options, **options}
        base = {"CLASS": self.kind.path, "NAME": f"{name}-{self.tag}", "CONNECTION": self.connection, **self.kind.base}
        return {**base, "OPTIONS": options} if options else base

    def queues(self, *names: str, **options) -> dict:
        """The setting QUEUES, with a queue per name ("default" without any): for the fixture `settings`, or a Site."""
        return {name: self.config(name, **options) for name in names or ("default",)}


def config_at(url: str, id: str = "redis-blocking") -> dict:
    """One value of the setting QUEUES: a queue of that kind on a server of the test's own."""
    return {"CLASS": KINDS[id].path, "CONNECTION": url}


def redis_connection() -> str:
    """`host:port:db`; each xdist worker has a database number of its own, so that it may flush it."""
    host, _, rest = redis_url().removeprefix("redis://").partition(":")
    return f"{host}:{rest.split('/')[0]}:{worker_number()}"


def redis_url() -> str:
    """`redis://host:port`, without a database number."""
    return servers.address("redis").rpartition("/")[0]


def worker_number() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def database_names(aliases) -> dict[str, str]:
    """The test databases of this process as another process must name them."""
    return {alias: str(connections[alias].settings_dict["NAME"]) for alias in aliases}


DISCOVERED = ("redis-cluster", "redis-sentinel") if FULL else ()
"""Where the address of the server of a queue is found out."""
EVERY = ("memory", "sqlite", "postgres", "mariadb", "redis", *(["redis-blocking"] if FULL else []))
"""The backends that keep the whole contract."""
ACROSS = ("memory", "sqlite", "redis", *(["postgres", "mariadb"] if FULL else []))
"""Where commands are seen to mean the same: in the small size once on each kind of backend."""
ON_SQS = ("sqs", "sqs-fifo")
WITH_SQS = (*(id for id, kind in KINDS.items() if kind.everywhere), *ON_SQS)
"""The same, and SQS, which cannot look up what waits: see `can_look` in tests/support/consumer.py."""
SERVED = tuple(id for id in EVERY if FULL or id != "memory")
"""The same, but for memory in the small size, where it keeps the contract under unittest."""


def named(test) -> tuple[str, ...]:
    """The backends of a test with the argument `backend`."""
    marker = test.get_closest_marker("backends")
    return marker.args if marker and marker.args else tuple(id for id, kind in KINDS.items() if kind.everywhere)


def parametrise(metafunc, ids: tuple[str, ...]):
    """Give a test with the argument `backend` these backends, each with its marks."""
    marker = metafunc.definition.get_closest_marker("backends")
    database = bool(marker and marker.kwargs.get("database"))
    params = [pytest.param(KINDS[id], id=id, marks=KINDS[id].marks(database)) for id in ids]
    metafunc.parametrize("backend", params, indirect=True)


def needs(item) -> set[str]:
    """The servers that a collected test needs, by its marks `server` and `django_db`."""
    wanted = {kind for mark in item.iter_markers("server") for kind in mark.args}
    for mark in item.iter_markers("django_db"):
        databases = mark.kwargs.get("databases") or ()
        wanted |= set(servers.SHARED) if databases == "__all__" else set(databases) & set(servers.KINDS)
    return wanted
