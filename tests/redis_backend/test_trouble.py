"""A server that is full, forgets its scripts, restarts, or loses replies."""

import threading
from dataclasses import replace

import pytest
import redis
from redis.exceptions import ConnectionError

from djqueue.backends.entries import Guard
from djqueue.backends.redis_backend import RedisBlockingQueue, RedisQueue
from djqueue.exceptions import QueueFull
from djqueue.testing import eventually, together
from tests import servers
from tests.redis_backend.kit import keys, whole_life, work

pytestmark = pytest.mark.server("redis")


def test_a_full_server_refuses_work_and_lets_go_of_what_it_has(private_server):
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url, remember_done=60)
    queue.put(work(30))
    queue.put(work(3, delay=0.001))
    queue.store.put("fact", b"1", 60)
    dead = queue.claim()[0]
    queue.bury([dead])
    client = redis.Redis(port=server.port)
    client.config_set("maxmemory", 1)
    before = keys(client), queue.stats()
    for guards in (None, [Guard(f"g{number}", 60) for number in range(3)]):
        with pytest.raises(QueueFull, match="maxmemory"):
            queue.put(work(3), guards)
    for write in (lambda: queue.store.put("other", b"1"), lambda: queue.store.add("other", b"1", 60)):
        with pytest.raises(QueueFull):
            write()
    assert (keys(client), queue.stats().ready, queue.find("x")) == (before[0], before[1].ready, None)
    done, held, again, sooner, lost, bad = queue.claim(6, owner="me")
    assert len(queue.complete([done])) == len(queue.touch([held], 120)) == len(queue.release([again])) == 1
    assert len(queue.release([replace(sooner, entry=replace(sooner.entry, delay=60))])) == 1
    queue.touch([lost], 0.001)
    eventually(lambda: queue.reap().count)
    assert len(queue.touch([lost])) == 1
    assert len(queue.bury([bad])) == queue.revive([dead.entry.id]) == queue.remove([again.entry.id]) == 1
    assert queue.store.keep("fact", b"1", 60)
    assert queue.store.drop("fact", b"1")
    assert len(queue.peek("ready", 100)) == queue.stats().ready
    while queue.complete(queue.claim(5)):
        pass
    assert (queue.stats().ready, queue.stats().leased) == (0, 2)
    client.config_set("maxmemory", 0)
    assert queue.put(work()) == [True]
    client.close()


def test_scripts_may_be_flushed_under_load(queue, redis_client):
    done, stop = [], threading.Event()

    def flush():
        while not stop.is_set():
            redis_client.script_flush()

    def run():
        for _ in range(100):
            queue.put(work(2))
            done.extend(queue.complete(queue.claim(2)))

    def runs():
        try:
            together(run, run, run)
        finally:
            stop.set()

    together(flush, runs)
    assert (len(done), queue.stats().done, len(queue)) == (600, 600, 0)


def test_a_server_that_restarts_is_ridden_out(private_server):
    server = private_server("redis", *servers.Redis.DURABLE)
    queue = RedisBlockingQueue("mail", server.url)
    queue.put(work(3))
    held, *_ = queue.claim(2)
    server.kill9()
    for call in (queue.claim, queue.now, lambda: queue.nap(5), lambda: queue.put(work())):
        with pytest.raises(ConnectionError):
            call()
    server.restart()
    assert len(queue.complete([held])) == 1
    assert (len(queue), queue.stats().leased) == (1, 1)
    assert len(queue.claim(5)) == 1


class LosesReplies:
    """A client whose connection breaks after the server did the next command."""

    def __init__(self, client):
        self.client, self.connection_pool, self.broken, self.sent = client, client.connection_pool, False, 0

    def execute_command(self, *args):
        self.sent += 1
        reply = self.client.execute_command(*args)
        if self.broken:
            self.broken = False
            raise ConnectionError("the reply was lost")
        return reply


@pytest.fixture
def lossy(redis_client):
    client = LosesReplies(redis_client)
    queue = RedisQueue("mail", client)
    whole_life(RedisBlockingQueue("warm", redis_client))
    return queue, client


def broken(client, call):
    """The call's result, of whose first command the reply is lost."""
    client.broken = True
    return call()


def test_a_put_whose_reply_was_lost_is_repeated_and_accepted_once(lossy):
    queue, client = lossy
    queue.put(work(1), [Guard("used", 60)])
    guards = [None, Guard("new", 60), Guard("used", 60)]
    assert broken(client, lambda: queue.put(work(3), guards)) == [True, True, False]
    assert len(queue) == 3


def test_a_settlement_whose_reply_was_lost_is_still_ours(lossy):
    queue, client = lossy
    queue.put(work(4))
    one, two, three, four = queue.claim(4)
    assert broken(client, lambda: queue.complete([one])) == [one]
    assert broken(client, lambda: queue.release([two])) == [two]
    assert broken(client, lambda: queue.bury([three])) == [three]
    assert [lease.entry.id for lease in broken(client, lambda: queue.touch([four]))] == [four.entry.id]
    stats = queue.stats()
    assert (stats.done, stats.ready, stats.dead, stats.leased) == (1, 1, 1, 1)


def test_a_settlement_whose_lease_ran_out_is_not_ours_by_repetition(lossy):
    queue, client = lossy
    queue.put(work())
    (late,) = queue.claim(1, lease=0.001)
    eventually(lambda: queue.reap().count)
    (now,) = queue.claim()
    assert broken(client, lambda: queue.complete([late])) == []
    assert queue.complete([now]) == [now]


def test_a_claim_whose_reply_was_lost_is_not_repeated(lossy):
    queue, client = lossy
    queue.put(work(4))
    with pytest.raises(ConnectionError):
        broken(client, lambda: queue.claim(2))
    assert queue.stats().leased == 2
