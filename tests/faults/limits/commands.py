"""What takes from its process what others need: memory, descriptors, standard streams, threads."""

import asyncio
import ctypes
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from djqueue import BatchCommand, Route, queue_command
from tests.faults.commands import await_file, recorded
from tests.faults.ledger import record

MEGABYTE = 1 << 20
WORKER = "djqueue-worker-"
hoard = []
SPARE = int(os.environ.get("DJQUEUE_TEST_MEMORY", 0))
"""Megabytes that a consumer may take above those that it has when a command first fills its memory."""


@queue_command(retry_on=[Exception], max_attempts=100, backoff=False)
@recorded
def innocent(milliseconds=0.0):
    time.sleep(milliseconds / 1000)


@queue_command
def fill(megabytes, seconds=0.0):
    """Take all the memory that there is, in ever smaller pieces, keep it for a while, and fail."""
    _limit_memory()
    pieces = []
    for size in (megabytes * MEGABYTE, MEGABYTE, 65_536, 4_096, 512):
        with suppress(MemoryError):
            while True:
                pieces.append(bytearray(size))
    time.sleep(seconds)
    raise MemoryError


@cache
def _limit_memory():
    """A fixed limit would leave more or less to the commands with each thread that a consumer has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SPARE * MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@queue_command
def fail_with(megabytes):
    """Raise with something big among the locals."""
    big = _big(megabytes)
    raise ValueError(f"with {len(big)} bytes among its locals")


@queue_command
def succeed_with(megabytes):
    _big(megabytes)


def _big(megabytes):
    big = bytearray(megabytes * MEGABYTE)
    big[::4096] = b"x" * len(big[::4096])  # so that it is there
    return big


@queue_command
@recorded
def talk():
    """To whoever has the numbers of the standard streams."""
    for number in (1, 2):
        os.write(number, b"a command speaks\n")


@queue_command
def close_streams():
    record("closes")
    sys.stdout.close()
    sys.stderr.close()


@queue_command
def open_all():
    """Take every descriptor that the process may have, and keep it."""
    record("opens")
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            hoard.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass


@queue_command
@recorded
def end_thread(name):
    """Have SystemExit raised in another thread of this process, whatever it does."""
    [victim] = [thread for thread in threading.enumerate() if thread.name.startswith(name)]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim.ident), ctypes.py_object(SystemExit))


@queue_command
def stay(path):
    """Begin a thread that the interpreter waits for at its end."""
    threading.Thread(target=await_file, args=(path,), daemon=False).start()
    record("stays")


# ---- children


def _fork(how):
    """What the child does then happens in the parent too late, or not at all."""
    if (child := os.fork()) == 0:
        print("the child of a command speaks")
        if how == "raise":
            raise RuntimeError("the child of a command fails")
        if how == "exit":
            sys.exit(5)
        return None
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CODES = {"return": 0, "exit": 5, "raise": 1}


def _tell(how, code):
    """In the parent alone."""
    if code is not None:
        record("forked" if code == CODES[how] else f"code-{code}")


@queue_command
def fork_and(how):
    _tell(how, _fork(how))


@queue_command
async def fork_async_and(how):
    await asyncio.sleep(0)
    code = _fork(how)
    await asyncio.sleep(0)
    _tell(how, code)


@queue_command(batch=10)
def fork_batch_and(how):
    _tell(how[0], _fork(how[0]))


class ForkingHandler(BatchCommand):
    """Forks when it begins and when it ends."""

    batch_size = 10

    @classmethod
    def route(cls, *requests):
        return [Route(thread=request) for request in requests]

    def start(self):
        _fork("return")

    def perform(self, *requests):
        record("performed")

    def stop(self):
        _fork("exit")
