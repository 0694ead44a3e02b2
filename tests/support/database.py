"""What tests of queues in a database do with them."""

from contextlib import contextmanager, suppress

from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from djqueue.backends.database.queue import DatabaseQueue
from djqueue.testing import together


def again(queue, **options):
    """The same queue as another process has it."""
    return DatabaseQueue(queue.name, queue.connection, **options)


def statements(queue):
    """Those that are run meanwhile."""
    return CaptureQueriesContext(connections[queue.database])


def elsewhere(queue, look):
    """What another connection sees."""
    return together(look, last=queue.close)[0]


@contextmanager
def rolled_back(using=None):
    """A transaction, or a savepoint within one, that an error ends."""
    with suppress(ZeroDivisionError), transaction.atomic(using):
        yield
        raise ZeroDivisionError
