"""The contract suites on SQS, but for what it declares that it cannot do."""

import pytest

from djqueue.backends.memory.queue import MemoryStore
from djqueue.testing import GuardContract, LeaseContract, QueueContract, WakeContract
from djqueue.testing.contract.queue import NOTHING
from djqueue.testing.patience import PATIENCE
from tests.backends.contract.test_backends import OnEachBackend
from tests.support.backends import FULL

pytestmark = pytest.mark.backends("sqs", *(["sqs-fifo"] if FULL else []))


class OnSqs(OnEachBackend):
    """Makes queues at SQS, whose facts are in memory."""

    def make_queue(self, name, **options):
        queue = super().make_queue(name, **options)
        queue.store = MemoryStore(name)
        return queue


class TestQueue(OnSqs, QueueContract):
    """The four verbs and what stands on them."""

    def test_a_delayed_item_is_waited_for(self):
        """The first call makes a queue, and takes longer than the delay of the suite."""
        queue = self.queue()
        queue.push("later", delay=3)
        assert queue.pop(default=NOTHING) is NOTHING
        assert queue.pop(timeout=PATIENCE) == "later"


class TestLeases(OnSqs, LeaseContract):
    """Leases and acceptance."""


class TestGuards(OnSqs, GuardContract):
    """Conditions next to entries."""

    window = 3.0


class TestWake(OnSqs, WakeContract):
    """Bells that ring when work comes. One poll looks at one queue: no other has its feed."""

    share_a_connection = False
