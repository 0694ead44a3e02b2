import signal

from django.core.management.base import BaseCommand
from django.db import transaction

from tests.app.models import Thing
from tests.faults.commands import check_row


class Command(BaseCommand):
    help = "Save a row and send a message about it, say so, and never commit."

    def add_arguments(self, parser):
        parser.add_argument("alias")

    def handle(self, *args, alias, **options):
        with transaction.atomic(using=alias):
            thing = Thing.objects.using(alias).create(name="never there")
            check_row(thing.pk, alias)
            self.stdout.write("about to commit")
            signal.pause()
