"""Queues on a cluster of three nodes: a slot each, spread over the nodes, none held up by the node of another."""

import pytest
import redis
from redis.cluster import RedisCluster

from djqueue import queues
from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue, connections
from djqueue.decorators import queue_command
from djqueue.exceptions import InvalidQueueError, StoreUnreachable
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import held, keys, once, whole_life, work
from tests.support import servers
from tests.support.bells import waited
from tests.support.consumer import serving
from tests.support.notes import cleared_per_test
from tests.support.slots import moving, node_of, on_each_node, slot_of

pytestmark = [pytest.mark.server("redis"), pytest.mark.slow]
done = cleared_per_test([])


@queue_command
def note(text):
    done.append(text)


@pytest.fixture(scope="module")
def cluster():
    """Three nodes, for tests that leave them as they were."""
    server = servers.Cluster(servers.short_dir() / "cluster").start()
    yield server
    connections.reset()
    server.discard()


def made(cluster, cls=RedisQueue, count=1):
    """New queues, so many on each node."""
    prefix = new_id()
    return [cls(name, cluster.url, prefix=prefix) for name in on_each_node(cluster, count, prefix)]


def holder(cluster, queue):
    """The node that has a queue."""
    return node_of(cluster, slot_of(queue.name, queue.prefix))


def test_the_keys_of_a_queue_are_at_one_node_and_queues_spread_over_all(cluster):
    all_queues = made(cluster, RedisBlockingQueue, count=2)
    for queue in all_queues:
        whole_life(queue)
        queue.put(work(2))
    for node in cluster.members:
        with redis.Redis(port=node.port) as client:
            tags = {key.partition("}:")[0] for key in keys(client)}
        here = {f"{{{queue.prefix}:{queue.name}" for queue in all_queues if holder(cluster, queue) is node}
        assert len(here) == 2
        assert here == {tag for tag in tags if all_queues[0].prefix in tag}


def test_a_client_of_a_cluster_serves_as_its_url_does(cluster):
    with RedisCluster("127.0.0.1", cluster.members[1].port, retry=once()) as client:
        for queue in made(cluster):
            whole_life(RedisBlockingQueue(queue.name, client, prefix=queue.prefix))


def test_making_a_queue_does_not_connect_and_queues_of_a_url_share_a_client():
    one, other = (RedisBlockingQueue(name, "redis+cluster://127.0.0.1:1,127.0.0.1:2") for name in ("one", "other"))
    assert one.describe() == "Redis cluster at 127.0.0.1:1, 127.0.0.1:2"
    assert one.server == other.server
    assert one.connection_key != other.connection_key
    with pytest.raises(StoreUnreachable, match="Redis cluster at 127.0.0.1:1, 127.0.0.1:2"):
        one.now()
    assert [message.id for message in one.check()] == ["djqueue.E101"]


def test_one_node_that_is_known_leads_to_all(cluster):
    for queue in made(cluster):
        known = f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.members[2].port}"
        there = RedisQueue(queue.name, known, queue.prefix)
        assert len(there.complete(held(there))) == 1


def test_one_consumer_serves_queues_of_all_nodes(cluster, settings):
    base = {"CLASS": "djqueue.backends.redis_backend.RedisBlockingQueue", "CONNECTION": cluster.url}
    aliases = ["default", "mail", "news"]
    names = [queue.name for queue in made(cluster)]
    settings.QUEUES = {alias: {**base, "NAME": name} for alias, name in zip(aliases, names, strict=True)}
    for options in ({}, {"strict": True}):
        done.clear()
        with serving(**options) as consumer:
            for alias in aliases:
                note.using(queue_name=alias).enqueue(alias)
            eventually(lambda: sorted(done) == aliases)
            assert consumer.end() == 0
        assert [queues[alias].stats().leased for alias in aliases] == [0, 0, 0]


def test_a_wait_outlasts_the_time_out_of_the_url(cluster):
    queue = RedisBlockingQueue("mail", f"{cluster.url}?socket_timeout=0.3")
    assert not waited(queue, 1)


def test_each_primary_is_checked(cluster):
    queue = made(cluster)[0]
    assert [message.id for message in queue.check()] == ["djqueue.W101"] * 3
    with redis.Redis(port=cluster.members[1].port) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        [found] = [message for message in queue.check() if message.id == "djqueue.E103"]
        client.config_set("maxmemory-policy", "noeviction")
    assert str(cluster.members[1].port) in found.msg


def test_one_node_of_a_cluster_is_not_taken_for_a_server(cluster):
    lost = 0
    for name in on_each_node(cluster):
        queue = RedisQueue(name, cluster.members[0].url)
        assert "djqueue.E105" in [message.id for message in queue.check()]
        try:
            queue.put(work())
        except InvalidQueueError as error:
            assert "redis+cluster://" in str(error)
            lost += 1
    assert lost == 2


def test_a_server_that_is_no_cluster_is_not_taken_for_one(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(StoreUnreachable, match="Cluster mode is not enabled"):
        queue.put(work())


def test_a_node_that_is_away_holds_up_no_queue_of_another(private_server):
    cluster = private_server("cluster")
    first, *others = made(cluster, RedisBlockingQueue)
    for queue in (first, *others):
        queue.put(work(2))
    holder(cluster, first).kill9()
    for _ in range(3):
        with pytest.raises(StoreUnreachable):
            first.put(work())
        for queue in others:
            assert len(queue.complete(held(queue))) == 1
    holder(cluster, first).start()
    eventually(lambda: not refused(first))


def refused(queue):
    try:
        queue.put(work())
    except StoreUnreachable:
        return True
    return False


def test_a_queue_whose_slot_moves_is_refused_meanwhile_and_is_whole_behind_it(private_server):
    cluster = private_server("cluster")
    queue, beside, third = made(cluster, RedisBlockingQueue)
    entries = work(10)
    queue.put(entries)
    taken = queue.claim(4)
    with moving(cluster, slot_of(queue.name, queue.prefix)):
        for call in (lambda: queue.put(work(2)), queue.claim, lambda: queue.complete(taken)):
            with pytest.raises(StoreUnreachable):
                call()
        assert len(beside.complete(held(beside))) == len(third.complete(held(third))) == 1
    assert len(queue.complete(taken)) == 4
    rest = queue.claim(100)
    assert {lease.entry.id for lease in (*taken, *rest)} == {entry.id for entry in entries}
    assert len(queue.complete(rest)) == 6
    assert queue.stats().done == 10
