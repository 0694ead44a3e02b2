"""Loops of one's own, in real processes, next to which no consumer reaps."""

import pytest

from tests.faults.commands import hold
from tests.faults.ledger import now
from tests.faults.processes import PATIENCE, Consumers
from tests.faults.stores import STORES

LEASE = 1.0
pytestmark = pytest.mark.slow


@pytest.mark.backends(*STORES)
def test_what_a_killed_loop_ran_is_run_by_another_loop_soon_after_its_lease(consumers: Consumers, release_file):
    loops = {loop.pid: loop for loop in [consumers.site.start("run_loop", LEASE) for _ in range(2)]}
    for loop in loops.values():
        loop.wait_for("looping")
    message = hold(str(release_file))
    [first] = consumers.ledger.wait("start", 1, {message.id}, PATIENCE)
    loops.pop(first.pid).kill9()
    killed = now()
    _, second = consumers.ledger.wait("start", 2, {message.id}, PATIENCE)
    release_file.touch()
    consumers.ledger.wait_all("end", [message.id], PATIENCE)
    assert (second.pid, second.attempt) == (*loops, 2)
    assert second.at - killed < 2 * LEASE + 1.0  # its lease, the second between two looks, and a slow machine
