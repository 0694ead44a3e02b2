"""Every backend, and a four-method toy, under the contract suites that djqueue exports."""

import unittest

import pytest

from djqueue.backends.base import BaseQueue
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.testing import (
    GuardContract,
    LaneContract,
    LeaseContract,
    QueueContract,
    RateLimitContract,
    StoreContract,
    StressContract,
    WakeContract,
)
from djqueue.testing.patience import eventually
from tests.backends.contract.toy import ToyQueue
from tests.support.backends import DISCOVERED, EVERY, FULL, SERVED


class OnEachBackend:
    """Makes the queues of a suite on the backend under test."""

    @pytest.fixture(autouse=True)
    def _made(self, backend):
        self.backend, self.made = backend, []
        yield
        for queue in self.made:
            queue.close()

    def make_queue(self, name, **options) -> BaseQueue:
        config = self.backend.config(name)
        given = {key.lower(): value for key, value in config.get("OPTIONS", {}).items()}
        self.made.append(self.backend.cls(config["NAME"], config["CONNECTION"], **given, **options))
        return self.made[-1]


LANED = tuple(id for id in SERVED if FULL or id != "mariadb")  # which tests/backends/database/test_lanes.py runs on


@pytest.mark.backends(*SERVED, *DISCOVERED)
class TestQueue(OnEachBackend, QueueContract):
    """The four verbs and what stands on them."""


@pytest.mark.backends(*SERVED, *DISCOVERED)
class TestLeases(OnEachBackend, LeaseContract):
    """Leases, order, acceptance, inspection."""


@pytest.mark.backends(*SERVED, *DISCOVERED)
class TestGuards(OnEachBackend, GuardContract):
    """Conditions next to entries."""


@pytest.mark.backends(*LANED, *DISCOVERED)
class TestLanes(OnEachBackend, LaneContract):
    """Entries that wait for each other."""


@pytest.mark.backends(*LANED, *(id for id in DISCOVERED if id != "redis-cluster"))
class TestRateLimits(OnEachBackend, RateLimitContract):
    """Windows that several queues share, which those of a cluster cannot."""


@pytest.mark.backends(*SERVED, *DISCOVERED)
class TestStore(OnEachBackend, StoreContract):
    """Facts."""


@pytest.mark.backends(*(id for id in EVERY if not id.startswith("redis")))
class TestPrune(OnEachBackend):
    """Stores that forget nothing by themselves, as Redis does."""

    def test_to17_what_is_over_is_deleted(self):
        store = self.make_queue("prune").store
        store.put_many([(f"short {number}", b"1", 0.01) for number in range(5)])
        eventually(lambda: all(store.get(f"short {number}") is None for number in range(5)))
        assert (store.prune(limit=2), store.prune(), store.prune()) == (2, 3, 0)


@pytest.mark.backends(*EVERY, *DISCOVERED)
class TestStress(OnEachBackend, StressContract):
    """Threads and models."""

    examples = 60 if FULL else 6


@pytest.mark.backends("memory", "postgres", "redis-blocking", *DISCOVERED)
class TestWake(OnEachBackend, WakeContract):
    """Naps that end when work comes."""

    @property
    def share_a_connection(self):
        """No command takes keys of two slots of a cluster."""
        return self.backend.id != "redis-cluster"


class ToyTest(QueueContract, GuardContract, RateLimitContract, unittest.TestCase):
    """A four-method queue, under plain unittest."""

    early = 0.05

    def make_queue(self, name, **options):
        queue = ToyQueue(name, **options)
        queue.store = MemoryStore(name)
        return queue


class MemoryTest(
    QueueContract, LeaseContract, GuardContract, LaneContract, RateLimitContract, StoreContract, unittest.TestCase
):
    """The suites serve under plain unittest as well."""

    def make_queue(self, name, **options):
        return MemoryQueue(name, **options)


def test_what_a_queue_declares_that_it_cannot_do_is_skipped():
    class ToyLeases(LeaseContract, StressContract, unittest.TestCase):
        def make_queue(self, name, **options):
            return ToyQueue(name, **options)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(ToyLeases).run(result)
    assert (result.failures, result.errors) == ([], [])
    assert len(result.skipped) == result.testsRun > 50
