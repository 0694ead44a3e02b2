"""Moto's SQS over HTTP, in a process of its own; `tests.support.servers` starts it.

Moto works for one thread at a time: of two that receive at once both may get a message, or an error. At AWS that is no
matter of threads, so here each step is taken alone, and a long poll looks again and again.
"""

import functools
import sys
import threading
import time

from moto.server import main
from moto.sqs.models import SQSBackend

LOCK = threading.RLock()
LOOK = 0.05  # seconds between two looks of a long poll that nothing notifies
ALONE = (
    "create_queue",
    "get_queue_attributes",
    "send_message_batch",
    "delete_message_batch",
    "change_message_visibility_batch",
    "purge_queue",
)


def alone(method):
    @functools.wraps(method)
    def call(*args, **named):
        with LOCK:
            return method(*args, **named)

    return call


for name in ALONE:
    setattr(SQSBackend, name, alone(getattr(SQSBackend, name)))
receive_now = alone(SQSBackend.receive_message)


def receive_message(self, queue_name, count, wait_seconds_timeout, *args, **named):
    end = time.monotonic() + wait_seconds_timeout
    while not (found := receive_now(self, queue_name, count, 0, *args, **named)) and time.monotonic() < end:
        arrivals = self.get_queue(queue_name)._messages_lock
        with arrivals:
            arrivals.wait(LOOK)
    return found


SQSBackend.receive_message = receive_message

if __name__ == "__main__":
    main(sys.argv[1:])
