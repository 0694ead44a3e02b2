"""Commands for every minute: one by a crontab, one by a plain function, one for a schedule made at run time."""

from djqueue import crontab, periodic_command, queue_command
from tests.faults.ledger import record


def every_other_minute(moment):
    return moment.minute % 2 == 0


@periodic_command(crontab(), missed="all")
def tick():
    record("start")
    record("end")


@periodic_command(every_other_minute, missed="all")
def tock():
    record("start")
    record("end")


@queue_command
def beat():
    record("start")
    record("end")
