"""The samples of Deferrable, in djqueue's idiom and in their order: functions, queues, retries, debouncing, hooks."""

import socket

import pytest

from djqueue import Deferrable, MetadataProducerConsumer, current_message, queues
from djqueue.backends.entries import DELAYED, READY
from djqueue.exceptions import NotSupported
from djqueue.messages.failures import errors_of
from djqueue.testing.patience import eventually
from tests.support.consumer import only
from tests.support.notes import cleared_per_test
from tests.support.processes import until

DONE: list = cleared_per_test([])
"""What the functions of these samples did; each test begins with none."""

stats = Deferrable()
tournaments = Deferrable("tournaments")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "tournaments")
    return queues["default"]


def state(queue, result) -> str:
    return queue.find(result.id).state


# ---- quick start: an instance, a function, a producer, a consumer


@stats.deferrable
def run_some_stats(team_id):
    DONE.append(team_id)


def test_df1_the_producer_defers_and_the_consumer_runs_once(queue):
    run_some_stats.later("team 7")
    assert DONE == []
    stats.run_once()
    assert DONE == ["team 7"]


# ---- push, pop, complete


def test_df24_df27_push_pop_touch_and_complete(queue):
    my_item = {"a": 1}
    queue.push(my_item)
    popped_envelope, popped_item = queue.take(lease=60)
    assert my_item == popped_item
    assert (queue.take(), queue.stats().leased) == ((None, None), 1)
    [popped_envelope] = queue.touch([popped_envelope], 0.1)
    [kept] = queue.touch([popped_envelope], 60)
    until(lambda: queue.now() > popped_envelope.until)
    assert (queue.reap().count, queue.complete([kept])) == (0, [kept])
    assert (queue.take(), queue.complete([popped_envelope])) == ((None, None), [])


# ---- backends: two groups over one connection, each with a main queue and a failed queue


@tournaments.deferrable(max_attempts=1)
def close_tournament(number):
    raise RuntimeError(f"tournament {number} goes on")


def test_two_groups_share_a_connection_and_nothing_else(queue):
    run_some_stats.later(1)
    close_tournament.later(2)
    assert (len(stats.queue), len(tournaments.queue)) == (1, 1)
    assert stats.queue.connection_key == tournaments.queue.connection_key
    tournaments.run_once()
    assert (len(tournaments.queue), len(tournaments.queue.failed), len(stats.queue.failed)) == (0, 1, 0)
    stats.run_once()
    assert DONE == [1]


# ---- instances


def test_an_instance_wraps_a_queue_and_debounces_if_that_has_a_store(queue, backend, settings):
    assert Deferrable(queue_name="default").queue.connection_key == queue.connection_key
    assert actually_queue_this_at_most_once_every_30_seconds.later().enqueued
    settings.QUEUES = {"default": backend.config() | {"STORE": False}}
    with pytest.raises(NotSupported, match="facts"):
        actually_queue_this_at_most_once_every_30_seconds.later()


# ---- retry


@stats.deferrable(error_classes=[ZeroDivisionError], max_attempts=3)
def divide():
    DONE.append(current_message().attempt)
    return 1 / 0


@stats.deferrable(error_classes=[ZeroDivisionError], max_attempts=3, use_exponential_backoff=False)
def job_without_backoff():
    divide()


@stats.deferrable(error_classes=[KeyError])
def fails_otherwise():
    divide()


def test_df5_by_default_it_is_tried_again_later(queue):
    result, called = divide.later(), queue.now()
    stats.run_once()
    record = queue.find(result.id)
    assert (record.state, stats.run_once()) == (DELAYED, False)
    assert called + 3.9 < record.at < queue.now() + 4.1


def test_df3_without_backoff_it_is_tried_twice_more_at_once_and_put_aside(queue):
    job_without_backoff.later()
    while stats.run_once():
        continue
    assert (DONE, len(queue), len(queue.failed)) == ([1, 2, 3], 0, 1)


def test_df4_df6_another_error_is_put_aside_at_once_with_all_there_is_to_know(queue):
    result = fails_otherwise.later()
    stats.run_once()
    error = queue.failed.find(result.id)
    [note] = errors_of(error.entry.errors)
    assert (DONE, len(queue), error.entry.command) == ([1], 0, fails_otherwise.name)
    assert (note["exception"], note["text"]) == ("builtins.ZeroDivisionError", "division by zero")
    assert ("return 1 / 0" in note["traceback"], note["host"]) == (True, socket.gethostname())
    assert note["at"] == pytest.approx(queue.now(), abs=30)


# ---- ttl


@stats.deferrable(ttl_seconds=300)
def send_time_sensitive_message(message):
    DONE.append(message)


def test_df7_in_time_it_is_sent_and_too_late_it_is_not(queue):
    send_time_sensitive_message.later("in time")
    stats.run_once()
    late = send_time_sensitive_message.using(ttl=0.05).enqueue("too late")
    came = queue.find(late.id).entry.created
    eventually(lambda: queue.now() > came + 0.1)
    assert stats.run_once()
    assert (DONE, len(queue), len(queue.failed)) == (["in time"], 0, 0)


# ---- delay


@stats.deferrable(delay_seconds=30)
def do_this_after_30_seconds():
    DONE.append("after 30 seconds")


def test_df9_it_waits_for_its_time(queue):
    result = do_this_after_30_seconds.later()
    record = queue.find(result.id)
    assert (record.state, record.at - record.entry.created) == (DELAYED, pytest.approx(30, abs=0.01))
    assert (stats.run_once(), queue.stats().delayed, queue.stats().ready) == (False, 1, 0)
    do_this_after_30_seconds.using(delay=0.1).enqueue()
    assert stats.run_once(wait=20)
    assert DONE == ["after 30 seconds"]


# ---- debouncing


@stats.deferrable(debounce_seconds=30)
def actually_queue_this_at_most_once_every_30_seconds():
    DONE.append("at most once")


@stats.deferrable(debounce_seconds=30, debounce_always_delay=True)
def always_delay_this():
    DONE.append("later")


def test_df12_one_now_one_delayed_and_one_skipped(queue):
    calls = [actually_queue_this_at_most_once_every_30_seconds.later() for _ in range(3)]
    assert [call.enqueued for call in calls] == [True, True, False]
    assert [state(queue, call) for call in calls[:2]] == [READY, DELAYED]
    first, second = (queue.find(call.id) for call in calls[:2])
    assert second.at - first.at == pytest.approx(30, abs=2)


def test_df13_with_always_delay_one_delayed_and_one_skipped(queue):
    calls = [always_delay_this.later() for _ in range(2)]
    assert [call.enqueued for call in calls] == [True, False]
    record = queue.find(calls[0].id)
    assert record.at - record.entry.created == pytest.approx(30, abs=2)


def test_df11_debouncing_is_a_delay_so_both_are_refused():
    with only(), pytest.raises(ValueError, match="it excludes delay"):
        stats.deferrable(delay_seconds=30, debounce_seconds=30)(both)


def both():
    """Delayed and debounced: nobody could say when."""


# ---- metadata


class HostnameMetadataProducerConsumer(MetadataProducerConsumer):
    NAMESPACE = "hostname"

    def produce_metadata(self):
        return socket.gethostname()

    def consume_metadata(self, metadata):
        DONE.append(f"Item was produced on host {metadata}")


def test_df23_the_name_of_the_host_travels_with_every_item(queue):
    stats.register_metadata_producer_consumer(HostnameMetadataProducerConsumer())
    run_some_stats.later(1)
    close_tournament.later(1)
    assert stats.run_once() and tournaments.run_once()
    assert DONE == [f"Item was produced on host {socket.gethostname()}", 1]


# ---- events


class MyEventConsumer:
    def on_push(self, item):
        DONE.append(("Pushed", item["command"], item["id"]))


def test_df18_an_object_with_one_method_hears_of_one_event(queue):
    stats.register_event_consumer(MyEventConsumer())
    result = run_some_stats.later(1)
    close_tournament.later(1)
    stats.run_once()
    assert DONE == [("Pushed", run_some_stats.name, result.id), 1]
