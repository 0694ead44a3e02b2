"""A command of a site of its own, for consumers that a process manager starts and stops."""

import os
from pathlib import Path

from djqueue import current_message
from djqueue.decorators import queue_command
from tests.support.processes import until


@queue_command
def hold(gate):
    """Write down that it began, wait for the file `gate`, write down that it ended."""
    attempt = current_message().attempt
    note(f"begin {attempt}")
    until(Path(gate).exists)
    note(f"end {attempt}")


def note(line):
    with open(os.environ["DJQUEUE_LEDGER"], "a") as ledger:
        ledger.write(f"{line}\n")
