"""Contract suites for backends, one's own or a third party's, and help for tests of projects that use djqueue."""

from djqueue.testing.assertions import Enqueued, assert_enqueued, assert_not_enqueued, waiting
from djqueue.testing.capture import capture_enqueued, enqueued_on_commit
from djqueue.testing.clock import VirtualClock, virtual_time
from djqueue.testing.contract.guards import GuardContract
from djqueue.testing.contract.lanes import LaneContract
from djqueue.testing.contract.leases import LeaseContract
from djqueue.testing.contract.limits import RateLimitContract
from djqueue.testing.contract.machine import queue_machine
from djqueue.testing.contract.queue import QueueContract
from djqueue.testing.contract.store import StoreContract
from djqueue.testing.contract.stress import StressContract
from djqueue.testing.contract.wake import WakeContract
from djqueue.testing.crashes import crash_at
from djqueue.testing.patience import eventually, together
from djqueue.testing.queues import memory_queues
from djqueue.testing.run_due import Run, run_due

__all__ = [
    "RateLimitContract",
    "Enqueued",
    "GuardContract",
    "LaneContract",
    "LeaseContract",
    "QueueContract",
    "Run",
    "StoreContract",
    "StressContract",
    "VirtualClock",
    "WakeContract",
    "assert_enqueued",
    "assert_not_enqueued",
    "capture_enqueued",
    "crash_at",
    "enqueued_on_commit",
    "eventually",
    "memory_queues",
    "queue_machine",
    "run_due",
    "together",
    "virtual_time",
    "waiting",
]
