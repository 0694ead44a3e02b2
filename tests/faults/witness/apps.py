"""In a consumer that has this app, its commands are looked at as they begin and end."""

from functools import partial

from django.apps import AppConfig

from djqueue import signals

TOLD = ("completed", "lease_lost")


class WitnessConfig(AppConfig):
    name = "tests.faults.witness"

    def ready(self):
        from tests.faults.witness.commands import die_before_it_begins, note

        signals.claimed.connect(die_before_it_begins, weak=False)
        for what in TOLD:
            getattr(signals, what).connect(partial(note, what), weak=False)
