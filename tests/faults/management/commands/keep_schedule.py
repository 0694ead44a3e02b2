import time

from django.core.management.base import BaseCommand

from djqueue import queues
from djqueue.consumer.scheduler import Scheduler
from djqueue.discovery import autodiscover
from tests.faults import ledger


class Command(BaseCommand):
    help = "Run a scheduler whose time began with EPOCH at the moment START and passes SPEED times as fast, until END."

    def add_arguments(self, parser):
        for name in ("epoch", "start", "speed", "end"):
            parser.add_argument(name, type=float)

    def handle(self, *args, epoch, start, speed, end, **options):
        autodiscover()
        queue = queues["default"]
        queue.now = lambda: epoch + (ledger.now() - start) * speed
        scheduler = Scheduler([queue])
        self.stdout.write("begins")
        while queue.now() < end:
            scheduler.look()
            time.sleep(scheduler.follow() / speed)
        scheduler.follow()
