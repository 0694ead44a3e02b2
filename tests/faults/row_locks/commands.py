"""Async commands on one event loop that share the few threads in which they use the database."""

from asgiref.sync import sync_to_async
from django.db import connections

from djqueue import queue_command
from tests.app.models import Thing
from tests.faults.commands import recorded


@queue_command(time_limit=2)
@recorded
async def change_row(alias, key):
    await Thing.objects.using(alias).filter(pk=key).aupdate(number=1)


@queue_command
@recorded
async def ask(alias):
    await sync_to_async(_select_one)(alias)


def _select_one(alias):
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")
