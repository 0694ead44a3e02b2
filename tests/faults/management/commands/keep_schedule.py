import time
from pathlib import Path

from django.core.management.base import BaseCommand

from djqueue import queues
from djqueue.consumer.scheduler import Scheduler
from djqueue.discovery import autodiscover
from tests.faults import ledger
from tests.support.processes import until


class Command(BaseCommand):
    help = (
        "Run a scheduler whose time begins with EPOCH at the moment in the file START, SPEED times as fast, until END."
    )

    def add_arguments(self, parser):
        parser.add_argument("start", type=Path)
        for name in ("epoch", "speed", "end"):
            parser.add_argument(name, type=float)

    def handle(self, *args, epoch, start, speed, end, **options):
        autodiscover()
        queue = queues["default"]
        scheduler = Scheduler([queue])
        self.stdout.write("begins")
        began = float(until(lambda: start.exists() and start.read_text(), timeout=120))
        queue.now = lambda: epoch + (ledger.now() - began) * speed
        while queue.now() < end:
            scheduler.refresh()
            time.sleep(scheduler.follow() / speed)
        scheduler.follow()
