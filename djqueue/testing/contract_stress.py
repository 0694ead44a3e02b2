"""The promises of leases under many threads, and against a model."""

from __future__ import annotations

from djqueue.testing.machine import run_machine
from djqueue.testing.steps import Contract
from djqueue.testing.stress import Stress


class StressContract(Contract):
    """The slower suites: threads that race, and random sequences of verbs compared with a model."""

    examples = 15
    """How many random sequences are tried."""

    def test_to6_to8_nothing_is_lost_completed_twice_or_taken_from_a_live_holder(self):
        queue = self.queue("lease", "fence", "count")
        ledger = Stress(queue).run()
        assert ledger.reaped > 0
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead) == (0, 0, 0, 0)
        assert stats.done == len(ledger.accepted)

    def test_random_verbs_do_what_they_do_to_the_model(self):
        self.queue("lease", "inspect", "idempotent", "priority", "order", "count", "fence")
        run_machine(lambda: self.queue(), examples=self.examples)
