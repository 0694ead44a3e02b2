"""Run Django's own tests of tasks on djqueue over one store: `python -m tests.tasks.django_own.one FOLDER KIND`.

FOLDER is `tests` of Django's source archive. Fails unless the cases that fail are those of the table in docs.
"""

import csv
import io
import logging
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import django
from django.conf import settings

from tests.settings import server
from tests.support import backends
from tests.tasks.peers.one import sqlite

TABLE = Path(__file__).resolve().parents[3] / "docs" / "django-own-tests.csv"
WHERE = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
"""What the table calls a kind of store."""
MODULES = ("test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend")


def main(folder: str, kind: str):
    made = backends.Backend(backends.KINDS["sqlite" if kind == "postgres" else kind])
    sys.path.insert(0, folder)
    settings.configure(
        SECRET_KEY="only-for-the-tests",
        USE_TZ=True,
        INSTALLED_APPS=["djqueue"],
        DATABASES={"default": database(kind)},
        QUEUES=made.queues("default", "queue_1"),
        LOGGING_CONFIG=None,
    )
    django.setup()
    logging.getLogger().addHandler(logging.NullHandler())
    failed, count = outcome()
    expected = assumptions(kind)
    print(f"Django {django.get_version()}, {kind}: {count} cases, {len(failed)} fail by an assumption of the test")
    if failed.keys() != expected:
        for name in sorted(failed.keys() - expected):
            print(f"--- not in {TABLE.name}: {name}\n{failed[name]}")
        sys.exit(f"passed although {TABLE.name} has them: {sorted(expected - failed.keys())}")


def database(kind: str) -> dict:
    """The default one, which has the queues of those kinds that are in a database."""
    if kind == "postgres":
        return {**server(kind), "TEST": {"NAME": f"test_own_{os.getpid()}"}}
    return sqlite(tempfile.mkdtemp(prefix="djq-own-"))


def assumptions(kind: str) -> set[str]:
    """The cases that fail by what they assume of a backend."""
    with TABLE.open(newline="") as file:
        return {
            row["Case"] for row in csv.DictReader(file) if row["Where"] == "everywhere" or WHERE[kind] in row["Where"]
        }


def outcome() -> tuple[dict[str, str], int]:
    """The traceback of each case that failed, and how many there are."""
    from django.tasks.backends import dummy, immediate
    from django.test import SimpleTestCase
    from django.test.runner import DiscoverRunner

    from tests.tasks.django_own import shim

    runner = DiscoverRunner(verbosity=0)
    with (
        mock.patch.object(dummy, "DummyBackend", shim.DummyBackend),
        mock.patch.object(immediate, "ImmediateBackend", shim.ImmediateBackend),
        mock.patch.object(SimpleTestCase, "databases", "__all__"),
    ):
        suite = unittest.defaultTestLoader.loadTestsFromNames([f"tasks.{name}" for name in MODULES])
        old = runner.setup_databases()
        result = unittest.TextTestRunner(io.StringIO(), verbosity=0).run(suite)
        runner.teardown_databases(old)
    broken = [*result.failures, *result.errors]
    return {name_of(test): text for test, text in broken}, result.testsRun


def name_of(test) -> str:
    """The class and the method of a test, or of the test that a subTest is part of."""
    case = getattr(test, "test_case", test)
    return f"{type(case).__name__}.{case._testMethodName}"


if __name__ == "__main__":
    main(*sys.argv[1:])
