"""Sleepers wake."""

import statistics
import time
from functools import partial

import pytest
import redis
from redis.cluster import RedisCluster

from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.testing import eventually, together
from djqueue.throttle import ThrottledQueue
from tests.backends.redis.support import calls, once, work

pytestmark = pytest.mark.server("redis")


def rang(queue):
    """Whether the bell rings; waits until it does not."""
    rings = 0
    while queue.wait_for_work(0.01):
        rings += 1
    return rings > 0


def test_to21_put_release_requeue_and_reap_wake_sleepers(make):
    queue = make(cls=RedisBlockingQueue)
    assert not rang(queue)
    queue.put(work(2))
    assert rang(queue)
    leases = queue.claim(2, lease=0.001)
    eventually(lambda: queue.reap().count)
    assert rang(queue)
    leases = queue.claim(2)
    queue.release(leases)
    assert rang(queue)
    queue.fail(queue.claim(1))
    assert not rang(queue)
    queue.requeue([lease.entry.id for lease in leases])
    assert rang(queue)


def test_to21_a_delayed_put_wakes_whoever_sleeps_longer_than_that_and_a_killed_bell_costs_one_poll(make, redis_client):
    queue = make(cls=RedisBlockingQueue)
    queue.put(work(delay=60))
    assert queue.wait_for_work(5)
    assert 0 < queue.claim().retry_after <= 60
    queue.put(work())
    redis_client.delete("{djqueue:mail}:bell")
    assert not queue.wait_for_work(0.05)
    assert len(queue.claim()) == 1


@pytest.mark.parametrize("nap", [lambda queue: queue.wait_for_work(20), lambda queue: queue.wait_for_work(60, due=20)])
def test_many_sleepers_wake_for_many_entries(make, nap):
    queue = make(cls=RedisBlockingQueue)
    started = queue.now()

    def feed():
        eventually(lambda: queue._link.client.info("clients")["blocked_clients"] >= 4)
        queue.put(work(4))

    assert together(*[lambda: nap(queue)] * 4, feed) == [True] * 4 + [None]
    assert queue.now() - started < 15


def test_a_nap_outlasts_the_time_out_of_the_socket_and_ends_in_time_when_something_falls_due(private_server):
    queue = RedisBlockingQueue("mail", private_server("redis").url + "?socket_timeout=0.3")
    due = time.monotonic() + 0.32
    assert not queue.wait_for_work(60, due=0.32)
    assert 0 <= time.monotonic() - due < 0.1
    started = queue.now()
    assert not queue.wait_for_work(1)
    assert queue.now() - started >= 0.95


def test_a_nap_until_something_falls_due_ends_in_time(private_server):
    """Left to itself a server looks ten times a second which of those who wait have waited long enough."""
    queue, late = RedisBlockingQueue("mail", private_server("redis").url), []
    for _ in range(15):
        due = time.monotonic() + 0.02
        assert not queue.wait_for_work(1, due=0.02)
        late.append(time.monotonic() - due)
    assert 0 <= statistics.median(late) < 0.04
    assert queue.stats().ready == 0  # nothing of it is left on the connection


@pytest.mark.parametrize("make_client", [RedisCluster, partial(redis.Redis, single_connection_client=True)])
def test_a_client_that_lends_no_connection_sleeps_and_wakes_too(cluster_server, make_client):
    with make_client(host="127.0.0.1", port=cluster_server.port, retry=once()) as client:
        queue, began = RedisBlockingQueue("mail", client), time.monotonic()
        assert not queue.wait_for_work(1, due=0.05)
        assert time.monotonic() - began >= 0.05
        queue.put(work())
        assert queue.wait_for_work(60, due=20)


def test_a_connection_that_breaks_in_a_nap_is_not_used_again(private_server):
    server = private_server("redis")
    queue, other = RedisBlockingQueue("mail", server.url), redis.Redis(port=server.port)

    def cut():
        eventually(lambda: other.info("clients")["blocked_clients"])
        other.client_kill_filter(skipme=True, _type="normal")

    with pytest.raises(redis.ConnectionError):
        together(lambda: queue.wait_for_work(60, due=20), cut)
    assert queue.stats().ready == 0


def test_a_throttle_loses_no_slots_while_it_is_waited_for(private_server):
    queue = ThrottledQueue(RedisBlockingQueue("mail", private_server("redis").url), limit=20, window=1, moderate=True)
    for number in range(21):
        queue.push(number)
    began = time.monotonic()
    assert [queue.pop(timeout=5) for _ in range(21)] == [*range(21)]
    assert 0.99 <= time.monotonic() - began < 1.6


@pytest.mark.alone  # the server counts the commands of all
def test_an_idle_sleeper_sends_few_commands(make, redis_client):
    queue = make(cls=RedisBlockingQueue)
    queue.wait_for_work(0.01)
    redis_client.config_resetstat()
    queue.wait_for_work(1)
    assert calls(redis_client, "blpop")["blpop"] <= 2
    queue.wait_for_work(0.1, due=60)
    assert calls(redis_client, "ping") == {"ping": 0}
