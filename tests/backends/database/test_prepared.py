"""What puts one entry is prepared by connections to PostgreSQL that do so often; where it is lost it is sent whole."""

import asyncio

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, DataError, OperationalError, connections, transaction
from django.test import SimpleTestCase
from django.test.utils import CaptureQueriesContext

from djqueue.backends.database.sql import prepared
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.testing import together
from djqueue.testing.contract.lane_steps import fill
from djqueue.testing.contract.steps import entry

pytestmark = pytest.mark.backends("postgres")

OFTEN = prepared.PREPARED_AFTER + 2


@pytest.fixture(autouse=True)
def _nothing_prepared(queue, monkeypatch):
    monkeypatch.setattr(prepared, "_without", set())
    connections[queue.database].close()


def run(queue, sql):
    with connections[queue.database].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def put_often(queue):
    entries = [entry() for _ in range(OFTEN)]
    assert [queue.put([one]) for one in entries] == [[True]] * OFTEN
    return [one.id for one in entries]


def prepared_by(queue):
    return len(run(queue, "SELECT name FROM pg_prepared_statements WHERE name LIKE 'djqueue%'"))


def test_it_is_prepared_once_and_does_the_same(queue):
    ids = put_often(queue)
    assert prepared_by(queue) == 1
    assert queue.put([entry(id=ids[0])]) == [False]
    assert queue.put([entry(id="ärger\\'", priority=3, delay=60.0)]) == [True]
    assert [lease.entry.id for lease in queue.claim(OFTEN + 1)] == ids
    assert queue.find("ärger\\'").entry.priority == 3


def test_one_new_entry_takes_no_cursor_and_no_other_statement(queue, monkeypatch):
    put_often(queue)
    monkeypatch.setattr(connections[queue.database], "create_cursor", None)
    assert [queue.put_new(entry(priority=priority)) for priority in (0, 1)] == [True, True]
    monkeypatch.undo()
    assert prepared_by(queue) == 1
    assert queue.stats().ready == OFTEN + 2


def test_it_is_refused_in_an_event_loop_and_on_the_connection_of_another_thread(queue):
    put_often(queue)
    connection = connections[queue.database]

    async def put():
        queue.put_new(entry())

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(put())

    def put_on_it():
        connections[queue.database] = connection
        with pytest.raises(DatabaseError, match="objects created in a thread can only be used in that same thread"):
            queue.put_new(entry())

    together(put_on_it)
    assert queue.stats().ready == OFTEN


def test_a_connection_is_checked_and_replaced_as_django_does_it(queue):
    """With CONN_HEALTH_CHECKS, at the first use in a request."""
    put_often(queue)
    connection = connections[queue.database]
    run(queue, "SELECT 1")
    pid = connection.connection.info.backend_pid
    with connection.copy().cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    connection.health_check_enabled, connection.health_check_done = True, False
    assert queue.put_new(entry()) is True
    assert connection.connection.info.backend_pid != pid
    assert queue.stats().ready == OFTEN + 1


def test_a_connection_that_is_gone_is_an_error_once(queue):
    put_often(queue)
    connection = connections[queue.database]
    with connection.copy().cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
    with pytest.raises(OperationalError):
        queue.put_new(entry())
    assert queue.put_new(entry()) is True


def test_a_connection_that_puts_little_prepares_nothing(queue):
    for _ in range(prepared.PREPARED_AFTER):
        queue.put([entry()])
    assert prepared_by(queue) == 0


def test_a_connection_prepares_few_statements_however_many_it_runs(queue, monkeypatch):
    """Claims of different numbers are different statements, and each takes memory of the server as long as it lives."""
    monkeypatch.setattr(prepared, "MOST_PREPARED", 4)
    fill(queue, "a", "1", "2", gate=Gate(windows=(Window(1, 3600),)))
    assert len(queue.claim(1)) == 1
    for limit in range(1, 2 * prepared.MOST_PREPARED):
        for ahead in [0] * OFTEN + [limit // 2]:
            assert queue.claim(limit, ahead=ahead) == []
    assert prepared_by(queue) == len(prepared._runs[connections[queue.database].connection]) == prepared.MOST_PREPARED


def test_where_it_is_lost_as_behind_a_pooler_it_is_prepared_no_more(queue):
    put_often(queue)
    run(queue, "DEALLOCATE ALL")
    put_often(queue)
    assert prepared_by(queue) == 0
    assert queue.stats().ready == 2 * OFTEN


def test_what_another_client_of_the_session_has_prepared_is_used(queue):
    put_often(queue)
    prepared._runs.clear()
    put_often(queue)
    assert prepared_by(queue) == 1


def test_the_callers_transaction_does_not_depend_on_it(queue):
    put_often(queue)
    run(queue, "DEALLOCATE ALL")
    with transaction.atomic(using=queue.database):
        assert queue.put([entry()]) == [True]
    assert queue.stats().ready == OFTEN + 1


def test_who_wraps_or_logs_statements_sees_each(queue):
    put_often(queue)
    connection, seen = connections[queue.database], []

    def wrapper(execute, sql, *rest):
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(wrapper):
        queue.put([entry()])
    with CaptureQueriesContext(connection) as logged:
        queue.put([entry()])
    assert [sql.split()[0] for sql in seen] == [query["sql"].split()[0] for query in logged] == ["INSERT"]


def test_who_replaces_the_cursors_of_a_connection_sees_each(queue, monkeypatch):
    put_often(queue)
    connection, made = connections[queue.database], []
    usual = connection.cursor
    monkeypatch.setattr(connection, "cursor", lambda: made.append(usual()) or made[-1])
    assert queue.put_new(entry()) is True
    assert len(made) == 1


def test_a_test_case_without_a_database_refuses_it(queue):
    class Case(SimpleTestCase):
        databases = set()

    put_often(queue)
    Case.setUpClass()
    try:
        with pytest.raises(AssertionError, match="Database queries to"):
            queue.put_new(entry())
    finally:
        Case.doClassCleanups()
    assert queue.stats().ready == OFTEN


def test_what_no_column_can_hold_is_refused_as_before_and_hurts_nothing(queue):
    for _ in range(2):
        with pytest.raises(DataError):
            queue.put([entry(id="a\0b")])
        put_often(queue)
    assert prepared_by(queue) == 1
    assert queue.stats().ready == 2 * OFTEN


def test_a_pipeline_of_psycopg_is_left_to_its_cursor(queue):
    put_often(queue)
    with connections[queue.database].connection.pipeline():
        assert queue.put([entry()]) == [True]
    assert queue.stats().ready == OFTEN + 1
