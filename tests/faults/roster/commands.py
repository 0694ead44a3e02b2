"""A command that is due every second. No test imports it, as its consumers would run it too."""

from datetime import timedelta

from djqueue import periodic_command
from tests.faults.commands import recorded


@periodic_command(every=timedelta(seconds=1))
@recorded
def tick():
    pass
