"""What django-tasks-db runs, apart from what sets Django up: its worker imports this."""

import time

from django_tasks import task

from tests.benchmarks import ledger


@task()
def noted(number, text):
    ledger.note(number)


@task()
def doze(number):
    ledger.note(2 * number)
    time.sleep(ledger.SLOW)
    ledger.note(2 * number + 1)
