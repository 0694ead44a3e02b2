"""Commands that have children."""

import pytest

from tests.faults.commands import fork
from tests.faults.crew import STORES, at_rest

pytestmark = pytest.mark.slow


@pytest.mark.backends(*STORES)
def test_a_command_may_fork(crew, backend):
    """Children by os.fork and by subprocess leave the sockets of their parent alone, and settle nothing."""
    consumer = crew.hire("-t", 4, "--lease", 5)
    ids = [result.id for result in fork.enqueue_many([(backend.alias,)] * 16)]
    crew.ledger.wait("end", 2 * len(ids))
    stats = at_rest()
    assert (stats.done, stats.dead) == (2 * len(ids), 0)
    assert len(crew.ledger.of("start")) == len(crew.ledger.of("end")) == 2 * len(ids)
    assert not crew.ledger.check(ids).lost
    assert crew.ledger.pids() == {consumer.pid}
    assert "failed" not in consumer.output
    assert crew.dismiss() == [0]
