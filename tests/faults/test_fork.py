"""Commands that have children."""

import pytest
from django.db import OperationalError, transaction

from tests.app.models import Thing
from tests.faults.commands import fork, lock_beside_a_child
from tests.faults.crew import STORES, at_rest
from tests.site import until

pytestmark = pytest.mark.slow


@pytest.mark.backends(*STORES)
def test_a_command_may_fork(crew, backend):
    """Children by os.fork and by subprocess leave the sockets of their parent alone, and settle nothing."""
    consumer = crew.hire("-t", 4, "--lease", 5)
    ids = [result.id for result in fork.enqueue_many([(backend.alias,)] * 16)]
    crew.ledger.wait("end", 2 * len(ids))
    stats = at_rest()
    assert (stats.done, stats.failed) == (2 * len(ids), 0)
    assert len(crew.ledger.of("start")) == len(crew.ledger.of("end")) == 2 * len(ids)
    assert not crew.ledger.check(ids).lost
    assert crew.ledger.pids() == {consumer.pid}
    assert "failed" not in consumer.output
    assert crew.dismiss() == [0]


@pytest.mark.backends("postgres", "mariadb")
def test_what_a_consumer_has_locked_is_free_once_it_is_killed_though_its_child_lives(crew, backend, tmp_path):
    things = Thing.objects.using(backend.alias)
    things.create(name="free")
    consumer, gate = crew.hire(), tmp_path / "gate"
    lock_beside_a_child(backend.alias, str(gate))
    crew.ledger.wait("locked", 1)
    crew.ledger.wait("free", 1)
    consumer.kill9()
    crew.members.remove(consumer)
    try:
        until(lambda: _may_lock(things))
    finally:
        gate.touch()


def _may_lock(things) -> bool:
    try:
        with transaction.atomic(using=things.db):
            return things.select_for_update(nowait=True).get().name == "free"
    except OperationalError:
        return False
