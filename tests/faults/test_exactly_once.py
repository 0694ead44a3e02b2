"""Every message runs; without faults exactly once, with them at most once more per thread that was killed."""

import pytest

from tests.faults.commands import hold, work
from tests.faults.processes import PATIENCE, assert_done, full, ids_of, seeded
from tests.faults.stores import STORES

pytestmark = pytest.mark.slow
THREADS = 4
LEASE = 1.0


def send(count, chance, longest):
    """Messages of 0 to `longest` milliseconds; their ids."""
    return ids_of(work.enqueue_many([(chance.uniform(0, longest),) for _ in range(count)]))


@pytest.mark.backends(*STORES)
def test_three_consumers_run_each_message_exactly_once_dj19(consumers):
    """DJ-19, TO-13, TO-14: 3 processes of 4 threads, each with a reaper of its own."""
    consumers.start_many(3, "-t", THREADS, "--lease", 10)
    ids = send(full(600, 20_000), seeded(), longest=full(10, 5))
    consumers.ledger.wait_all("end", ids, PATIENCE)
    assert_done(consumers, ids)
    assert len(consumers.ledger.of("start")) == len(consumers.ledger.of("end")) == len(ids)
    assert consumers.ledger.pids() == {member.pid for member in consumers.members}
    assert consumers.stop() == [0, 0, 0]


@pytest.mark.backends(*STORES)
def test_kill9_loses_nothing_and_repeats_little_dj15_to8(consumers, tmp_path):
    """DJ-15, TO-6, TO-8: a consumer at work is killed again and again, and replaced.

    So often that a message may well be in three dead hands in turn, which would put it aside: here ten are allowed.
    What was running is repeated, and what had ended just before. One message goes on until the kill is over, so that
    somebody is at work then.
    """
    consumers.site.settings["QUEUE_MAX_LOST"] = 10
    chance, unreported = seeded(), 0
    args = ("-t", THREADS, "--lease", LEASE)
    consumers.start_many(3, *args)
    release_files = [tmp_path / str(number) for number in range(full(3, 39))]
    ids, held = send_between(release_files, chance)
    for release_file, id in zip(release_files, held, strict=True):
        consumers.ledger.wait("start", ids={id}, timeout=PATIENCE)
        unreported += consumers.ledger.just_ended(consumers.kill_busy(chance).pid)
        release_file.touch()
        consumers.start(*args, up=False)
    consumers.ledger.wait_all("end", ids, PATIENCE)
    found = assert_done(consumers, ids, len(release_files) * THREADS + unreported)
    print(f"{len(release_files)} kills, {found.dup_runs} duplicates, {len(consumers.ledger.running())} runs cut off")
    assert found.overlaps == set()


def send_between(release_files, chance):
    """Short messages, and among them one for each file that waits for it; the ids of all, and of those that wait."""
    part, held = full(150, 500), []
    ids = send(part, chance, longest=30)
    for release_file in release_files:
        held.append(hold(str(release_file)).id)
        ids += [held[-1], *send(part, chance, longest=30)]
    return ids, held
