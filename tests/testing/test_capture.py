"""A plain TestCase sees what was enqueued on commit."""

import subprocess
import sys
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.test import SimpleTestCase, TestCase, override_settings

from djqueue import queues, signals
from djqueue.decorators import queue_command
from djqueue.testing import Enqueued, capture_enqueued, enqueued_on_commit, run_due
from tests.app.models import Thing

MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}


@queue_command
def paint(colour="red"):
    """Nothing."""


NAME = paint.name


@override_settings(QUEUES={"default": MEMORY, "mail": MEMORY})
class OnMemory(TestCase):
    """What is sent on commit."""

    def setUp(self):
        queues.reset()  # a queue in memory outlives a test

    def test_it_is_sent_at_the_end_of_the_block(self):
        with enqueued_on_commit() as enqueued:
            one, other = paint("blue"), paint.using(queue_name="mail").enqueue()
            assert (enqueued, len(queues["default"])) == ([], 0)
        assert enqueued == [Enqueued(one.id, NAME, "default"), Enqueued(other.id, NAME, "mail")]
        assert (len(queues["default"]), len(queues["mail"])) == (1, 1)

    def test_only_what_was_enqueued_inside_is_sent(self):
        paint("before")
        with enqueued_on_commit() as enqueued:
            inside = paint("inside")
        paint("after")
        assert [message.id for message in enqueued] == [inside.id]
        assert len(queues["default"]) == 1

    def test_what_a_callback_enqueues_is_sent_at_once_as_after_a_commit(self):
        with enqueued_on_commit() as enqueued:
            transaction.on_commit(lambda: paint("inside a callback"))
            paint("behind it")
        assert [message.args for message in enqueued] == [("inside a callback",), ("behind it",)]
        assert len(queues["default"]) == 2

    def test_a_savepoint_that_is_rolled_back_sends_nothing(self):
        with enqueued_on_commit() as enqueued:
            with self.assertRaises(IntegrityError), transaction.atomic():
                paint("lost")
                raise IntegrityError
            kept = paint("kept")
        assert [message.id for message in enqueued] == [kept.id]

    def test_a_block_that_raises_sends_nothing(self):
        with self.assertRaises(ZeroDivisionError), enqueued_on_commit() as enqueued:
            paint()
            raise ZeroDivisionError
        assert (enqueued, len(queues["default"])) == ([], 0)

    def test_blocks_within_blocks_send_once(self):
        with enqueued_on_commit() as outer:
            first = paint()
            with enqueued_on_commit() as inner:
                second = paint()
        assert [message.id for message in inner] == [second.id]
        assert [message.id for message in outer] == [second.id, first.id]
        assert len(queues["default"]) == 2

    def test_beside_what_django_has_for_it(self):
        with self.captureOnCommitCallbacks(execute=True), enqueued_on_commit() as enqueued:
            paint()
        assert (len(enqueued), len(queues["default"])) == (1, 1)

    def test_a_failing_callback_is_raised_and_a_robust_one_logged(self):
        with self.assertLogs("djqueue.enqueueing.on_commit"), enqueued_on_commit() as enqueued:
            transaction.on_commit(lambda: 1 / 0, robust=True)
            paint()
        assert len(enqueued) == 1
        with self.assertRaises(ZeroDivisionError), enqueued_on_commit():
            transaction.on_commit(lambda: 1 / 0)

    def test_it_tells_what_the_messages_say(self):
        with capture_enqueued() as calls:
            paint("blue")
            paint.using(queue_name="mail", delay=60, priority=7).enqueue(colour="green")
        plain, special = calls
        assert (plain.args, plain.kwargs, plain.delay, plain.priority) == (("blue",), {}, 0.0, 0)
        assert (special.args, special.kwargs, special.delay, special.priority) == ((), {"colour": "green"}, 60.0, 7)
        assert special.run_at - plain.run_at >= timedelta(seconds=59)
        assert str(special) == f"{NAME}(colour='green') in 'mail'"

    def test_what_was_registered_before_stays_although_a_worker_commits_inside(self):
        """Then the list of callbacks is shorter than it was at the beginning."""
        paint("before")
        with capture_enqueued() as calls:
            run_due()
            paint("inside")
        assert [call.args for call in calls] == [("before",), ("inside",)]

    def test_what_a_worker_took_at_once_cannot_be_looked_at(self):
        def take(**kwargs):
            queues["default"].read()

        signals.enqueued.connect(take)
        try:
            with capture_enqueued() as calls:
                paint()
        finally:
            signals.enqueued.disconnect(take)
        with self.assertRaisesRegex(LookupError, "gone before"):
            calls[0].args  # noqa: B018

    def test_it_says_so_if_calls_are_run_where_they_are_made(self):
        with override_settings(QUEUE_ALWAYS_EAGER=True), self.assertRaisesRegex(RuntimeError, "nothing ever waits"):
            capture_enqueued()

    def test_it_listens_no_longer_than_its_block(self):
        before = len(signals.enqueued.receivers)
        with enqueued_on_commit() as enqueued:
            pass
        with enqueued_on_commit():
            paint()
        assert (enqueued, len(signals.enqueued.receivers)) == ([], before)


@override_settings(QUEUES={"default": MEMORY})
class OfAClass(TestCase):
    """What is enqueued while the fixtures of a class are made."""

    @classmethod
    def setUpTestData(cls):
        queues.reset()
        with capture_enqueued() as cls.calls:
            paint("sent")
        paint("kept")

    def setUp(self):
        queues.reset()

    def test_its_block_commits(self):
        assert [call.args for call in self.calls] == [("sent",)]

    def test_what_is_not_sent_there_belongs_to_no_test(self):
        with capture_enqueued() as calls:
            assert run_due() == []
        assert calls == []


@override_settings(QUEUES={"default": DATABASE})
class OnDatabase(TestCase):
    """What is part of the transaction."""

    def test_it_waits_at_once_and_is_certain_at_the_end(self):
        with enqueued_on_commit() as enqueued:
            one = paint("blue")
            assert (enqueued, len(queues["default"])) == ([], 1)
        assert enqueued == [Enqueued(one.id, NAME, "default")]

    def test_a_savepoint_that_is_rolled_back_is_not_in_it(self):
        with enqueued_on_commit() as enqueued:
            with self.assertRaises(IntegrityError), transaction.atomic():
                paint("lost")
                raise IntegrityError
        assert enqueued == []

    def test_what_a_callback_enqueues_is_seen_too(self):
        with enqueued_on_commit() as enqueued:
            Thing.objects.create(name="fence")
            transaction.on_commit(paint.enqueue)
        assert [message.command for message in enqueued] == [NAME]

    def test_many(self):
        with enqueued_on_commit() as enqueued:
            results = paint.enqueue_many([("red",), {"colour": "blue"}])
        assert [message.id for message in enqueued] == [result.id for result in results]


@override_settings(QUEUES={"default": MEMORY})
class WithoutDatabase(SimpleTestCase):
    """Without a transaction all is sent at once."""

    def test_it_is_seen_at_once(self):
        with enqueued_on_commit() as enqueued:
            one = paint()
            assert [message.id for message in enqueued] == [one.id]


@pytest.mark.django_db(transaction=True)
def test_callbacks_are_not_run_again_by_a_real_commit(settings):
    settings.QUEUES = {"default": MEMORY}
    with transaction.atomic(), enqueued_on_commit() as enqueued:
        paint()
    assert (len(enqueued), len(queues["default"])) == (1, 1)


@pytest.mark.backends(database=True)
def test_on_every_backend(backend, settings):
    settings.QUEUES = backend.queues()
    with transaction.atomic(), enqueued_on_commit() as enqueued:
        result = paint()
    assert enqueued == [Enqueued(result.id, NAME, "default")]
    assert len(queues["default"]) == 1


def test_it_needs_no_test_library():
    blocked = "sys.modules.update(pytest=None, hypothesis=None)"
    code = f"import sys; {blocked}; from djqueue.testing import enqueued_on_commit"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
