"""``django-admin queue_health``: whether the queues are healthy, for monitors."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from math import inf
from typing import Any

from django.core.management.base import CommandError

from djqueue import operations
from djqueue.exceptions import InvalidQueueError
from djqueue.management.arguments import limit, span
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import ROLES, report, width_of
from djqueue.operations.health import GONE_LATELY, OK, UNKNOWN, Level, Limit
from djqueue.operations.queues import asking_stores, chosen
from djqueue.operations.reports import as_json
from djqueue.words import counted


class Command(OperatorCommand):
    help = """
        Says whether the queues are healthy, and what is wrong if they are not: a store out of reach, a queue that no
        consumer serves, a consumer that is gone, a command that no live consumer knows, a pause; and numbers beyond
        the limits given.

        The first line says how bad the worst is. The exit code is that of a plugin of Nagios: 0 ok, 1 warning,
        2 critical, 3 unknown, as the command was given wrongly.
    """
    examples = """
        manage.py queue_health
        manage.py queue_health --backlog 1000:10000 --age 5m:1h --failed 1:100
        manage.py queue_health -q mail --consumers 2 --json
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        form: dict[str, Any] = {"metavar": "WARNING[:CRITICAL]", "default": Limit()}
        add("--backlog", type=_limit(limit), help="messages of a queue that are ready, as in 1000:10000", **form)
        add("--age", type=_limit(span), help="for how long the oldest has been ready, as in 5m:1h", **form)
        add("--failed", type=_limit(limit), help="messages in a failed queue, as in 1:100", **form)
        help = "percent of the attempts of the last minutes that failed or are retried, as in 5:20"
        add("--error-rate", type=_limit(_percent), help=help, **form)
        add("--consumers", type=int, default=1, metavar="N", help="how many are to serve each queue (default: 1)")
        help = "for how long a consumer that is gone is reported (default: 1h)"
        add("--gone", type=span, default=GONE_LATELY, metavar="AGE", help=help)
        add("--json", action="store_true", help="an object with the status and a list of problems")

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        refuse = parser.error

        def error(message: str) -> None:
            try:
                refuse(message)
            except SystemExit:
                sys.exit(UNKNOWN)

        parser.error = error
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            aliases = [queue.alias for queue in chosen(options["queues"])]
        except InvalidQueueError as error:
            raise CommandError(str(error), returncode=UNKNOWN) from error
        limits = {name: options[name] for name in ("backlog", "age", "failed", "error_rate")}
        with asking_stores():
            found = operations.health(aliases, least_consumers=options["consumers"], gone_for=options["gone"], **limits)
        worst = max((one.level for one in found), default=OK)
        if options["json"]:
            self.stdout.write(json.dumps(as_json({"status": worst, "problems": found})))
        else:
            self._show(worst, found, len(aliases))
        if worst:
            sys.exit(worst)

    def _show(self, worst: Level, found: list[operations.Problem], queues: int) -> None:
        status = self.paint(str(worst).upper(), ROLES[str(worst)])
        said = counted(len(found), "problem") if found else f"{counted(queues, 'queue')} in order"
        self.stdout.write(f"{status}: {said}")
        if found:
            self.stdout.write(report(found, width=width_of(self.stdout), paint=self.paint))


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ArgumentTypeError(f"{text!r} is no percentage: give 0 to 100.")
    return percent


def _limit(number: Callable[[str], float]) -> Callable[[str], Limit]:
    """Reads two numbers; the second may be left out."""

    def read(text: str) -> Limit:
        first, _, second = text.partition(":")
        given = Limit(number(first) if first else inf, number(second) if second else inf)
        if given.warning > given.critical and first:
            raise ArgumentTypeError(f"{text!r}: the second number is the worse one, so give it at least the first.")
        return given

    return read
