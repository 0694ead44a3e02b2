"""``django-admin queue_stats``: how much is in each queue."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.management.tables import NONE, asking, chosen, count, duration, table

COUNTS = ("ready", "delayed", "leased", "failed", "done")
HEAD = ("queue", "backend", *COUNTS, "oldest")
CLEAR = "\033[H\033[2J"


class Command(BaseCommand):
    help = (
        "Shows how many messages of each queue are ready, delayed, leased (being run), failed (in the failed queue) "
        "and done, and for how long the oldest one has been ready. '-' is what a backend cannot tell."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--json", action="store_true", help="a list of objects; null is what a backend cannot tell")
        add("--watch", type=_pause, metavar="SECONDS", help="show it again and again, until Ctrl-C")

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        if options["watch"] is None:
            self._show(queues, options["json"])
        else:
            self._watch(queues, options["json"], options["watch"])

    def _watch(self, queues: list[BaseQueue], as_json: bool, pause: float) -> None:
        try:
            while True:
                if self.stdout.isatty() and not as_json:
                    self.stdout.write(CLEAR, ending="")
                try:
                    self._show(queues, as_json)
                except CommandError as error:  # a store that is out of reach may come back
                    self.stderr.write(str(error))
                self.stdout.flush()
                time.sleep(pause)
        except KeyboardInterrupt:
            pass

    def _show(self, queues: list[BaseQueue], as_json: bool) -> None:
        """Show the queues. Raises CommandError for those that could not be asked, after it has shown the others."""
        known: list[tuple[BaseQueue, QueueStats]] = []
        failures = []
        for queue in queues:
            try:
                with asking(queue):
                    known.append((queue, queue.stats()))
            except CommandError as error:
                failures += str(error).splitlines()
        if as_json:
            self.stdout.write(json.dumps([_object(*one) for one in known]))
        else:
            self.stdout.write(table(HEAD, [_row(*one) for one in known], right=(*COUNTS, "oldest")))
        if failures:
            raise CommandError("\n".join(dict.fromkeys(failures)))  # queues of one store fail alike


def _row(queue: BaseQueue, stats: QueueStats) -> list[str]:
    counts = [count(getattr(stats, name), None if name == "done" else stats.capped) for name in COUNTS]
    return [queue.alias, queue.describe() or NONE, *counts, duration(stats.oldest)]


def _object(queue: BaseQueue, stats: QueueStats) -> dict:
    return {"queue": queue.alias, "backend": queue.describe(), **asdict(stats)}


def _pause(text: str) -> float:
    try:
        pause = float(text)
    except ValueError:
        pause = 0.0
    if not 0.1 <= pause <= 86400:
        raise ArgumentTypeError(f"{text!r} is no pause: give 0.1 to 86400 seconds.")
    return pause
