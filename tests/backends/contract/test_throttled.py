"""A throttle that is wide enough changes nothing: a queue within one keeps the whole contract."""

import unittest

from djqueue.backends.base import BaseQueue
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.testing import GuardContract, LeaseContract, QueueContract, StoreContract, StressContract, WakeContract
from djqueue.throttle import TAKES_OUT, ThrottledQueue, unthrottled
from tests.backends.contract.toy import ToyQueue
from tests.support.backends import FULL

WIDE = {"limit": 10**6, "window": 0.5}
OWN = {"claim", "clear", "connection_key", "exchange", "own_rate_limit", "read", "reset"}
"""What a throttled queue does itself; next to that it has the settings of its window."""


class Within:
    def test_the_failed_queue_bears_the_name_of_its_queue_and_has_none_itself(self):
        """It is that of the queue within, which nothing throttles."""
        queue = self.make_queue("mail")
        assert (queue.failed.name, queue.failed.base_name, queue.failed.failed) == ("mail:failed", "mail", None)
        assert type(queue.failed) is type(unthrottled(queue))


class AroundMemoryTest(
    Within, QueueContract, LeaseContract, GuardContract, StoreContract, StressContract, WakeContract,
    unittest.TestCase,
):  # fmt: skip
    most_ahead = 0

    def make_queue(self, name, **options):
        return ThrottledQueue(MemoryQueue(name, **options), **WIDE)


@unittest.skipUnless(FULL, "at full size")
class AroundFourVerbsTest(Within, QueueContract, GuardContract, unittest.TestCase):
    def make_queue(self, name, **options):
        queue = ToyQueue(name, **options)
        queue.store = MemoryStore(name)
        return ThrottledQueue(queue, **WIDE)


@unittest.skipUnless(FULL, "at full size")
class AroundAThrottleTest(Within, QueueContract, LeaseContract, unittest.TestCase):
    def make_queue(self, name, **options):
        return ThrottledQueue(ThrottledQueue(MemoryQueue(name, **options), **WIDE), **WIDE)


def test_all_of_the_contract_is_passed_on_or_throttled_or_stands_on_that():
    public = {name for name in dir(BaseQueue) if not name.startswith("_") and hasattr(BaseQueue, name)}
    queue = ThrottledQueue(MemoryQueue("mail"), **WIDE)
    passed = {name for name in public - OWN if name in vars(ThrottledQueue)}
    assert public == passed | TAKES_OUT | (OWN & public)
    assert TAKES_OUT.isdisjoint(vars(ThrottledQueue))
    assert all(getattr(queue, name) == getattr(queue.queue, name) for name in passed)
