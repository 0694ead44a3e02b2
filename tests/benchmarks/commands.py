"""What the benchmarks run."""

import time

from djqueue import Throttle, queue_command

stamps = {"first": 0.0, "last": 0.0}


@queue_command
def nothing(number, text):
    """A no-op that notes when the first and the last of its kind ran."""
    now = time.perf_counter()
    stamps["first"] = stamps["first"] or now
    stamps["last"] = now


@queue_command
def note_latency(sent, path):
    """Append how many milliseconds passed since it was enqueued."""
    with open(path, "a") as file:
        file.write(f"{(time.perf_counter() - sent) * 1000}\n")


# ---- What is followed on its way: see ``path.py``


@queue_command
def plain(name, number):
    """Do nothing."""


tried = set()


@queue_command(max_attempts=2, retry_on=ValueError, backoff=False)
def retried(name, number):
    """Fail at the first start."""
    if name not in tried:
        tried.add(name)
        raise ValueError("once")


@queue_command(throttle=Throttle(10, 1))
def throttled(name, number):
    """Do nothing, ten times a second at most."""
