"""What is wrong with the queues, in words, on each kind of store."""

import re

import pytest

from djqueue import operations, queue_command, queues
from djqueue.backends.base import Entry
from djqueue.exceptions import QueueError
from djqueue.operations import Limit
from djqueue.operations.health import CRITICAL, WARNING
from djqueue.running import consumers
from djqueue.running.consumers import ConsumerRecord, Running
from tests.app.commands import note
from tests.dashboard.calls import counted
from tests.support.consumer import unreachable

SHARED = pytest.mark.backends("sqlite", "redis")


@queue_command
def charge():
    raise NotImplementedError


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


def consumer(queue, name="web-1:42:beef", ago=0.0, knows=(charge,), **told):
    """Write the heartbeat of a consumer of some time ago."""
    store, known = queue.store.shared, consumers.known_commands(knows)
    consumers.write_commands(store, known)
    told = {"queues": [queues["default"].base_name, queues["mail"].base_name], **told}
    record = ConsumerRecord(name=name, at=store.now() - ago, commands=consumers.digest_of(known), **told)
    consumers.write(store, record)
    consumers.enter(store, name)


def problems(**limits):
    return [(one.level, one.queue, one.kind) for one in operations.health(**limits)]


@SHARED
def test_with_a_consumer_that_knows_its_commands_all_is_well(queue):
    consumer(queue)
    charge()
    assert problems(backlog=Limit(2), age=Limit(600), failed=Limit(1)) == []


@SHARED
def test_a_queue_that_no_consumer_serves_is_named_with_what_to_do(queue):
    consumer(queue, queues=[queue.base_name])
    [one] = operations.health()
    assert (one.level, one.queue, one.kind) == (CRITICAL, "mail", "consumers")
    assert (one.text, one.advice) == ("no consumer serves it", "queue_consumer -q mail")
    assert operations.health(["default"]) == []
    [few] = operations.health(["default"], least_consumers=2)
    assert few.text == "1 consumer of 2 serves it"
    assert operations.health(least_consumers=0) == []


@SHARED
def test_a_consumer_that_says_nothing_more_is_named_with_what_it_ran_until_it_is_forgotten(queue):
    consumer(queue)
    consumer(queue, "web-2:43:cafe", ago=40, busy=1, running=[Running("1", charge.name, queue.now() - 60)])
    [one] = operations.health()
    assert (one.level, one.kind) == (WARNING, "gone")
    told = r"consumer web-2:43:cafe was last heard of 4[\d.]+ s ago, and ran 1 message: it was killed"  # or a bit later
    assert re.match(told, one.text)
    assert operations.health(gone_for=30) == []
    with pytest.raises(QueueError, match="is alive"):
        operations.forget("web-1")
    assert operations.forget("web-2") == "web-2:43:cafe"
    assert operations.health() == []
    assert [one.name for one in operations.consumers()] == ["web-1:42:beef"]


@SHARED
def test_a_command_that_no_live_consumer_knows_is_named_with_the_nearest_one(queue):
    consumer(queue, knows=(charge, note))
    known, unknown, on_demand = note.name, f"{note.name}d", f"{charge.name}d"
    queue.put([Entry(b"", command, command=command, delay=60) for command in (known, unknown, on_demand)])
    [one] = operations.health()
    assert (one.level, one.queue, one.kind) == (WARNING, "default", "command")
    assert f"the command {unknown} (did you mean {known}?)" in one.text


@SHARED
def test_quiet_consumers_and_pauses_are_named(queue):
    consumer(queue, state="quiet")
    operations.pause("queue", "mail", why="no stamps", by="ada")
    operations.pause("command", charge.name, by="ada")
    assert sorted(problems()) == [
        (WARNING, "", "paused"),
        (WARNING, "default", "quiet"),
        (WARNING, "mail", "paused"),
        (WARNING, "mail", "quiet"),
    ]
    texts = {(one.text, one.advice) for one in operations.health()}
    assert ("it is paused by ada (no stamps)", "queue_resume mail") in texts
    operations.pause("command", charge.name, "mail")
    assert f"queue_resume --command {charge.name} -q mail" in {one.advice for one in operations.health()}


@pytest.mark.backends("redis")
def test_a_store_that_is_away_keeps_no_order_from_a_consumer_of_another(backend, settings, monkeypatch):
    settings.QUEUES = backend.queues("default") | {
        "mail": {"CLASS": "djqueue.backends.memory.MemoryQueue", "CONNECTION": {}}
    }
    consumer(queues["default"])
    monkeypatch.setattr(queues["mail"].store.shared, "get", unreachable)
    [one] = operations.consumers(["default"])
    assert operations.quiet(one.name) == one.name
    with pytest.raises(ConnectionError):
        operations.consumers()
    with pytest.raises(ConnectionError):
        operations.quiet("not there, as far as is known")
    monkeypatch.setattr(queues["mail"].store.shared, "swap_many", unreachable)
    with pytest.raises(ConnectionError):
        operations.pause("command", charge.name)
    assert operations.actions(["default"], limit=1)[0].action == "pause", "it is paused in the other store"


def test_numbers_beyond_their_limits_the_worst_first(queue):
    queue.put([Entry(b"", str(number)) for number in range(3)])
    queue.fail(queue.claim(1))
    found = problems(backlog=Limit(2, 2), failed=Limit(1, 5), age=Limit(0.0, 900.0), least_consumers=0)
    assert found == [
        (CRITICAL, "default", "backlog"),
        (WARNING, "default", "age"),
        (WARNING, "default", "failed"),
        (WARNING, "mail", "age"),
    ]
    assert problems(backlog=Limit(3), failed=Limit(2), least_consumers=0) == []


@SHARED
def test_the_rate_of_errors_of_the_last_minutes_is_limited_if_that_is_asked_for(queue):
    counted(queue, charge.name, done=3, retried=1, failed=1, discarded=5)
    found = operations.health(error_rate=Limit(40, 41), least_consumers=0)
    assert [(one.level, one.queue, one.kind) for one in found] == [(WARNING, "default", "errors")]
    assert found[0].text == "40 % of the attempts of the last 5 minutes ended in an error"
    assert found[0].advice == "queue_errors summary -q default"
    assert operations.health(error_rate=Limit(41), least_consumers=0) == []


@SHARED
def test_a_store_that_cannot_be_asked_is_critical_and_the_others_are_looked_at(queue, monkeypatch):
    monkeypatch.setattr(queue, "stats", unreachable)
    found = operations.health()
    assert [(one.level, one.queue, one.kind) for one in found[:1]] == [(CRITICAL, "default", "store")]
    assert "the store is unreachable" in found[0].text
    assert (CRITICAL, "mail", "consumers") in problems()


@pytest.mark.backends("memory")
def test_of_queues_in_memory_consumers_of_other_processes_are_not_missed(queue):
    assert operations.health() == []
