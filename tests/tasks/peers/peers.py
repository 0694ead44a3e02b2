"""The backends of other packages that the conformance suite is run on, each with its worker."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from tests.support import servers

EACH = (("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1"))
"""Each Django, with a Python for it."""


@dataclass(frozen=True)
class Peer:
    """A backend of a package: how it is set up, and how its worker runs what is due."""

    name: str
    """As the table calls it."""
    said: dict[str, Any] = field(default_factory=dict)
    """What the suite is told: attributes of its adapter."""
    case: str = ""
    """Where its TestCase is, if it is written out."""
    package: str = "Django"
    """Its name on PyPI."""
    apps: tuple[str, ...] = ()
    settings: Callable[[], dict] = dict
    run_due: Callable[[], None] | None = None
    """Without it, tasks run when they are enqueued."""
    needs: tuple[str, ...] = ()
    """What must be installed next to the package."""
    combinations: tuple[tuple[str, str], ...] = EACH[-1:]
    """Python and Django."""


def tasks_rq():
    import django_rq
    from django_tasks_rq.backend import Job
    from rq import SimpleWorker
    from rq.scheduler import RQScheduler

    names = [queue.name for queue in django_rq.queues.get_queues("default", "other")]
    connection = django_rq.get_connection("default")
    scheduler = RQScheduler(names, connection=connection)
    scheduler.acquire_locks()
    scheduler.enqueue_scheduled_jobs()
    scheduler.release_locks()
    SimpleWorker(names, connection=connection, job_class=Job).work(burst=True, logging_level="CRITICAL")


def rq_settings():
    servers.start("redis")
    url = servers.address("redis")
    return {
        "RQ_QUEUES": {name: {"URL": url} for name in ("default", "other")},
        "RQ": {"JOB_CLASS": "django_tasks_rq.Job"},
    }


def huey():
    from huey.contrib.djhuey import HUEY

    for task in HUEY.read_schedule():
        HUEY.enqueue(task)
    while (task := HUEY.dequeue()) is not None:
        HUEY.execute(task)


def huey_settings():
    folder = tempfile.mkdtemp(prefix="djq-huey-")
    return {
        "HUEY": {
            "huey_class": "huey.SqliteHuey",
            "name": "peers",
            "filename": f"{folder}/huey.sqlite3",
            "immediate": False,
        }
    }


def ox():
    from django.core.management import call_command

    for alias in ("default", "second", "any", "retrying"):
        with suppress(SystemExit):
            call_command("ox_worker", backend=alias, batch=True, interval=0.01, stdout=StringIO())


def consumer():
    from djqueue.consumer import Consumer

    Consumer(drain=True, threads=1, periodic=False).run()


def ours(store: str, path: str, settings: Callable[[], dict] = dict, **said) -> Peer:
    """djqueue over a store, on each Django."""
    backend = "djqueue.tasks.DjqueueBackend"
    queue = {"CLASS": f"djqueue.backends.{path}"}

    def all_settings() -> dict:
        own = settings()
        one = {**queue, **own.pop("QUEUE", {})}
        queues = {name: {**one, "NAME": f"{name}-{os.getpid()}"} for name in ("default", "other")}
        return {"QUEUES": queues, **own}

    return Peer(
        f"djqueue, {store}",
        {
            "backend": {"BACKEND": backend},
            "retrying": {"BACKEND": backend, "OPTIONS": {"retry_on": [ValueError], "retries": 1, "backoff": 1}},
            "transactional": True,
            **said,
        },
        package="djqueue",
        apps=("djqueue",),
        settings=all_settings,
        run_due=consumer,
        combinations=EACH,
    )


def database(kind: str) -> dict:
    """The settings of a site on a server of the tests."""
    from tests import settings

    servers.start(kind)
    return {"DATABASES": {"default": {**settings.server(kind), "TEST": {"NAME": f"test_{os.getpid()}"}}}}


def redis() -> dict:
    servers.start("redis")
    host, _, rest = servers.address("redis").removeprefix("redis://").partition(":")
    return {"QUEUE": {"CONNECTION": f"{host}:{rest.split('/')[0]}:0"}}


def core(module: str, name: str, **said) -> Peer:
    """One of Django's own, on each Django."""
    return Peer(name, {"module": module, **said}, combinations=EACH)


PEERS = {
    peer.name: peer
    for peer in (
        ours("memory", "memory.MemoryQueue", across_processes=False),
        ours("SQLite", "database.DatabaseQueue"),
        ours("PostgreSQL", "database.DatabaseQueue", lambda: database("postgres")),
        ours("MariaDB", "database.DatabaseQueue", lambda: database("mariadb")),
        ours("Redis", "redis_backend.RedisQueue", redis),
        core("backends.immediate", "ImmediateBackend"),
        core("backends.dummy", "DummyBackend", executes=False, across_processes=False),
        Peer(
            "django-tasks-db",
            case="tests.tasks.peers.example.TestDatabaseBackend",
            package="django-tasks-db",
            apps=("django_tasks_db",),
        ),
        Peer(
            "django-tasks-rq",
            {"backend": {"BACKEND": "django_tasks_rq.RQBackend"}},
            package="django-tasks-rq",
            apps=("django_rq",),
            settings=rq_settings,
            run_due=tasks_rq,
            combinations=(("3.11", "5.2"),),
        ),
        Peer(
            "django-tasks-local",
            {"backend": {"BACKEND": "django_tasks_local.ThreadPoolBackend"}, "across_processes": False},
            package="django-tasks-local",
        ),
        Peer(
            "huey",
            {"backend": {"BACKEND": "huey.contrib.djhuey.tasks_backend.HueyBackend"}},
            package="huey",
            apps=("huey.contrib.djhuey",),
            settings=huey_settings,
            run_due=huey,
        ),
        Peer(
            "django-ox",
            {
                "backend": {"BACKEND": "django_ox.backend.OxBackend", "OPTIONS": {"MAX_ATTEMPTS": 1}},
                "retrying": {
                    "BACKEND": "django_ox.backend.OxBackend",
                    "OPTIONS": {"MAX_ATTEMPTS": 2, "BACKOFF_INITIAL": 1},
                },
                "transactional": True,
            },
            package="django-ox",
            apps=("django_ox",),
            run_due=ox,
        ),
    )
}
