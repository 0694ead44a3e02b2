import socket

import pytest

pytest.importorskip("redis")

import redis

from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue
from djqueue.testing import eventually
from tests.backends.redis.support import LosesReplies, whole_life
from tests.support import backends


@pytest.fixture
def make(redis_client):
    """Queues on this worker's database, which is emptied after the test."""
    return lambda name="mail", cls=RedisQueue, **options: cls(name, backends.redis_connection(), **options)


@pytest.fixture
def queue(make):
    return make()


@pytest.fixture
def cluster_server(private_server):
    """A cluster of one node, which has all slots."""
    with socket.socket() as probe:  # its own choice, the port plus 10,000, may be none
        probe.bind(("127.0.0.1", 0))
        bus = str(probe.getsockname()[1])
    server = private_server("redis", "--cluster-enabled", "yes", "--cluster-port", bus)
    with redis.Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        eventually(lambda: client.cluster("INFO")["cluster_state"] == "ok")
    return server


@pytest.fixture
def lossy_queue(redis_client):
    client = LosesReplies(redis_client)
    queue = RedisQueue("mail", client)
    whole_life(RedisBlockingQueue("warm", redis_client))
    return queue, client
