"""A thread with a deadline is not held up by a database: what is not answered in time raises, and is not repeated."""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connections, transaction

from djqueue.backends.database.sql import prepared
from djqueue.models import QueueMessage
from djqueue.testing import together
from djqueue.testing.contract.steps import put
from djqueue.testing.patience import PATIENCE

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")
SHORT = 0.4

TIME_OUT = {
    "postgresql": "SELECT setting::float / 1000 FROM pg_settings WHERE name = 'statement_timeout'",
    "mysql": "SELECT @@max_statement_time",
    "sqlite": "PRAGMA busy_timeout",
}


@contextmanager
def held(queue, lock):
    """Another connection holds a lock meanwhile."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold():
        connection = connections[queue.database]
        try:
            lock(connection, lambda: is_held.set() or is_over.wait(PATIENCE))
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert is_held.wait(PATIENCE)
        yield
    finally:
        is_over.set()
        thread.join(PATIENCE)


def table(connection, hold):
    """The whole table; on SQLite all that is written."""
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLES djqueue_message WRITE")
            hold()
        return
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            hold()
            cursor.execute("ROLLBACK")
        return
    with transaction.atomic(connection.alias), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE djqueue_message IN ACCESS EXCLUSIVE MODE")
        hold()


def rows(connection, hold):
    """All messages."""
    with transaction.atomic(connection.alias):
        list(QueueMessage.objects.using(connection.alias).select_for_update())
        if connection.vendor == "sqlite":
            QueueMessage.objects.using(connection.alias).update(owner="other")
        hold()


def time_out_of(queue):
    """What the server says of this thread's connection."""
    with connections[queue.database].cursor() as cursor:
        cursor.execute(TIME_OUT[connections[queue.database].vendor])
        return cursor.fetchone()[0]


def seconds_of(call):
    """The seconds after which a call raises."""
    began = time.monotonic()
    with pytest.raises(OperationalError):
        call()
    return time.monotonic() - began


@pytest.mark.parametrize("lock", [table, rows])
def test_a_lock_of_another_session_holds_a_thread_up_no_longer(queue, lock):
    put(queue, "work")
    (lease,) = queue.claim(1)
    with queue.deadline(SHORT):
        queue.touch([lease])
        with held(queue, lock):
            assert seconds_of(lambda: queue.complete([lease])) < 2.5 * SHORT
            assert seconds_of(lambda: queue.touch([lease])) < 2.5 * SHORT
        assert queue.touch([lease])  # by this connection, or another one
        assert not connections[queue.database].in_atomic_block
        assert queue.complete([lease]) == [lease]
    assert (queue.stats().leased, queue.stats().done) == (0, 1)


def test_a_claim_that_is_cut_leaves_nothing_leased(queue):
    put(queue, *"abc")
    with queue.deadline(SHORT):
        with held(queue, table):
            assert seconds_of(lambda: queue.claim(3)) < 2.5 * SHORT
        assert len(queue.claim(3)) == 3
    assert queue.stats().leased == 3


def test_a_deadline_is_for_the_thread_that_has_it(queue):
    usual = time_out_of(queue)
    with queue.deadline(SHORT):
        queue.stats()
        short = time_out_of(queue)
        assert together(lambda: queue.stats() and time_out_of(queue), last=queue.close) == [usual]
    assert short != usual
    queue.stats()
    assert time_out_of(queue) == usual
    with queue.deadline(2 * SHORT):
        queue.stats()
        assert time_out_of(queue) not in (short, usual)


def test_a_connection_is_told_once(queue, django_assert_num_queries):
    with queue.deadline(SHORT):
        queue.now()
        raw = connections[queue.database].connection
        with django_assert_num_queries(2, using=queue.database):
            queue.now()
            queue.now()
        assert connections[queue.database].connection is raw
    assert connections[queue.database].connection is not raw or connections[queue.database].vendor == "sqlite"


@pytest.mark.backends("postgres", "mariadb")
def test_a_shorter_time_out_of_the_project_stays(queue, monkeypatch):
    connection = connections[queue.database]
    connection.close()
    said = (
        {"options": "-c statement_timeout=100"}
        if connection.vendor == "postgresql"
        else {"init_command": "SET max_statement_time=0.1"}
    )
    settings = connection.settings_dict
    monkeypatch.setattr(connection, "settings_dict", settings | {"OPTIONS": {**settings["OPTIONS"], **said}})
    with queue.deadline(SHORT):
        queue.stats()
        assert float(time_out_of(queue)) == 0.1
    connection.close()


def test_within_a_transaction_of_the_caller_nothing_changes(queue):
    usual = time_out_of(queue)
    with transaction.atomic(queue.database), queue.deadline(SHORT):
        put(queue, "work")
        assert time_out_of(queue) == usual
    assert len(queue.claim(1)) == 1


@pytest.mark.backends("postgres")
@pytest.mark.server("pgbouncer")
def test_behind_a_pooler_nothing_is_set_that_others_would_inherit(queue, backend, private_server, monkeypatch):
    pooler, database = private_server("pgbouncer"), connections.databases[backend.alias]
    monkeypatch.setattr(prepared, "_without", set())
    connections[backend.alias].close()
    with monkeypatch.context() as patch:
        patch.setitem(database, "HOST", str(pooler.folder))
        patch.setitem(database, "PORT", str(pooler.PORT))
        with queue.deadline(SHORT):
            queue.stats()
            assert time_out_of(queue) == 0
        connections[backend.alias].close()
