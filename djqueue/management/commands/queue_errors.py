"""``django-admin queue_errors``: look into the failed queues, and retry, delete or export what is there."""

from __future__ import annotations

import json
import os
import pdb
from argparse import ArgumentParser
from collections.abc import Mapping
from functools import partial
from typing import TextIO

from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.exceptions import QueueError
from djqueue.management import messages as shown
from djqueue.management.arguments import argument
from djqueue.management.changing import WHICH, MessagesCommand
from djqueue.management.tables import shown_parts, width_of
from djqueue.operations import failed, filters, rehearsing
from djqueue.operations.acting import OF_FAILED
from djqueue.operations.failed import FailedMessage
from djqueue.operations.filters import Filter
from djqueue.operations.finding import AN_ID, find_one
from djqueue.operations.messages import RUNNING, Message
from djqueue.operations.paging import Selection, selected
from djqueue.operations.queues import asking
from djqueue.operations.reports import as_json
from djqueue.wiring import queues as all_queues
from djqueue.words import cut, duration, number, printable

UNDONE = (
    "All databases are rolled back, and mail and the messages that it enqueues are held back. Requests to other "
    "systems, files, and what threads do that it starts are not undone."
)
MOST_QUERIES = 50


class Command(MessagesCommand):
    states, noun, moment, actions, asking = (FAILED,), "failed message", filters.FAILED, OF_FAILED, ("delete",)
    refusal = "The failed queue of {} cannot be looked into: its backend cannot 'inspect'."
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
        "Looks into the failed queues: messages whose command failed for good are kept there until they are retried or "
        "deleted. Arguments are not decoded, but for 'show --arguments'."
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
        help = "run it with another argument, JSON or else a text; may be repeated"
        one.add_argument(
            "--set", action="append", type=argument(rehearsing.argument), default=[], metavar="NAME=VALUE", help=help
        )
        help = "roll back this database, and refuse statements to others; may be repeated (default: all)"
        one.add_argument("--database", action="append", choices=[*connections], dest="databases", help=help)
        one.add_argument("--pdb", action="store_true", help="debug an exception where it was raised")
        help = "if it passes, put it back into its queue, with the arguments that were set"
        one.add_argument("--requeue", action="store_true", help=help)

    # ---- the verbs that look

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
        groups = failed.grouped(selected(Selection(queues, self.states, asked)))
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
        try:
            call = rehearsing.Call.of(queue, message.entry, dict(options["set"]))
        except (QueueError, TypeError) as error:
            raise CommandError(f"{message.id} cannot be run: {error}") from error
        on_error = _debug if options["pdb"] else lambda error: None
        try:
            seen = rehearsing.rehearse(call, on_error, options["databases"])
        except DatabaseError as error:
            hint = "Each database takes part: leave out those that are away by --database."
            raise CommandError(f"It cannot be rehearsed: {error} {hint}") from error
        if options["json"]:
            self.stdout.write(json.dumps(rehearsing.as_object(seen)))
        else:
            self._tell(seen)
        if seen.outcome != "done":
            told = " It is not put back." if options["requeue"] else ""
            raise CommandError(f"It did not pass ({seen.outcome}): {seen.reason.rstrip('.')}.{told}")
        if options["requeue"]:
            self._put_back(call, message, options["json"])

    def _put_back(self, call: rehearsing.Call, message: Message, quietly: bool) -> None:
        with asking(call.queue):
            if not rehearsing.put_back(call, message.state):
                raise CommandError(f"{message.id} has moved on meanwhile, and is not put back.")
        waits = "it waits, with these arguments" if call.is_changed else "it waits already"
        if not quietly:
            self.stdout.write("requeued" if message.state == FAILED else waits)

    def _tell(self, seen: rehearsing.Rehearsal) -> None:
        """What a rehearsal did, as text."""
        width = width_of(self.stdout)
        outcome = f"{seen.outcome} in {duration(seen.seconds)}"
        took = f"{number(len(seen.queries))} in {duration(sum(query.seconds for query in seen.queries))}"
        parts = {"call": seen.call, "outcome": outcome, "returned": seen.value, "queries": took if seen.queries else ""}
        lines = [shown_parts(parts, self.paint)]
        lines += [_query(one, width) for one in seen.queries[:MOST_QUERIES]]
        more = len(seen.queries) - MOST_QUERIES
        lines += [f"  … and {number(more)} more"] if more > 0 else []
        held = {
            "would mail": [f"{', '.join(one.to)}: {one.subject}" for one in seen.mails],
            "would enqueue": [f"{one.command} ({one.queue})" for one in seen.sent],
            "would call on commit": seen.callbacks,
        }
        lines += [self.paint(title, "MIGRATE_LABEL") + f"  {printable(one)}" for title in held for one in held[title]]
        lines += ["", printable(seen.traceback).rstrip()] if seen.exception is not None else []
        self.stdout.write("\n".join(lines))


def _query(one: rehearsing.Query, width: int | None) -> str:
    head, sql = f"  {duration(one.seconds):>8}  {one.database}  ", " ".join(one.sql.split())
    return head + (cut(sql, max(20, width - len(head))) if width else printable(sql))


def _debug(error: BaseException) -> None:
    """Open the debugger where an exception was raised."""
    pdb.post_mortem(error.__traceback__)


def _new_file(path: str) -> TextIO:
    """Create the export file. It may be the only copy, so no file is overwritten; and it may be confidential."""
    try:
        return open(path, "x", encoding="ascii", opener=partial(os.open, mode=0o600))
    except OSError as error:
        raise CommandError(f"Cannot write a new file {path!r}: {error.strerror}") from error
