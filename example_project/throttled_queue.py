"""A throttled queue that two processes share: start this in one terminal, and again in another.

python example_project/throttled_queue.py -r localhost -w 30 -n 15 -m

Each process puts 2 x 15 items into the queue, a set of them: what both put is there once. Then both take items out, at
most 15 in any 30 seconds between them; with -m one every 2 seconds. Ctrl-C ends it, and empties the queue.
"""

import argparse
import os
import random
import sys
import time
from urllib.parse import quote

from django.conf import settings
from redis import RedisError

# A script without a project needs no more than the key that items are signed with: the same in all its processes.
settings.configure(SECRET_KEY=os.environ.get("SECRET_KEY", "for-trying-out-throttled-queues-0123456789-abcdefghij"))

from djqueue.backends.redis_backend import RedisBlockingQueue  # noqa: E402
from djqueue.throttle import ThrottledQueue  # noqa: E402

LONGEST_WAIT = 0.5
"""Seconds for which pop waits for an item; Ctrl-C is noticed at once."""


def main() -> int:
    options = parser().parse_args()
    try:
        throttled = make(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        run(throttled, 2 * options.num_hits)
    except RedisError as error:  # there is no such server
        print(error, file=sys.stderr)
        return 1
    return 0


def run(throttled: ThrottledQueue, amount: int) -> None:
    """Put items in and take them out, until Ctrl-C."""
    try:
        add_items(throttled, amount)
        read_items(throttled)
    except KeyboardInterrupt:
        throttled.clear()
        print("Finished")


def add_items(throttled: ThrottledQueue, amount: int) -> None:
    """Put so many in, those with a higher number of a higher priority."""
    print("Adding", amount, "items for testing", flush=True)
    for number in range(amount):
        throttled.push(f"item-{number}", number, unique=True)


def make(options: argparse.Namespace) -> ThrottledQueue:
    """The queue, and the throttle around it."""
    password = f":{quote(options.redis_password, safe='')}@" if options.redis_password else ""
    queue = RedisBlockingQueue(options.queue, f"redis://{password}{options.redis_host}:{options.redis_port}/0")
    return ThrottledQueue(
        queue, limit=options.num_hits, window=options.window, moderate=options.moderate, elastic=options.elastic
    )


def read_items(throttled: ThrottledQueue) -> None:
    """Take items out for ever. With elasticity dawdle at times, so that there is something to catch up with."""
    print("Kill when satisfied ^C", flush=True)
    began = time.monotonic()
    while True:
        item = throttled.pop(timeout=LONGEST_WAIT)
        if item is not None:
            print("My item", item, "My time:", time.monotonic() - began, flush=True)
        if throttled.elastic:
            time.sleep(random.random() * 3 * throttled.window / throttled.limit)


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    main.add_argument("-r", "--redis-host", required=True, help="the host of Redis")
    main.add_argument("-p", "--redis-port", type=int, default=6379, help="its port")
    main.add_argument("-P", "--redis-password", help="its password")
    main.add_argument("-m", "--moderate", action="store_true", help="space the items evenly")
    main.add_argument("-w", "--window", type=float, default=60, help="the window in seconds, or a fraction of one")
    main.add_argument("-n", "--num-hits", type=int, default=10, help="how many items may leave in a window")
    main.add_argument("-q", "--queue", default="testqueue", help="the name of the queue")
    main.add_argument(
        "-e", "--elastic", action="store_true", help="dawdle, and give up moderation to catch up; needs -m"
    )
    return main


if __name__ == "__main__":
    sys.exit(main())
