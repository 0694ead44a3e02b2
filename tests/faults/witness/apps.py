"""In a consumer that has this app, what is told of the end of its command is written into the ledger."""

from functools import partial

from django.apps import AppConfig

from djqueue import events

TOLD = ("completed", "lease_lost")


class WitnessConfig(AppConfig):
    name = "tests.faults.witness"

    def ready(self):
        from tests.faults.witness.commands import note

        for what in TOLD:
            getattr(events, what).connect(partial(note, what), weak=False)
