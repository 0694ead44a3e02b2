"""A test asserts what is enqueued, and is told what is."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, transaction
from django.test import SimpleTestCase, TestCase, override_settings

from djqueue import BatchCommand, invoker, queues
from djqueue.backends.base import BaseQueue
from djqueue.classes import QueueCommand
from djqueue.decorators import queue_command
from djqueue.deferrable import Deferrable
from djqueue.enqueueing.command import Command
from djqueue.exceptions import NotSupported, UnknownCommand
from djqueue.testing import assert_enqueued, assert_not_enqueued, memory_queues, run_due, waiting
from tests.app.models import Thing
from tests.support.consumer import only

MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue"}
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}


@queue_command
def paint(thing, colour="red", *, coats=1):
    """Nothing."""


@queue_command(debounce=60, always_delay=True)
def tidy():
    """Nothing."""


@queue_command(result_ttl=60)
def measure(thing):
    return len(thing)


@queue_command(models="reference")
def polish(thing):
    """Nothing."""


@Deferrable("mail").deferrable
def post(letter):
    """Nothing."""


class SendMail(QueueCommand):
    def execute(self):
        """Nothing."""


class Notify(BatchCommand):
    def perform(self, *requests):
        """Nothing."""


class Assertions:
    """What holds on every backend, in a TestCase."""

    def test_a_call_that_waits_is_found(self):
        call = paint("fence")
        [found] = assert_enqueued(paint)
        assert (found.id, found.command, found.args) == (call.id, paint.name, ("fence",))
        assert_enqueued(paint, ["fence"])
        assert_enqueued(paint, args=("fence",), count=1, queue_name="default")

    def test_forms_of_one_call_are_equal(self):
        paint("fence", "red")
        for args, kwargs in [
            (["fence"], None),
            (None, {"thing": "fence"}),
            (("fence",), {"colour": "red"}),
            (("fence", "red"), {"coats": 1}),
        ]:
            assert_enqueued(paint, args, kwargs)

    def test_another_call_is_not_found_and_the_message_lists_what_is(self):
        paint("fence")
        paint.using(queue_name="mail").enqueue("door", coats=2)
        with self.assertRaises(AssertionError) as caught:
            assert_enqueued(paint, ("gate",), {"coats": 3})
        assert str(caught.exception).splitlines() == [
            f"{paint.name}('gate', coats=3) is not enqueued.",
            "There waits:",
            f"  {paint.name}('fence') in 'default'",
            f"  {paint.name}('door', coats=2) in 'mail'",
        ]

    def test_a_class_stands_for_its_command(self):
        invoker.enqueue(SendMail(7))
        Notify.enqueue("ann", "bob")
        assert_enqueued(SendMail, count=1)
        assert_enqueued(SendMail(7), count=1)
        assert_not_enqueued(SendMail(8))
        assert_enqueued(Notify, ["ann"], count=1)
        assert_enqueued(Notify, count=2)

    def test_counts_are_exact(self):
        paint.enqueue_many([("fence",), ("fence",), ("door",)])
        assert len(assert_enqueued(paint, ("fence",), count=2)) == 2
        with self.assertRaisesRegex(AssertionError, "is enqueued 2 times, not once"):
            assert_enqueued(paint, ("fence",), count=1)
        with self.assertRaisesRegex(AssertionError, "is enqueued 3 times, not 0 times"):
            assert_not_enqueued(paint)

    def test_what_is_not_enqueued(self):
        assert_not_enqueued()
        assert_not_enqueued(paint)
        paint("fence")
        assert_not_enqueued(paint, ("door",))
        assert_not_enqueued(paint, queue_name="mail")
        assert_not_enqueued(SendMail)
        with self.assertRaisesRegex(AssertionError, "any command is enqueued once, not 0 times"):
            assert_not_enqueued()

    def test_a_debounced_call_is_due_when_its_window_is_over_and_a_handle_knows_what_came_of_its_call(self):
        calls = [tidy(), tidy(), tidy()]
        assert_enqueued(tidy, delay=60, count=1)
        assert [call.enqueued for call in calls] == [True, False, False]

    def test_who_forgets_that_nothing_commits_is_told(self):
        transaction.on_commit(lambda: paint("fence"))
        with self.assertRaisesRegex(AssertionError, r"that wait for a commit: 1\. capture_enqueued\(\) runs them"):
            assert_enqueued(paint)
        paint("door")
        assert_enqueued(paint, count=1)

    def test_a_call_that_waits_can_be_cancelled(self):
        call = paint("fence")
        assert_enqueued(paint)
        assert (bool(call.cancel()), call.status) == (True, "cancelled")
        assert_not_enqueued(paint)
        assert run_due() == []

    def test_a_call_that_has_run_has_its_result_and_does_not_wait(self):
        call = measure("fence")
        run_due()
        assert (call.enqueued, call.get(timeout=0), bool(call.cancel())) == (True, 5, False)
        assert_not_enqueued(measure)

    def test_options_of_the_call_count(self):
        paint.using(queue_name="mail", delay=3600, priority=7).enqueue("fence")
        slow = paint.using(queue_name="mail")
        [found] = assert_enqueued(slow, ("fence",), delay=3600, priority=7)
        assert (found.delay, found.priority) == (3600.0, 7)
        with self.assertRaisesRegex(AssertionError, "is not enqueued"):
            assert_enqueued(paint.using(queue_name="default"))
        for wrong in ({"delay": 60}, {"priority": 0}, {"queue_name": "default"}):
            with self.assertRaises(AssertionError):
                assert_enqueued(slow, ("fence",), **wrong)

    def test_a_command_class_an_object_of_it_a_name_and_a_deferred_function(self):
        SendMail({"to": "ann"}).command().enqueue({"to": "ann"})
        assert_enqueued(SendMail)
        assert_enqueued(SendMail, ({"to": "ann"},))
        assert_enqueued(SendMail({"to": "ann"}))
        assert_enqueued(f"{__name__}.SendMail", count=1)
        assert_not_enqueued(SendMail({"to": "bob"}))
        post.later("hello")
        assert_enqueued(post, ("hello",), queue_name="mail")

    def test_model_instances_are_equal_by_their_keys(self):
        fence = Thing.objects.create(name="fence")
        paint(fence)
        polish(fence)
        assert_enqueued(paint, (fence,))
        assert_enqueued(polish, (fence,))
        assert_not_enqueued(polish, (Thing.objects.create(name="door"),))

    def test_what_cannot_be_read_is_listed_nevertheless(self):
        fence = Thing.objects.create(name="fence")
        polish(fence)
        fence.delete()
        with self.assertRaisesRegex(AssertionError, "whose arguments cannot be read"):
            assert_enqueued(polish, ("fence",))

    def test_what_a_savepoint_took_back_does_not_wait(self):
        with self.assertRaises(IntegrityError), transaction.atomic():
            paint("fence")
            raise IntegrityError
        assert_not_enqueued(paint)

    def test_within_a_block_of_its_own(self):
        with transaction.atomic():
            paint("fence")
            assert_enqueued(paint, count=1)

    def test_looking_changes_nothing(self):
        paint("fence")
        for _ in range(2):
            assert [str(one) for one in waiting()] == [f"{paint.name}('fence') in 'default'"]
        assert waiting("mail") == []

    def test_what_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(TypeError, "missing a required argument: 'thing'"):
            assert_not_enqueued(paint, ())
        with self.assertRaisesRegex(TypeError, "name it"):
            assert_enqueued(args=(1,))
        with self.assertRaises(UnknownCommand):
            assert_enqueued("no.such.command")
        with self.assertRaisesRegex(TypeError, "is no command"):
            assert_enqueued(len)
        with self.assertRaises(ImproperlyConfigured):
            assert_enqueued(paint, queue_name="nowhere")

    def test_arguments_that_are_given_as_to_the_command_are_refused(self):
        for look in (assert_enqueued, assert_not_enqueued):
            for given, advice in [(1, "(1,)"), ("fence", "('fence',)"), ({"thing": 1}, "({'thing': 1},)")]:
                with self.assertRaises(TypeError) as caught:
                    look(paint, given)
                assert str(caught.exception) == f"args is {given!r}: give a tuple, as in args={advice}"
            with self.assertRaisesRegex(TypeError, r"no option thing: .* as in kwargs={'thing': 1}"):
                look(paint, thing=1)
            with self.assertRaisesRegex(TypeError, "kwargs is 2: give a dict"):
                look(paint, (1,), 2)

    def test_a_short_name_is_answered_with_the_full_one(self):
        with only(paint, tidy), self.assertRaisesRegex(UnknownCommand, f"Is {tidy.name} meant?"):
            assert_enqueued("tidy")
        namesake = Command(tidy.func, tidy.policy)
        namesake.name = "shop.commands.tidy"
        with only(tidy, namesake), self.assertRaisesRegex(UnknownCommand, "Is its module imported?"):
            assert_enqueued("tidy")

    def test_it_says_so_if_calls_are_run_where_they_are_made(self):
        with override_settings(QUEUE_ALWAYS_EAGER=True):
            paint("fence")
            for look in (assert_enqueued, assert_not_enqueued):
                with self.assertRaisesRegex(RuntimeError, "QUEUE_ALWAYS_EAGER is on"):
                    look(paint)


class OnMemory(Assertions, TestCase):
    """Where calls are sent on commit."""

    def setUp(self):
        self.enterContext(override_settings(QUEUES={"default": MEMORY, "mail": MEMORY}))

    def test_within_a_block_of_its_own_nobody_was_asked_yet(self):
        with transaction.atomic():
            calls = [tidy(), tidy()]
            assert_enqueued(tidy, delay=0, count=2)
            assert [call.enqueued for call in calls] == [None, None]
            with self.assertRaisesRegex(RuntimeError, "this transaction commits"):
                calls[0].cancel()
            with self.assertRaisesRegex(RuntimeError, "commit first"):
                measure("fence").get(timeout=0)
        assert_enqueued(tidy, delay=60, count=1)


@override_settings(QUEUES={"default": DATABASE, "mail": DATABASE})
class OnDatabase(Assertions, TestCase):
    """Where they are part of the transaction."""


class WithoutDatabase(SimpleTestCase):
    """Where they are sent at once."""

    @memory_queues()
    def test_what_is_sent_at_once_is_found(self):
        paint("fence")
        assert_enqueued(paint, ("fence",), count=1)
        tidy()
        tidy()
        assert_enqueued(tidy, delay=60, count=1)


class TextQueue(BaseQueue):
    """Four verbs: nobody can look inside."""


@override_settings(QUEUES={"default": {"CLASS": f"{__name__}.TextQueue"}})
class OnFourVerbs(SimpleTestCase):
    def test_it_says_that_nobody_can_look_inside(self):
        with self.assertRaises(NotSupported):
            assert_not_enqueued(paint)


@pytest.mark.backends(database=True)
def test_on_every_backend(backend, settings):
    settings.QUEUES = backend.queues()
    with transaction.atomic():
        paint("fence")
        assert_enqueued(paint, ("fence",), count=1)
    assert_enqueued(paint, ("fence",), count=1)
    assert [run.done for run in run_due()] == [True]
    assert_not_enqueued()


def test_more_than_a_page_is_looked_through(settings):
    settings.QUEUES = {"default": MEMORY}
    paint.enqueue_many([(number,) for number in range(1200)])
    assert_enqueued(paint, count=1200)
    assert_enqueued(paint, (1199,), count=1)
    assert len(queues["default"]) == 1200
