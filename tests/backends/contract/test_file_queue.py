"""The queue of the page about backends keeps the contract that the page names."""

import unittest
from tempfile import TemporaryDirectory

import pytest

from djqueue.backends.base import Entry, LeasedQueue, OnceGuard
from djqueue.backends.memory.queue import MemoryStore
from djqueue.exceptions import NotSupported
from djqueue.testing import LeaseContract, QueueContract
from tests.backends.contract.file_queue import FileQueue


class FileTest(QueueContract, LeaseContract, unittest.TestCase):
    """A queue with leases in a folder, under plain unittest."""

    def make_queue(self, name, **options):
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        queue = FileQueue(name, folder.name, **options)
        queue.store = MemoryStore(name)  # as QUEUES gives it one
        return queue

    def test_a_guard_refuses_what_was_put_before(self):
        queue, guard = self.make_queue("mail"), OnceGuard("tick", 60)
        assert [queue.put([Entry(b"", id)], [guard]) for id in ("first", "second")] == [[True], [False]]
        assert [lease.entry.id for lease in queue.claim(2)] == ["first"]


def test_a_required_verb_that_is_missing_is_named():
    class Unfinished(LeasedQueue):
        """Writes nothing yet."""

    for verb, given in [("claim", ()), ("stats", ()), ("complete", ([],)), ("requeue", ([],)), ("find", ("id",))]:
        with pytest.raises(NotSupported, match=rf"Unfinished lacks {verb}\(\): write it"):
            getattr(Unfinished("mail"), verb)(*given)
