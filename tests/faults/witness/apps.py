"""In a consumer that has this app, its commands are looked at as they begin and end."""

from functools import partial

from django.apps import AppConfig

from djqueue import events

TOLD = ("completed", "lease_lost")


class WitnessConfig(AppConfig):
    name = "tests.faults.witness"

    def ready(self):
        from tests.faults.witness.commands import die_before_it_begins, note

        events.claimed.connect(die_before_it_begins, weak=False)
        for what in TOLD:
            getattr(events, what).connect(partial(note, what), weak=False)
