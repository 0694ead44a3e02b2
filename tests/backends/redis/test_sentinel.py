"""Queues on a primary that Sentinels know, and on a server that takes no writes."""

import pytest
import redis

from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue, connections
from djqueue.exceptions import StoreUnreachable
from djqueue.testing import eventually
from tests.backends.redis.support import held, once, whole_life, work
from tests.support import servers

pytestmark = [pytest.mark.server("redis"), pytest.mark.slow]


@pytest.fixture(scope="module")
def sentinel():
    """A primary, its replica and three Sentinels."""
    server = servers.Sentinel(servers.short_dir() / "sentinel").start()
    yield server
    connections.reset()
    server.discard()


def accepts(queue):
    try:
        return queue.put(work()) == [True]
    except StoreUnreachable:
        return False


def test_a_queue_is_at_the_primary(sentinel):
    queue = RedisBlockingQueue("mail", sentinel.url)
    whole_life(queue)
    RedisQueue("news", sentinel.url).put(work())
    with redis.Redis(port=sentinel.primary.port) as primary:
        assert primary.hlen("{djqueue:news}:body") == 1
    assert [message.id for message in queue.check()] == ["djqueue.W101"]


def test_a_plain_call_goes_to_the_inbox_of_the_primary_and_a_replica_counts_it(sentinel, monkeypatch):
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", 2**64)
    queue, there = RedisBlockingQueue("plain", sentinel.url), RedisQueue("plain", sentinel.replica.url)
    [entry] = work()
    assert queue.put_new(entry)
    with redis.Redis(port=sentinel.primary.port) as primary:
        assert primary.xlen("{djqueue:plain}:inbox") == 1
    eventually(lambda: there.stats().ready == 1)
    assert there.find(entry.id) is None
    with pytest.raises(StoreUnreachable, match="is a replica and takes no writes"):
        there.put_new(*work())
    assert [lease.entry.id for lease in queue.complete(queue.claim(5))] == [entry.id]


def test_one_sentinel_that_answers_is_enough_and_none_is_told(sentinel):
    known = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.sentinels[2].port}/{sentinel.service}/1"
    queue = RedisQueue("mail", known)
    assert len(queue.complete(held(queue))) == 1
    with pytest.raises(StoreUnreachable, match="No master found for 'other'"):
        RedisQueue("mail", known.replace("/jobs/", "/other/")).put(work())


def test_a_replica_is_told_from_a_primary(sentinel):
    queue = RedisQueue("post", sentinel.replica.url)
    RedisQueue("post", sentinel.url).put(work())
    eventually(lambda: len(queue) == 1)
    assert "djqueue.E106" in [message.id for message in queue.check()]
    for call in (lambda: queue.put(work()), queue.claim, lambda: queue.store.put("fact", b"1")):
        with pytest.raises(StoreUnreachable, match="is a replica and takes no writes"):
            call()


def test_a_primary_without_the_replicas_it_must_have_takes_no_writes(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    queue.put(work(2))
    leases = queue.claim()
    with redis.Redis(port=server.port) as client:
        client.config_set("min-replicas-to-write", 1)
        for call in (lambda: queue.put(work()), queue.claim, lambda: queue.complete(leases)):
            with pytest.raises(StoreUnreachable, match="min-replicas-to-write"):
                call()
        client.config_set("min-replicas-to-write", 0)
    assert (queue.complete(leases), len(queue)) == (leases, 1)


def test_a_server_that_became_a_primary_again_is_used_again(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    with redis.Redis(port=server.port, retry=once()) as client:
        client.replicaof("127.0.0.1", 1)
        assert not accepts(queue)
        client.replicaof("NO", "ONE")
    assert accepts(queue)


def test_a_queue_follows_its_primary(private_server):
    server = private_server("sentinel")
    queue = RedisBlockingQueue("mail", server.url)
    leases = held(queue, 3)
    with redis.Redis(port=server.primary.port, single_connection_client=True) as client:
        client.set("barrier", 1)
        assert client.wait(1, 5000) == 1
    assert server.sentinels[0].ask("SENTINEL", "FAILOVER", server.service) == "+OK"
    eventually(lambda: server.replica.has_role("master"), 60)
    eventually(lambda: server.primary.has_role("slave"), 60)
    eventually(lambda: accepts(queue), 60)
    assert queue.complete(leases) == leases
    with redis.Redis(port=server.replica.port) as client:
        assert client.hlen("{djqueue:mail}:body") == len(queue) > 0
