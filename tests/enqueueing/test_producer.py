"""From a call to an entry in the queue: what is sent, when, and what is refused."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.utils import timezone

from djqueue import queues
from djqueue.backends.base import OnceGuard
from djqueue.decorators import queue_command
from djqueue.enqueueing import producer
from djqueue.enqueueing.command import Call, Command
from djqueue.exceptions import EncodeError, InvalidMessage, InvalidQueueError, MessageTooLarge, NotSupported
from djqueue.messages.envelope import new_id
from tests.app.models import Thing
from tests.support.consumer import claim_one, recorded_signals, run_one
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


@queue_command
def note(*args, **kwargs):
    ran.append((args, kwargs))
    return args


@queue_command(serializer="json")
def note_json(*args, **kwargs):
    ran.append((args, kwargs))


@queue_command(models="reference")
def rename(thing, name):
    thing.name = name
    thing.save()


@pytest.fixture
def put_sizes(queue, monkeypatch):
    """How many entries each round trip took."""
    sizes, put = [], queue.put
    monkeypatch.setattr(queue, "put", lambda entries, *rest: sizes.append(len(entries)) or put(entries, *rest))
    return sizes


class TestVerbs:
    def test_dj1_a_call_enqueues_one_message_and_runs_nothing(self, queue):
        with recorded_signals("enqueued") as told:
            handle = note(1, 2, word="x")
        assert (ran, len(queue)) == ([], 1)
        assert (handle.command, handle.queue_name) == (f"{__name__}.note", "default")
        assert told == [("enqueued", {"sender": note.name, "id": handle.id, "queue_name": "default"})]
        assert queue.find(handle.id).entry.command == note.name
        run_one(queue)
        assert (ran, len(queue)) == ([((1, 2), {"word": "x"})], 0)

    def test_every_verb_enqueues(self, queue):
        handles = [
            note("call"),
            note.enqueue("enqueue"),
            *note.enqueue_many([("many",), {"word": "many"}, Call(("both",), {"word": "both"})]),
            note.using(priority=0).enqueue("using"),
            note.using(priority=0)("using, called"),
            *note.using(priority=0).enqueue_many([("using, many",)]),
        ]
        assert len({handle.id for handle in handles}) == len(handles) == len(queue)
        for _ in handles:
            run_one(queue)
        sent = [("call",), ("enqueue",), ("many",), (), ("both",), ("using",), ("using, called",), ("using, many",)]
        assert [args for args, _ in ran] == sent
        assert [kwargs for _, kwargs in ran] == [{}, {}, {}, {"word": "many"}, {"word": "both"}, {}, {}, {}]

    @pytest.mark.backends("memory", "redis")
    def test_the_async_verbs_enqueue(self, queue):
        async def enqueue():
            one = await note.aenqueue("a")
            two = await note.using(priority=0).aenqueue("b")
            return [one, two, *await note.aenqueue_many([("c",), ("d",)])]

        assert len({handle.id for handle in asyncio.run(enqueue())}) == 4
        for _ in range(4):
            run_one(queue)
        assert [args for args, _ in ran] == [("a",), ("b",), ("c",), ("d",)]

    def test_many_take_a_round_trip_per_thousand_and_none_takes_none(self, queue, put_sizes):
        handles = note.enqueue_many([(number,) for number in range(2500)])
        assert note.enqueue_many([]) == []
        assert put_sizes == [1000, 1000, 500]
        assert (len(handles), len(queue)) == (2500, 2500)
        assert [lease.entry.id for lease in queue.claim(5)] == [handle.id for handle in handles[:5]]

    @pytest.mark.backends("memory")
    def test_using_leaves_the_command_as_it_is(self, queue):
        bound = note.using(priority=5).using(delay=30)
        assert (bound.policy.priority, bound.policy.delay) == (5, 30)
        assert (note.policy.priority, note.policy.delay) == (None, 0)
        assert bound.call(1) == (1,)

    @pytest.mark.backends("memory")
    def test_a_queue_is_chosen_by_its_alias(self, backend, settings):
        settings.QUEUES = backend.queues("default", "slow")
        handle = note.using(queue_name="slow").enqueue(1)
        assert (len(queues["default"]), len(queues["slow"]), handle.queue_name) == (0, 1, "slow")
        with pytest.raises(InvalidQueueError, match="'fast'.*default, slow"):
            note.using(queue_name="fast").enqueue(1)


class TestWhen:
    def test_higher_priority_goes_first(self, queue):
        for priority in (0, 10, -5):
            note.using(priority=priority).enqueue(priority)
        for _ in range(3):
            run_one(queue)
        assert [args for args, _ in ran] == [(10,), (0,), (-5,)]

    def test_a_delayed_call_waits(self, queue):
        later = note.using(delay=timedelta(minutes=5)).enqueue("later")
        note.enqueue("now")
        record = queue.find(later.id)
        assert record.state == "delayed"
        assert record.at == pytest.approx(queue.now() + 300, abs=30)
        run_one(queue)
        assert ran == [(("now",), {})]
        assert queue.claim(1) == []

    def test_run_after_is_a_moment(self, queue):
        moment = timezone.now().replace(microsecond=0) + timedelta(hours=2)
        handle = note.using(run_after=moment).enqueue("later")
        assert queue.find(handle.id).at == pytest.approx(moment.timestamp(), abs=0.01)
        past = note.using(run_after=datetime(2020, 1, 1, tzinfo=UTC)).enqueue("long ago")
        assert claim_one(queue).entry.id == past.id

    @pytest.mark.backends("memory")
    def test_the_last_word_on_when_counts(self, queue):
        at_ten = note.using(delay=30).using(run_after=datetime(2020, 1, 1, tzinfo=UTC))
        assert (at_ten.policy.delay, at_ten.policy.run_at > 0) == (0, True)
        assert at_ten.using(delay=3).policy.run_at == 0

    @pytest.mark.backends("memory")
    def test_without_time_zones_a_naive_moment_is_local(self, queue, settings):
        settings.USE_TZ, settings.TIME_ZONE = False, "UTC"
        assert note.using(run_after=datetime(2020, 1, 1)).policy.run_at == 1577836800


@pytest.mark.backends("memory")
class TestRefusals:
    def test_what_cannot_be_encoded_is_named_and_one_among_many_sends_none(self, queue):
        with pytest.raises(TypeError, match=r"positional argument 2 \(of type lock\)"):
            note(1, threading.Lock())
        with pytest.raises(EncodeError, match="argument 'word'"):
            note(word=lambda: None)
        with pytest.raises(EncodeError, match="positional argument 1"):
            note_json(object())
        with pytest.raises(EncodeError):
            note.enqueue_many([(1,), (threading.Lock(),)])
        assert len(queue) == 0

    def test_what_is_too_large_is_refused(self, queue, settings):
        with pytest.raises(MessageTooLarge, match="1048576"):
            note(b"x" * 2**20)
        settings.QUEUE_MAX_MESSAGE_SIZE = 1000
        with pytest.raises(MessageTooLarge, match="1000 are allowed"):
            note(b"x" * 1000)
        note(b"x" * 500)
        assert len(queues["default"]) == 1

    def test_what_the_backend_cannot_do_is_refused(self, settings):
        settings.QUEUES = {
            "default": {"CLASS": "tests.backends.contract.toy.ToyQueue", "CONNECTION": {}, "STORE": MEMORY_STORE}
        }
        assert "priority" not in queues["default"].features
        with pytest.raises(NotSupported, match=r"ToyQueue \('default'\) cannot do: priority"):
            note.using(priority=1).enqueue()
        urgent = Command(note.func, note.policy.using(priority=1))
        with pytest.raises(NotSupported, match="cannot do: priority"):
            producer.send_once(urgent, Call(), urgent.policy, OnceGuard("tick", 60), new_id())

    def test_one_with_a_guard_is_told_once(self, queue):
        guard = OnceGuard("tick", 60)
        with recorded_signals("enqueued") as told:
            assert [producer.send_once(note, Call(), note.policy, guard, new_id()) for _ in range(2)] == [True, False]
        assert (len(told), len(queue)) == (1, 1)


MEMORY_STORE = "djqueue.backends.memory.MemoryStore"


@pytest.mark.backends("memory")
class TestArguments:
    def test_json_carries_the_usual_types(self, queue):
        args = (1, "ü", None, [1.5], {"a": (1, 2)}, {3}, b"\x00", Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC))
        handle = note_json(*args, span=timedelta(hours=1))
        assert b"pickle" not in queue.find(handle.id).entry.body
        run_one(queue)
        assert ran == [(args, {"span": timedelta(hours=1)})]

    def test_the_codec_may_be_a_setting(self, queue, settings):
        settings.QUEUE_SERIALIZER, settings.QUEUE_ACCEPT = "json", ("json",)
        note("by setting")
        run_one(queues["default"])  # a setting that changes lets the queues be made anew
        assert ran == [(("by setting",), {})]

    def test_a_codec_that_is_not_accepted_is_not_run(self, queue, settings):
        settings.QUEUE_ACCEPT = ["json"]
        note("pickled")
        assert isinstance(run_one(queues["default"]).exception, InvalidMessage)
        assert ran == []

    def test_each_run_has_arguments_of_its_own(self, queue):
        given = [1]
        note(given)
        given.append(2)
        run_one(queue)
        assert ran == [(([1],), {})]

    @pytest.mark.django_db
    def test_a_model_by_reference_is_read_when_it_runs(self, queue):
        thing = Thing.objects.create(name="old", number=1)
        queue.on_commit = None
        rename(thing, "newer")
        Thing.objects.update(number=2)
        run_one(queue)
        thing.refresh_from_db()
        assert (thing.name, thing.number) == ("newer", 2)

    @pytest.mark.django_db
    def test_a_model_that_is_gone_is_an_invalid_message(self, queue):
        queue.on_commit = None
        thing = Thing.objects.create(name="gone")
        rename(thing, "new")
        thing.delete()
        verdict = run_one(queue)
        assert isinstance(verdict.exception, InvalidMessage)
        assert isinstance(verdict.exception.__cause__, ObjectDoesNotExist)

    @pytest.mark.django_db
    def test_a_model_by_value_is_as_it_was(self, queue):
        queue.on_commit = None
        note(Thing.objects.create(name="old"))
        Thing.objects.update(name="new")
        run_one(queue)
        [((thing,), _)] = ran
        assert thing.name == "old"
