"""Consumers on PostgreSQL that wait are notified; and what becomes of that where notifications do not arrive."""

import os
import signal
import threading
import time
from contextlib import closing, contextmanager

import pytest
from django.db import connections, transaction

from djqueue.backends.bells import Bell
from djqueue.backends.database import listening
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
def _no_connection_left(backend, monkeypatch):
    monkeypatch.setattr(listening, "_deliveries", {})
    yield
    eventually(lambda: rows(LISTENERS) == [])


@pytest.fixture
def armed(queue):
    """A bell that rings, after all that rang before was heard."""
    with hung(queue) as bell:
        yield bell


def rows(sql, alias="postgres"):
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def is_listening(queue):
    return rows(LOCKS)[0][0] > 0


@contextmanager
def hung(queue):
    with closing(queue.bell()) as bell:
        eventually(lambda: not bell.wait(0.05) and bell.is_heard)
        assert is_listening(queue)
        yield bell


@pytest.fixture
def notified_queues(queue):
    """The queues that were notified of since this was last asked, as any connection that listens has it."""
    listener = listening.Listener("postgres")
    listener.ask("; ".join(f"LISTEN djqueue_{bucket}" for bucket in range(BUCKETS)))

    def ask():
        rows("SELECT pg_notify('djqueue_0', 'over')")
        found = []
        eventually(lambda: found.extend(listener.arrived()) or "over" in found)
        return found[: found.index("over")]

    yield ask
    listener.close()


def test_nobody_is_notified_while_nobody_waits(queue, notified_queues):
    put(queue, "work")
    assert notified_queues() == []


def test_a_transaction_notifies_once_and_only_if_it_commits(queue, armed, notified_queues):
    with rolled_back("postgres"):
        put(queue, "lost")
    assert (notified_queues(), armed.wait(0.05)) == ([], False)
    with transaction.atomic("postgres"):
        for word in "abc":
            put(queue, word)
        assert not armed.wait(0.05)
    assert (notified_queues(), armed.wait(PATIENCE)) == ([queue.name], True)


def test_what_is_due_later_notifies_nobody(queue, armed, notified_queues):
    put(queue, "later", delay=60)
    assert (notified_queues(), armed.wait(0.05)) == ([], False)
    put(queue, "soon", delay=0.01)
    assert armed.wait(PATIENCE)


def test_what_was_put_before_anybody_listened_is_asked_for(queue):
    """It has notified nobody."""
    put(queue, "work")
    with closing(as_another_process(queue).bell()) as bell:
        assert bell.wait(PATIENCE)


def test_a_bell_whose_connection_broke_is_armed_on_another_one(queue, armed):
    ((first,),) = rows(LISTENERS)
    rows(f"SELECT pg_terminate_backend({first})")
    eventually(lambda: rows(LISTENERS) == [])
    put(queue, "work")
    assert armed.wait(PATIENCE)  # there was no notification of it, as nobody listened
    assert rows(LISTENERS) not in ([], [(first,)])
    eventually(lambda: not armed.wait(0.05) and armed.is_heard)
    put(queue, "more")
    assert armed.wait(PATIENCE)


def test_a_bell_that_cannot_connect_is_polled_and_tries_again_later(queue, armed, monkeypatch, caplog):
    def connect(alias):
        raise OSError("no server here")

    with monkeypatch.context() as patch:
        patch.setattr(listening, "connect", connect)
        rows(f"SELECT pg_terminate_backend({rows(LISTENERS)[0][0]})")
        eventually(lambda: not armed.wait(0.05) and not armed.is_heard)
        assert armed.fileno() is None
        assert "its queues are polled meanwhile" in caplog.text
    delivery = listening.delivery_of("postgres", "postgres")
    eventually(lambda: not delivery.works)
    delivery._retry_at = 0.0
    assert armed.wait(PATIENCE)
    eventually(lambda: not armed.wait(0.05) and armed.is_heard)
    assert delivery.works


def test_a_server_that_stands_still_is_noticed(queue, armed, monkeypatch, caplog):
    """It acknowledges what comes, and answers nothing."""
    monkeypatch.setattr(listening, "ANSWERS_IN", 0.2)
    monkeypatch.setattr(listening, "PROBE_EVERY", 0.05)
    ((number,),) = rows(LISTENERS)
    os.kill(number, signal.SIGSTOP)
    try:
        eventually(lambda: armed.wait(0.05) or not armed.is_heard)
    finally:
        os.kill(number, signal.SIGCONT)


def test_a_consumer_that_is_busy_does_not_listen(queue, armed, notified_queues):
    """Its notifications find nobody who waits."""
    armed.disarm()
    for _ in range(listening.UNUSED + 1):
        put(queue, "work")
    eventually(lambda: armed.disarm() or not is_listening(queue))
    notified_queues()
    put(queue, "work")
    assert notified_queues() == []
    assert armed.arm()  # it listens again, and there was no notification of that
    put(queue, "work")
    assert notified_queues() == [queue.name]


def test_notifications_that_bring_nothing_wake_ever_more_seldom(queue, armed):
    """As many consumers are woken by one message, which one of them takes."""
    over, found = threading.Event(), []

    def others():
        while not over.is_set():
            rows(f"SELECT pg_notify('djqueue_{bucket_of(queue.name)}', '{queue.name}')")

    def wake():
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            armed.disarm()
            queue.claim(1)
            found.append(armed.wait(0.1))
        over.set()

    together(others, wake, last=queue.close)
    assert 2 <= sum(found) <= 25
    put(queue, "work")
    assert armed.wait(PATIENCE)


def test_who_passes_notifications_over_is_polled_until_a_claim_finds_something(queue, armed, monkeypatch):
    monkeypatch.setattr(listening, "FIRST_QUIET", 60)
    monkeypatch.setattr(listening, "LONGEST_QUIET", 60)
    for _ in range(listening.IN_VAIN + 1):
        assert armed.is_heard
        rows(f"SELECT pg_notify('djqueue_{bucket_of(queue.name)}', '{queue.name}')")
        assert armed.wait(PATIENCE)
        armed.disarm()
        assert queue.claim(1) == []
    assert (armed.is_heard, armed.fileno()) == (False, None)
    put(queue, "work")
    assert not armed.wait(0.05)
    assert len(queue.claim(1)) == 1
    assert armed.is_heard and armed.fileno() is not None


def test_what_others_settle_opens_lanes_for_those_who_wait(queue, armed, notified_queues):
    fill(queue, "a", "1", "2")
    lease = claim(queue)
    eventually(lambda: armed.disarm() or not armed.wait(0.05))
    notified_queues()
    as_another_process(queue).complete(lease)
    assert (armed.wait(PATIENCE), set(notified_queues())) == (True, {queue.name})


def test_without_the_option_nobody_listens_or_notifies(queue, notified_queues):
    silent = as_another_process(queue, notify=False)
    assert type(silent.bell()) is Bell
    with hung(queue) as bell:
        put(silent, "work")
        assert (notified_queues(), bell.wait(0.05)) == ([], False)


@pytest.mark.parametrize("notify", ["nowhere", 5, []])
def test_the_option_is_a_switch_or_an_alias(queue, notify):
    with pytest.raises(InvalidQueueError, match=r"OPTIONS\['NOTIFY'\] is .*: give True, False, or an alias"):
        as_another_process(queue, notify=notify)


@pytest.mark.backends("postgres", database=True)
def test_the_option_is_checked(queue):
    assert as_another_process(queue, notify="postgres").check() == as_another_process(queue, notify=True).check() == []
    assert [message.id for message in DatabaseQueue("one", "default", notify=True).check()][-1:] == ["djqueue.W207"]
    assert [message.id for message in as_another_process(queue, notify="default").check()] == ["djqueue.W207"]
    assert type(DatabaseQueue("one", "default", notify=True).bell()) is Bell


# ---- Behind a pooler


@pytest.fixture
def pooler(backend, private_server, monkeypatch):
    """The database of the alias is reached through a pooler of transactions."""
    pooler, database = private_server("pgbouncer"), connections.databases[backend.alias]
    monkeypatch.setitem(connections.databases, "direct", dict(database))
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
    with closing(queue.bell()) as bell:
        assert bell.wait(PATIENCE)  # nobody had listened before
        assert not bell.is_heard
        eventually(lambda: bell.wait(0.05) or bell.fileno() is None)
        (record,) = [record for record in caplog.records if "notifications do not arrive" in record.message]
        assert "OPTIONS['NOTIFY']" in record.message
        assert (bell.wait(0.1), bell.is_heard) == (False, False)
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
    with hung(queue) as bell:
        queue.put([entry()])
        assert bell.wait(PATIENCE)
