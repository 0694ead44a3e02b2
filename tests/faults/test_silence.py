"""Something on the way to the database forgets idle connections, and says nothing: that is noticed within seconds."""

import time

import pytest

from djqueue import queues
from tests.faults.commands import work
from tests.faults.processes import PATIENCE, ids_of
from tests.support.processes import until

pytestmark = pytest.mark.slow
FORGETS_AFTER = 2.0
NOTICED_IN = 12.0
"""Seconds: ten, and a slow machine."""


@pytest.mark.backends("postgres", "mariadb")
def test_what_has_ended_is_settled_though_idle_connections_are_forgotten(proxied_consumers, proxy):
    consumers = proxied_consumers
    proxy.forgets_after = FORGETS_AFTER
    consumers.start("-t", 4)
    done = 0
    for _ in range(2):
        ids = ids_of(work.enqueue_many([(1500 * FORGETS_AFTER,)] * 4))
        consumers.ledger.wait_all("end", ids, PATIENCE)
        done += len(ids)
        until(lambda done=done: queues["default"].stats().done == done, NOTICED_IN)
    assert len(consumers.ledger.of("start")) == done
    began = time.monotonic()
    assert consumers.stop() == [0]
    assert time.monotonic() - began < NOTICED_IN
