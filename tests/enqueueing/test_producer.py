"""From a call to an entry in the queue: what is sent, when, and what is refused."""

import asyncio
import pickle
import threading
import traceback
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ObjectDoesNotExist, SynchronousOnlyOperation
from django.test import override_settings
from django.utils import timezone

from djqueue import conf, queues
from djqueue.backends.base import Entry, OnceGuard, walk
from djqueue.decorators import queue_command
from djqueue.enqueueing import producer
from djqueue.enqueueing.command import Call, Command
from djqueue.enqueueing.producer import terms_of
from djqueue.exceptions import (
    BadSignature,
    EncodeError,
    InvalidMessage,
    InvalidQueueError,
    MessageTooLarge,
    NotSupported,
    StoreUnreachable,
)
from djqueue.messages.envelope import new_id
from djqueue.policies.policy import Policy
from djqueue.running.context import open_entry
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
        with pytest.raises(MessageTooLarge, match="1000 are allowed.*QUEUE_MAX_MESSAGE_SIZE"):
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


def sent(*calls, command=note):
    """The entry of a call, as it lies in the queue of that name now."""
    handle = command.enqueue(*calls)
    return queues[handle.queue_name].find(handle.id).entry


@pytest.mark.backends("memory")
class TestChanges:
    """What a call is made of is prepared: a change counts from the next call on."""

    def test_settings_that_are_overridden(self, queue):
        assert (sent(1).priority, note(1).kept) == (0, False)
        with override_settings(QUEUE_DEFAULT_PRIORITY=5, QUEUE_RESULT_TTL=60):
            assert (sent(1).priority, note(1).kept) == (5, True)
            with override_settings(QUEUE_DEFAULT_PRIORITY=6):
                assert (sent(1).priority, note(1).kept) == (6, True)
            assert sent(1).priority == 5
        assert (sent(1).priority, note(1).kept) == (0, False)

    def test_settings_that_are_assigned_and_deleted(self, queue):
        with override_settings():  # so that the assignments end with the test
            for priority in (5, 6, 5, 5):
                django_settings.QUEUE_DEFAULT_PRIORITY = priority
                assert sent(1).priority == priority
            del django_settings.QUEUE_DEFAULT_PRIORITY
            assert sent(1).priority == 0
            django_settings.QUEUE_MAX_MESSAGE_SIZE = 200
            with pytest.raises(MessageTooLarge, match="200 are allowed"):
                note(b"x" * 200)
            django_settings.QUEUE_SERIALIZER = "json"
            assert b"json" in sent(1).body
            django_settings.QUEUE_ALWAYS_EAGER = True
            note("here")
            assert ran == [(("here",), {})]

    def test_a_variable_of_the_environment_that_is_read_again(self, queue, monkeypatch):
        assert sent(1).priority == 0
        with monkeypatch.context() as patch:
            patch.setenv("QUEUE_DEFAULT_PRIORITY", "7")
            conf.forget()
            assert sent(1).priority == 7
        conf.forget()
        assert sent(1).priority == 0

    @pytest.mark.parametrize("change", ["overridden", "assigned"])
    def test_a_secret_key(self, queue, settings, change):
        note("before")
        with override_settings():
            if change == "overridden":
                settings.SECRET_KEY = "another"
            else:
                django_settings.SECRET_KEY = "another"
            after = sent("after")
            assert open_entry(queue, after).arguments() == (("after",), {})
        with pytest.raises(BadSignature):
            with override_settings(SECRET_KEY="a third"):
                open_entry(queue, after)

    def test_no_report_of_an_error_shows_a_secret_key(self, queue, settings):
        settings.SECRET_KEY, settings.QUEUE_MAX_MESSAGE_SIZE = "not to be shown", 10
        with pytest.raises(MessageTooLarge) as raised:
            note()
        shown = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
        assert "max_size = 10" in shown
        assert "not to be shown" not in shown
        with pytest.raises(NotSupported) as raised:
            queue.features = frozenset()
            note.using(priority=1)()
        shown = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
        assert "version = " in shown
        assert "not to be shown" not in shown

    def test_queues(self, queue, backend, settings):
        first = sent(1)
        settings.QUEUES = backend.queues("default", "slow")
        assert [sent(number).id for number in range(2)] == [lease.entry.id for lease in queues["default"].claim(9)]
        assert first.id not in {record.entry.id for record in walk(queues["default"], "leased")}
        before = queues["default"]
        queues.reset()
        sent(1)
        assert len(queues["default"]) == 1
        assert before is not queues["default"]

    def test_options(self, queue):
        def work():
            pass

        command = Command(work, Policy())
        urgent = command.using(priority=1)
        assert [sent(command=one).priority for one in (command, urgent, command, urgent)] == [0, 1, 0, 1]
        command.policy = Policy.of(priority=2, ttl=60)
        assert [sent(command=one).priority for one in (command, urgent)] == [2, 1]
        assert open_entry(queue, sent(command=command)).options == {}
        assert open_entry(queue, sent(command=urgent)).options == {"ttl": None}, "it differs from what is declared now"

    def test_options_that_are_functions_are_asked_at_each_call(self, queue):
        delays = iter([60.0, 0.0, 60.0, 60.0, 0.0])
        later = note.using(delay=lambda: next(delays))
        ids = [later().id, later().id, *[handle.id for handle in later.enqueue_many([(), (), ()])]]
        states = [queue.find(id).state for id in ids]
        assert states == ["delayed", "ready", "delayed", "delayed", "ready"]

    def test_a_moment_that_is_too_late_for_the_ttl_is_refused_when_it_has_come_to_that(self, queue, monkeypatch):
        moment = datetime.fromtimestamp(queue.now() + 60, UTC)
        soon = note.using(run_after=moment, ttl=3600)
        soon()
        monkeypatch.setattr(queue, "now", lambda: moment.timestamp() - 7200)
        with pytest.raises(ValueError, match="run_after is later than ttl"):
            soon()

    def test_what_one_thread_assigns_counts_for_the_next_call_though_others_call_meanwhile(self, queue):
        over = threading.Event()

        def call_on():
            while not over.is_set():
                note("other")
                queue.flush()

        with override_settings():
            others = [threading.Thread(target=call_on) for _ in range(2)]
            for other in others:
                other.start()
            try:
                found = []
                for priority in range(300):
                    django_settings.QUEUE_DEFAULT_PRIORITY = priority
                    found.append(terms_of(note, note.policy).priority)
            finally:
                over.set()
                for other in others:
                    other.join()
        assert found == [*range(300)]

    def test_a_copy_and_a_pickle_bring_no_old_terms(self, queue):
        note(1)
        assert note.using(priority=1).terms is None
        assert pickle.loads(pickle.dumps(note)) is note


@pytest.mark.backends("memory")
def test_the_entry_is_what_the_options_say(queue):
    def pending(**options):
        command, id = note.using(**options), new_id()
        entry = terms_of(command, command.policy).pending(((1,), {}), id).entry
        assert open_entry(queue, entry).arguments() == ((1,), {})
        return entry

    entry = pending(priority=3, delay=2)
    assert entry == Entry(entry.body, entry.id, 3, 0.0, 2.0, command=note.name)
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    assert (pending(run_after=moment).run_at, pending(run_after=moment).delay) == (moment.timestamp(), 0.0)


class TestErrors:
    """They say in which call, wherever on its way they come up."""

    @pytest.mark.backends("memory")
    def test_of_a_store_that_is_asked_for_the_time(self, queue, monkeypatch):
        def unreachable():
            raise StoreUnreachable("The store is unreachable.")

        soon = note.using(run_after=datetime.fromtimestamp(queue.now() + 60, UTC), ttl=3600)
        monkeypatch.setattr(queue, "now", unreachable)
        with pytest.raises(StoreUnreachable) as raised:
            soon()
        assert raised.value.__notes__ == [f"In a call of {note.name}."]

    @pytest.mark.backends("memory", "redis")
    def test_of_a_store_that_takes_nothing(self, queue, monkeypatch):
        def unreachable(*args):
            raise StoreUnreachable("The store is unreachable.")

        monkeypatch.setattr(queue, "put_new", unreachable)
        with pytest.raises(StoreUnreachable, match="^Queue 'default': the store is unreachable") as raised:
            note()
        assert raised.value.__notes__ == [f"In a call of {note.name}."]

    @pytest.mark.backends("memory")
    def test_of_what_cannot_be_carried(self, queue, settings):
        with pytest.raises(EncodeError) as raised:
            note(threading.Lock())
        assert raised.value.__notes__ == [f"In a call of {note.name}."]
        settings.QUEUE_MAX_MESSAGE_SIZE = 10
        with pytest.raises(MessageTooLarge) as raised:
            note()
        assert raised.value.__notes__ == [f"In a call of {note.name}."]

    @pytest.mark.backends("memory", "sqlite", "postgres")
    @pytest.mark.parametrize(
        "options", [{}, {"delay": 60}, {"run_after": datetime(2100, 1, 1, tzinfo=UTC), "ttl": 1e10 - 1}]
    )
    def test_of_a_call_in_async_code(self, queue, options):
        async def enqueue():
            note.using(**options)()

        note()  # so that all that is prepared is prepared
        with pytest.raises(
            SynchronousOnlyOperation, match=r"note is called in async code.*: await note.aenqueue\(...\)"
        ):
            asyncio.run(enqueue())


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
