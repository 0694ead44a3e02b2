"""Fixtures for tests of projects that use djqueue. Loading this imports nothing of Django, nor of djqueue."""

import pytest


@pytest.fixture
def djqueue_memory_queues():
    """An empty queue in memory under every alias of QUEUES, for this test; ``djqueue.queues``."""
    from djqueue.testing import memory_queues

    with memory_queues() as queues:
        yield queues


@pytest.fixture
def djqueue_clock(djqueue_memory_queues):
    """Queues in memory whose time only the test moves: a :class:`~djqueue.testing.VirtualClock`."""
    from djqueue.testing import virtual_time

    with virtual_time() as clock:
        yield clock


@pytest.fixture
def djqueue_enqueued():
    """``djqueue.testing.capture_enqueued``: ``with djqueue_enqueued() as calls: …``"""
    from djqueue.testing import capture_enqueued

    return capture_enqueued


@pytest.fixture
def djqueue_run_due():
    """``djqueue.testing.run_due``."""
    from djqueue.testing import run_due

    return run_due
