"""Async commands on one event loop whose functions do not come back from the database."""

import threading
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from djqueue import queues
from tests.app.models import Thing
from tests.faults.processes import PATIENCE, STUCK, at_rest, ids_of, reasons, supervise
from tests.faults.row_locks.commands import ask, change_row

pytestmark = [pytest.mark.slow, pytest.mark.backends("postgres")]
OWN_APPS = ["tests.faults.row_locks"]
OWN_SETTINGS = {"QUEUE_TIME_LIMIT_GRACE": 1}
ARGS = ("-t", 2, "--coroutines", 50, "--lease", 4)


@contextmanager
def locked(things, key):
    """Lock a row, in a transaction of another thread."""
    is_locked, release = threading.Event(), threading.Event()

    def lock():
        try:
            with transaction.atomic(using=things.db):
                things.select_for_update().get(pk=key)
                is_locked.set()
                release.wait(2 * PATIENCE)
        finally:
            connections.close_all()

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        assert is_locked.wait(PATIENCE)
        yield
    finally:
        release.set()
        thread.join(PATIENCE)


def test_commands_that_wait_for_a_locked_row_take_the_database_from_no_others(consumers, backend):
    """All threads are taken when the others come; these go on in new ones, and then the process is replaced."""
    things = Thing.objects.using(backend.alias)
    key = things.create(name="wanted").pk
    with locked(things, key):
        consumers.start(*ARGS)
        guilty = [change_row(backend.alias, key).id for _ in range(2)]
        consumers.ledger.wait("start", 2)
        innocent = ids_of(ask.enqueue_many([(backend.alias,)] * 10))
        first = consumers.members[0]
        deaths = supervise(consumers, lambda: consumers.members[0] is not first, *ARGS)
        stats, why = at_rest(), reasons()
        assert set(why) == set(guilty)
        assert (stats.done, stats.failed) == (10, 2)
    assert deaths == [STUCK]
    assert {event.attempt for event in consumers.ledger.of("end", innocent)} == {1}
    assert all("time_limit of 2 s" in reason for reason in why.values())
    for id in guilty:
        assert first.wait_for(f"{change_row.name} (message {id}) is stuck")
    assert first.wait_for("in execute_sql")
    assert first.wait_for("Too many commands are stuck (2)")
    assert consumers.stop() == [0]
    assert len(queues["default"].failed) == 2
