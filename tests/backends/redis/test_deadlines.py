"""A thread with a deadline is not held up by a server that stands still."""

import time
from contextlib import closing, contextmanager

import pytest

from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue, connections
from djqueue.exceptions import StoreUnreachable
from djqueue.testing import together
from djqueue.testing.patience import PATIENCE
from tests.backends.redis.support import work

pytestmark = pytest.mark.server("redis")
SHORT = 0.4


@contextmanager
def standing_still(server):
    """It accepts connections and reads, and answers nothing."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


def seconds_of(call):
    """The seconds after which a call raises."""
    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        call()
    return time.monotonic() - began


@pytest.mark.parametrize("options", ["", "?socket_timeout=30"])
def test_a_server_that_stands_still_holds_a_thread_up_no_longer(private_server, options):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url + options)
    queue.put(work(2))
    with queue.deadline(SHORT):
        (lease,) = queue.claim(1)
        with standing_still(server):
            for call in (lambda: queue.claim(1), lambda: queue.touch([lease]), lambda: queue.complete([lease])):
                assert SHORT / 2 < seconds_of(call) < 1.9 * SHORT
    assert queue.complete([lease]) == [lease]
    assert queue.stats().done == 1


def test_a_bell_is_not_held_up_either(private_server):
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url)
    with queue.deadline(SHORT), closing(queue.bell()) as bell:
        with standing_still(server):
            assert seconds_of(bell.arm) < 2.5 * SHORT
        bell.arm()
        assert not bell.wait(0.05)
        queue.put(work())
        assert bell.wait(PATIENCE)


def test_a_deadline_is_for_the_thread_that_has_it(private_server):
    queue = RedisQueue("mail", private_server("redis").url)
    usual = queue._link.commands
    with queue.deadline(SHORT):
        short = queue._link.commands
        assert together(lambda: queue._link.commands) == [usual]
        assert queue._link.commands is short is not usual
    assert queue._link.commands is usual


def test_a_cluster_keeps_it_too(cluster_server):
    url = f"redis+cluster://127.0.0.1:{cluster_server.port}"
    RedisQueue("mail", url)
    client, _ = connections.client(url, SHORT)
    assert client.options["socket_timeout"] == client.options["socket_connect_timeout"] == SHORT
    with RedisQueue("mail", url).deadline(SHORT):
        assert RedisQueue("mail", url).now() > 0
