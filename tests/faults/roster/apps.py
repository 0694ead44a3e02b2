"""In a consumer that has this app, its beginning and its end are in the ledger, and whether it keeps the schedule.

With DJQUEUE_DIES_AFTER, seconds, its process dies so long after its beginning. SIGUSR1 hangs its main thread for ever.
"""

import os
import signal
import threading

from django.apps import AppConfig

from djqueue import signals
from tests.faults.ledger import write


class RosterConfig(AppConfig):
    name = "tests.faults.roster"

    def ready(self):
        signals.consumer_started.connect(note_start, weak=False)
        signals.consumer_stopping.connect(note_stop, weak=False)
        signal.signal(signal.SIGUSR1, lambda *_: threading.Event().wait())


def note_start(sender, **named):
    if sender.has_duties:
        write("process", 0, "keeps")
    write("process", 0, "ready")
    if delay := os.environ.get("DJQUEUE_DIES_AFTER"):
        threading.Timer(float(delay), os._exit, [7]).start()


def note_stop(sender, **named):
    write("process", 0, "stopping")
