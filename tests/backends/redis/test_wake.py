"""Sleepers wake."""

import time
from contextlib import closing
from functools import partial

import pytest
import redis
from redis.cluster import RedisCluster

from djqueue.backends.bells import Bell
from djqueue.backends.redis import bells
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.testing import eventually, together
from djqueue.testing.patience import PATIENCE
from djqueue.throttle import ThrottledQueue
from djqueue.utils import clock
from tests.backends.redis.support import calls, once, work
from tests.support.bells import waited

pytestmark = pytest.mark.server("redis")


def rang(queue):
    """Whether the bell rings; waits until it does not."""
    rings = 0
    with closing(queue.bell()) as bell:
        bell.arm()  # it connects, which may take a while
        while bell.wait(0.3):
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
    assert waited(queue, 5)
    assert 0 < queue.claim().retry_after <= 60
    queue.put(work())
    redis_client.delete("{djqueue:mail}:bell")
    assert not waited(queue, 0.05)
    assert len(queue.claim()) == 1


def test_many_sleepers_wake_for_many_entries(make):
    queue = make(cls=RedisBlockingQueue)
    started = queue.now()

    def feed():
        eventually(lambda: blocked(queue._link.client) >= 4)
        queue.put(work(4))

    assert together(*[lambda: waited(queue, 20)] * 4, feed) == [True] * 4 + [None]
    assert queue.now() - started < 15


def test_a_wait_outlasts_the_time_out_of_the_socket(private_server):
    queue = RedisBlockingQueue("mail", private_server("redis").url + "?socket_timeout=0.3")
    started = queue.now()
    assert not waited(queue, 1)
    assert queue.now() - started >= 0.95


@pytest.mark.parametrize("make_client", [RedisCluster, partial(redis.Redis, single_connection_client=True)])
def test_a_client_that_was_given_sleeps_and_wakes_too(cluster_server, make_client):
    with make_client(host="127.0.0.1", port=cluster_server.port, retry=once()) as client:
        queue, began = RedisBlockingQueue("mail", client), time.monotonic()
        assert not waited(queue, 0.05)
        assert time.monotonic() - began >= 0.05
        queue.put(work())
        assert waited(queue, 20)


class Behind:
    """A client of somebody else's, of which only this is known."""

    def __init__(self, client):
        self.execute_command = client.execute_command


def test_a_client_of_which_no_connection_can_be_made_is_polled(redis_client):
    bell = RedisBlockingQueue("mail", Behind(redis_client)).bell()
    assert (type(bell), bell.is_heard) == (Bell, False)


def blocked(client):
    return client.info("clients")["blocked_clients"]


@pytest.fixture
def armed(private_server):
    """A queue on a server of its own, its bell, and another client of the server."""
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url)
    with redis.Redis(port=server.port) as other, closing(queue.bell()) as bell:
        assert not bell.arm()
        eventually(lambda: blocked(other) == 1)
        yield queue, bell, other


def test_a_bell_whose_connection_breaks_is_armed_on_another_one_and_asks_to_look(armed):
    """As a ring may have been lost with it."""
    queue, bell, other = armed
    other.client_kill_filter(skipme=True, _type="normal")
    with pytest.raises(redis.ConnectionError):
        bell.wait(PATIENCE)
    assert bell.arm()
    bell.disarm()
    assert queue.claim() == []
    assert not bell.wait(0.05)
    queue.put(work())
    assert bell.wait(PATIENCE)


def test_what_is_unblocked_travels_with_the_next_command(armed):
    queue, bell, other = armed
    queue.claim()
    before = other.info("stats")["total_reads_processed"]
    bell.disarm()
    queue.claim()
    assert other.info("stats")["total_reads_processed"] - before == 2  # the claim, and this question
    assert blocked(other) == 0
    assert not bell.arm()
    eventually(lambda: blocked(other) == 1)


def test_a_bell_that_is_armed_before_any_command_waits_on(armed):
    queue, bell, other = armed
    bell.disarm()
    assert not bell.arm()
    queue.claim()
    assert blocked(other) == 1


def test_a_failing_command_leaves_the_bell_armed(armed):
    """It may not have unblocked it."""
    queue, bell, other = armed
    bell.disarm()
    with pytest.raises(redis.ResponseError):
        queue._link.execute("NO-SUCH-COMMAND")
    assert blocked(other) == 0
    assert not bell.arm()
    eventually(lambda: blocked(other) == 1)


def test_a_user_who_may_not_ask_for_clients_is_woken_too(armed):
    queue, _, other = armed
    other.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-client")
    queue = RedisBlockingQueue(
        "mail", f"redis://plain:secret@127.0.0.1:{other.connection_pool.connection_kwargs['port']}"
    )
    with closing(queue.bell()) as bell:
        assert not bell.arm()
        eventually(lambda: blocked(other) == 2)
        bell.disarm()
        eventually(lambda: blocked(other) == 1)
        assert not bell.arm()
        queue.put(work(2))
        assert bell.wait(PATIENCE)


def test_an_answer_that_is_overdue_was_lost_with_its_connection(armed, monkeypatch):
    """As behind a firewall that drops what comes."""
    queue, bell, other = armed
    monkeypatch.setattr(bells, "clock", lambda now=clock: now() + bells.LONGEST + 2 * bells.LATE)
    assert bell.arm()
    eventually(lambda: blocked(other) == 1)


def test_a_wait_without_end_is_renewed(private_server, monkeypatch):
    monkeypatch.setattr(bells, "LONGEST", 0.1)
    queue = RedisBlockingQueue("mail", private_server("redis").url)
    assert not waited(queue, 0.5)
    assert calls(queue._link.client, "blpop")["blpop"] >= 2


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
    redis_client.config_resetstat()
    assert not waited(queue, 2)
    assert calls(redis_client, "blpop")["blpop"] == 1
