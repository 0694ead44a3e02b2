"""What many producers call again and again: an app of its own, as only one test needs it."""

from djqueue import current_message, queue_command, queues
from tests.faults.ledger import record

WINDOW = 0.3
"""Seconds."""


@queue_command(debounce=WINDOW)
def debounced():
    record("start")
    entry = queues["default"].find(current_message().id).entry
    record(f"due={entry.run_at or entry.created:.6f}")
    record("end")
