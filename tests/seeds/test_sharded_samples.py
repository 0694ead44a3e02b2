"""The samples of sharded-queue, in djqueue's idiom and in their order: a handler, its use, drivers, life, settings."""

import asyncio
import os
import threading
from typing import NamedTuple, Self

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from djqueue import BatchCommand, Consumer, Route, conf
from tests.support.backends import FULL
from tests.support.consumer import recorded_signals
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory", "redis", *(["sqlite", "postgres"] if FULL else []))


# ---- getting started: a request, a handler, three threads


class NotifyRequest(NamedTuple):
    """A user to be told; the identifier shards the requests over the worker threads."""

    user_id: int


batches: list[list[int]] = cleared_per_test([])


class NotifyHandler(BatchCommand):
    options = {"idle_timeout": 0.01}

    @classmethod
    async def route(cls, *requests: NotifyRequest) -> list[Route]:
        """Spread requests by 3 threads that can be concurrently processed."""
        return [Route(thread=request.user_id % 3) for request in requests]

    async def perform(self, *requests: NotifyRequest) -> None:
        """Called with as many as there are, up to the batch size."""
        assert all(isinstance(request, NotifyRequest) for request in requests)
        batches.append([request.user_id for request in requests])


def test_the_requests_are_spread_over_three_threads_in_order(queue):
    handles = NotifyHandler.enqueue(*[NotifyRequest(n) for n in range(1, 9)])
    assert len({handle.id for handle in handles}) == 8
    assert [lane.waiting for lane in queue.lanes.page()] == [2, 3, 3]
    with recorded_signals("completed") as told:
        assert Consumer(threads=1, drain=True, periodic=False).run() == 0
    assert len(told) == 8
    assert sorted(batches) == [[1, 4, 7], [2, 5, 8], [3, 6]]


# ---- usage: three workers next to each other, as coroutines


@pytest.mark.backends("memory", "sqlite", "postgres", "redis")
def test_three_workers_beside_each_other_run_them_all(queue):
    async def example() -> list[int]:
        await NotifyHandler.aenqueue(*[NotifyRequest(n) for n in range(1, 9)])
        await sync_to_async(connections.close_all)()
        workers = [Consumer(threads=1, drain=True, periodic=False) for _ in range(3)]
        return await asyncio.gather(*[worker.arun() for worker in workers])

    assert asyncio.run(example()) == [0, 0, 0]
    told = [user for batch in batches for user in batch]
    assert sorted(told) == list(range(1, 9))
    for thread in range(3):
        assert [user for user in told if user % 3 == thread] == [n for n in range(1, 9) if n % 3 == thread]


def test_a_worker_with_a_limit_handles_exactly_so_many(queue):
    NotifyHandler.enqueue(*[NotifyRequest(n) for n in range(1, 9)])
    assert Consumer(threads=2, periodic=False).run(limit=3) == 0
    assert sum(map(len, batches)) == 3
    assert len(queue) == 5
    assert Consumer(threads=2, periodic=False).run(limit=5) == 0
    assert len(queue) == 0


# ---- the life of a handler


class ParseEventRequest(NamedTuple):
    """The identifier is enough to get the event from its storage."""

    event: int


ran: list = cleared_per_test([])


class ParseEventHandler(BatchCommand):
    options = {"idle_timeout": 0.05, "retry_on": [KeyError], "backoff": False, "max_attempts": 2}

    @classmethod
    async def create(cls) -> Self:
        ran.append("create")
        return cls()

    @classmethod
    async def route(cls, *requests: ParseEventRequest) -> list[Route]:
        return [Route(conf.get("QUEUE_DEFAULT_THREAD"), conf.get("QUEUE_DEFAULT_PRIORITY")) for _ in requests]

    async def start(self):
        ran.append("start")

    async def handle(self, *requests: ParseEventRequest) -> None:
        events = [request.event for request in requests]
        ran.append(events)
        if 13 in events:
            raise KeyError(13)

    async def stop(self):
        ran.append("stop")


def test_a_handler_is_made_started_used_and_stopped_once(queue):
    ParseEventHandler.enqueue(*map(ParseEventRequest, (1, 2, 3)))
    assert Consumer(threads=1, drain=True, periodic=False).run() == 0
    assert ran == ["create", "start", [1, 2, 3], "stop"]


def test_a_handler_that_raised_is_stopped_and_made_anew(queue):
    ParseEventHandler.enqueue(ParseEventRequest(13))
    assert Consumer(threads=1, drain=True, periodic=False).run() == 0
    assert ran == ["create", "start", [13], "stop"] * 2
    assert (len(queue), len(queue.failed)) == (0, 1)


# ---- settings: by the environment, and changed at run time


@pytest.mark.parametrize(
    ("variable", "name", "text", "value"),
    [
        ("QUEUE_COORDINATOR_DELAY", "QUEUE_MAX_POLL_INTERVAL", "5", 5.0),
        ("QUEUE_COORDINATOR_PREFIX", "QUEUE_CONSUMER_PREFIX", "lock_", "lock_"),
        ("QUEUE_COORDINATOR_TIMEOUT", "QUEUE_LEASE", "86400", 86400.0),
        ("QUEUE_DEFAULT_PRIORITY", "QUEUE_DEFAULT_PRIORITY", "2", 2),
        ("QUEUE_DEFAULT_THREAD", "QUEUE_DEFAULT_THREAD", "7", 7),
        ("QUEUE_TUBE_PREFIX", "QUEUE_LANE_PREFIX", "tube_", "tube_"),
        ("QUEUE_WORKER_BATCH_SIZE", "QUEUE_BATCH_SIZE", "64", 64),
        ("QUEUE_WORKER_EMPTY_LIMIT", "QUEUE_IDLE_TIMEOUT", "20", 2.0),
        ("QUEUE_WORKER_EMPTY_PAUSE", "QUEUE_IDLE_TIMEOUT", "0.2", 3.2),
    ],
)
def test_the_variables_of_the_environment_are_read(queue, monkeypatch, variable, name, text, value):
    monkeypatch.setitem(os.environ, variable, text)
    conf.forget()
    try:
        assert conf.get(name) == value
    finally:
        monkeypatch.undo()
        conf.forget()


def test_settings_can_be_changed_while_it_runs(queue, settings):
    settings.QUEUE_BATCH_SIZE = 2
    settings.QUEUE_LANE_PREFIX = "tube_"
    ParseEventHandler.enqueue(*map(ParseEventRequest, range(5)))
    assert [lane.name.startswith("tube_") for lane in queue.lanes.page()] == [True]
    assert Consumer(threads=1, drain=True, periodic=False).run() == 0
    assert [step for step in ran if isinstance(step, list)] == [[0, 1], [2, 3], [4]]


# ---- what the original promises and its tests do not show: two threads at the same time


class Together(BatchCommand):
    meeting = threading.Barrier(2)

    @classmethod
    def route(cls, *requests: NotifyRequest) -> list[Route]:
        return [Route(request.user_id) for request in requests]

    def perform(self, *requests: NotifyRequest) -> None:
        self.meeting.wait(30)


def test_sq2_two_threads_run_at_the_same_time(queue):
    Together.enqueue(NotifyRequest(1), NotifyRequest(2))
    with recorded_signals("completed", "failed") as told:
        assert Consumer(threads=2, drain=True, periodic=False).run() == 0
    assert [name for name, _ in told] == ["completed"] * 2
