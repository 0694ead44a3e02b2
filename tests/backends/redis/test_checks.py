"""What the checks tell of a server."""

import pytest
import redis

from djqueue.backends.redis.queue import RedisQueue, connections
from tests.support import servers

pytestmark = pytest.mark.server("redis")


def ids(queue):
    return sorted(message.id for message in queue.check())


def test_a_server_is_checked(private_server):
    server = private_server("redis", *servers.Redis.DURABLE)
    queue = RedisQueue("mail", server.url)
    assert ids(queue) == []
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
        assert ids(queue) == ["djqueue.E103", "djqueue.W101"]
        client.config_set("save", "3600 1")
        assert ids(queue) == ["djqueue.E103"]
        client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config")
        assert ids(RedisQueue("mail", f"redis://app:pw@127.0.0.1:{server.port}")) == ["djqueue.E103"]
        client.execute_command("ACL", "SETUSER", "app", "-info")
        assert ids(RedisQueue("mail", f"redis://app:pw@127.0.0.1:{server.port}")) == []
    server.stop()
    assert ids(queue) == ["djqueue.E101"]


@pytest.mark.parametrize(
    "info, expected",
    [
        ({"redis_version": "6.0.16"}, ["djqueue.E102"]),
        ({"redis_version": "6.2.0"}, []),
        ({"redis_version": "10.0.1"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, ["djqueue.E102"]),
        ({"redis_version": "unknown"}, []),
        ({}, []),
    ],
)
def test_versions_have_a_floor(queue, monkeypatch, info, expected):
    monkeypatch.setattr(queue._link.client, "info", lambda: {"aof_enabled": 1, **info})
    try:
        assert ids(queue) == expected
    finally:
        connections.reset()
