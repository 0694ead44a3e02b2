"""When a call is sent: with the caller's transaction on a database, on its commit next to one."""

import logging
import sys
import threading

import pytest
from django.db import connection, transaction

from djqueue import queues
from djqueue.backends.base import BaseQueue
from djqueue.decorators import queue_command
from djqueue.exceptions import EncodeError, PartialEnqueueError
from tests.app.models import Thing
from tests.support.consumer import claim_one, recorded_signals, run_one, unreachable
from tests.support.database import as_another_connection, rolled_back
from tests.support.notes import cleared_per_test

DATABASES = ("sqlite", "postgres", "mariadb")
OTHERS = ("memory", "redis", "redis-blocking")
ran = cleared_per_test([])


@queue_command
def note(*args, **kwargs):
    ran.append((args, kwargs))
    return args


@queue_command(debounce=60, always_delay=True)
def refresh(*args):
    ran.append(args)


@pytest.mark.backends(*DATABASES)
class TestOnADatabase:
    """An enqueue is part of the caller's transaction."""

    def test_a_commit_sends_and_before_it_no_other_connection_sees_it(self, queue):
        with transaction.atomic(using=queue.database):
            note(1)
            assert as_another_connection(queue, queue.stats).ready == 0
        assert (as_another_connection(queue, queue.stats).ready, len(queue)) == (1, 1)

    def test_a_rollback_sends_nothing(self, queue):
        with rolled_back(queue.database):
            note(1)
            note.enqueue_many([(2,), (3,)])
            assert len(queue) == 3
        assert len(queue) == 0

    def test_a_savepoint_takes_only_its_own_back_and_what_is_kept_is_told_at_the_commit(self, queue):
        with recorded_signals("enqueued") as told, transaction.atomic(using=queue.database):
            kept = note("kept")
            with rolled_back(queue.database):
                note("taken back")
            assert told == []
        assert [about["id"] for _, about in told] == [kept.id]
        assert [lease.entry.id for lease in queue.claim(10)] == [kept.id]

    def test_many_are_sent_all_or_none(self, queue, monkeypatch):
        put = queue.put
        monkeypatch.setattr(queue, "put", lambda entries, guards=None: unreachable() if len(queue) else put(entries))
        with recorded_signals("enqueued") as told, pytest.raises(ConnectionError):
            note.enqueue_many([(number,) for number in range(1500)])
        assert (len(queue), told) == (0, [])

    def test_many_that_fail_leave_the_callers_transaction_as_it_was(self, queue, monkeypatch):
        put = queue.put
        monkeypatch.setattr(
            queue, "put", lambda entries, guards=None: unreachable() if len(queue) > 1 else put(entries)
        )
        with transaction.atomic(using=queue.database):
            kept = note("kept")
            with pytest.raises(ConnectionError):
                note.enqueue_many([(number,) for number in range(1500)])
        assert [lease.entry.id for lease in queue.claim(10)] == [kept.id]


@pytest.mark.backends(*OTHERS, database=True)
class TestOnCommit:
    """Beside a transaction, an enqueue waits for its commit."""

    def test_a_commit_sends_and_outside_a_transaction_a_call_is_sent_at_once(self, queue):
        with transaction.atomic():
            handle = note(1)
            note.enqueue_many([(2,), (3,)])
            assert len(queue) == 0
        assert len(queue) == 3
        assert not connection.in_atomic_block
        note(4)
        assert len(queue) == 4
        assert claim_one(queue).entry.id == handle.id

    def test_a_rollback_sends_nothing(self, queue):
        with recorded_signals("enqueued", "enqueue_failed") as told:
            with rolled_back():
                note(1)
        assert (len(queue), told) == (0, [])

    def test_a_savepoint_takes_only_its_own_back(self, queue):
        with transaction.atomic():
            kept = note("kept")
            with rolled_back():
                note("taken back")
        assert [lease.entry.id for lease in queue.claim(10)] == [kept.id]

    def test_arguments_are_encoded_at_the_call(self, queue):
        with transaction.atomic():
            given = [1]
            note(given)
            given.append(2)
            with pytest.raises(EncodeError):
                note(threading.Lock())
        run_one(queue)
        assert ran == [(([1],), {})]

    def test_on_commit_none_sends_at_once(self, backend, settings):
        settings.QUEUES = backend.queues(ON_COMMIT=None)
        with rolled_back():
            note(1)
        assert len(queues["default"]) == 1

    @pytest.mark.backends("memory", database=True)
    def test_what_cannot_be_sent_after_the_commit_is_logged_and_signalled(self, queue, monkeypatch, caplog):
        error, handles = ConnectionError("the store is away"), []

        def fail(*args):
            raise error

        monkeypatch.setattr(queue, "put", fail)
        with recorded_signals("enqueued", "enqueue_failed") as told, transaction.atomic():
            handles += note.enqueue_many([(1,), (2,)])
            Thing.objects.create(name="committed")
        assert Thing.objects.count() == 1
        about = {"sender": note.name, "queue_name": "default", "exception": error}
        assert told == [("enqueue_failed", {"id": handle.id, **about}) for handle in handles]
        records = [record for record in caplog.records if record.name.startswith("djqueue")]
        [record] = [record for record in records if record.levelno == logging.ERROR]
        assert (record.message_ids, record.exc_info[1]) == ([handle.id for handle in handles], error)
        assert f"{note.name}: 2 messages were not sent" in record.getMessage()

    @pytest.mark.backends("memory", database=True)
    def test_when_some_could_be_sent_after_the_commit_the_others_are_reported(self, queue, monkeypatch, caplog):
        put = queue.put
        monkeypatch.setattr(queue, "put", lambda entries, guards=None: unreachable() if len(queue) else put(entries))
        with recorded_signals("enqueued", "enqueue_failed") as told, transaction.atomic():
            handles = note.enqueue_many([(number,) for number in range(2500)])
        assert [about["id"] for name, about in told if name == "enqueued"] == [handle.id for handle in handles[:1000]]
        failed = [about["id"] for name, about in told if name == "enqueue_failed"]
        assert failed == [handle.id for handle in handles[1000:]]
        assert "1500 messages were not sent" in caplog.text

    @pytest.mark.backends("memory", database=True)
    def test_of_what_the_store_took_in_part_only_the_rest_is_reported(self, queue, monkeypatch, caplog):
        monkeypatch.setattr(queue, "put", _put_in_part(queue.put))
        with recorded_signals("enqueued", "debounced", "enqueue_failed") as told, transaction.atomic():
            handles = refresh.enqueue_many([("page",), ("page",), ("other",), ("third",)])
        expected = ["enqueued", "debounced", "enqueue_failed", "enqueue_failed"]
        assert [(name, about["id"]) for name, about in told] == [
            (name, handle.id) for name, handle in zip(expected, handles, strict=True)
        ]
        assert (len(queue), "2 messages were not sent" in caplog.text) == (1, True)

    @pytest.mark.backends("memory")
    def test_outside_a_transaction_what_the_store_took_in_part_is_told_too(self, queue, monkeypatch):
        monkeypatch.setattr(queue, "put", _put_in_part(queue.put))
        names = ("debounce_missed", "enqueued", "debounced", "enqueue_failed")
        with (
            recorded_signals(*names) as told,
            pytest.raises(PartialEnqueueError, match="1 messages were sent and 2 were not") as caught,
        ):
            refresh.enqueue_many([("page",), ("page",), ("other",), ("third",)])
        assert [name for name, _ in told] == ["debounce_missed", "enqueued", "debounced"]
        assert {about["id"] for _, about in told}.isdisjoint(caught.value.unsent)

    @pytest.mark.backends("memory")
    def test_outside_a_transaction_the_callers_see_what_the_store_raises(self, queue, monkeypatch):
        monkeypatch.setattr(queue, "put", unreachable)
        with pytest.raises(ConnectionError):
            note(1)


class Unrelated(Exception):
    """Of somebody else's callback."""


def unrelated():
    raise Unrelated


@pytest.mark.backends(*OTHERS, database=True)
class TestBesideCallbacksOfOthers:
    """Django drops all callbacks behind one that raises; the transaction has committed nevertheless."""

    def test_a_callback_that_raises_drops_no_call(self, queue):
        with pytest.raises(Unrelated), recorded_signals("enqueued") as told, transaction.atomic():
            before = note("before")
            transaction.on_commit(unrelated)
            after = [note("after"), note("last")]
            Thing.objects.create(name="kept")
        assert Thing.objects.filter(name="kept").exists()
        ids = [one.id for one in (before, *after)]
        assert [lease.entry.id for lease in queue.claim(10)] == ids
        assert [about["id"] for _, about in told] == ids
        assert [one.enqueued for one in (before, *after)] == [True] * 3

    def test_nor_does_one_that_ends_the_process(self, queue):
        with pytest.raises(SystemExit), transaction.atomic():
            transaction.on_commit(sys.exit)
            note(1)
        assert len(queue) == 1

    def test_what_a_savepoint_took_back_is_not_sent(self, queue):
        with pytest.raises(Unrelated), transaction.atomic():
            transaction.on_commit(unrelated)
            kept = note("kept")
            with rolled_back():
                note("taken back")
        assert [lease.entry.id for lease in queue.claim(10)] == [kept.id]

    def test_a_rollback_sends_nothing_later_either(self, queue):
        with rolled_back():
            transaction.on_commit(unrelated)
            note("rolled back")
        with pytest.raises(Unrelated), transaction.atomic():
            transaction.on_commit(unrelated)
        assert len(queue) == 0

    def test_one_that_is_robust_is_logged_and_drops_nothing(self, queue, caplog):
        with transaction.atomic():
            transaction.on_commit(unrelated, robust=True)
            note(1)
        assert len(queue) == 1
        assert [record.name for record in caplog.records] == ["django.db.backends.base"]

    def test_callbacks_of_others_stay_as_they_are(self, queue):
        with transaction.atomic():
            transaction.on_commit(ran.clear)
            note(1)
            assert [callback for _, callback, _ in connection.run_on_commit][0] == ran.clear


@pytest.mark.django_db
@pytest.mark.backends("memory")
def test_calls_are_captured_as_callbacks_of_commits(queue, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks() as callbacks:
        transaction.on_commit(ran.clear)
        note(1)
    assert (len(callbacks), callbacks[0], len(queue)) == (2, ran.clear, 0)
    with django_capture_on_commit_callbacks(execute=True), django_capture_on_commit_callbacks(execute=True):
        note(2)
    assert len(queue) == 1


def test_the_base_sends_on_commit_of_the_default_database():
    assert BaseQueue.on_commit == "default"


def _put_in_part(put):
    """A put that takes the first two, if their guards let them, refuses the third and does not try the others."""

    def put_in_part(entries, guards=None):
        told = zip(entries, put(entries[:2], guards and guards[:2]), strict=False)
        accepted = [entry.id for entry, taken in told if taken]
        raise PartialEnqueueError(accepted, {entries[2].id: "no more"}, [entry.id for entry in entries[3:]])

    return put_in_part
