from django.core.management.base import BaseCommand

from tests.faults.commands import work


class Command(BaseCommand):
    help = "Send COUNT messages that take MILLISECONDS each, and print their ids."

    def add_arguments(self, parser):
        parser.add_argument("count", type=int)
        parser.add_argument("milliseconds", type=float)

    def handle(self, *args, count, milliseconds, **options):
        self.stdout.write(" ".join(result.id for result in work.enqueue_many([(milliseconds,)] * count)))
