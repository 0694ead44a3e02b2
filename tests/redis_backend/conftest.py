import pytest

pytest.importorskip("redis")

from djqueue.backends.redis_backend import RedisQueue
from tests import backends


@pytest.fixture
def make(redis_client):
    """Queues on this worker's database, which is emptied after the test."""
    return lambda name="mail", cls=RedisQueue, **options: cls(name, backends.redis_connection(), **options)


@pytest.fixture
def queue(make):
    return make()
