"""The backends of other packages that the conformance suite is run on, each with its worker."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from typing import Any

from tests.support import servers


@dataclass(frozen=True)
class Peer:
    """A backend of a package: how it is set up, and how its worker runs what is due."""

    name: str
    """As the table calls it."""
    said: dict[str, Any]
    """What the suite is told: attributes of its adapter."""
    package: str = "Django"
    """Its name on PyPI."""
    apps: tuple[str, ...] = ()
    settings: Callable[[], dict] = dict
    run_due: Callable[[], None] | None = None
    """Without it, tasks run when they are enqueued."""
    needs: tuple[str, ...] = ()
    """What must be installed beside the package."""
    combinations: tuple[tuple[str, str], ...] = (("3.13", "6.1"),)
    """Python and Django."""


def tasks_db():
    from django.core.management import call_command

    for alias in ("default", "second", "any"):
        words = {"batch": True, "queue_name": "*", "backend_name": alias, "interval": 0, "reload": False}
        call_command("db_worker", **words, stdout=StringIO())


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


def core(module: str, name: str, **said) -> Peer:
    """One of Django's own, on each Django."""
    return Peer(name, {"module": module, **said}, combinations=(("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1")))


PEERS = {
    peer.name: peer
    for peer in (
        core("backends.immediate", "ImmediateBackend"),
        core("backends.dummy", "DummyBackend", executes=False, across_processes=False),
        Peer(
            "django-tasks-db",
            {"backend": {"BACKEND": "django_tasks_db.DatabaseBackend"}, "transactional": True},
            package="django-tasks-db",
            apps=("django_tasks_db",),
            run_due=tasks_db,
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
