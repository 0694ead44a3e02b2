"""Shards with real processes: order, no overlap and no loss, while consumers are killed or stand still."""

import signal
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from djqueue import queues
from tests.faults import ledger
from tests.faults.processes import PATIENCE, assert_done, at_rest, full, seeded
from tests.faults.shards.commands import step, step_alone, wait_for
from tests.faults.stores import STORES
from tests.faults.test_stopped_process import GONE
from tests.support.processes import until

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.shards"]
OWN_SETTINGS = {"QUEUE_MAX_LOST": 100}
"""A message may well be in several dead hands in turn, which would put it aside."""
CONSUMERS, THREADS = full(2, 4), full(4, 8)
LEASE = full(2, 4)
ENTRIES, SHARDS = full(600, 100_000), full(12, 1_000)
KILLS = 3
"""In the small size; in the full one there is one every second for as long as there is work."""
STANDSTILL = 0.8
"""Seconds of a lease beyond which a process is made to stand still."""


@dataclass
class Shards:
    """Which messages were enqueued into which shards, and in which order."""

    of: dict[str, int]
    deaths: list[tuple[int, float]] = field(default_factory=list)
    """Which process was dead for sure, and when. A number may come again, of thousands of processes."""

    @classmethod
    def enqueued(cls, command, chance, longest) -> "Shards":
        """All of them, over shards in no order, in calls of some hundreds."""
        calls = [(chance.randrange(SHARDS), chance.uniform(0, longest)) for _ in range(ENTRIES)]
        of = {}
        for start in range(0, ENTRIES, 500):
            part = calls[start : start + 500]
            handles = command.enqueue_many(part)
            of |= {handle.id: shard for handle, (shard, _) in zip(handles, part, strict=True)}
        return cls(of)

    def _death(self, start) -> float:
        return min(at for pid, at in self.deaths if pid in (start.pid, start.parent) and at >= start.at)

    def out_of_order(self, events) -> list[int]:
        """The shards of which the first completions do not come in the order of enqueueing."""
        done, wanted = defaultdict(list), defaultdict(list)
        for id in dict.fromkeys(event.id for event in events if event.what == "end"):
            done[self.of[id]].append(id)
        for id, shard in self.of.items():
            wanted[shard].append(id)
        return [shard for shard, ids in wanted.items() if done[shard] != ids]

    def overlaps(self, events) -> list[tuple]:
        """The runs of one shard that went on next to each other; one that was cut off ended when its process did."""
        ended = {event.run: event.at for event in events if event.what == "end"}
        runs = defaultdict(list)
        for event in events:
            if event.what == "start":
                end = ended.get(event.run) or self._death(event)
                runs[self.of[event.id]].append((event.at, end, event.id))
        found = []
        for shard, spans in runs.items():
            spans.sort()
            found += [(shard, one, other) for one, other in zip(spans, spans[1:], strict=False) if other[0] < one[1]]
        return found


@pytest.mark.timeout(full(300, 3600))
@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("command", [step, step_alone], ids=["runs", "alone"])
def test_sq1_sq9_shards_keep_their_order_while_consumers_are_killed(consumers, command):
    """SQ-1, SQ-2, SQ-9: per shard in order and one at a time; none lost, none run next to another of its shard."""
    chance = seeded()
    shards = Shards.enqueued(command, chance, longest=full(8, 2))
    args = ("-t", THREADS, "--lease", LEASE, "-v", 0)
    for _ in range(CONSUMERS):
        consumers.start(*args, up=False)
    for _ in moments_to_kill(consumers):
        shards.deaths.append((consumers.kill_busy(chance).pid, ledger.now()))
        consumers.start(*args, up=False)
    until(lambda: consumers.ledger.ended() >= shards.of.keys(), 10 * PATIENCE, pause=0.2)
    found = assert_done(consumers, shards.of)
    events = consumers.ledger.look()
    print(f"{len(shards.deaths)} kills, {found.dup_runs} duplicates, {len(consumers.ledger.running())} runs cut off")
    assert (shards.out_of_order(events), shards.overlaps(events)) == ([], [])
    assert len({event.thread for event in events}) > THREADS
    assert queues["default"].lanes.page() == []


def moments_to_kill(consumers):
    """After a share of the work each, in the small size; in the full size every second, until most of it is done."""
    if full(1, 0):
        for number in range(1, KILLS + 1):
            share = number * ENTRIES // (KILLS + 2)
            until(lambda share=share: len(consumers.ledger.ended()) >= share, PATIENCE)
            yield number
        return
    began = ledger.now()
    while len(consumers.ledger.ended()) < ENTRIES * 0.95:
        due = ledger.now() + 1
        yield due - began
        until(lambda due=due: ledger.now() >= due)


@pytest.mark.backends(*STORES)
def test_sq9_a_dead_workers_shard_is_taken_over_within_its_lease(consumers, release_file):
    """SQ-9: in its order, and before anything that was enqueued since."""
    first = consumers.start("-t", 1, "--lease", 1)
    ids = [wait_for(1, str(release_file)).id]
    consumers.ledger.wait("start", ids=set(ids))
    ids += [wait_for(1, str(release_file)).id for _ in range(2)]
    consumers.start("-t", 2, "--lease", 1)
    first.kill9()
    dead = ledger.now()
    consumers.members.remove(first)
    release_file.touch()
    _, again = consumers.ledger.wait("start", 2, {ids[0]})
    assert again.at - dead < 1 + 2  # the lease, and what a loaded machine takes to look
    consumers.ledger.wait_all("end", ids)
    assert [event.id for event in consumers.ledger.of("end", ids)] == ids
    assert at_rest().failed == 0


@pytest.mark.backends(*STORES)
def test_sq10_who_stood_still_removes_nothing_of_the_new_owner_and_begins_nothing(consumers, freeze, release_file):
    """SQ-10, SQ-12: stopped in the middle of a run, beyond its lease; another consumer does all of it meanwhile."""
    ids = [wait_for(1, str(release_file)).id for _ in range(6)]
    sleeper = consumers.start("-t", 1, "--lease", STANDSTILL)
    consumers.ledger.wait("start", ids={ids[0]})
    until(lambda: queues["default"].stats().leased == len(ids))
    freeze(sleeper)
    consumers.start("-t", 2, "--lease", STANDSTILL)
    consumers.ledger.wait("start", 2, {ids[0]})
    later = [wait_for(1, str(release_file)).id for _ in range(3)]
    release_file.touch()
    consumers.ledger.wait_all("end", ids)
    sleeper.send(signal.SIGCONT)
    sleeper.wait_for(GONE)
    consumers.ledger.wait_all("end", later)
    assert_done(consumers, ids + later)
    begun = [event.id for event in consumers.ledger.of("start") if event.pid == sleeper.pid and event.id in ids]
    assert begun == ids[:1]
    first = list(dict.fromkeys(event.id for event in consumers.ledger.of("end")))
    assert first == ids + later
    assert consumers.stop() == [0, 0]
