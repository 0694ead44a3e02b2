"""Contract suites for backends, one's own or a third party's, and help for tests of projects that use djqueue."""

from djqueue.testing.capture import capture_enqueued, enqueued_on_commit
from djqueue.testing.clock import VirtualClock, virtual_time
from djqueue.testing.contract import QueueContract
from djqueue.testing.contract_budgets import BudgetContract
from djqueue.testing.contract_guards import GuardContract
from djqueue.testing.contract_lanes import LaneContract
from djqueue.testing.contract_leases import LeaseContract
from djqueue.testing.contract_store import StoreContract
from djqueue.testing.contract_stress import StressContract
from djqueue.testing.contract_wake import WakeContract
from djqueue.testing.crashes import crash_at
from djqueue.testing.due import Run, run_due
from djqueue.testing.machine import queue_machine
from djqueue.testing.memory import memory_queues
from djqueue.testing.patience import eventually, together
from djqueue.testing.waiting import Enqueued, assert_enqueued, assert_not_enqueued, waiting

__all__ = [
    "BudgetContract",
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
