"""A consumer that stands still (SIGSTOP: a paused machine, a long swap) and wakes up as if nothing had been."""

import signal
from pathlib import Path

import pytest

from djqueue import queues
from tests.faults.commands import hold, hold_and_fail_first, work
from tests.faults.processes import at_rest
from tests.faults.stores import STORES
from tests.support.processes import until

pytestmark = pytest.mark.slow
LEASE = 0.8
GONE = "another consumer holds it by now"


@pytest.mark.backends(*STORES)
def test_completion_of_a_zombie_is_refused_to4(consumers, release_file, freeze):
    """TO-4: A stands still for more than its lease, B takes over and completes; what A says afterwards is nothing."""
    sleeper = consumers.start("-t", 1, "--lease", LEASE)
    id = hold(str(release_file)).id
    taken_over(consumers, sleeper, id, freeze)
    release_file.touch()
    [end] = consumers.ledger.wait("end", ids={id})
    assert end.attempt == 2
    assert at_rest().done == 1
    sleeper.send(signal.SIGCONT)
    consumers.ledger.wait("end", 2, {id})
    sleeper.wait_for(GONE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (1, 0)
    assert consumers.stop() == [0, 0]


@pytest.mark.backends(*STORES)
def test_failure_of_a_zombie_changes_nothing_to4(consumers, release_file, freeze, tmp_path):
    """TO-4: the same, but A wakes first and fails, while B is still at it: no failed queue, no further start."""
    sleeper = consumers.start("-t", 1, "--lease", LEASE)
    second = tmp_path / "second"
    id = hold_and_fail_first(str(release_file), str(second)).id
    taken_over(consumers, sleeper, id, freeze)
    release_file.touch()
    sleeper.send(signal.SIGCONT)
    consumers.ledger.wait("fail", ids={id})
    sleeper.wait_for(GONE)
    assert queues["default"].stats().leased == 1
    second.touch()
    [end] = consumers.ledger.wait("end", ids={id})
    assert end.attempt == 2
    stats = at_rest()
    assert (stats.done, stats.failed, len(consumers.ledger.of("start"))) == (1, 0, 2)


@pytest.mark.backends(*STORES)
def test_late_completion_is_accepted_if_nobody_took_over_to5(consumers, release_file, freeze):
    """TO-5: reaped, but not given to anybody else: whoever wakes up may finish it. (A limit: no more claims.)"""
    sleeper = consumers.start("-t", 1, "--lease", LEASE, "--limit", 1)
    id = hold(str(release_file)).id
    consumers.ledger.wait("start", ids={id})
    freeze(sleeper)
    until(lambda: queues["default"].reap().count == 1)
    assert queues["default"].stats().ready == 1
    release_file.touch()
    sleeper.send(signal.SIGCONT)
    assert sleeper.wait() == 0
    stats = at_rest()
    assert (stats.done, stats.failed, len(consumers.ledger.of("start"))) == (1, 0, 1)
    assert GONE not in sleeper.output


@pytest.mark.backends(*STORES)
def test_a_short_stop_repeats_nothing_to6(consumers, release_file, freeze):
    """TO-6: nobody is robbed before the end of the lease, while another one reaps as hard as it can."""
    sleeper = consumers.start("-t", 1, "--lease", 4)
    id = hold(str(release_file)).id
    consumers.ledger.wait("start", ids={id})
    consumers.start("--lease", LEASE)
    freeze(sleeper)
    woken_at = queues["default"].now() + 1.5
    until(lambda: queues["default"].reap().count or queues["default"].now() > woken_at)
    sleeper.send(signal.SIGCONT)
    release_file.touch()
    consumers.ledger.wait("end", ids={id})
    stats = at_rest()
    assert (stats.done, stats.failed, len(consumers.ledger.of("start"))) == (1, 0, 1)


@pytest.mark.backends(*STORES)
def test_what_waited_in_a_zombie_is_not_run_by_it_to6(consumers, tmp_path, freeze):
    """TO-6: work that A had claimed ahead runs at B meanwhile; A, awake, does not begin it."""
    sleeper = consumers.start("-t", 1, "--lease", LEASE)
    blocker, waiting, release_file = hold_with_more_ahead(consumers, tmp_path)
    freeze(sleeper)
    consumers.start("--lease", LEASE)
    release_file.touch()
    consumers.ledger.wait_all("end", {blocker, *waiting})
    sleeper.send(signal.SIGCONT)
    sleeper.wait_for(GONE)
    at_rest()
    assert consumers.stop() == [0, 0]
    assert [event for event in consumers.ledger.of("start", waiting) if event.pid == sleeper.pid] == []


def not_begun(consumers) -> list[str]:
    """What is leased and was never started."""
    leased = [record.entry.id for record in queues["default"].peek("leased", 500)]
    return sorted(set(leased) - {event.id for event in consumers.ledger.of("start")})


def hold_with_more_ahead(consumers, folder) -> tuple[str, list[str], Path]:
    """What holds, what was claimed with it and waits, and its file: a claim may end with it, or be given back soon."""
    for number in range(20):
        release_file = folder / f"release {number}"
        blocker = hold_after_many(release_file)
        consumers.ledger.wait("start", ids={blocker})
        if waiting := not_begun(consumers):
            return blocker, waiting, release_file
        release_file.touch()
    raise AssertionError("nothing was claimed ahead")


def hold_after_many(release_file) -> str:
    """Quick messages, so that the consumer learns to claim ahead; then one that holds, with more behind it."""
    work.enqueue_many([()] * 1000)
    blocker = hold(str(release_file)).id
    work.enqueue_many([()] * 1000)
    return blocker


def taken_over(consumers, sleeper, id, freeze):
    """Stop the one that runs a message, and wait until another has begun it."""
    consumers.ledger.wait("start", ids={id})
    freeze(sleeper)
    consumers.start("-t", 2, "--lease", LEASE)
    consumers.ledger.wait("start", 2, {id})
