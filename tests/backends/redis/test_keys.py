"""The keys of a queue, and what stays of them."""

import pytest
import redis

from djqueue.backends.base import Entry, OnceGuard
from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue, RedisStore
from djqueue.testing import eventually
from tests.backends.redis.support import keys, once, whole_life, work
from tests.support import backends

pytestmark = pytest.mark.server("redis")


def test_to19_all_keys_are_under_one_hash_tag(make, redis_client):
    queue = make(cls=RedisBlockingQueue, prefix="site", remember_done=60)
    queue.put([*work(6), *work(delay=60)], [OnceGuard("a", 60), *[None] * 6])
    leases = queue.claim(4)
    queue.fail(leases[:1])
    queue.complete(leases[1:2])
    queue.store.put("fact", b"1")
    found = keys(redis_client)
    assert all(key.startswith("{site:mail}:") for key in found)
    assert {key.removeprefix("{site:mail}:") for key in found} == {
        *("body", "env", "ready", "delayed", "leases", "own", "meta", "done", "bell", "fact:a", "fact:fact"),
        *("failed:body", "failed:env", "failed:ready"),
    }


@pytest.mark.parametrize("cls, left", [(RedisQueue, {"meta"}), (RedisBlockingQueue, {"meta", "bell"})])
def test_what_is_left_of_a_drained_queue_is_constant(make, redis_client, cls, left):
    queue = make(cls=cls)
    for count in (3, 300):
        queue.put(work(count))
        queue.reap()
        queue.release(queue.claim(count // 3))
        queue.fail(queue.claim(1))
        queue.requeue([record.entry.id for record in queue.failed.peek("ready")])
        while queue.complete(queue.claim(100)):
            pass
        assert keys(redis_client) == {f"{{djqueue:mail}}:{part}" for part in left}
    assert redis_client.llen("{djqueue:mail}:bell") <= RedisBlockingQueue.rings


def test_no_job_has_a_time_to_live(queue, redis_client):
    queue.put([*work(3), *work(delay=60)])
    queue.fail(queue.claim(1))
    queue.claim(1)
    assert {redis_client.ttl(key) for key in keys(redis_client)} == {-1}


NAMES = ["mail", "Mail", "MAIL", "mail ", "m{ai}l", "mail}:fact:x", "mail%7D", "mail}", "mail:x", "a'); --", "žluť", ""]


def test_dj21_no_two_names_or_prefixes_meet(make):
    places = [(prefix, name) for name in NAMES for prefix in ("a", "A", "a:mail", "a}", "{a", "")]
    places += [("a:b", "c"), ("a", "b:c")]
    made = [make(name, prefix=prefix) for prefix, name in places]
    for number, queue in enumerate(made):
        queue.put([Entry(str(number).encode(), "same-id")], [OnceGuard("x}:body", 60)])
        queue.store.put("x", str(number).encode())
    assert [len(queue) for queue in made] == [1] * len(made)
    assert [queue.claim()[0].entry.body for queue in made] == [queue.store.get("x") for queue in made]


def test_a_store_by_itself_is_the_store_of_its_queue(make):
    queue, store = make(prefix="site"), RedisStore("mail", backends.redis_connection(), prefix="site")
    queue.put(work(), [OnceGuard("tick", 60)])
    assert store.get("tick") is not None
    assert not store.add("tick", b"", 60)
    assert abs(store.now() - queue.now()) < 5


def test_one_slot_of_a_cluster_holds_a_queue(cluster_server):
    with redis.cluster.RedisCluster("127.0.0.1", cluster_server.port, retry=once()) as cluster:
        for connection in (cluster_server.url, cluster):
            whole_life(RedisBlockingQueue(f"mail{type(connection).__name__}", connection))


@pytest.mark.parametrize(("bound", "kept"), [({"keep_done": 3}, 3), ({"remember_done": 0.05}, 1)])
def test_to17_remembered_ids_are_forgotten_by_count_and_by_age(make, redis_client, bound, kept):
    """That they are accepted then, the contract asks."""
    queue = make(**bound)
    for entry in work(5):
        queue.put([entry])
        queue.complete(queue.claim())
        done_at = queue.now()
        eventually(lambda: "keep_done" in bound or queue.now() > done_at + 0.06)  # noqa: B023
    assert redis_client.zcard("{djqueue:mail}:done") == kept
    assert queue.stats().done == 5
