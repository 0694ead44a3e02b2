import json
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from django.core.management.base import BaseCommand
from django.db import connections

from djqueue import queues
from tests.faults.debouncing.commands import WINDOW, debounced
from tests.faults.ledger import now

LONGEST = 1.5 * WINDOW
"""Seconds between two calls of one producer, at most: some find nothing that waits, most do."""


class Command(BaseCommand):
    help = "Call one debounced command from THREADS producers for SECONDS, and print what came of it as JSON."

    def add_arguments(self, parser):
        parser.add_argument("threads", type=int)
        parser.add_argument("seconds", type=float)
        parser.add_argument("seed")

    def handle(self, *args, threads, seconds, seed, **options):
        chances = [Random(f"{seed} {number}") for number in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            told = list(pool.map(lambda chance: call_debounced(chance, seconds), chances))
        self.stdout.write(json.dumps(told))


def call_debounced(chance: Random, seconds: float) -> list:
    """How many calls it made, when it began the last of them, and the ids of those that were put."""
    end, calls, last, put = now() + seconds, 0, 0.0, []
    try:
        while now() < end:
            time.sleep(chance.uniform(0, LONGEST))
            calls, last = calls + 1, now()
            result = debounced()
            put += [result.id] if result.enqueued else []
        return [calls, last, put]
    finally:
        queues["default"].close()
        connections.close_all()
