"""What ``turns.py`` enqueues."""

import asyncio

from djqueue import queue_command


@queue_command
def noop(number, text):
    """Do nothing."""


@queue_command
async def anoop(number, text):
    """Await a task, and a future that a callback resolves."""
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None)
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future
    await asyncio.create_task(asyncio.sleep(0))
