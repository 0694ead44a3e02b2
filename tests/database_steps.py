"""What tests of queues in a database do with them."""

from django.db import connections
from django.test.utils import CaptureQueriesContext

from djqueue.backends.database import DatabaseQueue


def again(queue, **options):
    """The same queue as another process has it."""
    return DatabaseQueue(queue.name, queue.connection, **options)


def statements(queue):
    """Those that are run meanwhile."""
    return CaptureQueriesContext(connections[queue.database])
