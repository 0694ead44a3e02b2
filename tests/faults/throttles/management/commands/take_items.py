import json
import signal
import time
from unittest import mock

from django.core.management.base import BaseCommand

from djqueue import queues

real_time = time.time


class Command(BaseCommand):
    help = """Take items out of a queue until SIGTERM, and print as JSON which, when, and between which moments it was
    given none, by the clock of the store. `keep`: none is reported done."""

    def add_arguments(self, parser):
        parser.add_argument("alias")
        parser.add_argument("--shift", type=float, default=0.0, help="seconds by which this host's clock is wrong")
        parser.add_argument("--lease", type=float, default=60.0)
        parser.add_argument("--keep", action="store_true")

    def handle(self, *args, alias, shift, lease, keep, **options):
        self.stopped = False
        signal.signal(signal.SIGTERM, self.stop)
        with mock.patch("time.time", lambda: real_time() + shift):
            self.stdout.write(json.dumps(self.take_all(queues[alias], lease, keep)))

    def stop(self, *signalled):
        self.stopped = True

    def take_all(self, queue, seconds, keep):
        taken, refused = [], []
        queue.now()  # connected
        self.say("taking")
        while not self.stopped:
            before = queue.now()
            lease, item = queue.take(seconds)
            if lease is None:
                refused.append((before, queue.now()))
                time.sleep(0.01)
            else:
                taken.append((lease.claimed, item))
                self.say("took") if keep else queue.complete([lease])
        return {"taken": taken, "refused": refused}

    def say(self, text):
        self.stdout.write(text)
        self.stdout.flush()
