"""Commands for every minute: one by a crontab, one by a plain function, one for a schedule made at run time."""

from djqueue import crontab, periodic_command, queue_command
from tests.faults.commands import recorded


def every_other_minute(moment):
    return moment.minute % 2 == 0


@periodic_command(crontab(), missed="all")
@recorded
def tick():
    pass


@periodic_command(every_other_minute, missed="all")
@recorded
def tock():
    pass


@queue_command
@recorded
def beat():
    pass
