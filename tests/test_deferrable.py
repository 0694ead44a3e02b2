"""Deferrable: functions deferred into one queue, a loop of one's own, carriers and event consumers, the bare queue."""

import logging
from datetime import timedelta

import pytest

from djqueue import Backoff, Deferrable, MetadataProducerConsumer, RetryPolicy, current_message, queues
from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, READY, Entry
from djqueue.deferrable import OLD_NAMES, DeferrableCommand
from djqueue.exceptions import EncodeError, InvalidQueueError, MessageTooLarge, NotSupported
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.registry import registry
from djqueue.throttle import ThrottledQueue
from tests.support.backends import WITH_SQS
from tests.support.consumer import can_look, only, recorded_signals
from tests.support.notes import cleared_per_test

AND_SQS = pytest.mark.backends(*WITH_SQS)

LONG = 60.0
"""Seconds that no test outlasts."""

stats = Deferrable()
mail = Deferrable("mail", default_error_classes=[ConnectionError], default_max_attempts=2)
ran = cleared_per_test([])


@stats.deferrable
def count(*args, **kwargs):
    ran.append((args, kwargs))
    return len(args)


@stats.deferrable(error_classes=[ZeroDivisionError], max_attempts=3)
def divide():
    ran.append(current_message().attempt)
    return 1 / 0


@stats.deferrable(error_classes=[ZeroDivisionError], use_exponential_backoff=False, max_attempts=3)
def divide_at_once():
    ran.append(current_message().attempt)
    return 1 / 0


@stats.deferrable
async def acount(number):
    ran.append(number)


@stats.deferrable(debounce_seconds=LONG)
def refresh(*args):
    ran.append(args)


@mail.deferrable(ttl_seconds=300)
def send(address):
    ran.append(address)


@stats.deferrable
def hold(seconds):
    """Note for how long it is held, before and after it asked for more."""
    for _ in range(2):
        [record] = stats.queue.peek("leased")
        ran.append(record.at - stats.queue.now())
        assert current_message().touch(seconds)


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


def plain():
    pass


@pytest.mark.backends("memory")
class TestFunctions:
    @AND_SQS
    def test_df1_called_it_runs_inline_and_later_queues_it(self, queue):
        assert count(1, 2) == 2
        assert (ran, len(queue)) == ([((1, 2), {})], 0)
        result = count.later(3)
        assert (len(ran), len(queue), result.status) == (1, 1, READY if can_look(queue) else "unknown")
        assert stats.run_once()
        assert (ran[1:], len(queue)) == ([((3,), {})], 0)

    @AND_SQS
    @pytest.mark.parametrize(
        "args, kwargs",
        [
            ((), {}),
            ((1, 2.5, None, True, "x" * 100_000), {}),
            (("žluťoučký kůň", "日本語", "🐎", "\x00 \\ ' \" \n"), {"ключ": "ключ"}),
            ((b"\x00\xff\x80", bytearray(b"\xfe")), {"deep": [{"a": ({1, 2}, frozenset("ab"))}]}),
            ((), {"a": 1, "self": 2, "func": 3, "args": 4, "kwargs": 5}),
        ],
    )
    def test_df2_arguments_arrive_as_they_were(self, queue, args, kwargs):
        count.later(*args, **kwargs)
        stats.run_once()
        assert ran == [(args, kwargs)]

    def test_what_cannot_be_carried_is_refused_to_the_caller(self, queue):
        with pytest.raises(EncodeError):
            count.later(lambda: None)
        with pytest.raises(TypeError):
            divide.later("one too many")
        assert len(queue) == 0

    def test_bare_and_with_options_it_is_a_command(self, queue):
        with only():
            bare = stats.deferrable(plain)
            assert isinstance(bare, DeferrableCommand)
            assert (bare.policy.queue_name, bare.policy.max_attempts, bare.policy.retry_on) == ("default", 5, None)
            assert registry[f"{__name__}.plain"] is bare
        with only():
            empty = stats.deferrable()(plain)
            assert (empty(), empty.policy) == (None, bare.policy)

    def test_all_old_names_are_known(self, queue):
        old = {"error_classes": (ValueError, KeyError), "max_attempts": 7, "use_exponential_backoff": True}
        old |= {"ttl_seconds": 100, "delay_seconds": 0, "debounce_seconds": timedelta(seconds=1.5)}
        old |= {"debounce_always_delay": True}
        assert OLD_NAMES.keys() <= old.keys()
        with only():
            policy = stats.deferrable(**old)(plain).policy
        assert (policy.retry_on, policy.max_attempts) == ((ValueError, KeyError), 7)
        with only():
            own = stats.deferrable(error_classes={KeyError: 5})(plain).policy
        assert own.retry_on == {KeyError: RetryPolicy(5)}
        assert (policy.backoff, policy.ttl, policy.delay) == (Backoff(), 100.0, 0.0)
        assert (policy.debounce, policy.always_delay) == (1.5, True)

    def test_what_was_left_at_its_default_is_as_if_it_were_not_given(self, queue):
        defaults = {"error_classes": None, "max_attempts": None, "use_exponential_backoff": True}
        defaults |= {"ttl_seconds": 0, "delay_seconds": 0, "debounce_seconds": 0, "debounce_always_delay": False}
        with only():
            spelt = stats.deferrable(**defaults)(plain)
        with only():
            assert spelt.policy == stats.deferrable(plain).policy

    def test_all_new_names_too(self, queue):
        with only():
            declared = stats.deferrable(priority=3, unique=True, time_limit=5, result_ttl=60, serializer="json")
            policy = declared(plain).policy
            assert (policy.priority, policy.unique, policy.time_limit, policy.serializer) == (3, "running", 5.0, "json")
        with only():
            assert mail.deferrable(retries=7)(plain).policy.max_attempts == 8
        with only():
            policy = mail.deferrable(retry_on=[KeyError], retries=1, queue_name="default")(plain).policy
            assert (policy.retry_on, policy.max_attempts, policy.queue_name) == ((KeyError,), 2, "default")

    def test_the_instance_says_what_counts_for_all_its_functions(self, queue):
        assert (send.policy.queue_name, send.policy.max_attempts, send.policy.ttl) == ("mail", 2, 300.0)
        assert send.policy.retry_on == (ConnectionError,)
        send.later("ann@example.com")
        assert (len(queue), len(mail.queue), stats.run_once()) == (0, 1, False)
        assert (mail.run_once(), ran) == (True, ["ann@example.com"])

    def test_exceptions_may_be_given_as_any_iterable(self, queue):
        some = Deferrable(default_error_classes=iter([KeyError, OSError]))
        for _ in range(2):
            with only():
                assert some.deferrable(plain).policy.retry_on == (KeyError, OSError)
        with only():
            assert some.deferrable(error_classes=iter([ValueError]))(plain).policy.retry_on == (ValueError,)

    @pytest.mark.parametrize("classes", [ValueError, KeyError, Exception])
    def test_a_class_in_the_place_of_the_function_is_refused(self, classes):
        with pytest.raises(TypeError, match=r"takes a function, not .*; give exceptions as error_classes=\[...\]"):
            stats.deferrable(classes)
        with pytest.raises(TypeError):
            stats.deferrable(plain, 3)

    @pytest.mark.parametrize(
        "options, reason",
        [
            ({"delay_seconds": 1, "debounce_seconds": 2}, "it excludes delay"),
            ({"debounce_always_delay": True}, "always_delay is a way to debounce"),
            ({"delay_seconds": 2, "ttl_seconds": 1}, "delay is .* than ttl"),
            ({"debounce_seconds": 2, "ttl_seconds": 1}, "debounce is .* than ttl"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"ttl_seconds": -1}, "ttl"),
            ({"delay_seconds": 1, "delay": 2}, "delay_seconds is another name of delay"),
        ],
    )
    def test_df11_contradictions_are_refused_at_the_decoration(self, options, reason):
        with only(), pytest.raises(ValueError, match=reason):
            stats.deferrable(**options)(plain)

    def test_what_is_wrong_with_the_instance_is_told_when_it_is_made(self):
        with pytest.raises(ValueError, match="max_attempts"):
            Deferrable(default_max_attempts=0)
        with pytest.raises(TypeError, match="retry_on"):
            Deferrable(default_error_classes=["KeyError"])
        with pytest.raises(TypeError, match="give an alias of QUEUES"):
            Deferrable(queue_name=None)
        with pytest.raises(TypeError, match=r"Deferrable\(backend=…\): give an alias of QUEUES"):
            Deferrable(backend=object())
        with pytest.raises(TypeError, match="use_exponential_backoff is 3"):
            Deferrable().deferrable(use_exponential_backoff=3)
        assert Deferrable("no such queue")  # settings are not read before they are needed
        with pytest.raises(InvalidQueueError):
            Deferrable("no such queue").run_once()

    def test_df10_functions_for_options_are_asked_once_per_call_and_0_is_none(self, queue):
        asked = []

        def says(value):
            return lambda: asked.append(value) or value

        with only():
            every = stats.deferrable(ttl_seconds=says(0), delay_seconds=says(0.0))(plain)
            assert (every.later().enqueued, asked) == (True, [0, 0.0])
            assert queue.find(every.later().id).state == READY
        asked.clear()
        with only():
            often = stats.deferrable(debounce_seconds=says(0))(plain)
            assert [often.later().enqueued for _ in range(3)] == [True] * 3
            assert asked == [0] * 3

    def test_df11_debouncing_without_a_store_is_refused(self, backend, settings):
        settings.QUEUES = {"default": backend.config() | {"STORE": False}}
        with pytest.raises(NotSupported, match="facts"):
            refresh.later()
        count.later()  # all else works
        assert stats.run_once()

    @pytest.mark.backends()
    def test_df12_debounced_calls(self, queue):
        calls = [refresh.later("x"), refresh.later("x"), refresh.later("x"), refresh.later("y")]
        assert [call.enqueued for call in calls] == [True, True, False, True]
        assert [queue.find(call.id).state for call in calls if call.enqueued] == [READY, DELAYED, READY]
        assert refresh("x") is None  # called directly it is not debounced
        assert ran == [("x",)]


@pytest.mark.backends("memory")
class TestLoop:
    @pytest.mark.backends()
    def test_run_once_runs_one_and_says_whether_one_was_there(self, queue):
        count.later(1), count.later(2)
        assert [stats.run_once() for _ in range(3)] == [True, True, False]
        assert ran == [((1,), {}), ((2,), {})]

    @AND_SQS
    def test_df3_listed_errors_are_tried_again_and_then_put_aside(self, queue):
        divide_at_once.later()
        assert [stats.run_once() for _ in range(4)] == [True, True, True, False]
        assert (ran, len(queue), len(queue.failed)) == ([1, 2, 3], 0, 1)

    def test_df5_in_between_it_waits_longer_and_longer(self, queue):
        now, waits = 1e9, []
        queue.clock = lambda: now
        result = divide.using(max_attempts=20).enqueue()
        for _ in range(11):
            assert stats.run_once()
            waits.append(queue.find(result.id).at - now)
            now += waits[-1]
        assert waits == [4, 6, 10, 18, 34, 66, 130, 258, 514, 900, 900]

    def test_it_waits_for_work_if_it_is_told_to(self, queue):
        count.using(delay=600).enqueue("later")
        assert stats.run_once() is False
        count.using(delay=0.1).enqueue("soon")
        assert stats.run_once(wait=20) is True
        assert ran == [(("soon",), {})]

    @pytest.mark.backends("memory", "sqlite")
    def test_process_runs_what_was_taken_from_the_queue(self, queue):
        count.later(1)
        called = queue.now()
        [lease] = stats.queue.reserve(1, lease=5)
        assert called + 5 - 0.01 <= lease.until <= queue.now() + 5 + 0.01
        stats.process(lease)
        assert (len(ran), stats.queue.stats().leased, stats.queue.stats().done) == (1, 0, 1)

    def test_the_lease_may_be_chosen_and_extended(self, queue):
        hold.later(33)
        assert stats.run_once(lease=5)
        assert ran == [pytest.approx(5, abs=1), pytest.approx(33, abs=1)]

    def test_async_functions_run_too(self, queue):
        acount.later(5)
        assert stats.run_once()
        assert ran == [5]

    def test_what_it_raises_is_not_raised_here(self, queue, caplog):
        divide.later()
        with caplog.at_level(logging.WARNING, "djqueue"):
            assert stats.run_once()
        assert "ZeroDivisionError" in caplog.text
        assert errors_of(queue.peek("delayed")[0].entry.errors)[0]["reason"] == "ZeroDivisionError: division by zero"


@pytest.mark.backends("memory")
class TestHooks:
    """Registered on one Deferrable, they serve its queue alone."""

    def test_df23_carriers(self, queue):
        class Host(MetadataProducerConsumer):
            NAMESPACE = "host"

            def produce_metadata(self):
                return "producer"

            def consume_metadata(self, metadata):
                ran.append(metadata)

        stats.register_metadata_producer_consumer(Host())
        with pytest.raises(ValueError, match="'host' is taken"):
            stats.register_metadata_producer_consumer(Host())
        mail.register_metadata_producer_consumer(Host())
        mail.clear_metadata_producer_consumers()
        count.later(), send.later("ann")
        assert stats.run_once() and mail.run_once()
        assert ran == ["producer", ((), {}), "ann"]
        stats.clear_metadata_producer_consumers()
        stats.register_metadata_producer_consumer(Host())

    def test_df18_event_consumers(self, queue):
        class Hears:
            def on_push(self, item):
                ran.append(item["id"])

            def on_empty(self, item):
                ran.append(item)

        stats.register_event_consumer(Hears())
        one, _ = count.later(), send.later("ann")
        assert ran == [one.id]
        assert (mail.run_once(), mail.run_once()) == (True, False)
        stats.queue.flush()
        assert stats.run_once() is False
        assert ran == [one.id, "ann", None]
        stats.clear_event_consumers()
        count.later()
        assert len(ran) == 3


class TestTheQueueItself:
    def test_an_item_is_pushed_taken_and_completed(self, queue):
        item = {"a": 1, "ü": [None, (2, b"\xff")]}
        stats.queue.push(item)
        lease, taken = stats.queue.take()
        assert (taken, taken is not item) == (item, True)
        assert stats.queue.complete([lease]) == [lease]
        assert (len(stats.queue), stats.queue.stats().done) == (0, 1)

    def test_pop_is_refused_as_it_returned_a_pair_there_and_the_item_stays(self, queue):
        item = {"envelope": 1, "item": 2}
        stats.queue.push(item)
        with pytest.raises(AttributeError, match=r"returned \(envelope, item\)\. Use \.take\(\), .*\.pop\(\)"):
            envelope, item = stats.queue.pop()
        assert not hasattr(stats.queue, "pop") and (len(stats.queue), len(queue)) == (1, 1)
        assert queues[stats.queue_name].pop() == item

    def test_in_all_else_it_is_the_queue_of_its_alias(self, queue):
        own = stats.queue
        assert isinstance(own, BaseQueue) and (own.alias, own.features) == (queue.alias, queue.features)
        own.lease = 7.0
        assert (queue.lease, own.lease) == (7.0, 7.0)
        throttled = ThrottledQueue(own, limit=1, window=60)
        own.push_many([1, 2])
        assert [throttled.take()[1], throttled.take()[1], len(own)] == [1, None, 1]

    def test_df24_taking_from_an_empty_queue_gives_nones_and_put_and_complete_tell_of_each(self, queue):
        assert queue.take() == (None, None)
        assert queue.claim(10) == []
        made = [Entry(b"x", new_id()) for _ in range(3)]
        assert queue.put([made[0], made[1], made[0], made[2]]) == [True, True, False, True]
        assert queue.put([made[1]]) == [False]
        leases = queue.claim(10)
        assert queue.complete([leases[1]]) == [leases[1]]
        assert queue.complete(leases) == [leases[0], leases[2]]

    def test_df24_a_batch_may_have_any_size(self, queue):
        made = [Entry(b"x", new_id()) for _ in range(2500)]
        assert queue.put(made) == [True] * 2500
        leases = []
        while some := queue.claim(3000):
            leases += some
        assert [lease.entry.id for lease in leases] == [entry.id for entry in made]
        assert len(queue.complete(leases)) == 2500
        assert (len(queue), queue.stats().leased) == (0, 0)
        assert (queue.put([]), queue.complete([])) == ([], [])

    @pytest.mark.backends("memory")
    def test_df24_what_is_too_large_is_refused(self, queue, settings):
        settings.QUEUE_MAX_MESSAGE_SIZE = 1000
        with pytest.raises(MessageTooLarge):
            stats.queue.push("x" * 1000)
        with pytest.raises(MessageTooLarge):
            count.later("x" * 1000)
        with pytest.raises(MessageTooLarge):
            count.enqueue_many([(1,), ("x" * 1000,)])
        assert len(queues["default"]) == 0

    @AND_SQS
    def test_df27_completing_out_of_order_takes_the_right_ones(self, queue):
        for item in ("a", "b", "c"):
            queue.push(item)
        a, b, c = sorted((queue.take() for _ in range(3)), key=lambda taken: taken[1])
        assert queue.complete([b[0]]) == [b[0]]
        assert queue.stats().leased == 2
        if can_look(queue):
            assert queue.find(b[0].entry.id) is None
            assert {queue.find(lease.entry.id).state for lease, _ in (a, c)} == {"leased"}
        assert queue.complete([c[0]]) == [c[0]]
        queue.release([a[0]])
        assert (queue.take()[1], queue.take()) == ("a", (None, None))

    @AND_SQS
    def test_df27_completing_twice_is_harmless_and_says_so(self, queue):
        queue.push("a"), queue.push("b")
        (a, _), (b, _) = queue.take(), queue.take()
        assert [queue.complete([a]), queue.complete([a])] == [[a], []]
        assert queue.complete([b, a, b]) in ([b], [b, b])
        assert (len(queue), queue.stats().leased) == (0, 0)
        assert not can_look(queue) or queue.stats().done == 2

    def test_the_failed_queue_is_a_queue_too(self, queue):
        divide.using(max_attempts=1).enqueue()
        with recorded_signals("failed") as told:
            stats.run_once()
        dead = stats.queue.failed
        assert (len(dead), dead.failed, told[0][0]) == (1, None, "failed")
        [record] = dead.peek("ready")
        [note] = errors_of(record.entry.errors)
        assert note["reason"] == "ZeroDivisionError: division by zero"
        assert "return 1 / 0" in note["traceback"]
        assert stats.queue.requeue([record.entry.id]) == 1
        assert (len(dead), len(stats.queue)) == (0, 1)

    def test_touch_flush_and_stats(self, queue):
        queue.push("a"), queue.push("b", delay=LONG)
        lease, _ = queue.take(lease=5)
        [kept] = queue.touch([lease], 50)
        assert kept.until > lease.until
        counts = queue.stats()
        assert (counts.ready, counts.delayed, counts.leased) == (0, 1, 1)
        queue.flush()
        assert (len(queue), queue.stats().leased) == (0, 1)
        assert queue.complete([kept]) == [kept]
