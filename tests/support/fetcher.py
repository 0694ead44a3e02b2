"""A fetcher over a pool whose threads stand still, so that a test moves each message by hand."""

from djqueue.consumer.fetcher import Fetcher, Pace, Parts, Quarantine
from djqueue.consumer.in_flight import InFlight
from djqueue.consumer.operators import OperatorChannels
from djqueue.consumer.pool import Pool
from djqueue.consumer.settler import RunLimit, Settler, Settlers
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.utils import clock


class FetcherHarness:
    """What it holds stays where it was put; `begin` and `end` are what a worker would do."""

    def __init__(self, *served, threads=4, limit=None, strict=False, alone=None):
        self.in_flight = InFlight()
        self.run_limit = RunLimit(limit)
        self.settler = Settler("default", self.in_flight)
        self.pool = Pool(threads, self.finish)
        settlers = Settlers([served], lambda queues: self.settler, self.run_limit, lambda held: None)
        self.operators = OperatorChannels()
        quarantine = Quarantine(self.in_flight, served if alone is None else alone)
        parts = Parts(self.pool, self.in_flight, settlers, self.run_limit, quarantine, "me", operators=self.operators)
        self.fetcher = Fetcher(served, parts, Pace(0.001, 1, 0.001), strict)

    def finish(self, held, verdict):
        self.settler.add(held, verdict)
        self.settler.settle_all()

    def begin(self):
        """Let a worker take the next message, and not end it."""
        [held] = self.pool.next()
        held.began = clock()
        return held

    def end(self, held):
        self.pool.workers[0].finished += 1
        self.pool.finish(held, Verdict(Outcome.DONE))

    def ids(self):
        return {held.lease.entry.id for held in self.in_flight if held.verdict is None}

    def settle(self):
        while len(self.settler):
            self.settler.tick()


def claimed_once(*served, **options) -> FetcherHarness:
    """A bench whose fetcher has claimed once."""
    harness = FetcherHarness(*served, **options)
    harness.fetcher.tick()
    return harness
