"""The conformance suite of Django's tasks: on djqueue over each store, and on Django's own backends."""

import subprocess
import sys

import pytest
from django.test import TransactionTestCase, override_settings

from djqueue.consumer import Consumer
from djqueue.testing import run_due
from djqueue.testing.conformance import TaskBackendConformance, compat
from tests.conftest import flush_redis
from tests.support import backends

DJQUEUE = "djqueue.tasks.DjqueueBackend"


class OnDjqueue(TaskBackendConformance):
    """djqueue over a store, with the worker of the test kit."""

    kind = ""
    backend = {"BACKEND": DJQUEUE}
    retrying = {"BACKEND": DJQUEUE, "OPTIONS": {"retry_on": [ValueError], "retries": 1, "backoff": 1}}
    transactional = True

    def setUp(self):
        made = backends.Backend(backends.KINDS[self.kind])
        self.enterContext(override_settings(QUEUES=made.queues(*self.queue_names)))
        super().setUp()

    def run_due(self):
        run_due()


class ByConsumer(OnDjqueue):
    """A real consumer of one thread."""

    def run_due(self):
        Consumer(drain=True, threads=1, periodic=False).run()


class TestMemory(OnDjqueue, TransactionTestCase):
    kind = "memory"
    across_processes = False


class TestSQLite(ByConsumer, TransactionTestCase):
    kind = "sqlite"


@pytest.mark.full
@pytest.mark.server("postgres")
class TestPostgreSQL(OnDjqueue, TransactionTestCase):
    kind = database = "postgres"
    databases = {"postgres"}


@pytest.mark.full
@pytest.mark.server("mariadb")
class TestMariaDB(OnDjqueue, TransactionTestCase):
    kind = database = "mariadb"
    databases = {"mariadb"}


@pytest.mark.full
@pytest.mark.server("redis")
class TestRedis(ByConsumer, TransactionTestCase):
    kind = "redis"

    def tearDown(self):
        super().tearDown()
        flush_redis()


class TestImmediate(TaskBackendConformance, TransactionTestCase):
    backend = {"BACKEND": f"{compat.NAMESPACE}.backends.immediate.ImmediateBackend"}


class TestDummy(TaskBackendConformance, TransactionTestCase):
    backend = {"BACKEND": f"{compat.NAMESPACE}.backends.dummy.DummyBackend"}
    executes = across_processes = False


def test_the_suite_needs_neither_the_backend_of_djqueue_nor_pytest():
    code = "from djqueue.testing import conformance; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"djqueue.tasks", "djqueue.models", "pytest"} & {*done.stdout.split()} == set()
