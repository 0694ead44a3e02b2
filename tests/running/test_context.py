"""What surrounds a running command: its message, its language, its database connections."""

import asyncio

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation

from djqueue import current_message
from djqueue.consumer.database_connections import check_connections, follow_connections
from djqueue.decorators import queue_command
from djqueue.policies.outcomes import Outcome
from djqueue.running.executor import execute
from djqueue.testing import eventually
from tests.app.models import Thing
from tests.support.consumer import claim_one, exit_code, recorded_signals, run_one, serving
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


@queue_command
def double(number):
    ran.append(current_message())
    return number * 2


@queue_command
def abroad(language, zone):
    ran.append((translation.get_language(), timezone.get_current_timezone_name()))
    translation.activate(language)
    timezone.activate(zone)


@queue_command
async def abroad_async(language):
    ran.append((translation.get_language(), current_message().id))
    translation.activate(language)
    await asyncio.sleep(0)


@queue_command
async def make_thing(name):
    ran.append(current_message())
    thing = await Thing.objects.acreate(name=name)
    return (await Thing.objects.aget(pk=thing.pk)).name


@queue_command
def count_things():
    ran.append(Thing.objects.count())


@queue_command(models="reference")
def note_name(thing):
    ran.append(thing.name)


@queue_command
def break_connection():
    connection.ensure_connection()
    connection.connection.close()
    Thing.objects.count()


@queue_command
def leave_a_transaction_open():
    transaction.atomic().__enter__()
    Thing.objects.create(name="never committed")


@pytest.mark.backends("memory")
class TestCurrentMessage:
    def test_a_command_knows_its_message_and_outside_of_one_there_is_none(self, queue):
        handle = double(4)
        run_one(queue)
        [message] = ran
        assert (message.id, message.attempt) == (handle.id, 1)
        assert (message.command, message.queue_name) == (double.name, "default")
        assert current_message() is None
        assert double.call(4) == 8
        assert ran[1:] == [None]

    def test_a_second_start_is_attempt_two(self, queue):
        double(4)
        queue.release(queue.claim(1))
        run_one(queue)
        assert ran[0].attempt == 2


@pytest.mark.backends("memory")
class TestSurroundings:
    def test_language_and_time_zone_do_not_leak(self, queue):
        abroad("de", "Asia/Tokyo")
        abroad("fr", "Asia/Tokyo")
        for _ in range(2):
            run_one(queue)
        assert ran == [("en-us", "UTC")] * 2
        assert translation.get_language() == "en-us"
        assert timezone.get_current_timezone_name() == "UTC"

    def test_on_a_worker_async_commands_share_nothing(self, queue):
        handles = [abroad_async(language) for language in ("de", "fr", "it")]
        assert exit_code(threads=1, limit=3) == 0
        assert ran == [("en-us", handle.id) for handle in handles]

    @pytest.mark.backends("sqlite", "postgres", "mariadb", database=True)
    def test_async_commands_use_the_orm(self, queue):
        handles = [make_thing(name) for name in "ab"]
        with serving(threads=1, limit=2) as consumer, recorded_signals("completed") as told:
            assert consumer.code() == 0
        assert [(about["id"], about["value"]) for _, about in told] == [(handles[0].id, "a"), (handles[1].id, "b")]
        assert sorted(thing.name for thing in Thing.objects.all()) == ["a", "b"]


@pytest.fixture
def known_connections():
    """Connections are known, as in a process that has a consumer: those that were open before are opened anew."""
    follow_connections()
    connections.close_all()


@pytest.mark.usefixtures("known_connections")
@pytest.mark.backends("sqlite", "postgres")
def test_a_transaction_that_was_begun_by_hand_does_not_keep_its_locks(queue, monkeypatch):
    used = connections[queue.database]
    used.cursor().execute("BEGIN")
    check_connections()
    assert used.connection is None
    used.cursor().execute("SELECT 1")
    monkeypatch.setattr(used, "close_at", None)
    check_connections()
    assert used.connection is not None


@pytest.mark.usefixtures("known_connections")
@pytest.mark.backends("memory", database=True)
class TestConnections:
    """The database connections of a worker are looked after as Django does for a request."""

    def test_a_broken_connection_is_replaced(self, queue):
        for command in (count_things, break_connection, count_things):
            command()
        assert exit_code(threads=1, limit=3) == 0
        assert ran == [0, 0]
        assert len(queue.failed) == 1

    def test_a_transaction_left_open_does_not_swallow_the_next_command(self, queue):
        leave_a_transaction_open()
        make_thing("next")
        count_things()
        assert exit_code(threads=1, limit=3) == 0
        assert ran[-1] == 1
        assert [thing.name for thing in Thing.objects.all()] == ["next"]
        assert len(queue.failed) == 0

    def test_a_connection_that_is_too_old_is_closed(self, queue, monkeypatch):
        connection.ensure_connection()
        monkeypatch.setattr(connection, "close_at", None)
        check_connections()
        assert connection.connection is not None
        connection.close_at = 0
        check_connections()
        assert connection.connection is None

    def test_what_the_database_raises_while_arguments_are_read_says_nothing_of_the_message(self, queue, monkeypatch):
        thing = Thing.objects.create(name="a")
        note_name(thing)
        lease = claim_one(queue)
        monkeypatch.setattr("django.db.models.query.QuerySet.get", _database_is_away)
        assert execute(queue, lease).outcome is Outcome.POSTPONED
        queue.release([lease])
        with serving(threads=1) as consumer, recorded_signals("released") as told:
            eventually(lambda: told)
            assert consumer.end() == 0
        assert "database is away" in told[0][1]["reason"]
        assert (len(queue), len(queue.failed)) == (1, 0)

    def test_the_callers_transaction_is_not_touched(self, queue):
        count_things()
        with transaction.atomic():
            Thing.objects.create(name="mine")
            run_one(queue)
            assert Thing.objects.count() == 1
        assert ran == [1]


def _database_is_away(*args, **kwargs):
    raise DatabaseError("the database is away")
