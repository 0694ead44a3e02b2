"""``django-admin queue_errors``: look into the failed queues, and retry, delete or export what is there."""

from __future__ import annotations

import json
import os
import pdb
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TextIO

from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.exceptions import QueueError
from djqueue.management import messages as shown
from djqueue.management.arguments import add_asking, add_filters, add_json, limit
from djqueue.management.base import VerbCommand, refuse_none_or_both
from djqueue.management.outcomes import REFUSED, Outcome
from djqueue.management.selecting import by_id
from djqueue.management.tables import shown_parts, table, width_of
from djqueue.operations import failed, rehearsing
from djqueue.operations.actions import record
from djqueue.operations.failed import Filter, Found, failed_queue, picked
from djqueue.operations.messages import RUNNING, Message
from djqueue.operations.queues import asking, chosen, with_feature
from djqueue.wiring import queues as all_queues
from djqueue.words import NONE, counted, cut, cut_start, duration, moment, number, printable, short_names

VERBS = {
    "list": "the failed messages, a line for each",
    "summary": "how many there are, by command and exception",
    "show": "one message with its tracebacks",
    "retry": "put messages back into their queues, with their counts of attempts at zero",
    "delete": "delete messages",
    "rehearse": "run one message here, and undo what it did",
    "export": "all that is known of each message, in lines of JSON",
}
WHICH = "They are those of the ids given, or those that a filter selects, or with --all all of them."
UNDONE = (
    "All databases are rolled back, and mail and the messages that it enqueues are held back. Requests to other "
    "systems, files, and what threads do that it starts are not undone."
)
MOST_CANDIDATES = 10
MOST_QUERIES = 50
RECORDED = {"retry": "requeue", "delete": "remove"}
"""What the record of actions says of the verbs that change messages."""
LONGEST_WHAT = 200


class Command(VerbCommand):
    verbs, more = VERBS, dict.fromkeys(("retry", "delete"), WHICH) | {"rehearse": UNDONE}
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

    def add_arguments(self, parser: ArgumentParser) -> None:
        of = self.add_verbs(parser)
        of["list"].add_argument("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        of["show"].add_argument("id", help=failed.AN_ID)
        of["show"].add_argument(
            "--arguments",
            action="store_true",
            help="with the arguments of the call, decoded if the signature is good; sensitive ones are masked",
        )
        self._add_rehearsal(of["rehearse"])
        export = of["export"].add_argument
        export("-o", "--output", metavar="FILE", help="a new file, for its owner's eyes (default: stdout)")
        export("--with-body", action="store_true", help="with the encoded arguments; they may be secret")
        for verb in ("retry", "delete"):
            of[verb].add_argument("ids", nargs="*", metavar="id", help=failed.AN_ID)
            of[verb].add_argument("--all", action="store_true", help="every message in the failed queues chosen")
            of[verb].add_argument("--dry-run", action="store_true", help="say how many, and leave them where they are")
            add_json(of[verb])
        add_asking(of["delete"], "a filter or --all deletes messages")
        for verb, one in of.items():
            help = "only of this queue; may be repeated (default: all)"
            one.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
            if verb not in ("show", "rehearse"):
                add_filters(one, Filter.arguments)
        for verb in ("list", "summary", "show", "rehearse"):
            of[verb].add_argument("--json", action="store_true", help="as JSON, with whole ids")
        for verb in ("list", "summary"):
            of[verb].add_argument("--full-ids", action="store_true", help="whole ids, instead of their ends")

    def _add_rehearsal(self, one: ArgumentParser) -> None:
        one.add_argument("id", help=f"{failed.AN_ID}; it has failed, or waits")
        help = "run it with another argument, JSON or else a text; may be repeated"
        one.add_argument("--set", action="append", type=_argument, default=[], metavar="NAME=VALUE", help=help)
        help = "roll back this database, and refuse statements to others; may be repeated (default: all)"
        one.add_argument("--database", action="append", choices=[*connections], dest="databases", help=help)
        one.add_argument("--pdb", action="store_true", help="debug an exception where it was raised")
        help = "if it passes, put it back into its queue, with the arguments that were set"
        one.add_argument("--requeue", action="store_true", help=help)

    def handle(self, *args: Any, **options: Any) -> None:
        refusal = "The failed queue of {} cannot be looked into: its backend cannot 'inspect'."
        queues, others = with_feature(chosen(options["queues"]), "inspect", refusal, asked_for=bool(options["queues"]))
        if others:
            self.stderr.write(f"Left out, as their backends cannot 'inspect': {others}.")
        getattr(self, f"_{options['verb']}")(queues, options)

    # ---- the verbs that look

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        most, asked = options["limit"], Filter(options)
        found = list(islice(picked(queues, asked), most + 1))
        if options["json"]:
            self.stdout.write(json.dumps([failed.brief(*one) for one in found[:most]]))
        elif found:
            rows = shown.failed_rows(found[:most], options["full_ids"])
            cuts, without = {"reason": cut, "command": cut_start}, () if len(queues) > 1 else ("queue",)
            self._table(shown.FAILED_HEAD, rows, "attempts", cuts=cuts, without=without)
            if len(found) > most:
                self.stdout.write("… and more: see --limit, or queue_errors summary")
        else:
            self._none(asked)

    def _summary(self, queues: list[BaseQueue], options: dict) -> None:
        asked = Filter(options)
        groups = failed.grouped(picked(queues, asked))
        if options["json"]:
            self.stdout.write(json.dumps([failed.group_object(group) for group in groups]))
        elif groups:
            cuts = {"command": cut_start, "exception": cut}
            self._table(shown.SUMMARY, shown.group_rows(groups, options["full_ids"]), "count", cuts=cuts)
        else:
            self._none(asked)

    def _table(self, head: Sequence[str], rows: list[list[str]], right: str, **form: Any) -> None:
        text = table(head, rows, (right,), width=width_of(self.stdout), paint=self.paint, **form)
        self.stdout.write(text)

    def _none(self, asked: Filter) -> None:
        self.stdout.write(f"No failed message matches {asked}." if asked else "There are no failed messages.")

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        queue, record = _find(queues, options["id"])
        call, problem = failed.call_of(queue, record) if options["arguments"] else ("", "")
        if options["json"]:
            more = {"call": call or None, "call_error": problem or None} if options["arguments"] else {}
            self.stdout.write(json.dumps(failed.full(queue, record) | more))
        else:
            said = {"call": call or f"cannot be shown: {problem}"} if options["arguments"] else {}
            self.stdout.write(shown.failed_page(queue, record, said, self.paint))

    def _export(self, queues: list[BaseQueue], options: dict) -> None:
        found = picked(queues, Filter(options))
        lines = (json.dumps(failed.full(*one, with_body=options["with_body"])) for one in found)
        if options["output"] is None:
            for line in lines:
                self.stdout.write(line)
        else:
            with _new_file(options["output"]) as file:
                count = sum(bool(file.write(f"{line}\n")) for line in lines)
            self.stdout.write(f"{number(count)} exported")

    # ---- the verb that tries

    def _rehearse(self, queues: list[BaseQueue], options: dict) -> None:
        queue, message = by_id(queues, options["id"])
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

    # ---- the verbs that change

    def _retry(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "retried", lambda queue, ids: queue.requeue(ids))

    def _delete(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "deleted", lambda queue, ids: failed_queue(queue).remove(ids))

    def _change(self, queues: list[BaseQueue], options: dict, done: str, change: Callable) -> None:
        wanted, asked = list(dict.fromkeys(options["ids"])), Filter(options)
        refuse_none_or_both(wanted, asked or options["all"])
        if options["dry_run"]:
            done, change = f"would be {done}", lambda queue, ids: len(ids)
        with self.outcome(options["verb"], wanted or [str(asked) or "all that has failed"]) as outcome:
            outcome.dry_run = options["dry_run"]
            if not wanted and options["verb"] == "delete" and not self._may_delete(queues, asked, options):
                return outcome.fail(REFUSED)
            known = _Known(queues, wanted)
            self._change_each(known if wanted else failed.chunks(queues, asked), change, done, outcome)
            if wanted:
                known.refuse_others(outcome)
            if missing := max(0, len(known.ids) - outcome.count):
                why = "they are leased, or wait already"
                outcome.refuse(counted(missing, "message"), why)
                raise CommandError(f"{missing} could not be {done}: {why}.")
            if not outcome.count:
                self.say(f"0 {done}: no failed message matches {asked}" if asked else f"0 {done}")

    def _change_each(
        self, chunks: Iterable[tuple[BaseQueue, list[str]]], change: Callable, done: str, outcome: Outcome
    ) -> None:
        try:
            for queue, ids in chunks:
                with asking(queue):
                    outcome.did(change(queue, ids), queue.alias, ids)
        finally:  # even if the store of the next queue is away
            if outcome.count:
                self.say(f"{number(outcome.count)} {done}")
            if not outcome.dry_run:
                _record(outcome)

    def _may_delete(self, queues: list[BaseQueue], asked: Filter, options: dict) -> bool:
        """Whether an operator agrees to delete all that is selected, if there is anything."""
        if options["dry_run"] or not options["interactive"]:
            return True
        counts = Counter(queue.alias for queue, _ in picked(queues, asked))
        where = ", ".join(f"{number(count)} in {alias}" for alias, count in counts.items())
        total = counted(counts.total(), "failed message")
        return not counts or self.confirmed(f"{total} will be deleted: {where}.", interactive=True)


def _record(outcome: Outcome) -> None:
    what = cut(" ".join(outcome.what), LONGEST_WHAT)
    for alias, count in outcome.queues.items():
        if count:
            record(all_queues[alias], RECORDED[outcome.action], what, count)


def _argument(text: str) -> tuple[str, Any]:
    try:
        return rehearsing.argument(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _query(one: rehearsing.Query, width: int | None) -> str:
    head, sql = f"  {duration(one.seconds):>8}  {one.database}  ", " ".join(one.sql.split())
    return head + (cut(sql, max(20, width - len(head))) if width else printable(sql))


def _debug(error: BaseException) -> None:
    """Open the debugger where an exception was raised."""
    pdb.post_mortem(error.__traceback__)


class _Known:
    """The messages that whole ids or parts of ids stand for, queue by queue."""

    def __init__(self, queues: Sequence[BaseQueue], wanted: Sequence[str]):
        self.ids: list[str] = []
        self._queues, self._left = queues, list(wanted)
        self._matches: dict[str, list[Found]] = {}

    def __iter__(self) -> Iterator[tuple[BaseQueue, list[str]]]:
        for queue in self._queues:
            with asking(queue):
                ids = [id for id in self._left if failed_queue(queue).find(id) is not None]
            yield from self._each(queue, ids, ids)
        self._matches = failed.found_by(self._queues, self._left)
        only = {part: found[0] for part, found in self._matches.items() if len(found) == 1}
        for queue in self._queues:
            one = {part: record.entry.id for part, (own, record) in only.items() if own is queue}
            yield from self._each(queue, list(dict.fromkeys(one.values())), one)

    def _each(self, queue: BaseQueue, ids: list[str], given: Iterable[str]) -> Iterator[tuple[BaseQueue, list[str]]]:
        self._left = [id for id in self._left if id not in given]
        self.ids += ids
        if ids:
            yield queue, ids

    def refuse_others(self, outcome: Outcome) -> None:
        """Raises CommandError for ids that stand for no message or for several."""
        outcome.what = [*self.ids, *self._left]
        for id in self._left:
            outcome.refuse(id, "it is a part of several ids" if self._matches[id] else "it is no failed message")
        if self._left:
            raise _not_one(self._queues, {id: self._matches[id] for id in self._left})


def _find(queues: Sequence[BaseQueue], id: str) -> Found:
    for queue in queues:
        with asking(queue):
            record = failed_queue(queue).find(id)
        if record is not None:
            return queue, record
    matches = failed.found_by(queues, [id])
    if len(matches[id]) != 1:
        raise _not_one(queues, matches)
    return matches[id][0]


def _not_one(queues: Sequence[BaseQueue], matches: dict[str, list[Found]]) -> CommandError:
    """The error for ids that are not in the failed queues, and for parts of several ids."""
    lines, where = [], ", ".join(repr(queue.alias) for queue in queues)
    if unknown := [id for id, found in matches.items() if not found]:
        short = any(len(id) < failed.LEAST_PART for id in unknown)
        hint = f" (a part of an id has at least {failed.LEAST_PART} characters)" if short else ""
        lines.append(f"Not in the failed queue of {where}: {', '.join(unknown)}{hint}; queue_errors list shows the ids")
    for part, found in matches.items():
        if found:
            lines.append(f"{part} is a part of {number(len(found))} ids, give more of one:")
            names = short_names(record.entry.command for _, record in found)
            lines += [
                printable(f"  {one.entry.id}  {moment(failed.failed_at(one))}  {names[one.entry.command] or NONE}")
                for _, one in found[:MOST_CANDIDATES]
            ]
            lines += ["  …"] if len(found) > MOST_CANDIDATES else []
    return CommandError("\n".join(lines))


def _new_file(path: str) -> TextIO:
    """Create the export file. It may be the only copy, so no file is overwritten; and it may be confidential."""
    try:
        return open(path, "x", encoding="ascii", opener=partial(os.open, mode=0o600))
    except OSError as error:
        raise CommandError(f"Cannot write a new file {path!r}: {error.strerror}") from error
