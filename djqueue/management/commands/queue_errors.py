"""``django-admin queue_errors``: look into the failed queues, and retry, delete or export what is there."""

from __future__ import annotations

import json
import os
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError, DjangoHelpFormatter

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import Record
from djqueue.management.tables import able, asking, chosen, limit, table
from djqueue.operations import HEAD, Filter, brief, chunks, failed_queue, full, page, picked, row


class Command(BaseCommand):
    help = "Lists, shows, retries, deletes and exports the messages in the failed queues. Arguments are never decoded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = partial(verbs.add_parser, parents=[_usual()], formatter_class=DjangoHelpFormatter)
        listing = add("list", help="what is in the failed queues")
        listing.add_argument("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        show = add("show", help="one message with its tracebacks")
        show.add_argument("id")
        export = add("export", help="all that is known of each message, in lines of JSON")
        export.add_argument("-o", "--output", metavar="FILE", help="a new file, for its owner's eyes (default: stdout)")
        export.add_argument("--with-body", action="store_true", help="with the encoded arguments; they may be secret")
        for verb, what in (("retry", "put back, their counts afresh"), ("delete", "delete")):
            changing = add(verb, help=f"{what}: the messages of these ids, those of a filter, or all")
            changing.add_argument("ids", nargs="*", metavar="id")
            changing.add_argument("--all", action="store_true", help="every message in the failed queues chosen")
            changing.add_argument("--dry-run", action="store_true", help="say how many, and leave them where they are")
        for verb, one in verbs.choices.items():
            help = "only of this queue; may be repeated (default: all)"
            one.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
            if verb != "show":
                Filter.add_arguments(one)
        for one in (listing, show):
            one.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        refusal = "The failed queue of {} cannot be looked into: its backend cannot 'inspect'."
        queues, others = able(chosen(options["queues"]), "inspect", refusal, asked_for=bool(options["queues"]))
        if others:
            self.stderr.write(f"Left out, as their backends cannot 'inspect': {others}.")
        getattr(self, f"_{options['verb']}")(queues, options)

    # ---- the verbs that look

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        most, asked = options["limit"], Filter(options)
        found = list(islice(picked(queues, asked), most + 1))
        if options["json"]:
            self.stdout.write(json.dumps([brief(*one) for one in found[:most]]))
        elif found:
            self.stdout.write(table(HEAD, [row(*one) for one in found[:most]], right=("attempts",)))
            self.stdout.write("… and more: see --limit" if len(found) > most else "", ending="")
        else:
            self.stdout.write("There are no such errors." if asked else "There are no errors.")

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        found = _find(queues, options["id"])
        self.stdout.write(json.dumps(full(*found)) if options["json"] else page(*found))

    def _export(self, queues: list[BaseQueue], options: dict) -> None:
        found = picked(queues, Filter(options))
        lines = (json.dumps(full(*one, with_body=options["with_body"])) for one in found)
        if options["output"] is None:
            for line in lines:
                self.stdout.write(line)
        else:
            with _new_file(options["output"]) as file:
                count = sum(bool(file.write(f"{line}\n")) for line in lines)
            self.stdout.write(f"{count} exported")

    # ---- the verbs that change

    def _retry(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "retried", lambda queue, ids: queue.requeue(ids))

    def _delete(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "deleted", lambda queue, ids: failed_queue(queue).remove(ids))

    def _change(self, queues: list[BaseQueue], options: dict, done: str, change: Callable) -> None:
        wanted, asked = list(dict.fromkeys(options["ids"])), Filter(options)
        _refuse_none_or_both(wanted, asked or options["all"])
        if options["dry_run"]:
            done, change = f"would be {done}", lambda queue, ids: len(ids)
        changed = 0
        found: set[str] = set()
        try:
            for queue, ids in _of(queues, wanted) if wanted else chunks(queues, asked):
                with asking(queue):
                    changed += change(queue, ids)
                found.update(ids if wanted else ())
        finally:  # even if the store of the next queue is away
            if changed:
                self.stdout.write(f"{changed} {done}")
        if missing := [id for id in wanted if id not in found]:
            raise _missing(queues, missing)
        if changed < len(found):
            raise CommandError(f"{len(found) - changed} could not be {done}: they are leased, or wait already.")
        if not changed:
            self.stdout.write(f"0 {done}: no error matches {asked}" if asked else f"0 {done}")


def _usual() -> ArgumentParser:
    """The common switches of Django's commands, which may also come after the verb."""
    parser = BaseCommand().create_parser("", "", add_help=False)
    for action in parser._actions:
        action.default = SUPPRESS  # a value given before the verb stays
    return parser


def _refuse_none_or_both(wanted: Sequence[str], others: object) -> None:
    if not (wanted or others):
        raise CommandError("Give the ids of messages, or a filter such as --command, or --all.", returncode=2)
    if wanted and others:
        raise CommandError("Give the ids of messages, or else a filter or --all: not both.", returncode=2)


def _of(queues: Sequence[BaseQueue], wanted: Sequence[str]) -> Iterator[tuple[BaseQueue, list[str]]]:
    for queue in queues:
        with asking(queue):
            ids = [id for id in wanted if failed_queue(queue).find(id) is not None]
        if ids:
            yield queue, ids


def _find(queues: Sequence[BaseQueue], id: str) -> tuple[BaseQueue, Record]:
    for queue in queues:
        with asking(queue):
            record = failed_queue(queue).find(id)
        if record is not None:
            return queue, record
    raise _missing(queues, [id])


def _missing(queues: Sequence[BaseQueue], ids: Sequence[str]) -> CommandError:
    where = ", ".join(repr(queue.alias) for queue in queues)
    return CommandError(f"Not in the failed queue of {where}: {', '.join(ids)}")


def _new_file(path: str) -> TextIO:
    """Create the export file. It may be the only copy, so no file is overwritten; and it may be confidential."""
    try:
        return open(path, "x", encoding="ascii", opener=partial(os.open, mode=0o600))
    except OSError as error:
        raise CommandError(f"Cannot write a new file {path!r}: {error.strerror}") from error
