import pytest

from djqueue.backends.database.queue import DatabaseQueue


@pytest.fixture
def queue(backend):
    """A queue that no other test has."""
    return DatabaseQueue(f"queue-{backend.tag}", backend.alias)
