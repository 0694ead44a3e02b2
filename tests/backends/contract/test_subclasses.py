"""Queues of a class of one's own, whose ``__init__`` takes other arguments than that of its backend."""

import pytest

from djqueue.backends.entries import READY
from djqueue.testing.contract.steps import claim, entry, leased, put


def of_a_region(backend):
    """A subclass as a project writes it, of the backend under test."""
    config = backend.config()
    options = {key.lower(): value for key, value in config.get("OPTIONS", {}).items()}

    class Regional(backend.cls):
        def __init__(self, region: str):
            self.region = region
            super().__init__(f"{config['NAME']}-{region}", config["CONNECTION"], **options)

        def describe(self):
            return f"{self.region}: {super().describe()}"

    return Regional("north")


@pytest.mark.backends("memory", "sqlite", "postgres")
def test_the_failed_queue_of_a_subclass_is_made_by_its_backend(backend):
    queue = of_a_region(backend)
    made = put(queue, "kept", "failed")
    queue.complete([claim(queue)[0]])
    assert queue.stats().done == 1
    queue.fail(claim(queue))
    assert type(queue.failed) is type(queue)
    assert (queue.failed.name, queue.failed.failed) == (f"{queue.name}:failed", None)
    assert (len(queue), len(queue.failed)) == (0, 1)
    assert queue.failed.describe() == queue.describe()
    [record] = queue.failed.peek(READY)
    assert record.entry.id == made["failed"].id
    assert queue.failed.stats().done == 0
    assert queue.requeue([record.entry.id]) == 1
    assert (len(queue), len(queue.failed)) == (1, 0)


@pytest.mark.backends("sqs")
def test_so_is_that_of_one_at_sqs(backend):
    queue = of_a_region(backend)
    queue.fail(leased(queue, "failed"))
    assert (type(queue.failed), queue.failed.name) == (type(queue), f"{queue.name}:failed")
    assert claim(queue.failed)[0].entry.body == b"failed"


@pytest.mark.backends("memory", "sqlite", "postgres", "redis")
def test_a_put_of_its_own_is_asked_for_single_entries_too(backend):
    """As ``exchange`` is for a ``claim`` of its own: a backend may have a shorter way for one new entry."""
    seen = []

    class Seeing(backend.cls):
        def put(self, entries, guards=None):
            seen.append([one.id for one in entries])
            return super().put(entries, guards)

    config = backend.config()
    options = {key.lower(): value for key, value in config.get("OPTIONS", {}).items()}
    queue, one = Seeing(config["NAME"], config["CONNECTION"], **options), entry()
    assert queue.put_new(one) is True
    assert seen == [[one.id]]
    assert [lease.entry.id for lease in queue.claim()] == [one.id]
