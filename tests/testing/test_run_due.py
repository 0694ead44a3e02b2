"""A test runs what is due, in its own thread and transaction."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connection, connections, transaction
from django.test import SimpleTestCase, TestCase, override_settings

from djqueue import current_message, queues, signals
from djqueue.classes import QueueCommand
from djqueue.decorators import queue_command
from djqueue.exceptions import CommandFailed, Discard
from djqueue.testing import assert_enqueued, assert_not_enqueued, memory_queues, run_due
from tests.app.models import Thing
from tests.support.consumer import recorded_signals
from tests.support.notes import cleared_per_test

MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}
done: list = cleared_per_test([])


@queue_command
def build(name, parts=0):
    """Make a thing, and enqueue one call for each of its parts."""
    done.append((name, threading.get_ident()))
    for number in range(parts):
        build(f"{name}.{number}")
    return Thing.objects.create(name=name).pk


@queue_command
def build_later(name):
    """As most people enqueue."""
    transaction.on_commit(lambda: build(name))


@queue_command
async def build_async(name):
    return (await Thing.objects.acreate(name=name)).pk


@queue_command(retry_on=[ConnectionError], retries=1, backoff=30)
def call(number):
    raise ConnectionError("no answer")


@queue_command
def explode(text="boom"):
    raise ValueError(text)


@queue_command
def interrupt():
    raise KeyboardInterrupt


@queue_command
def forget():
    raise Discard("too late")


@queue_command
def build_twice(name):
    """The second row breaks the transaction of whoever runs it."""
    Thing.objects.create(name=name)
    Thing.objects.create(pk=Thing.objects.get(name=name).pk, name="other", number=None)


@queue_command
def hang_up(name):
    connection.close()
    Thing.objects.create(name=name)


@queue_command
def build_durably(name):
    with transaction.atomic(durable=True):
        Thing.objects.create(name=name)


@queue_command
def go_on():
    go_on.enqueue()


@queue_command
def add_up(number):
    done.append((number, current_message().attempt))
    return number


@queue_command(max_lost=1)
def charge():
    done.append("charged")


@queue_command
def break_it(alias):
    """Its error is caught, and the transaction broken nevertheless."""
    try:
        connections[alias].cursor().execute("SELECT 1 / 0")
    except DatabaseError:
        done.append("caught")


class SendMail(QueueCommand):
    def execute(self):
        return f"to {self.data}"


def names() -> set[str]:
    return set(Thing.objects.values_list("name", flat=True))


class RunDue:
    """What holds on every backend, in a TestCase."""

    def test_it_runs_what_is_due_here_and_tells_of_each(self):
        sent = [build("fence"), SendMail.command().enqueue("ann")]
        runs = run_due()
        commands = [(run.id, run.command, run.outcome) for run in runs]
        assert commands == [(sent[0].id, build.name, "done"), (sent[1].id, f"{__name__}.SendMail", "done")]
        assert (runs[0].value, runs[1].value) == (Thing.objects.get().pk, "to ann")
        assert (runs[0].args, runs[0].kwargs, runs[0].attempt, runs[0].queue_name) == (("fence",), {}, 1, "default")
        assert done == [("fence", threading.get_ident())]
        assert run_due() == []

    def test_it_runs_what_that_enqueues(self):
        build("fence", parts=2)
        build_later("gate")
        assert [run.args[0] for run in run_due()] == ["fence", "gate", "fence.0", "fence.1", "gate"]
        assert_not_enqueued()

    def test_what_fails_is_in_the_failed_queue(self):
        explode("boom")
        [run] = run_due()
        assert (run.outcome, run.failed, run.done, str(run.exception)) == ("failed", True, False, "boom")
        assert run.reason == "ValueError: boom"
        assert len(queues["default"].failed) == 1

    def test_what_fails_is_raised_if_that_is_wanted_and_settled_before(self):
        explode("boom")
        build("fence")
        with self.assertRaisesRegex(ValueError, "boom"):
            run_due(raise_errors=True)
        assert (len(queues["default"].failed), len(queues["default"])) == (1, 1)
        assert [run.done for run in run_due(raise_errors=True)] == [True]

    def test_what_is_meant_for_the_test_is_raised_anyway(self):
        interrupt()
        with self.assertRaises(KeyboardInterrupt):
            run_due()

    def test_settings_may_change_on_the_way(self):
        call(1)
        with override_settings(QUEUE_MAX_LOST=1, QUEUE_RETRY_ON=[ValueError]):
            explode()
            assert [run.outcome for run in run_due()] == ["retried", "retried"]

    def test_what_is_to_be_retried_waits_and_what_is_discarded_is_gone(self):
        call(1)
        [run] = run_due(raise_errors=True)
        assert (run.outcome, run.delay) == ("retried", 30.0)
        assert_enqueued(call, (1,))
        forget()
        [run] = run_due(raise_errors=True)
        assert (run.outcome, run.reason, run.exception) == ("discarded", "too late", None)

    def test_only_the_queues_that_are_named(self):
        build("fence")
        build.using(queue_name="mail").enqueue("gate")
        assert [run.args for run in run_due(queues=["mail"])] == [("gate",)]
        assert [run.args for run in run_due()] == [("fence",)]
        with self.assertRaisesRegex(TypeError, "list of aliases"):
            run_due(queues="mail")

    def test_an_async_command_sees_what_the_test_made(self):
        build_async("fence")
        [run] = run_due(raise_errors=True)
        assert run.value == Thing.objects.get(name="fence").pk

    def test_a_command_that_breaks_the_transaction_is_undone_and_the_test_goes_on(self):
        build_twice("fence")
        build("gate")
        failed, gate = run_due()
        assert isinstance(failed.exception, DatabaseError)
        assert gate.done
        assert names() == {"gate"}

    def test_what_a_command_did_before_it_failed_stays_as_it_would(self):
        Thing.objects.create(name="fence")
        explode()
        run_due()
        assert names() == {"fence"}

    def test_a_command_cannot_close_the_connection_of_the_test_and_may_have_a_durable_block(self):
        hang_up("fence")
        build_durably("gate")
        run_due(raise_errors=True)
        assert names() == {"fence", "gate"}

    def test_what_a_block_of_the_test_has_open_is_not_committed(self):
        ran = []
        with transaction.atomic():
            transaction.on_commit(lambda: ran.append("too early"))
            run_due()
        assert ran == []
        run_due()
        assert ran == ["too early"]

    def test_signals_are_those_of_a_consumer(self):
        explode()
        build("fence")
        with recorded_signals("claimed", "started", "completed", "failed", "empty") as told:
            run_due()
        failed, completed = ["claimed", "started", "failed"], ["claimed", "started", "completed"]
        assert [name for name, _ in told] == [*failed, *completed, "empty", "empty"]

    def test_what_a_command_leaves_for_its_commit_is_done_before_it_is_settled(self):
        build_later("fence")
        with recorded_signals("enqueued", "completed") as told:
            run_due()
        ended = [(name, about["sender"]) for name, about in told][-3:]
        assert ended == [("enqueued", build.name), ("completed", build_later.name), ("completed", build.name)]

    def test_what_never_ends_is_ended(self):
        go_on()
        with self.assertRaisesRegex(RuntimeError, "run_due.. has run 50 messages"):
            run_due(limit=50)

    def test_each_is_delivered_twice(self):
        add_up(1)
        add_up(2)
        runs = run_due(deliveries=2)
        assert done == [(1, 1), (1, 2), (2, 1), (2, 2)]
        told = [(run.args, run.outcome, run.value) for run in runs]
        assert told == [((1,), "lost", 1), ((1,), "done", 1), ((2,), "lost", 2), ((2,), "done", 2)]
        assert_not_enqueued()
        assert len(queues["default"].failed) == 0

    def test_what_may_not_be_repeated_fails_instead(self):
        charge()
        with self.assertRaisesRegex(CommandFailed, "worker died"):
            run_due(deliveries=2, raise_errors=True)
        assert done == ["charged"]

    def test_it_says_so_if_calls_are_run_where_they_are_made(self):
        with override_settings(QUEUE_ALWAYS_EAGER=True), self.assertRaisesRegex(RuntimeError, "QUEUE_ALWAYS_EAGER"):
            run_due()

    def test_it_leaves_no_ears_and_no_patches(self):
        receivers = {name: len(getattr(signals, name).receivers) for name in ("enqueued", "completed", "failed")}
        explode()
        with self.assertRaises(ValueError):
            run_due(raise_errors=True)
        assert {name: len(getattr(signals, name).receivers) for name in receivers} == receivers
        assert "close" not in vars(connections["default"])


class OnMemory(RunDue, TestCase):
    def setUp(self):
        self.enterContext(override_settings(QUEUES={"default": MEMORY, "mail": MEMORY}))


@override_settings(QUEUES={"default": DATABASE, "mail": DATABASE})
class OnDatabase(RunDue, TestCase):
    """Where calls are part of the transaction."""


class WithoutDatabase(SimpleTestCase):
    @memory_queues()
    def test_it_runs_what_is_due(self):
        SendMail.command().enqueue("ann")
        assert [run.value for run in run_due()] == ["to ann"]


@pytest.mark.django_db
def test_with_the_db_fixture_of_pytest_django(settings):
    settings.QUEUES = {"default": MEMORY}
    build_later("fence")
    assert [run.command for run in run_due()] == [build_later.name, build.name]
    assert names() == {"fence"}


@pytest.mark.backends(database=True)
def test_on_every_backend(backend, settings):
    settings.QUEUES = backend.queues()
    build("fence", parts=1)
    explode()
    runs = run_due()
    assert [(run.args, run.outcome) for run in runs] == [(("fence",), "done"), ((), "failed"), (("fence.0",), "done")]
    assert len(queues["default"].failed) == 1


@pytest.mark.backends("postgres")
def test_a_broken_transaction_of_postgresql_is_whole_again(backend, settings):
    settings.QUEUES = backend.queues()
    with transaction.atomic(backend.alias):
        break_it(backend.alias)
        explode()
        assert [run.outcome for run in run_due()] == ["done", "failed"]


def test_in_async_code_it_is_called_in_a_thread(settings):
    settings.QUEUES = {"default": MEMORY}

    async def play():
        await add_up.aenqueue(1)
        with pytest.raises(SynchronousOnlyOperation, match="sync_to_async"):
            run_due()
        return await sync_to_async(run_due)()

    assert [run.value for run in asyncio.run(play())] == [1]
