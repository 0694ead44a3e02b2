"""SAQ on Redis."""

from saq import Queue

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

queue = Queue.from_url(URL)


async def noted(context, *, number, text):
    ledger.note(number)


async def doze(context, *, number):
    await ledger.adoze(number)


settings = {"queue": queue, "functions": [noted, doze], "concurrency": 10}


async def connect():
    await queue.connect()


async def send(numbers):
    for number in numbers:
        await queue.enqueue("noted", number=number, text=TEXT)


async def send_slow(numbers):
    for number in numbers:
        await queue.enqueue("doze", number=number)
