"""What puts one entry is prepared by connections to PostgreSQL that do so often; where it is lost it is sent whole."""

import pytest
from django.db import DataError, connections, transaction
from django.test.utils import CaptureQueriesContext

from djqueue.backends.database.sql import prepared
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


def test_a_connection_that_puts_little_prepares_nothing(queue):
    for _ in range(prepared.PREPARED_AFTER):
        queue.put([entry()])
    assert prepared_by(queue) == 0


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
