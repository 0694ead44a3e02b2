"""What a queue of four verbs does when its store fails, and with what is not due."""

import logging
from contextlib import contextmanager
from datetime import timedelta
from math import inf

import pytest
from django.db import OperationalError

from djqueue.backends.base import BaseQueue, DebounceGuard, Fact, OnceGuard
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.exceptions import EncodeError, InvalidMessage, InvalidQueueError, MessageTooLarge
from djqueue.testing.contract.steps import claim, entry, leased, names, put, send
from tests.backends.contract.toy import ToyQueue


class FailingQueue(ToyQueue):
    """Its calls number so and so fail."""

    def __init__(self, name, connection=None):
        super().__init__(name, connection)
        self.failing, self.calls = set(), 0

    @contextmanager
    def fails_at(self, *calls):
        self.failing, self.calls = set(calls), 0
        yield
        self.failing = set()

    def _call(self):
        self.calls += 1
        if self.calls in self.failing:
            raise ConnectionError("gone")

    def write(self, data):
        self._call()
        super().write(data)

    def read(self):
        self._call()
        return super().read()


@pytest.fixture
def queue():
    return FailingQueue("toy")


def test_what_was_read_before_an_error_is_claimed(queue, caplog):
    put(queue, *"abc")
    with queue.fails_at(3):
        claimed = queue.claim(3)
    assert (names(claimed), claimed.retry_after) == (["a", "b"], 0)
    assert ("Reading stopped half way" in caplog.text, len(queue)) == (True, 1)
    with queue.fails_at(1), pytest.raises(ConnectionError):
        queue.claim(3)
    assert names(queue.claim(3)) == ["c"]


def test_what_is_not_due_survives_an_error_of_the_read_behind_it(queue):
    put(queue, "late", "later", delay=60)
    with queue.fails_at(3), pytest.raises(ConnectionError):  # read, write back, read
        queue.claim(1)
    assert len(queue) == 2


def test_due_work_is_found_behind_any_number_of_delayed_entries(queue):
    put(queue, *map(str, range(20)), delay=60)
    put(queue, *"abc")
    first = queue.claim(2)
    assert (names(first), first.retry_after) == (["a", "b"], 0)
    rest = queue.claim(2)
    assert names(rest) == ["c"]
    assert 0 < rest.retry_after <= 60
    assert len(queue) == 20


def test_a_look_at_delayed_entries_ends(queue):
    put(queue, "later", delay=90)
    put(queue, "sooner", delay=60)
    with queue.fails_at():
        claimed = queue.claim(5)
    assert (claimed, queue.calls, len(queue)) == ([], 4, 2)
    assert 50 < claimed.retry_after <= 60
    queue.flush()
    assert queue.claim(5).retry_after == inf


def test_a_release_that_fails_half_way_tells_what_it_wrote(queue, caplog):
    leases = leased(queue, *"abc")
    with queue.fails_at(1), pytest.raises(ConnectionError):
        queue.release(leases)
    assert len(queue) == 0
    with queue.fails_at(2), caplog.at_level(logging.ERROR):
        assert names(queue.release(leases)) == ["a", "c"]
    assert [record.message_id for record in caplog.records] == [leases[1].entry.id]
    assert sorted(names(claim(queue, 2))) == ["a", "c"]


def test_a_failed_queue_has_the_options_of_its_queue():
    class Own(ToyQueue):
        def __init__(self, name, connection, region="none"):
            super().__init__(name, connection)
            self.region = region

    class WithoutSuper(BaseQueue):
        def __init__(self, name, connection, region="none"):
            self.name, self.connection, self.region = name, connection, region

    for cls in (Own, WithoutSuper):
        assert cls("mail", {}, region="north").failed.region == "north"
        assert cls(name="mail", connection={}).failed.region == "none"


# ---- guards


@pytest.fixture
def queue_with_store(queue):
    queue.store = MemoryStore("toy")
    return queue


@pytest.mark.parametrize(
    "guard", [OnceGuard("key", 60), DebounceGuard("key", 60), DebounceGuard("key", 60, always_delay=True)]
)
def test_df16_after_a_put_that_failed_the_next_is_not_refused(queue_with_store, guard):
    for _ in range(2):
        with queue_with_store.fails_at(1), pytest.raises(ConnectionError):
            send(queue_with_store, guard, "failed")
        assert len(queue_with_store) == 0
    assert list(send(queue_with_store, guard, "work")) == ["work"]


def test_df16_after_a_scheduled_put_that_failed_the_mark_is_as_it_was(queue_with_store):
    guard = DebounceGuard("key", 60)
    send(queue_with_store, guard, "first")
    was = queue_with_store.store.get("key")
    with queue_with_store.fails_at(1), pytest.raises(ConnectionError):
        send(queue_with_store, guard, "failed")
    assert queue_with_store.store.get("key") == was
    assert list(send(queue_with_store, guard, "scheduled", "refused")) == ["scheduled"]


def test_what_cannot_be_postponed_comes_at_its_first_moment_and_no_call_is_lost(queue_with_store):
    guard = DebounceGuard("key", 0.1, extend=True)
    called = queue_with_store.now()
    assert list(send(queue_with_store, guard, "first", "refused")) == ["first"]
    (first,) = claim(queue_with_store)
    assert first.claimed >= called + 0.1
    assert list(send(queue_with_store, guard, "next")) == ["next"]


# ---- items


def test_an_item_may_be_as_large_as_the_settings_say(queue, settings):
    settings.QUEUE_MAX_MESSAGE_SIZE = 1000
    with pytest.raises(MessageTooLarge, match="1000 are allowed"):
        queue.push("x" * 1000)
    assert len(queue) == 0
    settings.QUEUE_MAX_MESSAGE_SIZE = 2**21
    queue.push("x" * 2**20)
    assert len(queue.pop()) == 2**20


def test_models_in_an_item_are_carried_as_the_settings_say(queue, settings, django_user_model):
    queue.push(django_user_model(pk=5))
    assert queue.pop() == django_user_model(pk=5)
    settings.QUEUE_MODELS = "reference"
    with pytest.raises(EncodeError, match="the item"):
        queue.push(django_user_model())  # nothing to refer to


def test_durations_of_items_are_seconds_or_timedeltas():
    queue = MemoryQueue("items")
    queue.push("later", delay=timedelta(hours=1))
    assert queue.pop(timeout=timedelta(milliseconds=1)) is None
    queue.push_many(["now"], delay=timedelta())
    lease, item = queue.take(lease=timedelta(minutes=2), wait=timedelta(seconds=1))
    assert (item, round(lease.until - lease.claimed)) == ("now", 120)


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("push", {"item": 1, "delay": "5"}, "delay is '5': give seconds or a timedelta"),
        ("push", {"item": 1, "delay": -5, "unique": True}, "delay is -5: give at least 0"),
        ("push_many", {"items": [1], "delay": None}, "delay is None: give seconds or a timedelta"),
        ("pop", {"timeout": None}, "timeout is None: give seconds or a timedelta"),
        ("pop", {"timeout": inf}, "timeout is inf: give at least 0 seconds, and less than"),
        ("take", {"wait": -1}, "wait is -1: give at least 0"),
        ("take", {"lease": 0}, "lease is 0: give at least 0.1"),
    ],
)
def test_what_is_no_duration_is_refused(queue, verb, given, words):
    queue.push("there")
    with pytest.raises((TypeError, ValueError), match=words):
        getattr(queue, verb)(**given)
    assert len(queue) == 1


@pytest.mark.parametrize(("error", "waits"), [(OperationalError("gone"), 1), (InvalidMessage("forged"), 0)])
def test_only_what_cannot_be_read_fails(queue, monkeypatch, error, waits):
    def unpack(*args, **options):
        raise error

    queue.push("item")
    monkeypatch.setattr("djqueue.backends.items.unpack_item", unpack)
    with pytest.raises(type(error)):
        queue.take()
    assert (len(queue), len(queue.failed)) == (waits, 1 - waits)


# ---- options


@pytest.mark.parametrize("make", [MemoryQueue, DatabaseQueue])
@pytest.mark.parametrize(
    "options",
    [{"keep_done": -1}, {"keep_done": 1.5}, {"keep_done": True}, {"remember_done": "x"}, {"remember_done": -1}],
)
def test_options_that_cannot_be_are_refused_by_name(make, options):
    with pytest.raises(InvalidQueueError, match=rf"OPTIONS\['{next(iter(options)).upper()}'\] is"):
        make("mail", "", **options)


def test_a_time_to_remember_may_be_a_timedelta():
    queue = MemoryQueue("mail", remember_done=timedelta(hours=1))
    one = entry()
    queue.put([one])
    queue.complete(claim(queue))
    assert queue.put([one]) == [False]


class FullStore(MemoryStore):
    """Takes nothing more."""

    def put_many(self, facts):
        raise OSError("no space left")


def test_a_store_that_takes_no_facts_costs_the_facts_and_not_the_work(caplog):
    queue = ToyQueue("work")
    queue.store = FullStore("work")
    done, failed = leased(queue, *"ab")
    assert queue.complete([done], [Fact("done", b"1", 60)]) == [done]
    assert queue.fail([failed], [Fact("failed", b"1", 60)]) == [failed]
    assert (len(queue), len(queue.failed)) == (0, 1)
    assert [record.getMessage() for record in caplog.records] == ["The results of 1 messages could not be kept"] * 2
