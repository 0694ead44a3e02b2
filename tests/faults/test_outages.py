"""The store goes away and comes back. Consumers ride it out: nobody restarts them, nothing is lost."""

import json
import sqlite3
import time
from contextlib import suppress

import pytest
from django.conf import settings as project
from django.db import OperationalError, connections

from tests.faults.commands import work
from tests.faults.conftest import APPS, database_site
from tests.faults.processes import Consumers, assert_done, full, ids_of
from tests.support import servers
from tests.support.backends import config_at

pytestmark = pytest.mark.slow
THREADS, MILLISECONDS, CONSUMERS = 4, 20, 2
AHEAD = 12
"""More than 4 threads finish in the 50 ms for which a consumer claims ahead."""


@pytest.fixture
def private_site(private_server, make_site):
    """A server of the test's own, and a site on it."""

    def make(store):
        if store.startswith("redis"):
            server = private_server("redis", *servers.Redis.DURABLE)
            return server, make_site({"default": config_at(server.url, store)}, INSTALLED_APPS=APPS)
        server = private_server(store)
        return server, database_site(make_site, server)

    return make


KILL9, SHUT_DOWN, STAND_STILL = ("kill9", "start"), ("stop", "start"), ("pause", "resume")
"""What is done to a server, and what ends it."""


@pytest.mark.parametrize(
    ("store", "fault", "seconds"),
    [
        pytest.param("redis", KILL9, 5, marks=pytest.mark.server("redis")),
        pytest.param("redis-blocking", SHUT_DOWN, full(1, 5), marks=pytest.mark.server("redis")),
        pytest.param("redis-blocking", STAND_STILL, full(2, 12), marks=pytest.mark.server("redis")),
        pytest.param("postgres", KILL9, full(1, 5), marks=pytest.mark.server("postgres")),
        pytest.param("postgres", SHUT_DOWN, full(1, 5), marks=pytest.mark.server("postgres")),
        pytest.param("mariadb", KILL9, full(1, 5), marks=pytest.mark.server("mariadb")),
    ],
)
def test_consumers_ride_out_an_outage_dj22_to18(private_site, store, fault, seconds):
    """DJ-22, TO-18: in the middle of the work, and again while idle, by the same processes."""
    server, site = private_site(store)
    consumers = Consumers(site)
    consumers.start_many(CONSUMERS, "-t", THREADS, "--lease", 4)
    ids = site.run("send_work", 400, MILLISECONDS).split()
    consumers.ledger.wait("end", 80)
    getattr(server, fault[0])()
    time.sleep(seconds)
    getattr(server, fault[1])()
    consumers.ledger.wait_all("end", ids)
    ids += site.run("send_work", 20, 0).split()
    consumers.ledger.wait_all("end", ids)
    assert json.loads(site.run("await_rest")) == [len(ids), 0]
    found = consumers.ledger.check(ids)
    assert not found.lost
    assert found.dup_runs <= CONSUMERS * (THREADS + AHEAD)
    assert consumers.ledger.pids() <= {member.pid for member in consumers.members}
    assert consumers.stop() == [0] * CONSUMERS


@pytest.mark.backends("postgres", "mariadb")
def test_cut_connections_are_made_anew_dj22(consumers, backend):
    """DJ-22: the server ends every connection of the consumers, several times."""
    consumers.start_many(2, "-t", THREADS, "--lease", 4)
    ids = ids_of(work.enqueue_many([(10,)] * full(500, 5000)))
    cut = 0
    for share in range(1, 6):
        consumers.ledger.wait("end", share * len(ids) // 8)
        cut += cut_all(connections[backend.alias])
    consumers.ledger.wait_all("end", ids)
    assert cut >= 5
    assert_done(consumers, ids, dup_runs=cut)
    assert consumers.stop() == [0, 0]


def cut_all(connection) -> int:
    """End every other connection to this database; how many."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return cursor.fetchone()[0]
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()")
        cut = 0
        for (id,) in cursor.fetchall():
            with suppress(OperationalError):  # it has just ended by itself
                cursor.execute(f"KILL {id}")
                cut += 1
        return cut


@pytest.mark.backends("sqlite")
def test_a_long_writer_on_sqlite_is_waited_for_dj22(backend, make_site, settings):
    """DJ-22: somebody holds the write lock for longer than SQLite's own time-out; nothing runs twice."""
    settings.QUEUES = backend.queues()
    path = str(connections["default"].settings_dict["NAME"])
    impatient = {**project.DATABASES["default"], "NAME": path, "TEST": {}}
    impatient["OPTIONS"] = {**impatient["OPTIONS"], "timeout": 0.2}
    plain = {key: impatient[key] for key in ("ENGINE", "NAME", "OPTIONS")}
    consumers = Consumers(make_site(settings.QUEUES, (), INSTALLED_APPS=APPS, DATABASES={"default": plain}))
    consumers.start_many(2, "-t", THREADS, "--lease", 20)
    ids = ids_of(work.enqueue_many([(10,)] * 300))
    consumers.ledger.wait("end", 50)
    writer = sqlite3.connect(path, isolation_level=None, timeout=20)
    writer.execute("BEGIN IMMEDIATE")
    time.sleep(full(3, 10))
    writer.execute("ROLLBACK")
    consumers.ledger.wait_all("end", ids)
    assert_done(consumers, ids, dup_runs=0)
    assert consumers.stop() == [0, 0]
