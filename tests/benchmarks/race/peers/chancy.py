"""chancy on PostgreSQL; RACE_EXECUTOR says how it runs its jobs, by four threads or a hundred coroutines."""

import asyncio
import logging
import os

from chancy import Chancy, Queue, job

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

THREADS = {"concurrency": 4, "executor": Chancy.Executor.Threaded}
COROUTINES = {"concurrency": 100, "executor": Chancy.Executor.Async}
QUEUE = Queue("default", eager_polling=True, **(COROUTINES if os.environ.get("RACE_EXECUTOR") == "async" else THREADS))
chancy = Chancy(URL, log=logging.getLogger("quiet"))
logging.getLogger("quiet").setLevel(logging.WARNING)


@job()
def noted(*, number: int, text: str):
    ledger.note(number)


@job()
async def noted_async(*, number: int, text: str):
    ledger.note(number)


@job()
def doze(*, number: int):
    ledger.doze(number)


chosen = noted_async if QUEUE.executor == Chancy.Executor.Async else noted


async def prepare():
    async with chancy:
        await chancy.migrate()


async def connect():
    await chancy.pool.open()
    await chancy.declare(QUEUE, upsert=True)


def call_of(number):
    return chosen.job.with_kwargs(number=number, text=TEXT)


async def send(numbers):
    for number in numbers:
        await chancy.push(call_of(number))


async def send_many(numbers):
    async for _ in chancy.push_many([call_of(number) for number in numbers]):
        await asyncio.sleep(0)


async def send_slow(numbers):
    for number in numbers:
        await chancy.push(doze.job.with_kwargs(number=number))
