"""The commands of the test app, found by autodiscovery. What they do they write down in the ledger."""

import asyncio
import logging
import multiprocessing
import os
import sys
import time
from pathlib import Path

from djqueue import current_message, queue_command

logger = logging.getLogger("djqueue.tests")


def write_down(line):
    """Append a line to the ledger; whole lines, whichever process or thread writes."""
    ledger = os.open(os.environ["DJQUEUE_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(ledger, f"{line}\n".encode())
    finally:
        os.close(ledger)


@queue_command
def note(text):
    write_down(text)


@queue_command
def note_attempt(text):
    write_down(f"{text} {current_message().attempt}")


@queue_command
def hold(name, release_file):
    """Begin, wait until the file `release_file` exists, end."""
    write_down(f"{name} began")
    while not Path(release_file).exists():
        time.sleep(0.005)
    write_down(f"{name} ended")


@queue_command
async def leave_a_thread():
    """One that nobody ends, in asyncio's executor."""
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    write_down("left")


@queue_command
def end_children(signum):
    """As ``multiprocessing.Pool`` does with those that it has forked."""
    codes = []
    for number in range(20):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
        child.start()
        time.sleep(0.02 if number % 2 else 0)
        os.kill(child.pid, signum)
        child.join()
        codes.append(child.exitcode)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(abs, [1, 2])
    write_down(f"ended by {set(codes)}")


class Hanging(logging.Handler):
    """As one that writes to a server that does not answer."""

    def emit(self, record):
        pass

    def flush(self):
        time.sleep(3600)


@queue_command
def hang_the_log():
    logging.getLogger("elsewhere").addHandler(Hanging())
    write_down("left")


@queue_command
def explode(text="boom"):
    raise RuntimeError(text)


@queue_command
def leave():
    sys.exit(3)


@queue_command
def speak():
    """Say something at each level of logging."""
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logger.log(level, "said at %s", logging.getLevelName(level))
