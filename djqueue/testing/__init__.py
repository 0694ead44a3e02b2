"""Contract suites for backends, one's own or a third party's, and help for tests of projects that use djqueue."""

from djqueue.testing.capture import Enqueued, enqueued_on_commit
from djqueue.testing.contract import QueueContract
from djqueue.testing.contract_leases import LeaseContract
from djqueue.testing.contract_store import StoreContract
from djqueue.testing.contract_stress import StressContract
from djqueue.testing.contract_wake import WakeContract
from djqueue.testing.machine import queue_machine
from djqueue.testing.patience import eventually, together

__all__ = [
    "Enqueued",
    "LeaseContract",
    "QueueContract",
    "StoreContract",
    "StressContract",
    "WakeContract",
    "enqueued_on_commit",
    "eventually",
    "queue_machine",
    "together",
]
