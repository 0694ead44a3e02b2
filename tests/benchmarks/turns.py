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
from functools import partial

import django
from django.core.management import call_command

SINGLES, BULK, DRAINED = 200, 1_000, 5_000
COROUTINES = 50
TEXT = "some text"


def turns(queue) -> dict[str, tuple[int, Callable[[], object], Callable[[], object]]]:
    """By name: how many messages, what goes before, and what is measured."""
    from turn_commands import anoop, noop

    from djqueue import Consumer

    def singles():
        for number in range(SINGLES):
            noop(number, TEXT)

    def many(count=BULK, command=noop):
        command.enqueue_many([(number, TEXT) for number in range(count)])

    def drain(**options):
        Consumer(threads=4, periodic=False, **options).run(limit=DRAINED)

    return {
        "single": (SINGLES, queue.flush, singles),
        "bulk": (BULK, queue.flush, many),
        "drain": (DRAINED, partial(many, DRAINED), drain),
        "coroutines": (DRAINED, partial(many, DRAINED, anoop), partial(drain, coroutines=COROUTINES)),
    }


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"  # next to this file
    django.setup()
    call_command("migrate", verbosity=0)
    logging.disable()
    from djqueue import queues

    gc.set_threshold(10_000, 50, 50)
    known = turns(queues["default"])
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
