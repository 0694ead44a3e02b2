"""The tasks of these tests, declared with Django's decorator, and with djqueue's where they need more."""

import asyncio
import os
import signal
import threading
import time

from asgiref.sync import sync_to_async

from djqueue import Discard, Retry, queue_command
from djqueue.tasks import as_task, task
from djqueue.tasks.compat import django_task

seen = []
"""What ran, in order."""
release = threading.Event()
"""Set when those that wait may go on."""


@django_task
def add(one, two=0):
    seen.append(("add", one, two))
    return one + two


@django_task(priority=5)
def urgent(name):
    seen.append(name)


@django_task(takes_context=True)
def with_context(context, word):
    result = context.task_result
    seen.append((word, context.attempt, result.status, len(result.worker_ids)))
    return {"attempt": context.attempt, "id": result.id, "word": word}


@django_task(takes_context=True)
async def in_async(context, word):
    seen.append((word, context.attempt))
    return [word]


@django_task
async def keeps_its_thread():
    """Waits with the thread in which it used synchronous code."""
    await sync_to_async(seen.append)("thread")
    while not release.is_set():
        await asyncio.sleep(0.01)


@django_task
def large():
    return "x" * 2**21


@django_task
def broken(word="no"):
    raise LookupError(word)


@django_task
def unserialisable():
    return object()


@django_task
def exits():
    raise SystemExit(3)


@django_task
def interrupted():
    raise KeyboardInterrupt


@django_task
def waits():
    seen.append("waits")
    assert release.wait(30)
    return "waited"


@task(retry_on=[OSError], retries=2, backoff=0)
def flaky(until):
    seen.append("flaky")
    if seen.count("flaky") < until:
        raise OSError(f"attempt {seen.count('flaky')}")
    return seen.count("flaky")


@task(retry_on=[OSError], retries=1, backoff=60)
def later():
    raise OSError("later")


@task(unique="queued")
def once(name):
    return name


@task(ttl=0.001)
def stale():
    seen.append("stale")


@task
def discarded():
    raise Discard("not wanted")


@task
def again():
    seen.append("again")
    if len(seen) < 2:
        raise Retry(after=0)
    return len(seen)


@queue_command(retry_on=[OSError], retries=1, backoff=0)
def command(number):
    seen.append(("command", number))
    return number * 2


command_task = as_task(command)


@task(max_lost=3, backoff=0)
def dies():
    """Takes its process with it."""
    os.kill(os.getpid(), signal.SIGKILL)


@task
def stands(path):
    """Runs until there is a file of that path."""
    while not os.path.exists(path):
        time.sleep(0.02)
    return os.getpid()
