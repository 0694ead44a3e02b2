"""A pump over a pool whose threads stand still, so that a test moves each message by hand."""

import threading

from djqueue.consumer import claiming, leases, pump, settling
from djqueue.consumer.announcer import Announcer
from djqueue.consumer.crew import Crew
from djqueue.consumer.operators import OperatorChannels
from djqueue.consumer.pace import Pace, RunLimit
from djqueue.consumer.pool import Pool
from djqueue.consumer.pump import Pump
from djqueue.consumer.suspects import Suspects
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.utils import clock


class PumpHarness:
    """What it holds stays where it was put; `begin` and `end` are what a worker would do."""

    def __init__(self, *served, threads=4, limit=None, strict=False, alone=None, lease=None):
        self.announcer, self.run_limit, self.operators = Announcer(), RunLimit(limit), OperatorChannels()
        shared = self.announcer, self.run_limit, self.operators, strict
        self.crew = Crew("me", lambda queue: lease or queue.lease, *shared)
        self.crew.suspects = Suspects(served if alone is None else alone, self.crew.messages)
        self.pool = self.crew.pool = Pool(threads, self.crew.finish)
        self.pump = Pump(served, self.crew, Pace(0.001, 1, 0.001))

    @property
    def in_flight(self):
        """All that the pump holds."""
        return self.crew.messages()

    def turn(self, later=0.0):
        """One turn of the pump, so many seconds from now, and what follows from it; the seconds until the next one."""
        pause = self.pump.turn(clock() + later) if later else self.pump.guarded_turn()
        self.announcer.tick()
        return pause

    def settle(self):
        """Settle what has ended, and claim nothing."""
        self.pump.leases_first = True
        self.turn()

    def begin(self):
        """Let a worker take the next message, and not end it."""
        assert self.pool.waiting, "no message waits for a worker"
        [message] = self.pool.next()
        message.worker, message.began = threading.current_thread(), clock()
        return message

    def end(self, message, verdict=None):
        self.pool.workers[0].finished += 1
        self.pool.finish(message, verdict or Verdict(Outcome.DONE))

    def ids(self):
        """The ids of what has not ended."""
        return {one.lease.entry.id for one in self.in_flight if one.final is None and one.end is None}


def claimed_once(*served, **options) -> PumpHarness:
    """A harness whose pump has claimed once."""
    harness = PumpHarness(*served, **options)
    harness.turn()
    return harness


def set_clock(monkeypatch, clock):
    """Have a pump and its parts ask this clock."""
    for part in (claiming, leases, pump, settling):
        monkeypatch.setattr(part, "clock", clock)
