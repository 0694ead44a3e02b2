import json

from django.core.management.base import BaseCommand

from tests.faults.processes import at_rest


class Command(BaseCommand):
    help = "Wait until nothing waits and nothing is leased, and print how many are done and dead."

    def handle(self, *args, **options):
        stats = at_rest()
        self.stdout.write(json.dumps([stats.done, stats.failed]))
