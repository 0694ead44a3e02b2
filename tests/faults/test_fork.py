"""Commands that have children."""

import pytest
from django.db import OperationalError, transaction

from tests.app.models import Thing
from tests.faults.commands import fork, lock_next_to_a_child
from tests.faults.processes import assert_done, ids_of
from tests.faults.stores import STORES
from tests.support.processes import until

pytestmark = pytest.mark.slow


@pytest.mark.backends(*STORES)
def test_a_command_may_fork(consumers, backend):
    """Children by os.fork and by subprocess leave the sockets of their parent alone, and settle nothing."""
    consumer = consumers.start("-t", 4, "--lease", 5)
    ids = ids_of(fork.enqueue_many([(backend.alias,)] * 16))
    consumers.ledger.wait("end", 2 * len(ids))
    ran = {event.id for event in consumers.ledger.of("end")}
    assert ran >= set(ids)
    assert_done(consumers, ran, dup_runs=0)
    assert len(consumers.ledger.of("start")) == len(ran) == 2 * len(ids)
    assert consumers.ledger.pids() == {consumer.pid}
    assert "failed" not in consumer.output
    assert consumers.stop() == [0]


@pytest.mark.backends("postgres", "mariadb")
def test_what_a_consumer_has_locked_is_free_once_it_is_killed_though_its_child_lives(consumers, backend, release_file):
    things = Thing.objects.using(backend.alias)
    things.create(name="free")
    consumer = consumers.start()
    lock_next_to_a_child(backend.alias, str(release_file))
    consumers.ledger.wait("locked", 1)
    consumers.ledger.wait("free", 1)
    consumer.kill9()
    consumers.members.remove(consumer)
    try:
        until(lambda: _may_lock(things))
    finally:
        release_file.touch()


def _may_lock(things) -> bool:
    try:
        with transaction.atomic(using=things.db):
            return things.select_for_update(nowait=True).get().name == "free"
    except OperationalError:
        return False
