"""A command that is due every second, and one that keeps memory."""

from datetime import timedelta

from djqueue import periodic_command, queue_command
from tests.faults.commands import recorded

kept = []


@periodic_command(every=timedelta(seconds=1))
@recorded
def tick():
    pass


@queue_command
@recorded
def keep(mebibytes):
    kept.append(bytes(mebibytes << 20).replace(b"\0", b"x"))
