"""What django-tasks-db runs, apart from what sets Django up: its worker imports this."""

from django_tasks import task

from tests.benchmarks import ledger


@task()
def noted(number, text):
    ledger.note(number)


@task()
def doze(number):
    ledger.doze(number)
