import pytest

pytest.importorskip("boto3")

from djqueue.backends.memory.queue import MemoryStore
from djqueue.backends.sqs.queue import SqsQueue, clients
from tests.backends.sqs.support import Faulty


@pytest.fixture
def make(backend):
    """Queues of the backend under test, with facts in memory."""

    def make_one(name="mail", connection=None, **options):
        given = {key.lower(): value for key, value in backend.options.items()} | options
        queue = SqsQueue(name, connection or backend.connection, **given)
        queue.store = MemoryStore(name)
        return queue

    return make_one


@pytest.fixture
def queue(make):
    return make()


@pytest.fixture
def faulty_client(backend):
    """A client of boto3 of whose calls a test may let some fail."""
    return Faulty(clients.client(backend.connection))
