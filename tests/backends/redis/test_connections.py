"""What a connection may say, and what is shared and told of it."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry

from djqueue.backends.base import OnceGuard
from djqueue.backends.redis.address import several, url_of
from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue, connections
from djqueue.exceptions import InvalidQueueError
from djqueue.testing import eventually, together
from djqueue.testing.patience import PATIENCE
from tests.backends.redis.support import held, once, whole_life, work
from tests.support import backends
from tests.support.bells import waited

pytestmark = pytest.mark.server("redis")

SECRET = "s3cret-word"
REPEATS = r"retry=Retry\(NoBackoff\(\), 0\)"


def test_the_name_of_a_queue_comes_before_its_connection():
    with pytest.raises(TypeError, match=r"it comes first, RedisQueue\('jobs', connection\)"):
        RedisQueue(object(), "jobs")


@pytest.mark.parametrize(
    "text, where",
    [
        ("", "localhost:6379/0"),
        (None, "localhost:6379/0"),
        ("10.0.0.75:6379:0", "10.0.0.75:6379/0"),
        ("cache:6380", "cache:6380/0"),
        ("cache", "cache:6379/0"),
        ("[::1]:6380:3", "::1:6380/3"),
        ("redis://cache/2", "cache:6379/2"),
        ("redis://me:pw@cache:6380/2?socket_timeout=3", "cache:6380/2"),
        ("rediss://cache?db=4&ssl_cert_reqs=required", "cache:6379/4"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock/1"),
        ("redis+sentinel://one,two:26380/jobs/3", "jobs/3 (by Sentinel)"),
        ("rediss+sentinel://me:pw@one/jobs?sentinel_password=pw&ssl_ca_certs=x", "jobs/0 (by Sentinel)"),
    ],
)
def test_connections_are_understood_without_connecting(text, where):
    assert RedisQueue("mail", text).describe() == f"Redis at {where}"


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("redis+cluster://cache", "cache:6379"),
        ("redis+cluster://me:p%2Cw@one,two:7001/0?socket_timeout=3", "one:6379, two:7001"),
        ("rediss+cluster://[::1]:7000,[::2]", "::1:7000, ::2:6379"),
    ],
)
def test_the_nodes_of_a_cluster_are_understood_without_connecting(text, hosts):
    assert RedisQueue("mail", text).describe() == f"Redis cluster at {hosts}"


def test_what_a_url_of_several_servers_says():
    said = several("rediss+sentinel://me:p%2Fw@one,two:26380/jobs/3?socket_timeout=3&sentinel_password=x")
    assert (said.hosts, said.service) == ([("one", 26379), ("two", 26380)], "jobs")
    login = {"username": "me", "password": "p/w", "ssl": True}
    assert said.options == {**login, "db": 3, "socket_timeout": 3.0, "sentinel_password": "x"}
    said = several("redis+cluster://one,two:7001?client_name=shop")
    assert (said.hosts, said.service, said.options) == ([("one", 6379), ("two", 7001)], "", {"client_name": "shop"})


@pytest.mark.parametrize(
    "text, told",
    [
        ("redis+cluster://one,two/1", "only number 0"),
        ("redis+cluster://one,", "redis+cluster://host:port,host:port"),
        ("redis+cluster://", "redis+cluster://host:port,host:port"),
        ("redis+cluster://one:port", "%2F"),
        ("redis+cluster://one?db=1", "'db'"),
        ("redis+cluster://one?health_check_interval=1", "'health_check_interval'"),
        ("redis+cluster://one?sentinel_password=x", "'sentinel_password'"),
        ("redis+cluster://one?socket_timout=1", "did you mean 'socket_timeout'"),
        ("redis+sentinel://one,two", "name of a service"),
        ("redis+sentinel://one,two//0", "name of a service"),
        ("redis+sentinel://one,two/jobs/first", "host:port,host:port/service/0"),
        ("redis+clusters://one", "'redis+clusters'"),
        (f"redis+cluster://:{SECRET}/x@one,two", "%2F"),
        (f"redis+cluster://:12/{SECRET}@one,two", "host:port,host:port"),
        (f"redis+sentinel://:{SECRET}#x@one/jobs", "%23"),
        (f"redis+sentinel://one/jobs?sentinel_password={SECRET}@x", "%40"),
        ("cache:port:0", "host:port:db"),
        ("cache:6379:0:1", "host:port:db"),
        ("cache:70000", "host:port:db"),
        ("cache:0", "host:port:db"),
        ("two words", "host:port:db"),
        (f"cache:6379:0:{SECRET}", "cache:6379:0:***"),
        (f"cache:6379:{SECRET}:0", "cache:6379:***"),
        ("cache:6379:0:12345", "cache:6379:0:***"),
        (f"redis://:12?{SECRET}@cache/0", "%3F"),
        ("unix:///run/redis.sock?socket_keepalive=1", "socket_keepalive"),
        (f":{SECRET}@cache:6379", "host:port:db"),
        ("http://cache", "'http'"),
        ("redis://cache/first", "redis://host:port/0"),
        ("redis://", "redis://host:port/0"),
        ("unix://", "unix:///path"),
        (f"redis://:{SECRET}/x@cache:6379/0", "%2F"),
        (f"redis://:{SECRET}#x@cache/0", "%23"),
        (f"redis://:{SECRET}@cache:port/0", "%2F"),
        (f"redis://:{SECRET}@cache/0?db=first", "%2F"),
        (f"redis://:{SECRET}@cache/0?socket_timout=1", "did you mean 'socket_timeout'"),
        ("redis://cache?decode_responses=1", "decode_responses"),
        ("redis://cache?retry_on_timeout=1", "retry_on_timeout"),
        ("redis://cache?max_connections=1", "max_connections=2"),
        (7, "a client of redis-py"),
    ],
)
def test_a_connection_that_cannot_be_is_refused_without_telling_its_password(text, told):
    with pytest.raises(InvalidQueueError) as caught:
        RedisQueue("mail", text)
    assert "CONNECTION" in str(caught.value)
    assert told in str(caught.value)
    assert SECRET not in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize("options", [{"prefix": 5}, {"keep_done": -1}, {"keep_done": "x"}, {"remember_done": "x"}])
def test_options_that_cannot_be_are_refused_by_name(options):
    with pytest.raises(InvalidQueueError, match=f"OPTIONS.*{next(iter(options)).upper()}"):
        RedisQueue("mail", "", **options)


def test_on_a_cluster_every_queue_is_a_feed_of_its_own():
    """One command may not take keys of two slots, and a bell waits by one command."""

    class Cluster(RedisCluster):
        def __init__(self):
            """Does not connect."""

    client, plain = Cluster(), redis.Redis(retry=once())
    one, other, same = (RedisBlockingQueue(name, client) for name in ("mail", "other", "mail"))
    assert one.connection_key == same.connection_key != other.connection_key
    assert RedisBlockingQueue("mail", plain).connection_key == RedisBlockingQueue("other", plain).connection_key


def test_passwords_are_told_nowhere(private_server):
    server = private_server("redis")
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", SECRET)
    for password in (SECRET, f"wrong-{SECRET}"):
        queue = RedisQueue("mail", f"redis://:{password}@127.0.0.1:{server.port}/0")
        told = [queue.describe(), repr(queue), repr(queue.connection_key), repr(queue.store), *map(str, queue.check())]
        try:
            queue.now()
        except ConnectionError as error:
            told.append(str(error))
        assert SECRET not in "".join(told)


def test_queues_of_one_connection_share_a_client_and_a_feed(make):
    one, other = make("one"), make("other")
    away = RedisQueue("mail", "localhost:6379:63")
    assert one._link.client is other._link.client is one.failed._link.client is one.store._link.client
    assert one._link.client is not away._link.client
    assert one.connection_key == other.connection_key != away.connection_key
    assert one.connection_key != make(cls=RedisBlockingQueue).connection_key
    hash(one.connection_key)


def test_connections_are_made_anew_after_a_reset(make):
    queue = make()
    queue.put(work())
    connections.reset()
    assert make()._link.client is not queue._link.client
    assert len(make()) == len(queue) == 1


def test_commands_are_never_repeated_by_the_client(queue):
    assert queue._link.client.get_retry()._retries == 0


def kept_connections(queue):
    """The connections that its link keeps between two commands."""
    return [one.connection for one in queue._link.commands._kept]


@pytest.mark.parametrize("where", ["kept", "in the pool"])
def test_a_connection_with_an_answer_too_many_is_not_used_again(queue, where):
    """As after a command that wrote into a socket of its process."""
    pool = queue._link.client.connection_pool
    queue.now()
    stray = pool.get_connection() if where == "in the pool" else kept_connections(queue)[-1]
    stray.send_command("PING")
    eventually(stray.can_read)
    if where == "in the pool":
        pool.release(stray)
    leases = held(queue, 2)
    assert (len(leases), queue.complete(leases)) == (2, leases)


def test_a_connection_that_the_server_closed_is_not_used_again(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    leases = held(queue, 2)
    with redis.Redis(port=server.port) as client:
        client.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: len(client.client_list()) == 1)
    assert queue.complete(leases) == leases


def test_after_an_error_no_connection_is_kept(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    together(*[queue.stats] * 4)
    assert kept_connections(queue)
    server.kill9()
    with pytest.raises(ConnectionError):
        queue.stats()
    assert kept_connections(queue) == []
    server.restart()
    assert queue.stats().ready == 0


def test_an_answer_that_is_an_error_leaves_its_connection_kept(queue):
    queue.now()
    before = kept_connections(queue)
    with pytest.raises(ResponseError):
        queue._link.execute("EVAL", "not a script", 0)
    assert kept_connections(queue) == before
    assert queue.stats().ready == 0


def test_threads_get_their_own_answers(queue):
    queue.put(work(400))

    def drain():
        found = []
        while leases := queue.claim(3):
            found += queue.complete(leases)
        return [lease.entry.id for lease in found]

    ids = [id for found in together(*[drain] * 8) for id in found]
    assert (len(ids), len(set(ids)), queue.stats().done) == (400, 400, 400)


def test_a_client_of_few_connections_keeps_none(redis_client):
    queue = RedisBlockingQueue("mail", f"{url_of(backends.redis_connection())}?max_connections=2")
    whole_life(queue)
    pool = queue._link.client.connection_pool
    borrowed = [pool.get_connection() for _ in range(2)]
    for connection in borrowed:
        pool.release(connection)


def test_a_live_client_serves(redis_client):
    queue = RedisQueue("mail", redis_client)
    queue.put(work(), [OnceGuard("key", 60)])
    assert len(queue.complete(queue.claim())) == 1
    assert queue.connection_key == RedisQueue("other", redis_client).connection_key
    assert queue.describe().startswith("Redis at 127.0.0.1:")


@pytest.mark.parametrize(
    "given, told",
    [({}, REPEATS), ({"retry": Retry(NoBackoff(), 3)}, REPEATS), ({"decode_responses": True}, "decode_responses")],
)
def test_a_live_client_that_repeats_commands_or_decodes_is_refused(given, told):
    """Those of redis-py repeat unless they are told not to."""
    with pytest.raises(InvalidQueueError, match=told):
        RedisQueue("mail", redis.Redis(**given))


def test_a_live_client_of_a_cluster_that_repeats_commands_is_refused(cluster_server):
    with RedisCluster("127.0.0.1", cluster_server.port) as client, pytest.raises(InvalidQueueError, match="retry="):
        RedisQueue("mail", client)


def test_a_queue_lives_behind_a_unix_socket(private_server, tmp_path):
    path = tmp_path / "redis.sock"
    private_server("redis", "--unixsocket", str(path))
    queue = RedisBlockingQueue("mail", f"unix://{path}?db=1")
    queue.put(work())
    assert waited(queue, 5)
    assert len(queue.complete(queue.claim())) == 1
    assert queue.check() is not None


def test_a_subclass_may_be_made_with_what_it_likes(redis_client):
    class Site(RedisQueue):
        def __init__(self, site, flavour):
            super().__init__(f"site-{site}", redis_client, "sites")
            self.flavour = flavour

    queue = Site(7, flavour="plain")
    assert len(queue.fail(held(queue))) == 1
    assert (len(queue), len(queue.failed), queue.failed.flavour, queue.failed.failed) == (0, 1, "plain", None)
    assert (queue.failed.own_rate_limit, type(queue.failed)) == ("queue:site-7:failed", Site)


def test_a_forked_child_shares_no_socket_with_its_parent(queue):
    queue.put(work(2))
    if (child := os.fork()) == 0:
        os._exit(0 if len(queue.complete(queue.claim())) == 1 else 1)
    for _ in range(50):
        assert len(queue) in (1, 2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(queue.complete(queue.claim(5))) == 1


def test_a_child_may_be_forked_while_another_thread_opens_a_connection(make, monkeypatch):
    """It holds the lock of the pool meanwhile, which no thread of the child would ever let go."""
    connections.reset()
    queue = make()
    queue.now()  # its connection is kept
    pool, opens, go_on = queue._link.client.connection_pool, threading.Event(), threading.Event()

    class Slow(pool.connection_class):
        def __init__(self, **options):
            opens.set()
            go_on.wait(PATIENCE)
            super().__init__(**options)

    monkeypatch.setattr(pool, "connection_class", Slow)
    child = multiprocessing.get_context("fork").Process(target=int)
    with ThreadPoolExecutor(1) as beside:
        opened = beside.submit(pool.get_connection)
        assert opens.wait(PATIENCE)
        child.start()
        child.join(5)
        code = child.exitcode
        child.kill()
        go_on.set()
        pool.release(opened.result())
    assert code == 0


def test_a_url_is_made_of_each_form():
    assert url_of("10.0.0.75:6379:0") == url_of("10.0.0.75") == "redis://10.0.0.75:6379/0"
    assert url_of("unix:///run/redis.sock") == "unix:///run/redis.sock"
