"""What tests of queues in a database do with them."""

import multiprocessing
from contextlib import contextmanager, suppress

from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from djqueue.backends.database.queue import DatabaseQueue
from djqueue.testing import together


def as_another_process(queue, **options):
    """The same queue as another process has it."""
    return DatabaseQueue(queue.name, queue.connection, **options)


def statements(queue):
    """Those that are run meanwhile."""
    return CaptureQueriesContext(connections[queue.database])


def as_another_connection(queue, look):
    """What another connection sees."""
    return together(look, last=queue.close)[0]


@contextmanager
def rolled_back(using=None):
    """A transaction, or a savepoint within one, that an error ends."""
    with suppress(ZeroDivisionError), transaction.atomic(using):
        yield
        raise ZeroDivisionError


def in_four_processes(queue, work) -> list:
    """The lists that ``work`` returns of a queue like this one in four forked processes, as one list."""
    where = connections[queue.database].settings_dict["NAME"]
    connections.close_all()
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(4)]
    args = queue.database, queue.name, where, work
    children = [context.Process(target=_in_child, args=(*args, end)) for _, end in pipes]
    for child in children:
        child.start()
    found = sum((mine.recv() for mine, _ in pipes), [])
    for child in children:
        child.join(30)
    return found


def _in_child(database, name, where, work, pipe):
    connections[database].settings_dict["NAME"] = where
    queue = DatabaseQueue(name, database)
    pipe.send(work(queue))
    queue.close()
