"""Batch commands as classes: where requests go, and the life of the object that is given them."""

import asyncio
import gc
import threading
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import nan
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation

from djqueue import (
    Batch,
    BatchCommand,
    Concurrency,
    Consumer,
    PartialFailure,
    Route,
    Throttle,
    current_batch,
    queues,
    signals,
)
from djqueue.decorators import queue_command
from djqueue.enqueueing import producer
from djqueue.flow import limits
from djqueue.testing import eventually, memory_queues, run_due
from tests.support.backends import FULL
from tests.support.consumer import Release, message_for, only, recorded_signals, run_one, serving
from tests.support.notes import cleared_per_test

pydantic = pytest.importorskip("pydantic")

pytestmark = pytest.mark.backends("memory", "redis", *(["sqlite", "postgres"] if FULL else []))

MEMORY = pytest.mark.backends("memory")

MEGABYTE = "x" * 1_000_000

told = cleared_per_test([])
lives = []
releases = {}
lock = threading.Lock()


def tell(word, handler, *more):
    with lock:
        told.append((word, id(handler), threading.get_ident(), *more))


def words(*wanted):
    return [word for word, *_ in told if not wanted or word in wanted]


class Notice(NamedTuple):
    user: int
    number: int = 0


@dataclass(frozen=True)
class Address:
    town: str
    code: UUID


@dataclass
class PendingCall:
    weight: Decimal
    to: Address
    via: list[Address] = field(default_factory=list)
    sent: datetime | None = None


@dataclass
class Twin:
    town: str
    code: UUID


@dataclass
class Both:
    one: Address | Twin


class Event(pydantic.BaseModel):
    name: str
    at: datetime
    parts: list[int] = []


@dataclass
class Basket:
    listed: Sequence[Address] = ()
    each: Iterable[Notice] = ()
    named: Mapping[str, Address] = field(default_factory=dict)
    perhaps: list[Address] | None = None
    bare: typing.List = field(default_factory=list)  # noqa: UP006
    pair: tuple[int, int] = (0, 0)
    any: Any = None
    base: Address | None = None


@dataclass(frozen=True)
class Postbox(Address):
    pass


@dataclass
class Counted:
    name: str
    length: int = field(init=False)
    count: int = field(init=False, default=0)
    seen: int = field(init=False, default=0, compare=False)

    def __post_init__(self):
        self.length = len(self.name)


class Odd:
    """Knows no equality that anybody could use."""

    def __eq__(self, other):
        raise ValueError("the truth of this is ambiguous")


class Opaque:
    pass


def as_text(kind):
    back = pydantic.BeforeValidator(lambda value: value if isinstance(value, kind) else kind())
    return typing.Annotated[kind, pydantic.PlainSerializer(lambda value: kind.__name__), back]


class Strange(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    number: typing.Annotated[float, pydantic.PlainSerializer(str)] = 0.0
    odd: as_text(Odd) = pydantic.Field(default_factory=Odd)
    opaque: as_text(Opaque) = pydantic.Field(default_factory=Opaque)


class Aliased(pydantic.BaseModel):
    x: int = pydantic.Field(0, validation_alias="X", serialization_alias="ex")


class Recorded(BatchCommand, abstract=True):
    """Tells of its life."""

    @classmethod
    def create(cls):
        handler = cls()
        lives.append(handler)  # so that no id is used twice
        tell("create", handler)
        return handler

    def start(self):
        tell("start", self)

    def perform(self, *requests):
        tell("perform", self, list(requests))

    def stop(self):
        tell("stop", self)


class Notify(Recorded):
    batch_size = 4
    options = {"idle_timeout": 0}

    @classmethod
    def route(cls, *requests: Notice) -> list[Route]:
        return [Route(thread=request.user % 3) for request in requests]

    def perform(self, *requests: Notice):
        tell("perform", self, list(requests))
        if requests[0].user in releases:
            releases[requests[0].user].wait()


class Lingering(Notify):
    options = {"idle_timeout": 1000}


class Ranked(Recorded):
    priorities = [3, 2, 1]
    options = {"idle_timeout": 0}

    @classmethod
    def route(cls, *requests):
        return [Route(0, request) for request in requests]


class Patient(Ranked):
    batch_size = Batch(size=5, min_size=3, timeout=60)


class Failing(Recorded):
    options = {"idle_timeout": 1000, "retry_on": [KeyError], "backoff": 0.01, "max_attempts": 2}

    def perform(self, *requests):
        tell("perform", self, list(requests))
        if "bad" in requests:
            raise KeyError("bad")


class Partial(Recorded):
    options = {"idle_timeout": 1000}

    def perform(self, *requests):
        tell("perform", self, list(requests))
        if "bad" in requests:
            raise PartialFailure({requests.index("bad"): KeyError("bad")})


class Asynchronous(BatchCommand):
    options = {"idle_timeout": 1000}

    @classmethod
    async def create(cls):
        await asyncio.sleep(0)
        return cls()

    @classmethod
    async def route(cls, *requests):
        await asyncio.sleep(0)
        return [Route(0) for _ in requests]

    async def start(self):
        self.loop = asyncio.get_running_loop()
        self.queue = asyncio.Queue()
        tell("start", self)

    async def handle(self, *requests: int):
        assert asyncio.get_running_loop() is self.loop
        await self.queue.put(requests)
        tell("perform", self, list(await self.queue.get()))
        assert len(current_batch()) == len(requests)

    async def stop(self):
        assert asyncio.get_running_loop() is self.loop
        tell("stop", self)


class Unruly(Recorded):
    @classmethod
    def create(cls):
        raise KeyError("no connection")


class Stubborn(Recorded):
    def stop(self):
        tell("stop", self)
        raise SystemExit(1)


class Carry(Recorded):
    def perform(self, *requests: Notice | PendingCall | Event | None):
        tell("perform", self, list(requests))


class CarryJson(Carry):
    options = {"serializer": "json"}


class Unique(Carry):
    options = {"serializer": "json", "unique": "queued", "key": lambda notice: notice.user}


class Either(Recorded):
    options = {"serializer": "json"}

    def perform(self, *requests: Both):
        tell("perform", self, list(requests))


class Lossy(Recorded):
    options = {"serializer": "json"}

    def perform(self, *requests: Basket | Counted | Strange | Aliased | Address):
        tell("perform", self, list(requests))


class Untold(Recorded):
    options = {"serializer": "json"}


class Gathering(Recorded):
    batch_size = Batch(size=5, min_size=3, timeout=60)
    options = {"idle_timeout": 0}


@pytest.fixture(autouse=True)
def _no_units_left():
    releases.clear()
    yield
    for release in releases.values():
        release.set()
    lives.clear()


def batches():
    return [requests for word, _, _, *more in told if word == "perform" for requests in more]


def of_user(user):
    return [request.number for batch in batches() for request in batch if request.user == user]


class TestOrder:
    def test_sq1_requests_of_a_thread_run_in_order_and_never_two_batches_of_it_at_once(self, queue):
        for user in (0, 1, 2):
            releases[user] = Release()
        Notify.enqueue(*[Notice(user, number) for number in range(30) for user in (0, 1, 2)])
        with serving(threads=8, limit=90) as consumer:
            for release in releases.values():
                release.await_waiting(1)
                release.set()
            assert consumer.code() == 0
        assert [of_user(user) for user in (0, 1, 2)] == [list(range(30))] * 3
        assert [release.most_waiting for release in releases.values()] == [1, 1, 1]
        assert max(map(len, batches())) == 4

    @MEMORY
    def test_what_requests_have_in_common_is_prepared_once_for_each_route(self, queue, monkeypatch):
        made = []

        class Noted(producer.Terms):
            def __init__(self, *given):
                made.append(self)
                super().__init__(*given)

        monkeypatch.setattr(producer, "Terms", Noted)
        Notify.enqueue(*[Notice(number % 2, number) for number in range(20)])
        assert len(made) <= 3
        waiting = [record.entry.lane[-1] for record in queue.peek("ready")]
        assert sorted(waiting) == ["0"] * 10 + ["1"] * 10

    def test_sq2_threads_run_beside_each_other(self, queue):
        release = Release()
        releases.update({0: release, 1: release, 2: release})
        Notify.enqueue(*[Notice(user) for user in (0, 1, 2)])
        with serving(threads=3, limit=3) as consumer:
            release.await_waiting(3)
            release.set()
            assert consumer.code() == 0
        assert len({thread for word, _, thread, *_ in told if word == "perform"}) == 3

    def test_sq3_the_highest_priority_goes_first_and_one_that_comes_between_goes_next(self, queue):
        Ranked.enqueue(1, 2, 3)
        for _ in range(2):
            assert Consumer(periodic=False, threads=1).run(limit=1) == 0
        Ranked.enqueue(3)
        for _ in range(2):
            assert Consumer(periodic=False, threads=1).run(limit=1) == 0
        assert batches() == [[3], [2], [3], [1]]

    def test_sq4_a_batch_holds_one_priority_only(self, queue):
        Ranked.enqueue(1, 3, 2, 3, 1, 2)
        assert Consumer(periodic=False, threads=2).run(limit=6) == 0
        assert batches() == [[3, 3], [2, 2], [1, 1]]

    def test_sq4_the_size_of_a_batch_is_a_setting_unless_the_command_says_it(self, queue, settings):
        settings.QUEUE_BATCH_SIZE = 2
        Failing.enqueue("a", "b", "c")
        Notify.enqueue(*[Notice(0, number) for number in range(3)])
        assert Consumer(periodic=False, threads=1).run(limit=6) == 0
        assert sorted(map(len, batches())) == [1, 2, 3]

    @MEMORY
    def test_for_the_least_of_a_batch_counts_what_waits_of_whatever_priority(self):
        with memory_queues():
            Patient.enqueue(1, 1)
            assert run_due() == []
            Patient.enqueue(3)
            assert [run.args for run in run_due()] == [(3,)]
            Patient.enqueue(1)
            assert len(run_due()) == 3
        assert batches() == [[3], [1, 1, 1]]

    def test_a_batch_may_wait_for_more(self, queue):
        Gathering.enqueue(1)
        with serving(threads=1, limit=3) as consumer:
            Gathering.enqueue(2, 3)
            assert consumer.code() == 0
        assert batches() == [[1, 2, 3]]


class TestLife:
    def test_sq5_it_is_created_and_started_once_and_stopped_once(self, queue):
        Lingering.enqueue(*[Notice(0, number) for number in range(10)])
        assert Consumer(periodic=False, threads=4).run(limit=10) == 0
        assert words() == ["create", "start", "perform", "perform", "perform", "stop"]
        assert len({(handler, thread) for _, handler, thread, *_ in told}) == 1

    def test_a_worker_keeps_it_and_gets_what_comes_for_its_shard(self, queue):
        with serving(threads=4) as consumer:
            for number in range(5):
                Lingering.enqueue(Notice(0, number))
                eventually(lambda number=number: of_user(0) == list(range(number + 1)))
                eventually(lambda: queue.stats().leased == 0)
            assert words("create", "stop") == ["create"]
            assert consumer.end() == 0
        assert words("create", "stop") == ["create", "stop"]
        assert len({thread for _, _, thread, *_ in told}) == 1

    def test_sq5_after_an_exception_it_is_stopped_and_another_is_made(self, queue):
        Failing.enqueue("bad")
        assert Consumer(periodic=False, threads=2).run(limit=2) == 0
        assert words() == ["create", "start", "perform", "stop"] * 2
        assert len({handler for _, handler, *_ in told}) == 2

    def test_a_partial_failure_is_an_answer_after_which_it_is_kept(self, queue):
        Partial.enqueue("good", "bad")
        with serving(threads=1) as consumer:
            eventually(lambda: queue.stats().failed == 1)
            Partial.enqueue("late")
            eventually(lambda: len(batches()) == 2)
            assert consumer.end() == 0
        assert words() == ["create", "start", "perform", "perform", "stop"]

    def test_sq6_it_is_stopped_when_nothing_came_for_a_while(self, queue):
        with serving(threads=1) as consumer:
            Notify.enqueue(Notice(0))
            eventually(lambda: "stop" in words())
            Notify.enqueue(Notice(1))
            eventually(lambda: words().count("stop") == 2)
            assert consumer.end() == 0
        assert words() == ["create", "start", "perform", "stop"] * 2

    def test_async_ones_live_on_one_event_loop(self, queue):
        Asynchronous.enqueue(1, 2)
        with serving(threads=2) as consumer:
            eventually(lambda: len(batches()) == 1)
            eventually(lambda: queue.stats().leased == 0)
            Asynchronous.enqueue(3)
            eventually(lambda: len(batches()) == 2)
            assert consumer.end() == 0
        assert words() == ["start", "perform", "perform", "stop"]
        assert batches() == [[1, 2], [3]]

    def test_what_create_raises_fails_the_batch(self, queue):
        with recorded_signals("failed") as failed:
            Unruly.enqueue(1, 2)
            assert Consumer(periodic=False, threads=1).run(limit=2) == 0
        assert ["no connection" in about["reason"] for _, about in failed] == [True, True]
        assert words() == []

    def test_what_stop_raises_ends_nothing(self, queue, caplog):
        with serving(threads=1) as consumer:
            Stubborn.enqueue(1)
            eventually(lambda: queue.stats().done == 1)
            assert consumer.end() == 0
        assert "Stubborn.stop() failed" in caplog.text

    def test_sq11_at_a_stop_the_batch_ends_and_its_handler_is_stopped(self, queue):
        """SIGTERM calls the same."""
        release = releases[0] = Release()
        Lingering.enqueue(*[Notice(0, number) for number in range(6)])
        with serving(threads=2) as consumer:
            release.await_waiting(1)
            consumer.stop()
            eventually(lambda: not consumer.claims())
            release.set()
            assert consumer.code() == 0
        assert words() == ["create", "start", "perform", "stop"]
        assert of_user(0) == [0, 1, 2, 3]
        assert queue.stats().ready == 2

    def test_without_a_consumer_it_lives_for_one_batch(self, queue, settings):
        Notify.enqueue(Notice(0))
        run_one(queue)
        assert words() == ["create", "start", "perform", "stop"]
        settings.QUEUE_ALWAYS_EAGER = True
        Notify.enqueue(Notice(0), Notice(1))
        assert words() == ["create", "start", "perform", "stop"] * 3
        Notify.command().call([Notice(0), Notice(1)])
        assert batches()[-1] == [Notice(0), Notice(1)]


class TestOthers:
    def test_sq26_more_busy_shards_than_workers_all_progress(self, queue):
        """2 workers, 3 shards that are never empty."""

        def refill(sender, **about):
            Lingering.enqueue(Notice(len(batches()) % 3, len(told)))

        Lingering.enqueue(*[Notice(user, number) for number in range(8) for user in (0, 1, 2)])
        signals.completed.connect(refill)
        try:
            with recorded_signals("completed"), serving(threads=2) as consumer:
                eventually(lambda: all(len(of_user(user)) > 20 for user in (0, 1, 2)))
                assert consumer.end() == 0
        finally:
            signals.completed.disconnect(refill)

    def test_a_worker_that_keeps_one_gives_it_up_for_other_work_if_no_other_is_idle(self, queue):
        with serving(threads=1) as consumer:
            Lingering.enqueue(Notice(0))
            eventually(lambda: queue.stats().leased == 0 and batches())
            Lingering.enqueue(Notice(1))
            eventually(lambda: len(batches()) == 2)
            assert consumer.end() == 0
        assert words() == ["create", "start", "perform", "stop"] * 2

    def test_and_not_if_another_is(self, queue):
        with serving(threads=2) as consumer:
            Lingering.enqueue(Notice(0))
            eventually(lambda: queue.stats().leased == 0 and batches())
            Lingering.enqueue(Notice(1))
            eventually(lambda: len(batches()) == 2)
            assert words("stop") == []
            assert consumer.end() == 0
        assert len({thread for word, _, thread, *_ in told if word == "perform"}) == 2

    def test_sq20_a_class_that_is_missing_stops_nobody(self, queue):
        command = Failing.command()
        with only(Notify.command()):
            queue.put([message_for(queue, command.name, "x")])
            Notify.enqueue(Notice(0), Notice(1))
            assert Consumer(periodic=False, threads=1).run(limit=2) == 0
        assert sorted(request.user for batch in batches() for request in batch) == [0, 1]
        assert len(queue) == 1


class TestRegistration:
    @pytest.mark.parametrize(
        ("returned", "error", "words"),
        [
            ([Route()], ValueError, "1 routes for 2 requests"),
            ([Route()] * 3, ValueError, "3 routes for 2 requests"),
            ([Route(0, 3), Route(0, 4)], ValueError, r"said the priorities \[4\]"),
            (None, TypeError, "return a list of Route"),
            ([0, 0], TypeError, "return a list of Route"),
        ],
    )
    def test_sq21_a_wrong_route_is_refused_and_nothing_is_stored(self, queue, monkeypatch, returned, error, words):
        monkeypatch.setattr(Ranked, "route", classmethod(lambda cls, *requests: returned))
        with pytest.raises(error, match=words):
            Ranked.enqueue(3, 3)
        assert len(queue) == 0

    def test_sq25_all_shards_get_theirs_or_none(self, queue, monkeypatch):
        puts, put = [], queue.put
        monkeypatch.setattr(queue, "put", lambda entries, *more: puts.append(len(entries)) or put(entries, *more))
        with pytest.raises(TypeError, match="cannot be encoded"):
            Notify.enqueue(Notice(0), Notice(1, lambda: None))
        assert len(queue) == 0
        handles = Notify.enqueue(*[Notice(user) for user in range(900)])
        assert (len(handles), puts) == (900, [900])
        assert len({record.name for record in queue.lanes.page()}) == 3

    @pytest.mark.backends("memory")
    def test_sq25_what_cannot_be_put_at_once_is_refused(self, queue):
        with pytest.raises(ValueError, match="takes up to 1000 together"):
            Notify.enqueue(*[Notice(user) for user in range(1001)])
        assert len(queue) == 0

    @pytest.mark.backends("redis")
    def test_sq25_more_bytes_than_redis_takes_in_one_step_are_refused(self, queue):
        """In two steps it could be full after the first."""
        with pytest.raises(ValueError, match=r"9 requests of 90\d+ bytes; .* takes up to 8388608 bytes together"):
            Notify.enqueue(*[Notice(user, MEGABYTE) for user in range(9)])
        assert len(queue) == 0
        Notify.enqueue(*[Notice(user, MEGABYTE) for user in range(8)])
        assert len(queue) == 8

    @pytest.mark.backends("sqlite")
    def test_sq25_more_bytes_than_a_statement_takes_are_one_transaction_in_a_database(self, queue, monkeypatch):
        statements, insert = [], queue._insert

        def fail_late(arrivals):
            statements.append(len(arrivals))
            if len(statements) == 2:
                raise OSError("the disk is full")
            return insert(arrivals)

        monkeypatch.setattr(queue, "_insert", fail_late)
        with pytest.raises(OSError, match="disk is full"):
            Notify.enqueue(*[Notice(user, MEGABYTE) for user in range(6)])
        assert (statements, len(queue)) == ([4, 2], 0)
        assert len(Notify.enqueue(*[Notice(user, MEGABYTE) for user in range(6)])) == len(queue) == 6

    def test_no_requests_are_no_calls_and_the_default_route_is_a_thread_for_all(self, queue):
        assert Notify.enqueue() == []
        Failing.enqueue(1, 2)
        [record] = queue.lanes.page()
        assert (record.name, record.waiting) == (f"{__name__}.Failing:0", 2)

    def test_options_of_a_call(self, queue):
        [handle] = Notify.using(delay=3600).using(ttl=7200).enqueue(Notice(0))
        assert queue.find(handle.id).state == "delayed"

    def test_async(self, queue):
        async def enqueue():
            return [*await Asynchronous.aenqueue(1), *await Notify.using(ttl=60).aenqueue(Notice(0))]

        if queue.database is None:
            assert len(asyncio.run(enqueue())) == 2

    def test_one_whose_route_is_async_says_how_it_is_enqueued_in_async_code(self, queue, recwarn):
        async def enqueue():
            Asynchronous.enqueue(1)

        with pytest.raises(SynchronousOnlyOperation, match=r"In async code: await Asynchronous.aenqueue\(\.\.\.\)"):
            asyncio.run(enqueue())
        gc.collect()
        assert [one for one in recwarn if "never awaited" in str(one.message)] == []

    @MEMORY
    def test_the_thread_of_a_route_is_a_whole_number_or_a_text_and_its_priority_is_one(self):
        for thread in (1.5, (1, 2), True, len):
            with pytest.raises(TypeError, match=r"Route\(thread=.*\): give a whole number or a text"):
                Route(thread)
        for priority, error in (("high", TypeError), (True, TypeError), (2**31, ValueError)):
            with pytest.raises(error, match=r"Route\(priority=…\) is "):
                Route(0, priority)

    def test_key_is_asked_about_the_request(self, queue):
        handles = Unique.enqueue(Notice(1, 1), Notice(2, 1), Notice(1, 2))
        assert [handle.enqueued for handle in handles] == [True, True, False]
        handles = CarryJson.using(unique="queued").enqueue(Notice(1, 1), Notice(1, 1), Notice(1, 2))
        assert [handle.enqueued for handle in handles] == [True, False, True]

    @pytest.mark.parametrize("options", [{"shard": 1}, {"priority": 1}, {"batch": 3}, {"batch_size": 3}])
    def test_what_route_and_batch_size_say_is_no_option(self, options):
        with pytest.raises(TypeError, match="route\\(\\) says"):
            Notify.using(**options)
        with pytest.raises(TypeError, match="route\\(\\) says"):
            declare(options=options)

    @MEMORY
    @pytest.mark.parametrize("more", [{}, {"shard": 1}, {"batch": 5}, {"idle_timeout": 0, "shard": len}])
    def test_what_keeps_no_object_has_no_idle_timeout(self, more):
        words = r"plain: idle_timeout is for how long a worker keeps the object of a BatchComm"
        with pytest.raises(ValueError, match=words):
            queue_command(**{"idle_timeout": 5, **more})(plain)

    @MEMORY
    def test_the_idle_timeout_is_the_same_for_all_requests(self):
        declare(options={"idle_timeout": 5})
        for bound in (Written, Written.using(delay=3), Notify.command()):
            with pytest.raises(ValueError, match="give it in the options of such a class"):
                bound.using(idle_timeout=6)
        assert Written.using(idle_timeout=5)

    def test_priorities_are_listed_from_the_highest(self):
        with pytest.raises(ValueError, match="the highest first"):
            declare(priorities=[1, 2])

    def test_a_request_is_one_argument(self, queue):
        with pytest.raises(TypeError, match="a request is one argument"):
            Notify.command().enqueue_many([(1, 2)])

    @MEMORY
    def test_one_that_writes_neither_perform_nor_handle_is_refused(self):
        with pytest.raises(TypeError, match=r"Written has neither perform\(\) .*: write perform\(self, \*requests\)"):
            declare(perform=BatchCommand.perform)
        declare(perform=BatchCommand.perform, handle=lambda self, *requests: None)

    @MEMORY
    @pytest.mark.parametrize("helper", [lambda self, *requests: None, lambda self, action: None])
    def test_one_that_writes_both_perform_and_handle_is_refused(self, helper):
        with pytest.raises(TypeError, match=r"Written has both perform\(\) and handle\(\), .* another name"):
            declare(handle=lambda self, *requests: self.perform(1), perform=helper)

    @MEMORY
    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ({"delay": 60}, r"delay is an option: write Notify\.using\(delay=60\)\.enqueue"),
            ({"defer": 60}, r"defer: djqueue calls it delay\. Options go into Notify\.using"),
            ({"if_not_exists": True}, "djqueue calls it unique='queued'"),
        ],
    )
    def test_options_among_the_requests_are_sent_to_using(self, queue, option, words):
        for enqueue in (Notify.enqueue, Notify.command().enqueue, async_to_sync(Notify.aenqueue)):
            with pytest.raises(TypeError, match=words):
                enqueue(Notice(1), **option)
        assert len(queue) == 0

    @MEMORY
    @pytest.mark.parametrize("name", ["perform", "handle"])
    @pytest.mark.parametrize(
        "method", [lambda self, request: None, lambda self, one, two=None: None, lambda self, *all, how: None]
    )
    def test_one_that_takes_no_batch_is_refused(self, name, method):
        with pytest.raises(TypeError, match=rf"write {name}\(self, \*requests\)"):
            declare(**{"perform": BatchCommand.perform, name: method})

    @MEMORY
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("queue_name", r"Written.queue_name means nothing: put it into options = \{'queue_name': …\}"),
            ("idle_timeout", r"options = \{'idle_timeout'"),
            ("priority", r"Written.priority: of a BatchCommand, route\(\) says"),
            ("batch", "batch_size, an attribute of its class"),
            ("batchsize", "did you mean 'batch_size'"),
            ("BATCH_SIZE", "did you mean 'batch_size'"),
            ("option", "did you mean 'options'"),
        ],
    )
    @pytest.mark.parametrize("abstract", [False, True])
    def test_an_attribute_that_would_mean_something_elsewhere_is_refused(self, name, words, abstract):
        with pytest.raises(TypeError, match=words):
            declare(abstract=abstract, **{name: 3})

    @MEMORY
    @pytest.mark.parametrize("size", [0, -1, 1001, True, False, "5", 2.5])
    def test_a_batch_size_that_makes_no_sense_is_refused(self, size):
        with pytest.raises(ValueError, match="Written.batch_size is "):
            declare(batch_size=size)

    @MEMORY
    def test_a_batch_size_that_is_a_method_is_refused_with_the_line_to_write(self):
        with pytest.raises(TypeError, match=r"Written.batch_size is a function: give a number, as in batch_size = 64"):
            declare(batch_size=lambda self: 64)

    @MEMORY
    def test_the_key_of_a_limit_is_what_route_says(self):
        keyed = {"throttle": [Throttle(1, 60, key=len)]}
        for declared in (keyed, {"concurrency": 2, "key": len}):
            with pytest.raises(ValueError, match=r"route\(\) is the key.* only limits without key"):
                declare(options=declared)
        with pytest.raises(ValueError, match=r"Throttle\(1, 60, key=…\): route\(\) is the key"):
            Notify.using(**keyed)
        with pytest.raises(ValueError, match=r"key= of concurrency=: route\(\) is the key"):
            Notify.using(concurrency=2).using(key=len)
        with pytest.raises(ValueError, match=r"Concurrency\(2, key=…\): route\(\) is the key"):
            Notify.using(concurrency=Concurrency(2, key=len))
        declare(options={"throttle": Throttle(1, 60), "concurrency": 2})
        declare(options={"unique": limits.Unique(key=len), "concurrency": Concurrency(2)})

    def test_a_nested_class_is_refused(self):
        with pytest.raises(TypeError, match="class of a module"):

            class Nested(BatchCommand):
                pass


def plain(calls):
    raise NotImplementedError


def declare(abstract=False, **attributes):
    global Written
    usual = {"__module__": __name__, "__qualname__": "Written", "perform": lambda self, *requests: None}
    Written = type("Written", (BatchCommand,), usual | attributes, abstract=abstract)


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
REQUESTS = [
    Notice(1, 2),
    PendingCall(
        Decimal("1.50"), Address("Bern", UUID(int=7)), [Address("Ulm", UUID(int=8))], datetime(2026, 1, 2, tzinfo=UTC)
    ),
    Event(name="push", at=NOON, parts=[1, 2]),
    "text",
    3,
    None,
    {"a": [1, (2, 3)]},
]


ULM = Address("Ulm", UUID(int=8))


def counted(count):
    counted = Counted("x")
    counted.count = count
    return counted


class TestRequests:
    @pytest.mark.parametrize("command", [Carry, CarryJson])
    @pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
    def test_sq24_they_come_back_with_type_and_values(self, queue, command, request_):
        command.enqueue(request_)
        run_one(queue)
        [[got]] = batches()
        assert (type(got), got) == (type(request_), request_)

    def test_a_kind_that_nobody_said_is_refused_where_it_cannot_travel(self, queue):
        with pytest.raises(TypeError, match=r"write \*requests: Notice"):
            Untold.enqueue(Notice(1))
        assert len(queue) == 0

    @MEMORY
    @pytest.mark.parametrize(
        "request_",
        [
            Basket(listed=[ULM], each=(Notice(1), Notice(2)), named={"home": ULM}, perhaps=[ULM], base=ULM),
            Basket(listed=(ULM,), bare=[1], pair=[1, 2, 3], any={"a": [1]}),
            Counted("four"),
        ],
    )
    def test_sq24_json_brings_back_what_the_annotations_say(self, queue, request_):
        Lossy.enqueue(request_)
        run_one(queue)
        assert batches() == [[request_]]

    @MEMORY
    @pytest.mark.parametrize(
        "request_",
        [
            Basket(any=ULM),
            Basket(any={"a": [1, ULM]}),
            Basket(base=Postbox("Ulm", UUID(int=8))),
            counted(7),
            Aliased(X=5),
            [Notice(1)],
            {"first": (Notice(1),)},
        ],
    )
    def test_sq24_what_json_would_not_bring_back_is_refused(self, queue, request_):
        words = rf"Lossy: {type(request_).__name__} would not arrive .* use serializer='pickle'"
        with pytest.raises(TypeError, match=words):
            Lossy.enqueue(request_)
        assert len(queue) == 0

    @MEMORY
    def test_an_equality_that_nobody_can_use_refuses_nothing(self, queue):
        seen = Counted("x")
        seen.seen = 9
        Lossy.enqueue(Strange(number=nan), seen, 5, None)
        assert len(queue) == 4

    def test_fields_that_two_classes_have_are_refused(self, queue):
        with pytest.raises(TypeError, match="Address and Twin have the same fields"):
            Either.enqueue(Both(Twin("Bern", UUID(int=7))))
        assert len(queue) == 0

    def test_one_that_does_not_fit_any_more_goes_to_the_failed_queue_alone(self, queue):
        CarryJson.enqueue(Notice(1), Notice(2))
        claimed = queue.claim(1)
        queue.complete(claimed[:1])
        queue.release(claimed[1:])
        bad = message_for(queues["default"], CarryJson.command().name, {"name": "push", "at": "never"}, "Event")
        queue.put([bad])
        assert Consumer(periodic=False, threads=1).run(limit=2) == 0
        assert batches() == [[Notice(2)]]
        assert queue.failed.find(bad.id) is not None
