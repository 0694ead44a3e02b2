"""A command with a result, and what the consumer is told of its end: that is in the ledger as well."""

from functools import partial

from djqueue import events, queue_command
from tests.faults.commands import recorded
from tests.faults.ledger import write

TOLD = ("completed", "lease_lost")


@queue_command(result_ttl=600)
@recorded
def double(number):
    return 2 * number


def note(what, sender, id, attempt=0, **named):
    if sender == double.name:
        write(id, attempt, what)


NOTES = {what: partial(note, what) for what in TOLD}
"""Kept, as a signal holds its receivers weakly."""
for _what, _note in NOTES.items():
    getattr(events, _what).connect(_note)
