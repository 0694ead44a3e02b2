"""Connections that were dropped silently: what is cut, what is left alone, and the time-outs of their sockets."""

import os
import socket
import threading

import pytest
from django.db import OperationalError, connections, transaction

from djqueue.backends.database import silence
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.database.silence import what_is_done
from djqueue.exceptions import InvalidQueueError
from djqueue.testing import eventually
from djqueue.testing.contract.steps import leased
from tests.faults.conftest import address_of
from tests.faults.proxy import Proxy
from tests.support.database import as_another_process

SERVERS = "postgres", "mariadb"
QUICK = 1.0


@pytest.fixture
def database_proxy(backend):
    """The queue's database by TCP, through a proxy, for this test's connections."""
    with Proxy(address_of(backend)) as proxy:
        settings = connections[backend.alias].settings_dict
        was = {name: settings[name] for name in ("HOST", "PORT", "OPTIONS")}
        connections[backend.alias].close()
        settings.update(HOST="127.0.0.1", PORT=str(proxy.port))
        yield proxy
        connections[backend.alias].close()
        settings.update(was)


@pytest.mark.backends(*SERVERS)
def test_a_statement_whose_answer_will_not_come_raises_and_the_next_is_answered(queue, database_proxy, caplog):
    queue = as_another_process(queue, timeout=QUICK)
    with queue.serving():
        queue.now()
        database_proxy.forget()
        with pytest.raises(OperationalError):
            queue.now()
        assert queue.now()
    assert "the connection was dropped and is replaced" in caplog.text


@pytest.mark.backends("postgres")
def test_who_asks_the_server_in_vain_asks_again(queue, database_proxy, monkeypatch):
    monkeypatch.setattr(silence, "CONNECT", 1)
    asked = silence._rows

    def forgotten_once(*args):
        monkeypatch.setattr(silence, "_rows", asked)
        database_proxy.forget()
        return asked(*args)

    queue = as_another_process(queue, timeout=QUICK)
    with queue.serving():
        queue.now()
        database_proxy.forget()
        monkeypatch.setattr(silence, "_rows", forgotten_once)
        with pytest.raises(OperationalError):
            queue.now()
    assert silence._rows is asked


@pytest.mark.backends(*SERVERS)
def test_a_statement_that_waits_for_a_lock_is_left_alone(queue, monkeypatch):
    queue, looks = as_another_process(queue, timeout=QUICK), []
    monkeypatch.setattr(silence, "what_is_done", lambda *asked: looks.append(what_is_done(*asked)) or looks[-1])
    [lease] = leased(queue, "work")
    held, done = threading.Event(), []

    def hold():
        with transaction.atomic(queue.database), connections[queue.database].cursor() as cursor:
            cursor.execute("SELECT seq FROM djqueue_message WHERE queue = %s FOR UPDATE", [queue.name])
            held.set()
            eventually(lambda: len(looks) >= 3)
        connections[queue.database].close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    with queue.serving():
        done = queue.complete([lease])
    holder.join(20)
    assert done == [lease]
    assert all(not is_over for look in looks for is_over, _ in look)


@pytest.mark.backends("postgres")
def test_the_sockets_of_a_consumer_have_short_time_outs_unless_the_project_chose_some(queue, database_proxy):
    names = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 8000}

    def time_outs() -> dict:
        connections[queue.database].close()
        queue.now()
        with socket.socket(fileno=os.dup(connections[queue.database].connection.fileno())) as end:
            return {name: end.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}

    usual = time_outs()
    with queue.serving():
        assert time_outs() == names
        settings = connections[queue.database].settings_dict
        settings["OPTIONS"] = settings["OPTIONS"] | {"keepalives_idle": 77}
        assert time_outs() == usual | {"TCP_KEEPIDLE": 77}
    assert time_outs() == usual | {"TCP_KEEPIDLE": 77}


@pytest.mark.backends("postgres")
def test_of_several_time_outs_of_a_database_the_shortest_counts_and_the_thread_ends_with_the_last(queue):
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "djqueue-silence"]

    with as_another_process(queue, timeout=7).serving():
        with as_another_process(queue, timeout=3).serving(), as_another_process(queue, timeout=None).serving():
            assert (silence.watch.timeouts, len(threads())) == ({queue.database: 3.0}, 1)
        assert silence.watch.timeouts == {queue.database: 7.0}
    assert silence.watch.timeouts == {}
    eventually(lambda: not threads())


def test_a_time_out_that_is_none_is_refused():
    for wrong in (0.5, -1, "10", True):
        with pytest.raises(InvalidQueueError, match=r"OPTIONS\['TIMEOUT'\].*None switches it off"):
            DatabaseQueue("mail", "default", timeout=wrong)


@pytest.mark.backends("postgres")
def test_a_check_says_where_dropped_connections_are_noticed_late(queue, monkeypatch):
    def ids(queue) -> list[str]:
        return [message.id for message in queue.check()]

    given = as_another_process(queue, timeout=5)
    assert (ids(queue), ids(given)) == ([], [])
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    assert (ids(queue), ids(given)) == ([], ["djqueue.W208"])
    monkeypatch.undo()
    monkeypatch.setattr("djqueue.backends.database.checks.is_pooled", lambda alias: True)
    assert (ids(queue), ids(given)) == ([], ["djqueue.W208"])
    monkeypatch.undo()
    monkeypatch.setitem(connections[queue.database].settings_dict, "OPTIONS", {"keepalives": 0})
    assert (ids(queue), ids(as_another_process(queue, timeout=None))) == (["djqueue.W208"], [])
