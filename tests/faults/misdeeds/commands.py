"""Every command writes its start and its end into the ledger."""

import asyncio
import os
import time

from djqueue import queue_command
from tests.faults.ledger import record
from tests.support.misdeeds import MISDEEDS, leave_a_task_that_does_not_end, wait_with_tasks


@queue_command
async def innocent(seconds):
    record("start")
    await wait_with_tasks(seconds)
    record("end")


@queue_command
async def misbehave(how):
    record("start")
    await MISDEEDS[how][0]()
    record("end")


@queue_command
async def leave_a_task():
    record("start")
    await leave_a_task_that_does_not_end()
    record("end")


@queue_command
async def block(seconds):
    record("start")
    time.sleep(seconds)
    record("end")


@queue_command
async def break_the_loop():
    """No loop goes on without what it waits with."""
    record("start")
    asyncio.get_running_loop()._selector.close()
    await asyncio.sleep(60)


@queue_command
async def die_by_exit():
    record("start")
    await asyncio.sleep(0.2)
    os._exit(7)


@queue_command
async def fork_in_callbacks():
    """Each forked child has the loop, with what all messages wait for."""
    record("start")
    asyncio.get_running_loop().call_soon(os.fork)
    await asyncio.create_task(_fork())
    await asyncio.sleep(0.5)
    record("end")


async def _fork():
    os.fork()
