"""Stopping on a signal: what runs may end, what does not end is handed back, what was not begun is untouched."""

import signal

import pytest

from djqueue import queues
from tests.faults import ledger
from tests.faults.commands import hold, work
from tests.faults.processes import at_rest, ids_of
from tests.faults.stores import STORES
from tests.support.backends import FULL
from tests.support.processes import until

pytestmark = pytest.mark.slow
STOPPING = "Stopping"


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("signum", [signal.SIGTERM, *([signal.SIGINT] if FULL else [])])
def test_what_runs_ends_and_nothing_new_begins_dj16(consumers, signum):
    """DJ-16: one-second commands finish within the grace, no other starts, the exit code is 0.

    By either signal on each store: tests/management/test_queue_consumer.py.
    """
    consumer = consumers.start("-t", 2, "--grace", 20)
    ids = set(ids_of(work.enqueue_many([(1000,)] * 6)))
    consumers.ledger.wait("start", 2)
    consumer.send(signum)
    told = ledger.now()
    assert consumer.wait() == 0
    starts, ends = consumers.ledger.of("start"), consumers.ledger.of("end")
    assert len(ends) == len(starts) == 2
    assert all(start.at < told for start in starts)
    left = queues["default"].peek("ready")
    assert {one.entry.id for one in left} == ids - {end.id for end in ends}
    assert [one.entry.attempts for one in left] == [0] * 4


@pytest.mark.backends(*STORES)
def test_what_was_claimed_ahead_goes_back_at_once_and_uncounted_dj16(consumers, release_file):
    """DJ-16, TO-11: while one command still runs, another consumer gets what waited in our hands, as first starts."""
    consumer = consumers.start("-t", 1)
    work.enqueue_many([()] * 1000)
    blocker = hold(str(release_file)).id
    behind = ids_of(work.enqueue_many([()] * 300))
    consumers.ledger.wait("start", ids={blocker})
    consumer.term()
    consumer.wait_for(STOPPING)
    other = consumers.start()
    consumers.ledger.wait_all("end", behind)
    assert consumers.ledger.of("end", {blocker}) == []
    starts = consumers.ledger.of("start", set(behind))
    assert {(start.pid, start.attempt) for start in starts} == {(other.pid, 1)}
    release_file.touch()
    assert consumer.wait() == 0
    assert at_rest().done == 1301
    assert len(consumers.ledger.of("start")) == 1301


@pytest.mark.backends(*STORES)
def test_what_outlasts_the_grace_is_handed_back_dj16(consumers, release_file):
    """DJ-16, TO-11: another consumer starts it at once, not when the lease of a minute runs out; the exit code is 1."""
    consumer = consumers.start("-t", 1, "--grace", 0.5)
    id = hold(str(release_file)).id
    consumers.ledger.wait("start")
    other = consumers.start("-t", 1)
    consumer.term()
    first, second = consumers.ledger.wait("start", 2, timeout=10)
    assert (first.pid, first.attempt, second.pid, second.attempt) == (consumer.pid, 1, other.pid, 2)
    assert consumer.wait() == 1
    [record] = queues["default"].peek("leased")
    assert (record.entry.failures, record.entry.lost) == (0, 0)
    release_file.touch()
    consumers.ledger.wait("end", ids={id})
    assert at_rest().done == 1
    assert [end.pid for end in consumers.ledger.of("end")] == [other.pid]


@pytest.mark.backends(*STORES)
def test_a_second_signal_does_not_wait_dj16(consumers, release_file):
    """DJ-16: told twice, a consumer hands back what runs and goes, whatever the grace."""
    consumer = consumers.start("-t", 1, "--grace", 600)
    id = hold(str(release_file)).id
    consumers.ledger.wait("start")
    consumer.term()
    consumer.wait_for(STOPPING)
    consumer.term()
    assert consumer.wait(timeout=15) == 1
    record = until(lambda: queues["default"].find(id))
    assert (record.state, record.entry.attempts, record.entry.lost) == ("ready", 1, 0)


@pytest.mark.backends(*STORES)
def test_an_idle_consumer_stops_soon_dj23(consumers):
    """DJ-23: a wait for work, blocking or not, honours the signal."""
    work()
    consumer = consumers.start("-d", 5, "-m", 5)
    consumers.ledger.wait("end")
    told = ledger.now()
    consumer.term()
    assert consumer.wait(timeout=15) == 0
    assert ledger.now() - told < 5
