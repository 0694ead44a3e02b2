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
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import paused, report, width_of
from djqueue.operations import reports
from djqueue.operations.by_command import command_rows, known_commands
from djqueue.operations.counts import QueueRow, Seen, places, seen
from djqueue.operations.queues import chosen, with_feature
from djqueue.operations.rates import DAY, HOUR, MINUTES, entered
from djqueue.running.pauses import COMMAND
from djqueue.utils import clock
from djqueue.words import cut, cut_middle, number, printable, time_of_day

MOST_PAUSED = 10
"""Paused commands that get a line below the table."""
RATES = ("entered", "ended")
"""Since the last update."""
LATELY = ("done_per_minute", "failed_per_minute", "time_to_drain")
"""In the last minutes."""
ON_PAGES = ("enqueued_per_minute", "consumers", "problem", "note")
"""Columns for which a terminal has no room: queue_health says what is wrong."""
HOME, REST_OF_LINE, REST_OF_SCREEN, CLEAR = "\033[H", "\033[K", "\033[J", "\033[2J"
HIDE_CURSOR, SHOW_CURSOR = "\033[?25l", "\033[?25h"
EVERY = 2.0
"""Seconds between two updates, unless ``--watch`` gives others."""


class Snapshot(NamedTuple):
    """What was read about the queues, by their aliases, and when."""

    at: float
    queues: dict[str, Seen]

    @property
    def known(self) -> list[Seen]:
        """The queues that could be asked."""
        return [one for one in self.queues.values() if one.stats is not None]

    @property
    def failures(self) -> list[str]:
        """What is wrong with the others; queues of one store fail the same way."""
        return [*dict.fromkeys(line for one in self.queues.values() for line in one.problem.splitlines())]


NOTHING_SEEN = Snapshot(0.0, {})
"""Before the first update: the rates are unknown, and their columns are there."""


class Command(OperatorCommand):
    help = (
        "Shows how many messages of each queue are ready to run, delayed, running (held by a consumer), failed (in the "
        "failed queue) and done, and for how long the oldest one has been ready. What is due in a lane that is held "
        "counts as ready too: queue_lanes shows these lanes. '-' is what a backend does not know, "
        "and '100,000+' where counting stopped. If something ran in the last five minutes: how many messages "
        "were done and failed per minute, and in what time none is ready any more if all goes on like that. What is "
        "paused is shown with who paused it, when and why."
    )
    examples = """
        manage.py queue_stats                     all queues
        manage.py queue_stats -q mail -q slow     some of them
        manage.py queue_stats --watch             every 2 seconds, with rates
        manage.py queue_stats --by-command day    what each command did in the last day
        manage.py queue_stats --json              for programs
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--json", action="store_true", help="a list of objects; null is what a backend does not know")
        add = parser.add_mutually_exclusive_group().add_argument
        help = "show it again and again with rates, until Ctrl-C (by default every %(const)s seconds)"
        add("--watch", type=_pause, nargs="?", const=EVERY, metavar="SECONDS", help=help)
        help = "how often each command ended how in the last hour or day, and how long it took (default: %(const)s)"
        add("--by-command", nargs="?", choices=(HOUR, DAY), const=HOUR, help=help)

    def handle(self, *args: Any, **options: Any) -> None:
        queues = chosen(options["queues"])
        if options["by_command"] is not None:
            self._by_command(queues, options["by_command"], asked_for=bool(options["queues"]))
        elif options["watch"] is None:
            now = _snapshot(queues)
            self.stdout.write(self._text(now, None, options["json"]))
            if now.failures:
                raise CommandError("\n".join(now.failures))
        else:
            self._watch(queues, options["json"], options["watch"])

    def _by_command(self, queues: list[BaseQueue], period: str, asked_for: bool) -> None:
        queues, others = with_feature(queues, "facts", asked_for)
        if others:
            self.stderr.write(others)
        known = known_commands(queues)
        rows, without = [*command_rows(queues, known, period)], (HOUR, DAY, *(() if len(queues) > 1 else ("queue",)))
        self.write_report(rows, "" if known.problems else "No command is known here.", without=without)
        if known.problems:
            raise CommandError("\n".join(known.problems))

    def _watch(self, queues: list[BaseQueue], as_json: bool, pause: float) -> None:
        on_screen = self.stdout.isatty() and not as_json
        before = NOTHING_SEEN
        try:
            if on_screen:
                self.stdout.write(CLEAR + HIDE_CURSOR, ending="")
            while True:
                now = _snapshot(queues)  # an unreachable store may come back
                text = self._text(now, before, as_json)
                if not as_json:
                    text = f"{time_of_day()}, every {pause:g} s\n{text}\n"
                if on_screen:
                    self._redraw("\n".join([text, *now.failures]))
                else:
                    self.stdout.write(text)
                    for line in now.failures:
                        self.stderr.write(line)
                self.stdout.flush()
                before = now
                sleep(pause)
        except KeyboardInterrupt:
            pass
        finally:
            if on_screen:
                self.stdout.write(SHOW_CURSOR)

    def _redraw(self, text: str) -> None:
        """Overwrite the screen in one step: a screen that is cleared before each update flickers."""
        lines = text.split("\n")[: shutil.get_terminal_size().lines - 1]
        self.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN, ending="")

    def _text(self, now: Snapshot, before: Snapshot | None, as_json: bool) -> str:
        rows = [_row(one, now, before) for one in now.known]
        if as_json:
            return json.dumps(reports.as_json(rows))
        width = width_of(self.stdout)
        shown = report(rows, without=_left_out(now, before), width=width, paint=self.paint)
        where = [cut_middle(line, width) if width else line for line in places(rows)]
        return "\n".join([shown, *_paused_commands(now, width), "", *where]) if rows else shown


def _snapshot(queues: Sequence[BaseQueue]) -> Snapshot:
    return Snapshot(clock(), {one.alias: one for one in seen(queues, MINUTES)})


def _row(one: Seen, now: Snapshot, before: Snapshot | None) -> QueueRow:
    return QueueRow.of(one, _rates(one, now, before) if before else (None, None))


def _left_out(now: Snapshot, before: Snapshot | None) -> Sequence[str]:
    """The columns that are not shown: all rates of the last minutes if nothing ran, else the ones that are also shown
    since an update."""
    without = (*ON_PAGES, *(() if before else RATES))
    known = [one.rates for one in now.known if one.rates]
    if not any(one.done or one.failed or one.retried or one.time_to_drain for one in known):
        return (*LATELY, *without)
    return without if before is None else (*ON_PAGES, *LATELY[:2])


def _rates(one: Seen, now: Snapshot, before: Snapshot) -> tuple[float | None, float | None]:
    """Messages per second since the last update: how many came in, and how many were done."""
    then = before.queues.get(one.alias)
    if one.stats is None or then is None or then.stats is None:
        return None, None
    seconds = max(0.001, now.at - before.at)
    return _rate(entered(one.stats), entered(then.stats), seconds), _rate(one.stats.done, then.stats.done, seconds)


def _rate(count: int | None, then: int | None, seconds: float) -> float | None:
    if count is None or then is None:
        return None
    return max(0, count - then) / seconds  # failed ones may have been deleted


def _paused_commands(now: Snapshot, width: int | None) -> list[str]:
    """The paused commands, with a line for each of the first."""
    found = [one for one in now.known[0].pauses if one.kind == COMMAND]
    lines = [f"Command {one.name}{f' in {one.queue}' if one.queue else ''} is paused {paused(one)}" for one in found]
    more = (
        [f"… and {number(len(found) - MOST_PAUSED)} more: queue_pause lists them"] if len(found) > MOST_PAUSED else []
    )
    shown = [printable(line) for line in lines[:MOST_PAUSED] + more]
    return ["", *(cut(line, width) if width else line for line in shown)] if shown else []


def _pause(text: str) -> float:
    try:
        pause = float(text)
    except ValueError:
        pause = 0.0
    if not 0.1 <= pause <= 86400:
        raise ArgumentTypeError(f"{text!r} is no pause: give 0.1 to 86400 seconds.")
    return pause
