"""Consumers on PostgreSQL that wait are notified; and what becomes of that where notifications do not arrive."""

import os
import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from djqueue.backends.database import listening
from djqueue.backends.database.listening import listener_of
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.database.sql import prepared
from djqueue.backends.database.sql.postgresql import BUCKETS, bucket_of
from djqueue.exceptions import InvalidQueueError
from djqueue.testing import eventually, together
from djqueue.testing.contract.lane_steps import fill
from djqueue.testing.contract.steps import claim, entry, put
from djqueue.testing.patience import PATIENCE
from tests.support.database import as_another_process, rolled_back

pytestmark = pytest.mark.backends("postgres")

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'djqueue listener' AND datname = current_database()"
)
LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1684698469 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture(autouse=True)
def _no_connection_left(backend):
    yield
    listener_of(backend.alias, backend.alias).close()
    eventually(lambda: rows(LISTENERS) == [])


def rows(sql, alias="postgres"):
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def is_listening(queue):
    return rows(LOCKS)[0][0] > 0


@contextmanager
def waiting(queue, seconds=PATIENCE):
    """A thread that waits for work, once it listens; its answer is in the list when it has ended."""
    answers = []

    def wait():
        assert queue.claim(1) == []
        answers.append(queue.wait_for_work(seconds))
        queue.close()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        eventually(lambda: is_listening(queue))
        yield answers
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def notified_queues(queue):
    """The queues that were notified of since this was last asked, as any connection that listens has it."""
    database = connections["postgres"]
    connection = database.get_new_connection({**database.get_connection_params(), "autocommit": True})
    reader, writer = os.pipe()
    arrived = listening.Arrivals(connection, reader)
    connection.execute("; ".join(f"LISTEN djqueue_{bucket}" for bucket in range(BUCKETS)))

    def ask():
        rows("SELECT pg_notify('djqueue_0', 'over')")
        found = []
        while "over" not in found:
            found += arrived.after(PATIENCE)
        return found[:-1]

    yield ask
    connection.close()
    os.close(reader)
    os.close(writer)


def test_nobody_is_notified_while_nobody_waits(queue, notified_queues):
    put(queue, "work")
    assert notified_queues() == []


def test_a_transaction_notifies_once_and_only_if_it_commits(queue, notified_queues):
    with waiting(queue) as answers:
        with rolled_back("postgres"):
            put(queue, "lost")
        assert (notified_queues(), answers) == ([], [])
        with transaction.atomic("postgres"):
            for word in "abc":
                put(queue, word)
            assert answers == []
    assert (notified_queues(), answers) == ([queue.name], [True])


def test_what_is_due_later_notifies_nobody(queue, notified_queues):
    with waiting(queue, 1.0) as answers:
        put(queue, "later", delay=60)
        assert notified_queues() == []
    assert answers == [False]


def test_what_is_due_soon_is_waited_for_no_longer(queue):
    with waiting(queue) as answers:
        put(queue, "soon", delay=0.01)
    assert answers == [True]


def test_what_was_put_before_anybody_listened_is_found(queue):
    """It is committed afterwards, so that no look sees it before."""
    put_it, is_put = threading.Event(), threading.Event()

    def produce():
        with transaction.atomic("postgres"):
            put(queue, "work")
            is_put.set()
            assert put_it.wait(PATIENCE)

    def consume():
        assert is_put.wait(PATIENCE)
        with waiting(as_another_process(queue)) as answers:
            assert answers == []
            put_it.set()
        return answers

    _, answers = together(produce, consume, last=queue.close)
    assert answers == [True]


def test_who_waits_is_woken_after_its_connection_broke(queue):
    with waiting(queue) as answers:
        ((first,),) = rows(LISTENERS)
        rows(f"SELECT pg_terminate_backend({first})")
        eventually(lambda: rows(LISTENERS) not in ([], [(first,)]))
        eventually(lambda: is_listening(queue))
        assert answers == []
        put(queue, "work")
    assert answers == [True]


def test_what_comes_while_the_connection_is_broken_is_found(queue, monkeypatch):
    """There is no notification of it, as nobody listens when it is put."""
    with waiting(queue) as answers:
        broken = threading.Event()

        def connect(alias):
            broken.set()
            raise OSError("no server here")

        monkeypatch.setattr(listening, "connect", connect)
        ((first,),) = rows(LISTENERS)
        rows(f"SELECT pg_terminate_backend({first})")
        assert broken.wait(PATIENCE)
        put(queue, "work")
    assert answers == [True]
    listener = listener_of("postgres", "postgres")
    eventually(lambda: not queue.notifies)
    listener._retry_at = 0.0
    assert queue.notifies


def test_a_process_that_is_busy_does_not_listen(queue, notified_queues):
    """Its notifications find nobody who waits."""
    queue.wait_for_work(0.3)
    assert is_listening(queue)
    for _ in range(listening.UNUSED + 1):
        put(queue, "work")
    eventually(lambda: not is_listening(queue))
    notified_queues()
    put(queue, "work")
    assert notified_queues() == []


def test_the_connection_is_closed_when_nobody_waits_any_more(queue, monkeypatch):
    monkeypatch.setattr(listening, "UNUSED_FOR", 0.1)
    queue.wait_for_work(0.3)
    eventually(lambda: rows(LISTENERS) == [])
    with waiting(queue) as answers:
        put(queue, "work")
    assert answers == [True]


def test_notifications_that_bring_nothing_wake_ever_more_seldom(queue):
    """As many consumers are woken by one message, which one of them takes."""
    over, found = threading.Event(), []

    def others():
        while not over.is_set():
            rows(f"SELECT pg_notify('djqueue_{bucket_of(queue.name)}', '{queue.name}')")

    def wake():
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            queue.claim(1)
            found.append(queue.wait_for_work(0.5))
        over.set()

    together(others, wake, last=queue.close)
    assert 2 <= sum(found) <= 12

    with waiting(queue) as answers:
        put(queue, "work")
    assert answers == [True]


def test_within_a_transaction_nobody_listens(queue):
    with transaction.atomic("postgres"):
        assert queue.wait_for_work(0.01) is False
    assert rows(LISTENERS) == []


def test_what_others_settle_opens_lanes_for_those_who_wait(queue, notified_queues):
    fill(queue, "a", "1", "2")
    lease = claim(queue)
    with waiting(queue) as answers:
        as_another_process(queue).complete(lease)
    assert (answers, set(notified_queues())) == ([True], {queue.name})


def test_without_the_option_nobody_listens_or_notifies(queue, notified_queues):
    silent = as_another_process(queue, notify=False)
    assert not silent.notifies
    assert silent.wait_for_work(0.01) is False
    assert rows(LISTENERS) == []
    with waiting(queue) as answers:
        put(silent, "work")
        assert notified_queues() == []
    assert answers == [True]  # it looks, too


@pytest.mark.parametrize("notify", ["nowhere", 5, []])
def test_the_option_is_a_switch_or_an_alias(queue, notify):
    with pytest.raises(InvalidQueueError, match=r"OPTIONS\['NOTIFY'\] is .*: give True, False, or an alias"):
        as_another_process(queue, notify=notify)


@pytest.mark.backends("postgres", database=True)
def test_the_option_is_checked(queue):
    assert as_another_process(queue, notify="postgres").check() == as_another_process(queue, notify=True).check() == []
    assert [message.id for message in DatabaseQueue("one", "default", notify=True).check()][-1:] == ["djqueue.W207"]
    assert [message.id for message in as_another_process(queue, notify="default").check()] == ["djqueue.W207"]
    assert not DatabaseQueue("one", "default", notify=True).notifies


# ---- Behind a pooler


@pytest.fixture
def pooler(backend, private_server, monkeypatch):
    """The database of the alias is reached through a pooler of transactions."""
    pooler, database = private_server("pgbouncer"), connections.databases[backend.alias]
    monkeypatch.setitem(connections.databases, "direct", dict(database))
    monkeypatch.setattr(listening, "_listeners", {})
    monkeypatch.setattr(prepared, "_without", set())
    connections[backend.alias].close()
    with monkeypatch.context() as patch:
        patch.setitem(database, "HOST", str(pooler.folder))
        patch.setitem(database, "PORT", str(pooler.PORT))
        yield
        connections[backend.alias].close()


@pytest.mark.server("pgbouncer")
def test_behind_a_pooler_of_transactions_queues_are_polled(pooler, queue, caplog, monkeypatch):
    monkeypatch.setattr(listening, "ARRIVES_IN", 0.3)
    assert queue.notifies
    assert queue.wait_for_work(1.0) is False
    eventually(lambda: not queue.notifies)
    (record,) = [record for record in caplog.records if "notifications do not arrive" in record.message]
    assert "OPTIONS['NOTIFY']" in record.message
    started = time.monotonic()
    assert queue.wait_for_work(0.1) is False
    assert time.monotonic() - started >= 0.1
    put(queue, "work")
    assert len(queue.claim(1)) == 1


@pytest.mark.server("pgbouncer")
def test_behind_a_pooler_of_transactions_puts_go_on_whose_prepared_statement_is_in_another_session(pooler, queue):
    def put_often():
        return [queue.put([entry()]) for _ in range(2 * prepared.PREPARED_AFTER)]

    assert together(*[put_often] * 4, last=queue.close) == [[[True]] * 2 * prepared.PREPARED_AFTER] * 4
    assert queue.stats().ready == 8 * prepared.PREPARED_AFTER


@pytest.mark.server("pgbouncer")
def test_behind_a_pooler_the_process_may_listen_beside_it(pooler, queue):
    queue = as_another_process(queue, notify="direct")
    with waiting(queue) as answers:
        queue.put([entry()])
    assert (answers, queue.notifies) == ([True], True)
    listener_of("postgres", "direct").close()
