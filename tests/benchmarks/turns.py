"""Enqueues and drains on demand, in a live process: a line names what, the answer is seconds and processor time.

Both are microseconds of each message, as a line of JSON. See ``before.py``; djqueue may be of another checkout.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from collections.abc import Callable

import django
from django.core.management import call_command

SINGLES, BULK, DRAINED = 200, 1_000, 5_000
TEXT = "some text"


def turns(queue, noop) -> dict[str, tuple[int, Callable[[], object], Callable[[], object]]]:
    """By name: how many messages, what is measured, and what goes before it or after it, unmeasured."""
    from djqueue import Consumer

    def singles():
        for number in range(SINGLES):
            noop(number, TEXT)

    def bulk(count=BULK):
        noop.enqueue_many([(number, TEXT) for number in range(count)])

    def drain():
        Consumer(threads=4, periodic=False).run(limit=DRAINED)

    def fill():
        bulk(DRAINED)

    return {
        "single": (SINGLES, queue.flush, singles),
        "bulk": (BULK, queue.flush, bulk),
        "drain": (DRAINED, fill, drain),
    }


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"  # next to this file
    django.setup()
    call_command("migrate", verbosity=0)
    logging.disable()
    from turn_commands import noop

    from djqueue import queues

    gc.set_threshold(10_000, 50, 50)
    known = turns(queues["default"], noop)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        count, prepare, measured = known[line.strip()]
        prepare()
        began, used = time.perf_counter(), time.process_time()
        measured()
        taken = time.perf_counter() - began, time.process_time() - used
        print(json.dumps([seconds / count * 1e6 for seconds in taken]), flush=True)


if __name__ == "__main__":
    main()
