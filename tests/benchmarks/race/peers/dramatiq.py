"""dramatiq on Redis."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def noted(number, text):
    ledger.note(number)


@dramatiq.actor
def doze(number):
    ledger.doze(number)


def send(numbers):
    for number in numbers:
        noted.send(number, TEXT)


def send_slow(numbers):
    for number in numbers:
        doze.send(number)
