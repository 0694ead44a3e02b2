"""djqueue, as its documentation sets it up."""

import django
from django.core.management import call_command

django.setup()

from tests.benchmarks.commands import doze, noted  # noqa: E402  after the setup
from tests.benchmarks.race.peers import TEXT  # noqa: E402


def prepare():
    call_command("migrate", verbosity=0)


def send(numbers):
    for number in numbers:
        noted(number, TEXT)


def send_many(numbers):
    noted.enqueue_many([(number, TEXT) for number in numbers])


def send_slow(numbers):
    for number in numbers:
        doze(number)
