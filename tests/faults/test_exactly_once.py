"""Every message runs; without faults exactly once, with them at most once more per thread that was killed."""

import pytest

from tests.faults.commands import work
from tests.faults.crew import KILLED, PATIENCE, at_rest, full, seeded

pytestmark = pytest.mark.slow
THREADS = 4
LEASE = 1.0


def send(count, chance, longest):
    """Messages of 0 to `longest` milliseconds; their ids."""
    return [result.id for result in work.enqueue_many([(chance.uniform(0, longest),) for _ in range(count)])]


@pytest.mark.backends(*KILLED)
def test_three_consumers_run_each_message_exactly_once_dj19(crew):
    """DJ-19, TO-13, TO-14: 3 processes of 4 threads, each with a reaper of its own."""
    crew.hire_many(3, "-t", THREADS, "--lease", 10)
    ids = send(full(1000, 20_000), seeded(), longest=full(10, 5))
    crew.ledger.wait_all("end", ids, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(ids), 0)
    assert len(crew.ledger.of("start")) == len(crew.ledger.of("end")) == len(ids)
    assert not crew.ledger.check(ids).lost
    assert crew.ledger.pids() == {member.pid for member in crew.members}
    assert crew.dismiss() == [0, 0, 0]


@pytest.mark.backends(*KILLED)
def test_kill9_loses_nothing_and_repeats_little_dj15_to8(crew):
    """DJ-15, TO-6, TO-8: a consumer at work is killed again and again, and replaced.

    So often that a message may well be in three dead hands in turn, which would put it aside: here ten are allowed.
    """
    crew.site.settings["QUEUE_MAX_LOST"] = 10
    chance, kills = seeded(), 0
    args = ("-t", THREADS, "--lease", LEASE)
    crew.hire_many(3, *args)
    ids = send(full(1000, 20_000), chance, longest=30)
    for share in milestones(len(ids)):
        crew.ledger.wait("end", share, timeout=PATIENCE)
        crew.kill_busy(chance)
        crew.hire(*args, up=False)
        kills += 1
    crew.ledger.wait_all("end", ids, PATIENCE)
    stats = at_rest()
    found = crew.ledger.check(ids)
    print(f"{kills} kills, {found.dup_runs} duplicates, {len(crew.ledger.running())} runs cut off")
    assert (found.lost, found.unexpected, found.overlaps) == (set(), set(), set())
    assert found.dup_runs <= kills * THREADS
    assert (stats.done, stats.failed) == (len(ids), 0)


def milestones(count):
    """How many ends to await before each kill: three in the small size, one about every second in the full one."""
    every = full(count // 4, 500)
    return range(every, count - every + 1, every)
