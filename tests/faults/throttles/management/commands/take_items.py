import json
import signal
import time
from unittest import mock

from django.core.management.base import BaseCommand

from djqueue import queues

real_time = time.time


class Command(BaseCommand):
    help = "Take items out of a queue until SIGTERM, and print which, when, as JSON. `keep`: none is reported done."

    def add_arguments(self, parser):
        parser.add_argument("alias")
        parser.add_argument("--shift", type=float, default=0.0, help="seconds by which this host's clock is wrong")
        parser.add_argument("--lease", type=float, default=60.0)
        parser.add_argument("--keep", action="store_true")

    def handle(self, *args, alias, shift, lease, keep, **options):
        self.stopped = False
        signal.signal(signal.SIGTERM, self.stop)
        with mock.patch("time.time", lambda: real_time() + shift):
            self.stdout.write(json.dumps(list(self.take(queues[alias], lease, keep))))

    def stop(self, *signalled):
        self.stopped = True

    def take(self, queue, seconds, keep):
        queue.now()  # connected
        self.stdout.write("taking")
        self.stdout.flush()
        while not self.stopped:
            lease, item = queue.take(seconds, wait=0.2)
            if lease is not None:
                if keep:
                    self.stdout.write("took")
                    self.stdout.flush()
                else:
                    queue.complete([lease])
                yield item, lease.claimed
