"""pgqueuer on PostgreSQL by asyncpg. As a program: its worker, on uvloop as its own command has it."""

import json
import logging

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.queries import Queries

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

BATCH = 100
queries: Queries


async def noted(job):
    number, _ = json.loads(job.payload)
    ledger.note(number)


async def doze(job):
    number = json.loads(job.payload)
    await ledger.adoze(number)


async def serve():
    pgq = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))
    for function in (noted, doze):
        pgq.entrypoint(function.__name__)(function)
    await pgq.run(batch_size=BATCH)


async def prepare():
    await connect()
    await queries.install()


async def connect():
    global queries
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))


def packed(number):
    return json.dumps([number, TEXT]).encode()


async def send(numbers):
    for number in numbers:
        await queries.enqueue("noted", packed(number))


async def send_many(numbers):
    count = len(numbers)
    await queries.enqueue(["noted"] * count, [*map(packed, numbers)], [0] * count)


async def send_slow(numbers):
    for number in numbers:
        await queries.enqueue("doze", json.dumps(number).encode())


if __name__ == "__main__":
    import uvloop

    logging.basicConfig(level=logging.WARNING)
    uvloop.run(serve())
