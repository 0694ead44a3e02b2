"""procrastinate on PostgreSQL."""

from procrastinate import App, PsycopgConnector

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="noted")
async def noted(number, text):
    ledger.note(number)


@app.task(name="doze")
async def doze(number):
    await ledger.adoze(number)


async def prepare():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def connect():
    await app.open_async()


async def send(numbers):
    for number in numbers:
        await noted.defer_async(number=number, text=TEXT)


async def send_many(numbers):
    await noted.batch_defer_async(*[{"number": number, "text": TEXT} for number in numbers])


async def send_slow(numbers):
    for number in numbers:
        await doze.defer_async(number=number)
