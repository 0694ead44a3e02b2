"""What befalls a consumer: dead neighbours, a store that goes away, commands that fail."""

import logging
import threading
import time

import django
import pytest
from django.core import mail
from django.db import connections
from django.utils.log import AdminEmailHandler

from djqueue import Consumer, current_message
from djqueue.decorators import queue_command
from djqueue.testing import eventually
from tests.support.consumer import Release, exit_code, message_for, recorded_signals, serving, unreachable
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])
release = cleared_per_test(Release())


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def wait_for_release(number=0):
    release.wait()
    ran.append((number, current_message().attempt))


@queue_command
def explode():
    raise RuntimeError("boom")


@queue_command
def leave():
    raise SystemExit(3)


class TestHardships:
    def test_dj15_the_work_of_a_dead_worker_is_run_by_another(self, queue):
        handle = work(1)
        [lease] = queue.claim(1, 0.2, "failed")
        with serving(threads=1, limit=1) as consumer, recorded_signals("completed") as told:
            assert consumer.code() == 0
        assert [(about["id"], about["attempt"]) for _, about in told] == [(handle.id, 2)]
        assert queue.complete([lease]) == []

    @pytest.mark.slow
    @pytest.mark.backends("memory", "sqlite", "redis")
    def test_work_that_takes_longer_than_its_lease_is_not_given_to_another(self, queue):
        wait_for_release()
        with (
            recorded_signals("started", "completed") as told,
            serving(threads=1, lease=4.0),
            serving(threads=1, lease=4.0),
        ):
            release.await_waiting(1)
            over = time.monotonic() + 8.2
            eventually(lambda: time.monotonic() > over)
            release.set()
            eventually(lambda: len(told) == 2)
        assert [name for name, _ in told] == ["started", "completed"]
        assert (release.most_waiting, queue.stats().done) == (1, 1)

    @pytest.mark.backends("memory")
    def test_dj22_a_store_that_goes_away_is_ridden_out(self, queue, monkeypatch):
        is_down = threading.Event()
        for name in ("claim", "complete", "reap", "touch"):
            verb = getattr(queue, name)
            monkeypatch.setattr(
                queue, name, lambda *args, v=verb, **how: unreachable() if is_down.is_set() else v(*args, **how)
            )
        with serving(threads=2) as consumer:
            wait_for_release()
            release.await_waiting(1)
            is_down.set()
            release.set()
            work()
            eventually(lambda: len(ran) == 1)
            is_down.clear()
            eventually(lambda: queue.stats().done == 2)
            assert consumer.end() == 0
        assert ran == [(0, 1), 0]

    @pytest.mark.backends("memory")
    def test_dj18_an_unknown_command_does_not_stop_it(self, queue):
        queue.put([message_for(queue, "no.such.command")])
        work()
        assert Consumer(periodic=False).run(limit=1) == 0
        assert (ran, len(queue), queue.stats().leased) == ([0], 1, 0)


@pytest.mark.backends("memory")
class TestLogs:
    def test_one_error_record_per_failure_names_worker_and_message(self, queue, caplog):
        handles = [explode() for _ in range(3)]
        Consumer(periodic=False).run(limit=3)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert {record.message_id for record in errors} == {handle.id for handle in handles}
        assert len(errors) == 3
        assert all(record.worker.startswith("djqueue-worker-") for record in errors)
        assert all(isinstance(record.exc_info[1], RuntimeError) for record in errors)
        assert all(record.name.startswith("djqueue.") for record in errors)

    def test_mail_admins_sends_one_mail_per_failure(self, queue, settings):
        settings.ADMINS = ["admin@example.com"] if django.VERSION >= (6,) else [("Admin", "admin@example.com")]
        logger, handler = logging.getLogger("djqueue"), AdminEmailHandler()
        handler.setLevel("ERROR")
        logger.addHandler(handler)
        try:
            for command in (explode, work, leave):
                command()
            Consumer(periodic=False).run(limit=3)
        finally:
            logger.removeHandler(handler)
        mails = [message for message in mail.outbox if message.subject.startswith("[Django] ERROR")]
        assert len(mails) == 2, [message.subject for message in mail.outbox]
        assert sorted("SystemExit" in message.body for message in mails) == [False, True]
        assert any("RuntimeError: boom" in message.body for message in mails)


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_no_thread_keeps_a_database_connection(queue, backend, monkeypatch):
    opened = []
    connect = type(connections[backend.alias]).connect
    monkeypatch.setattr(type(connections[backend.alias]), "connect", lambda self: opened.append(self) or connect(self))
    work.enqueue_many([(number,) for number in range(5)])
    assert exit_code(threads=2, limit=5) == 0
    assert len(opened) >= 2
    mine = connections[backend.alias]
    eventually(lambda: all(one.connection is None for one in opened if one is not mine))
