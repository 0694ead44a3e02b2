"""``manage.py make_trouble [--keep]``: something to find in the dashboard."""

import time
from collections.abc import Iterator
from itertools import count
from socket import gethostname

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from djqueue import operations
from processes import running
from trouble import commands, making

FILM = 30  # seconds
FILM_AT_EACH = 10
"""Calls between two films, until the consumer that is to be killed cuts one."""


class Command(BaseCommand):
    help = "Makes trouble of each kind; with --keep also load, and a consumer that is killed at its work."

    def add_arguments(self, parser):
        parser.add_argument("--keep", action="store_true", help="keep the site under load, until Ctrl-C")
        parser.add_argument("--rate", type=float, default=5.0, metavar="N", help="calls in a second (default: 5)")

    def handle(self, *, keep: bool, rate: float, **options):
        if rate <= 0:
            raise CommandError(f"--rate {rate}: give a number greater than 0.", returncode=2)
        making.make("make_trouble")
        self.stdout.write("There is trouble now: look at the dashboard.")
        if keep:
            self._keep(rate)

    def _keep(self, rate: float):
        load = _load(rate)
        try:
            name = _kill_a_consumer(load)
            self.stdout.write(f"The consumer {name} was killed (kill -9) at its work. The load goes on until Ctrl-C.")
            for _ in load:
                pass
        except KeyboardInterrupt:
            self.stdout.write("No more load.")


def _load(rate: float) -> Iterator[int]:
    """Calls without end; the number of each, once it is made."""
    for number in count(1):
        making.load(number)
        yield number
        time.sleep(1 / rate)


def _kill_a_consumer(load: Iterator[int]) -> str:
    """Start a consumer and kill it as soon as its heartbeat tells that it cuts a film; its name."""
    log = settings.DATA_DIR / "killed-consumer.log"
    with running("queue_consumer", "--threads", "4", log=log) as consumer:
        for number in load:
            if consumer.poll() is not None:
                raise CommandError(f"The consumer that was to be killed ended by itself: see {log}.")
            if name := _at_work(consumer.pid):
                consumer.kill()
                return name
            if number % FILM_AT_EACH == 1:
                commands.cut_film.enqueue("Winter", FILM)
    raise AssertionError("load has no end")


def _at_work(pid: int) -> str:
    """The name of the consumer with this process id on this machine, if it cuts a film; else ""."""
    for one in operations.consumers():
        cuts = any(run.command == commands.cut_film.name for run in one.running)
        if cuts and (one.host, one.pid) == (gethostname(), pid):
            return one.name
    return ""
