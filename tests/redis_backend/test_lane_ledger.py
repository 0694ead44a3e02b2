"""Many threads, leases that are dropped, failures that hold their lane: what a ledger of all that happened says."""

import random
import threading
from collections import defaultdict
from dataclasses import replace

import pytest

from djqueue.backends.base import Entry
from djqueue.backends.entries import untried
from djqueue.flow.gates import HOLD_LANE, HOLD_PARK, Gate
from tests.redis_backend.kit import left

pytestmark = pytest.mark.server("redis")

LEASE = 0.5
GATES = {
    "ordered": Gate(ordered=True),
    "runs": Gate(ordered=True, run=4),
    "three": Gate(most=3),
    "shared": Gate(ordered=True, run=2, within="outer", outer=Gate(most=6, run=2)),
}
MOST = {"three": 3, "outer": 6}


class Ledger:
    """What workers say; it finds out by itself what may not have been."""

    def __init__(self, expected):
        self.lock, self.expected = threading.Lock(), expected
        self.out, self.done, self.wrong = defaultdict(dict), defaultdict(list), []

    def began(self, leases):
        with self.lock:
            for lease in leases:
                for lane in lanes_of(lease):
                    still = [one for one in self.out[lane].values() if one.until > lease.claimed]
                    mates = [one for one in still if (one.token, one.run) == (lease.token, lease.run)]
                    if lane[:2] in ("or", "ru", "sh") and len(mates) < len(still):
                        self.wrong.append(f"{lane}: two runs at once")
                    if len(still) >= MOST.get(lane.split("-")[0], len(still) + 1):
                        self.wrong.append(f"{lane}: {len(still) + 1} at once")
                    self.out[lane][lease.entry.id] = lease

    def ends(self, lease, done=False):
        """Said before the queue is told: what comes after that may come at once."""
        with self.lock:
            for lane in lanes_of(lease):
                if self.out[lane].get(lease.entry.id) is lease:
                    del self.out[lane][lease.entry.id]
            if done:
                self.done[lease.entry.lane].append(lease)

    def refused(self, lease):
        with self.lock:
            self.done[lease.entry.lane].remove(lease)

    @property
    def is_complete(self):
        with self.lock:
            return sum(map(len, self.done.values())) >= self.expected


def lanes_of(lease):
    return [lease.entry.lane, "outer"] if lease.entry.lane.startswith("shared") else [lease.entry.lane]


class Worker(threading.Thread):
    """Claims, and does one thing or another with what it got."""

    def __init__(self, queue, ledger, seed):
        super().__init__()
        self.queue, self.ledger, self.random, self.error = queue, ledger, random.Random(seed), None

    def run(self):
        try:
            while not self.ledger.is_complete:
                claimed = self.queue.claim(self.random.randint(1, 6), LEASE)
                self.ledger.began(claimed)
                for run in units(claimed):
                    self.work(run)
                self.queue.reap()
                self.open_what_is_parked()
                if not claimed:
                    self.queue.nap(0.003)
        except Exception as error:
            self.error = error

    def work(self, run):
        while run:
            fate = self.random.random()
            if fate < 0.02:
                return  # its lease, and those of the rest, run out
            if fate < 0.08:
                return self.fail(run, HOLD_LANE if fate < 0.06 else HOLD_PARK)
            lease = run.pop(0)
            self.ledger.ends(lease, done=True)
            if not self.queue.complete([lease]):
                self.ledger.refused(lease)

    def fail(self, run, hold):
        for lease in run:
            self.ledger.ends(lease)
        rest = [untried(one) for one in run[1:]]
        self.queue.release([replace(run[0], entry=replace(run[0].entry, hold=hold, delay=0.005)), *rest])

    def open_what_is_parked(self):
        for lane in self.queue.lanes(100):
            if lane.parked:
                self.queue.open_lane(lane.name)


def units(claimed):
    runs = defaultdict(list)
    for number, lease in enumerate(claimed):
        runs[lease.run or number].append(lease)
    return runs.values()


@pytest.mark.parametrize("seed", range(2))
def test_no_lane_is_overtaken_and_nothing_is_lost(make, redis_client, seed):
    queue, put = make(), defaultdict(list)
    for number in range(600):
        kind = random.Random(f"{seed} {number}").choice(sorted(GATES))
        lane = f"{kind}-{number % 7}"
        queue.put([Entry(b"", f"{number:03}", lane=lane, gate=GATES[kind].written())])
        put[lane].append(f"{number:03}")
    ledger = Ledger(600)
    workers = [Worker(make(), ledger, f"{seed}.{number}") for number in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.error for worker in workers] == [None] * 5
    assert ledger.wrong == []
    for lane, ids in put.items():
        done = [lease.entry.id for lease in ledger.done[lane]]
        assert (sorted(done) if lane.startswith("three") else done) == ids
    queue.claim()
    assert left(redis_client) == {"meta"}
