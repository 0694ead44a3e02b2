"""RQ on Redis."""

from redis import Redis
from rq import Queue

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

queue = Queue("race", connection=Redis.from_url(URL))


def noted(number, text):
    ledger.note(number)


def doze(number):
    ledger.doze(number)


def send(numbers):
    for number in numbers:
        queue.enqueue(noted, number, TEXT)


def send_many(numbers):
    queue.enqueue_many([Queue.prepare_data(noted, (number, TEXT)) for number in numbers])


def send_slow(numbers):
    for number in numbers:
        queue.enqueue(doze, number)
