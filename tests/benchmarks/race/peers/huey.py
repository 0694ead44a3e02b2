"""huey on a Redis list or on SQLite, whose journal is a write-ahead log by default."""

from huey import RedisHuey, SqliteHuey

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

huey = RedisHuey("race", url=URL) if URL.startswith("redis") else SqliteHuey("race", filename=URL)


@huey.task()
def noted(number, text):
    ledger.note(number)


@huey.task()
def doze(number):
    ledger.doze(number)


def send(numbers):
    for number in numbers:
        noted(number, TEXT)


def send_slow(numbers):
    for number in numbers:
        doze(number)
