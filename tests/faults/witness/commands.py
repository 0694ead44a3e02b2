"""A command with a result, and what the consumer is told of its end: that is in the ledger as well."""

from djqueue import queue_command
from tests.faults.commands import recorded
from tests.faults.ledger import write


@queue_command(result_ttl=600)
@recorded
def double(number):
    return 2 * number


def note(what, sender, id, attempt=0, **named):
    if sender == double.name:
        write(id, attempt, what)
