"""``django-admin queue_errors``: inspect the failed queues, and retry, delete or export their messages."""

from __future__ import annotations

import json
import os
import pdb
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TextIO

from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.exceptions import QueueError
from djqueue.management import messages as shown
from djqueue.management.changing import WHICH, MessagesCommand
from djqueue.management.tables import shown_parts, width_of
from djqueue.operations import failed, filters, rehearsing
from djqueue.operations.acting import OF_FAILED
from djqueue.operations.failed import FailedMessage
from djqueue.operations.filters import Filter
from djqueue.operations.finding import AN_ID, find_one
from djqueue.operations.messages import RUNNING
from djqueue.operations.paging import Selection, selected, selected_records
from djqueue.operations.reports import as_json
from djqueue.wiring import queues as all_queues
from djqueue.words import cut, duration, number, printable

UNDONE = (
    "All databases are rolled back, and mail and the messages that it enqueues are held back. Requests to other "
    "systems, files, and what threads do that it starts are not undone."
)
MOST_QUERIES = 50


class Command(MessagesCommand):
    states, noun, moment, actions = (FAILED,), "failed message", filters.FAILED, OF_FAILED
    verbs = {
        "list": "the failed messages, a line for each",
        "summary": "how many there are, by command and exception",
        "show": "one message with its tracebacks",
        **{name: one.help for name, one in OF_FAILED.items()},
        "rehearse": "run one message here, and undo what it did",
        "export": "all that is known of each message, in lines of JSON",
    }
    more = dict.fromkeys(OF_FAILED, WHICH) | {"rehearse": UNDONE}
    help = (
        "Shows and changes what is in the failed queues: messages whose command failed for good are kept there until "
        "they are retried or deleted. Arguments are not decoded, but for 'show --arguments'."
    )
    examples = """
        manage.py queue_errors summary                  what fails most
        manage.py queue_errors list --newer 1h          what failed in the last hour
        manage.py queue_errors show 01d4f3a9            why this one failed
        manage.py queue_errors show 01d4f3a9 --arguments
        manage.py queue_errors rehearse 01d4f3a9        try it here
        manage.py queue_errors retry 01d4f3a9           run it again
        manage.py queue_errors retry --command charge --exception ConnectionError
        manage.py queue_errors delete --older 30d --dry-run
        manage.py queue_errors list --help              the options of a verb
    """

    def add_others(self, of: Mapping[str, ArgumentParser]) -> None:
        self._add_rehearsal(of["rehearse"])
        of["rehearse"].add_argument("--json", action="store_true", help="as JSON, with whole ids")
        of["summary"].add_argument("--json", action="store_true", help="as JSON, with whole ids")
        of["summary"].add_argument("--full-ids", action="store_true", help="whole ids, instead of their ends")
        export = of["export"].add_argument
        export("-o", "--output", metavar="FILE", help="a new file, for its owner's eyes (default: stdout)")
        export("--with-body", action="store_true", help="with the encoded arguments; they may be secret")

    def _add_rehearsal(self, one: ArgumentParser) -> None:
        one.add_argument("id", help=f"{AN_ID}; it has failed, or waits")
        help = "roll back this database, and refuse statements to others; may be repeated (default: all)"
        one.add_argument("--database", action="append", choices=[*connections], dest="databases", help=help)
        one.add_argument("--pdb", action="store_true", help="debug an exception where it was raised")

    # ---- the verbs that show

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        (found, failures), most = self.page(queues, options), options["limit"]
        rows, without = [FailedMessage.of(one) for one in found[:most]], () if len(queues) > 1 else ("queue",)
        none = "" if failures else self._none(self.filter(options))
        self.write_report(rows, none, without=without, full_ids=options["full_ids"])
        if len(found) > most:
            self.say("… and more: see --limit, or queue_errors summary")
        if failures:
            raise CommandError("\n".join(failures))

    def _summary(self, queues: list[BaseQueue], options: dict) -> None:
        asked = self.filter(options)
        groups = failed.grouped(selected_records(Selection(queues, self.states, asked)))
        self.write_report(groups, self._none(asked), without=("reason",), full_ids=options["full_ids"])

    def _none(self, asked: Filter) -> str:
        return f"No failed message matches {asked}." if asked else "There are no failed messages."

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        one, call = self.shown(queues, options)
        if options["json"]:
            self.stdout.write(json.dumps(failed.export(one) | as_json(call)))
        else:
            self.stdout.write(shown.page(one, shown.said(call), self.paint))

    def _export(self, queues: list[BaseQueue], options: dict) -> None:
        found = selected(Selection(queues, self.states, self.filter(options)))
        lines = (json.dumps(failed.export(one, with_body=options["with_body"])) for one in found)
        if options["output"] is None:
            for line in lines:
                self.stdout.write(line)
        else:
            with _new_file(options["output"]) as file:
                count = sum(bool(file.write(f"{line}\n")) for line in lines)
            self.stdout.write(f"{number(count)} exported")

    # ---- the verb that tries

    def _rehearse(self, queues: list[BaseQueue], options: dict) -> None:
        message = find_one(queues, options["id"])
        queue = all_queues[message.queue]
        if message.state == RUNNING:
            raise CommandError(f"{message.id} runs in {message.consumer or 'a consumer'}: wait until it has ended.")
        on_error = _debug if options["pdb"] else lambda error: None
        try:
            seen = rehearsing.rehearse(queue, message.entry, on_error, options["databases"])
        except DatabaseError as error:
            hint = "Each database takes part: leave out those that are unreachable by --database."
            raise CommandError(f"It cannot be rehearsed: {error} {hint}") from error
        except QueueError as error:
            raise CommandError(f"{message.id} cannot be run: {error}") from error
        self.stdout.write(json.dumps(asdict(seen)) if options["json"] else self._report(seen))
        if seen.outcome != "done":
            raise CommandError(f"It did not pass ({seen.outcome}): {seen.reason.rstrip('.')}.")

    def _report(self, seen: rehearsing.Rehearsal) -> str:
        """What a rehearsal did, as text."""
        width, took = width_of(self.stdout) or sys.maxsize, duration(sum(one.seconds for one in seen.queries))
        queries = f"{number(len(seen.queries))} in {took}" if seen.queries else ""
        outcome = f"{seen.outcome} in {duration(seen.seconds)}"
        parts = {"call": seen.call, "outcome": outcome, "returned": seen.value, "queries": queries}
        lines = [shown_parts(parts, self.paint)]
        for one in seen.queries[:MOST_QUERIES]:
            head = f"  {duration(one.seconds):>8}  {one.database}  "
            lines.append(head + cut(one.sql, max(20, width - len(head))))
        if more := max(0, len(seen.queries) - MOST_QUERIES):
            lines.append(f"  … and {number(more)} more")
        would = {"would mail": seen.mails, "would enqueue": seen.enqueued, "would call on commit": seen.callbacks}
        for title, found in would.items():
            lines += [f"{self.paint(title, 'MIGRATE_LABEL')}  {printable(one)}" for one in found]
        return "\n".join([*lines, *(["", printable(seen.traceback).rstrip()] if seen.traceback else [])])


def _debug(error: BaseException) -> None:
    """Open the debugger where an exception was raised."""
    pdb.post_mortem(error.__traceback__)


def _new_file(path: str) -> TextIO:
    """Create the export file. It may be the only copy, so no file is overwritten; and it may be confidential."""
    try:
        return open(path, "x", encoding="ascii", opener=partial(os.open, mode=0o600))
    except OSError as error:
        raise CommandError(f"Cannot write a new file {path!r}: {error.strerror}") from error
