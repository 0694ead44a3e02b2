import json

from django.core.management.base import BaseCommand
from django.db import transaction

from tests.faults.commands import work


class Command(BaseCommand):
    help = "Send COUNT messages to each queue of ALIASES, within a transaction on each of DATABASES, and print the ids."

    def add_arguments(self, parser):
        parser.add_argument("count", type=int)
        parser.add_argument("aliases")
        parser.add_argument("--databases", default="")
        parser.add_argument("--roll-back", action="store_true")

    def handle(self, *args, count, aliases, databases, roll_back, **options):
        sent = self.send(count, aliases.split(","), [name for name in databases.split(",") if name], roll_back)
        self.stdout.write(json.dumps(sent))

    def send(self, count: int, aliases: list[str], databases: list[str], roll_back: bool) -> dict[str, list[str]]:
        if not databases:
            return {alias: self.send_to(alias, count) for alias in aliases}
        with transaction.atomic(using=databases[0]):
            sent = self.send(count, aliases, databases[1:], roll_back)
            transaction.set_rollback(roll_back, using=databases[0])
        return sent

    def send_to(self, alias: str, count: int) -> list[str]:
        results = work.using(queue_name=alias).enqueue_many([(1.0,)] * count)
        return [result.id for result in results]
