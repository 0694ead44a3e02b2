"""What the benchmarks run."""

import time

from djqueue import queue_command

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
