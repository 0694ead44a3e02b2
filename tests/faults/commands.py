"""What the consumers under fault run. Every command writes its start and its end into the ledger."""

import ctypes
import functools
import inspect
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from django.db import transaction

from djqueue import current_message, queue_command
from djqueue.consumer.child import CHECKED
from tests.app.models import Thing
from tests.faults.ledger import record


def recorded(func):
    """Write down the start of a function or coroutine function, and its end unless it raises."""

    @functools.wraps(func)
    def call(*args, **kwargs):
        record("start")
        result = func(*args, **kwargs)
        record("end")
        return result

    @functools.wraps(func)
    async def await_it(*args, **kwargs):
        record("start")
        result = await func(*args, **kwargs)
        record("end")
        return result

    return await_it if inspect.iscoroutinefunction(func) else call


@queue_command
@recorded
def work(milliseconds=0.0):
    if milliseconds:
        time.sleep(milliseconds / 1000)


@queue_command
@recorded
def hold(path):
    """Go on until the file `path` exists."""
    await_file(path)


@queue_command
@recorded
def hold_the_gil_once(mark):
    """Let no other thread of its process run, unless the file `mark` exists, which it makes."""
    if not Path(mark).exists():
        Path(mark).touch()
        ctypes.PyDLL(None).sleep(600)


@queue_command
@recorded
def hold_and_fail_first(path, second):
    """The first to begin it waits for `path` and fails, the next waits for `second` and does not."""
    if current_message().attempt > 1:
        await_file(second)
        return
    await_file(path)
    record("fail")
    raise RuntimeError("the first one fails")


@queue_command
@recorded
def die_by_exit():
    os._exit(7)


@queue_command(max_lost=2)
@recorded
def die_by_abort():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


@queue_command(max_attempts=3, retry_on=[Exception], backoff=False, result_ttl=600)
@recorded
def die(how):
    """By the way of that name; "after a failure" fails the first time."""
    if how == "after a failure" and current_message().attempt == 1:
        raise RuntimeError("it begins like this")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    (os.abort if how == "abort" else functools.partial(os._exit, 7))()


@queue_command
@recorded
def check_row(pk, alias):
    """Record whether a row is there."""
    record("seen" if Thing.objects.using(alias).filter(pk=pk).exists() else "absent")


@queue_command
@recorded
def fork(alias):
    """Have a child by each way that there is, and use the database before, between and after."""
    _touch_database(alias)
    if (child := os.fork()) == 0:
        time.sleep(0.05)
        os._exit(0)
    _touch_database(alias)
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert os.waitpid(child, 0)[1] == 0
    _touch_database(alias)
    work()


@queue_command
def lock_next_to_a_child(alias, path):
    """The child has a connection of its own, and goes on until `path` exists, whatever becomes of its parent."""
    with transaction.atomic(using=alias):
        Thing.objects.using(alias).update(name="locked")
        if os.fork() == 0:
            record(Thing.objects.using(alias).get().name)
            await_file(path)
            return
        record("locked")
        await_file(path)


@queue_command
def leave_a_child(path):
    """It has a copy of all descriptors but the output, and goes on until `path` exists, its parent or not."""
    if os.fork() == 0:
        os.closerange(1, 3)
        record("start")
        await_file(path)
        os._exit(0)


@queue_command
@recorded
def hold_as_another_program(path):
    """As code that makes a daemon of its process, or runs a program of another name in it."""
    sys.argv[1:] = ["0", "1"]
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    time.sleep(2 * CHECKED)
    record("remain")
    await_file(path)


def _touch_database(alias):
    if alias:
        Thing.objects.using(alias).count()


def await_file(path):
    """Go on once the file exists."""
    while not Path(path).exists():
        time.sleep(0.01)


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("not to be carried anywhere")
        self.reason = lambda: None


@queue_command(result_ttl=600)
@recorded
def fail(how):
    raise {"plain": RuntimeError("it fails"), "unpicklable": Unpicklable()}[how]


@queue_command(result_ttl=600)
@recorded
def return_pid():
    current_message().progress(1, 2)
    return os.getpid()


@queue_command
@recorded
def wait_for_stop():
    while not current_message().stopping:
        time.sleep(0.01)


@queue_command(time_limit=0.5)
@recorded
def never_end():
    time.sleep(600)


kept = []


@queue_command
@recorded
def keep(mebibytes):
    for _ in range(mebibytes):  # in pieces: no call holds the GIL for long, however slowly the memory comes
        kept.append(b"x" * (1 << 20))


opened = []


@queue_command
@recorded
def open_files(number):
    """Leave so many files open in this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened.extend(open(os.devnull) for _ in range(number))


@queue_command
@recorded
def spoil_environment():
    os.environ |= {"DJANGO_SETTINGS_MODULE": "no.such.settings", "PYTHONHOME": "/no/such/folder"}
    os.chdir("/")


@queue_command
@recorded
def die_by_sigkill():
    os.kill(os.getpid(), signal.SIGKILL)
