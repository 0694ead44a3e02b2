"""``django-admin queue_stats``: how much is in each queue."""

from __future__ import annotations

import json
import shutil
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from time import sleep
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import QueueStats
from djqueue.exceptions import QueueError
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import paused, report, width_of
from djqueue.operations import reports
from djqueue.operations.counts import QueueRow
from djqueue.operations.pausing import pauses
from djqueue.operations.queues import asking, asking_stores, chosen
from djqueue.operations.rates import MINUTES, QueueRates, queue_rates
from djqueue.running.pauses import COMMAND, Pause
from djqueue.utils import clock
from djqueue.words import NONE, cut, cut_middle, number, printable, time_of_day

COUNTS = ("ready", "delayed", "leased", "failed", "done")
MOST_PAUSED = 10
"""Commands that are paused of which a line tells below the table."""
RATES = ("entered", "ended")
"""Since the last look."""
LATELY = ("done_per_minute", "failed_per_minute", "time_to_drain")
"""In the last minutes."""
HOME, REST_OF_LINE, REST_OF_SCREEN, CLEAR = "\033[H", "\033[K", "\033[J", "\033[2J"
HIDE_CURSOR, SHOW_CURSOR = "\033[?25l", "\033[?25h"
EVERY = 2.0
"""Seconds between two looks, unless ``--watch`` says others."""


class Look(NamedTuple):
    """What was seen of the queues, by their aliases, and when."""

    at: float
    stats: dict[str, QueueStats]
    lately: dict[str, QueueRates]
    """The rates of the last minutes, of queues that keep facts."""
    pauses: Sequence[Pause]


NOTHING_SEEN = Look(0.0, {}, {}, [])
"""Before the first look: the rates are unknown, and their columns are there."""


class Command(OperatorCommand):
    help = (
        "Shows how many messages of each queue are ready to run, delayed, running (held by a consumer), failed (in the "
        "failed queue) and done, and for how long the oldest one has been ready. '-' is what a backend cannot tell, "
        "and '100,000+' where counting stopped. If something ran in the last five minutes: how many messages "
        "were done and failed per minute, and in what time none is ready any more if all goes on like that. What is "
        "paused is told with who paused it, when and why."
    )
    examples = """
        manage.py queue_stats                     all queues
        manage.py queue_stats -q mail -q slow     some of them
        manage.py queue_stats --watch             every 2 seconds, with rates
        manage.py queue_stats --json              for programs
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--json", action="store_true", help="a list of objects; null is what a backend cannot tell")
        help = "show it again and again with rates, until Ctrl-C (by default every %(const)s seconds)"
        add("--watch", type=_pause, nargs="?", const=EVERY, metavar="SECONDS", help=help)

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        if options["watch"] is None:
            look, failures = _look(queues)
            self.stdout.write(self._text(queues, look, None, options["json"]))
            if failures:
                raise CommandError("\n".join(failures))
        else:
            self._watch(queues, options["json"], options["watch"])

    def _watch(self, queues: list[BaseQueue], as_json: bool, pause: float) -> None:
        on_screen = self.stdout.isatty() and not as_json
        before = NOTHING_SEEN
        try:
            if on_screen:
                self.stdout.write(CLEAR + HIDE_CURSOR, ending="")
            while True:
                look, failures = _look(queues)  # a store that is out of reach may come back
                text = self._text(queues, look, before, as_json)
                if not as_json:
                    text = f"{time_of_day()}, every {pause:g} s\n{text}\n"
                if on_screen:
                    self._redraw("\n".join([text, *failures]))
                else:
                    self.stdout.write(text)
                    for line in failures:
                        self.stderr.write(line)
                self.stdout.flush()
                before = look
                sleep(pause)
        except KeyboardInterrupt:
            pass
        finally:
            if on_screen:
                self.stdout.write(SHOW_CURSOR)

    def _redraw(self, text: str) -> None:
        """Write over what is there, in one step: a screen that is cleared before each look flickers."""
        lines = text.split("\n")[: shutil.get_terminal_size().lines - 1]
        self.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN, ending="")

    def _text(self, queues: Sequence[BaseQueue], look: Look, before: Look | None, as_json: bool) -> str:
        known = [queue for queue in queues if queue.alias in look.stats]
        rows = [_row(queue, look, before) for queue in known]
        if as_json:
            return json.dumps([reports.as_json(one) for one in rows])
        width = width_of(self.stdout)
        shown = report(rows, without=_left_out(look, before), width=width, paint=self.paint)
        return "\n".join([shown, *_paused_commands(look, width), "", *_places(known, width)]) if known else shown


def _look(queues: Sequence[BaseQueue]) -> tuple[Look, list[str]]:
    """What is in the queues that could be asked, and what is wrong with the others."""
    known: dict[str, QueueStats] = {}
    failures: dict[str, None] = {}  # queues of one store fail alike
    for queue in queues:
        try:
            with asking(queue):
                known[queue.alias] = queue.stats()
        except QueueError as error:
            failures |= dict.fromkeys(str(error).splitlines())
    lately: dict[str, QueueRates] = {}
    stopped: list[Pause] = []
    try:
        with asking_stores():
            lately = {one.queue: one for one in queue_rates(known, MINUTES)} if known else {}
            stopped = pauses(known) if known else []
    except QueueError as error:
        failures[str(error)] = None
    return Look(clock(), known, lately, stopped), list(failures)


def _row(queue: BaseQueue, look: Look, before: Look | None) -> QueueRow:
    since = _rates(queue.alias, look, before) if before else (None, None)
    return QueueRow.of(queue, look.stats[queue.alias], look.lately.get(queue.alias), look.pauses, since)


def _left_out(look: Look, before: Look | None) -> Sequence[str]:
    """The columns that are not shown: of the rates of the last minutes all if nothing ran, else those that are told
    since a look."""
    without = () if before else RATES
    if not any(one.done or one.failed or one.retried or one.time_to_drain for one in look.lately.values()):
        return (*LATELY, *without)
    return without if before is None else LATELY[:2]


def _rates(alias: str, look: Look, before: Look) -> tuple[float | None, float | None]:
    """Messages per second since the last look: how many came in, and how many were done."""
    now, then = look.stats[alias], before.stats.get(alias)
    if then is None:
        return None, None
    seconds = max(0.001, look.at - before.at)
    return _rate(_total(now), _total(then), seconds), _rate(now.done, then.done, seconds)


def _total(stats: QueueStats) -> int | None:
    """How many messages there have been, if all counts are known: each that comes in is in one of them."""
    counts = [getattr(stats, name) for name in COUNTS]
    unknown = None in counts or (stats.capped is not None and max(counts[:-1]) >= stats.capped)
    return None if unknown else sum(counts)


def _rate(now: int | None, then: int | None, seconds: float) -> float | None:
    return None if now is None or then is None else max(0, now - then) / seconds  # failed ones may have been deleted


def _paused_commands(look: Look, width: int | None) -> list[str]:
    """The commands that are paused, a line for each of the first."""
    found = [one for one in look.pauses if one.kind == COMMAND]
    lines = [f"Command {one.name}{f' in {one.queue}' if one.queue else ''} is paused {paused(one)}" for one in found]
    more = (
        [f"… and {number(len(found) - MOST_PAUSED)} more: queue_pause lists them"] if len(found) > MOST_PAUSED else []
    )
    shown = [printable(line) for line in lines[:MOST_PAUSED] + more]
    return ["", *(cut(line, width) if width else line for line in shown)] if shown else []


def _places(queues: Sequence[BaseQueue], width: int | None) -> list[str]:
    """Where the queues are, a line for each place."""
    places: dict[str, list[str]] = {}
    for queue in queues:
        places.setdefault(queue.describe() or NONE, []).append(queue.alias)
    lines = [f"{', '.join(aliases)}: {place}" for place, aliases in places.items()]
    return [cut_middle(line, width) if width else line for line in lines]


def _pause(text: str) -> float:
    try:
        pause = float(text)
    except ValueError:
        pause = 0.0
    if not 0.1 <= pause <= 86400:
        raise ArgumentTypeError(f"{text!r} is no pause: give 0.1 to 86400 seconds.")
    return pause
