"""A command with a result, and what the consumer is told of its end: that is in the ledger as well.

And one whose first two workers die when they are told that they have it.
"""

import os
import signal

from djqueue import queue_command
from tests.faults.commands import recorded
from tests.faults.ledger import write


@queue_command(result_ttl=600)
@recorded
def double(number):
    return 2 * number


@queue_command(max_lost=1)
@recorded
def start_once():
    pass


def note(what, sender, id, attempt=0, **named):
    if sender == double.name:
        write(id, attempt, what)


def die_before_it_begins(sender, attempt, **named):
    if sender == start_once.name and attempt <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
