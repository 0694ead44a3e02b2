"""A throttle that is wide enough changes nothing: a queue within one keeps the whole contract."""

import unittest

from djqueue.backends.base import BaseQueue, OperatorVerbs
from djqueue.backends.items import ItemVerbs
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.testing import GuardContract, LeaseContract, QueueContract, StoreContract, StressContract, WakeContract
from djqueue.throttle import PASSED, ThrottledQueue, bare
from tests.backends import FULL
from tests.contract.toy import ToyQueue

WIDE = {"limit": 10**6, "window": 0.5}
OVER_THE_OTHERS = {"claim_within", "first_of", "pop", "push", "push_many", "refusal", "reserve", "take", "walk"}
"""What a throttled queue has from BaseQueue, as it calls nothing but what is passed on or throttled."""


class Within:
    def test_the_error_queue_bears_the_name_of_its_queue_and_has_none_itself(self):
        """It is that of the queue within, which nothing throttles."""
        queue = self.make_queue("mail")
        assert (queue.dead.name, queue.dead.logical, queue.dead.dead) == ("mail:dead", "mail", None)
        assert type(queue.dead) is type(bare(queue))


class AroundMemoryTest(
    Within, QueueContract, LeaseContract, GuardContract, StoreContract, StressContract, WakeContract,
    unittest.TestCase,
):  # fmt: skip
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
    public = {name for cls in (BaseQueue, ItemVerbs, OperatorVerbs) for name in vars(cls) if not name.startswith("_")}
    own = {name for name in vars(ThrottledQueue) if not name.startswith("_")}
    assert public <= own | OVER_THE_OTHERS | {"own_budget"}
    assert set(PASSED) <= public | {"name", "connection"}
    assert OVER_THE_OTHERS.isdisjoint(own)
