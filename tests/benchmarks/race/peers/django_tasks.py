"""django-tasks-db, the database backend of django-tasks, on PostgreSQL or SQLite."""

import django
from django.core.management import call_command

django.setup()

from tests.benchmarks.race.peers import TEXT  # noqa: E402  after the setup
from tests.benchmarks.race.peers.django_tasks_jobs import doze, noted  # noqa: E402


def prepare():
    call_command("migrate", verbosity=0)


def send(numbers):
    for number in numbers:
        noted.enqueue(number, TEXT)


def send_slow(numbers):
    for number in numbers:
        doze.enqueue(number)
