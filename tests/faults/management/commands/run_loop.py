from django.core.management.base import BaseCommand

from djqueue import Deferrable


class Command(BaseCommand):
    help = "Run what comes in a loop of one's own, each held for LEASE seconds."

    def add_arguments(self, parser):
        parser.add_argument("lease", type=float)

    def handle(self, *args, lease, **options):
        loop = Deferrable()
        self.stdout.write("looping")
        while True:
            loop.run_once(lease, wait=60)
