"""Work of a killed consumer runs again in seconds, though its leases would last for a minute."""

import os
import signal
from itertools import count

import pytest

from djqueue import queues
from tests.faults.commands import hold, leave_a_child
from tests.faults.ledger import now
from tests.faults.processes import PATIENCE, assert_done, ids_of
from tests.faults.stores import STORES

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.roster"]
SOON = 2.0
"""Seconds in which it is seen that a consumer is dead, and one that polls has noticed what came back."""
SLOW = 3.0
"""Seconds more that a slow machine may take."""
HELD = 4


def kill(consumers, consumer):
    consumer.kill9()
    consumers.members.remove(consumer)


def begun_again(consumers, ids, before):
    """The second starts of these messages, which come soon after that moment."""
    started = consumers.ledger.wait("start", 2 * len(ids), ids, PATIENCE)
    again = [event for event in started if event.attempt == 2]
    assert {event.id for event in again} == set(ids)
    took = max(event.at for event in again) - before
    print(f"{len(ids)} messages began again {took:.2f} s after that")
    assert took < SOON + SLOW
    return again


@pytest.mark.backends(*STORES)
def test_what_a_killed_consumer_ran_begins_again_soon_after_the_start_of_the_next(consumers, release_file):
    first = consumers.start("-t", HELD, "--lease", 60)
    ids = ids_of(hold.enqueue_many([(str(release_file),)] * HELD))
    consumers.ledger.wait("start", HELD)
    kill(consumers, first)
    second = consumers.start("-t", HELD, "--lease", 60)
    again = begun_again(consumers, ids, now())
    assert {event.pid for event in again} == {second.pid}
    assert [queues["default"].find(id).entry.lost for id in ids] == [1] * HELD
    assert f"is dead; messages that it held and that came back: {HELD}" in second.output
    release_file.touch()
    assert_done(consumers, ids, dup_runs=0)
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_a_child_that_outlives_its_killed_consumer_does_not_delay_that(consumers, release_file):
    first = consumers.start("-t", 2, "--lease", 60)
    leave_a_child(str(release_file))
    [child] = consumers.ledger.wait("start")
    id = hold(str(release_file)).id
    consumers.ledger.wait("start", ids={id})
    kill(consumers, first)
    consumers.start("-t", 2, "--lease", 60)
    begun_again(consumers, [id], now())
    os.kill(child.pid, 0)  # it lives
    release_file.touch()
    consumers.ledger.wait_all("end", [id])


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("has_duties", [True, False], ids=["with the duties", "without duties"])
def test_processes_of_one_supervisor_take_over_from_each_other(consumers, tmp_path, has_duties):
    consumers.start("--processes", 2, "-t", 2, "--lease", 60)
    ready = {event.pid for event in consumers.ledger.wait("ready", 2, timeout=PATIENCE)}
    [keeper] = consumers.ledger.pids("keeps")
    [victim] = {keeper} if has_duties else ready - {keeper}
    id, release_file = held_by(consumers, victim, tmp_path)
    killed = now()
    os.kill(victim, signal.SIGKILL)
    begun_again(consumers, [id], killed)
    release_file.touch()
    consumers.ledger.wait_all("end", [id])
    assert consumers.stop() == [0]


def held_by(consumers, pid, folder):
    """A message that this process runs, and the file for which that waits. Those that the other one gets end."""
    for number in count():
        release_file = folder / str(number)
        id = hold(str(release_file)).id
        [start] = consumers.ledger.wait("start", ids={id}, timeout=PATIENCE)
        if start.pid == pid:
            return id, release_file
        release_file.touch()
