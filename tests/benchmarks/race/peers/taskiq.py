"""taskiq on a Redis stream, which is acknowledged."""

from taskiq_redis import RedisStreamBroker

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

broker = RedisStreamBroker(URL)


@broker.task
async def noted(number: int, text: str) -> None:
    ledger.note(number)


@broker.task
async def doze(number: int) -> None:
    await ledger.adoze(number)


async def connect():
    await broker.startup()


async def send(numbers):
    for number in numbers:
        await noted.kiq(number, TEXT)


async def send_slow(numbers):
    for number in numbers:
        await doze.kiq(number)
