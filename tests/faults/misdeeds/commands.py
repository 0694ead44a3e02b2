"""Every command writes its start and its end into the ledger."""

import asyncio
import os
import time

from djqueue import queue_command
from tests.faults.commands import recorded
from tests.support.misdeeds import MISDEEDS, leave_a_task_that_does_not_end, wait_with_tasks


@queue_command
@recorded
async def innocent(seconds):
    await wait_with_tasks(seconds)


@queue_command
@recorded
async def misbehave(how):
    await MISDEEDS[how][0]()


@queue_command
@recorded
async def leave_a_task():
    await leave_a_task_that_does_not_end()


@queue_command
@recorded
async def block(seconds):
    time.sleep(seconds)


@queue_command
@recorded
async def break_the_loop():
    """No loop goes on without what it waits with."""
    asyncio.get_running_loop()._selector.close()
    await asyncio.sleep(60)


@queue_command
@recorded
async def die_by_exit():
    await asyncio.sleep(0.2)
    os._exit(7)


@queue_command
@recorded
async def fork_in_callbacks():
    """Each forked child has the loop, with what all messages wait for."""
    asyncio.get_running_loop().call_soon(os.fork)
    await asyncio.create_task(_fork())
    await asyncio.sleep(0.5)


async def _fork():
    os.fork()
