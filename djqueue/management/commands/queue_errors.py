"""``django-admin queue_errors``: look into the error queues, and retry or delete what is there."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, READY, Entry, Record
from djqueue.management.tables import NONE, chosen, cut, moment, printable, table
from djqueue.notes import notes

HEAD = ("id", "queue", "command", "died", "starts", "reason")
CHUNK = 500
REASON = 80


class Command(BaseCommand):
    help = "Lists, shows, retries and deletes the messages in the error queues. Arguments are never decoded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="what is in the error queues")
        listing.add_argument("--limit", type=_count, default=50, help="show so many at most (default: %(default)s)")
        show = verbs.add_parser("show", help="one message with its tracebacks")
        show.add_argument("id")
        for verb, what in (("retry", "put back, its counts afresh"), ("delete", "delete")):
            changing = verbs.add_parser(verb, help=f"{what}: the messages of these ids, or all")
            changing.add_argument("ids", nargs="*", metavar="id")
            changing.add_argument("--all", action="store_true", help="every message in the error queues chosen")
        for one in (listing, show, *map(verbs.choices.get, ("retry", "delete"))):
            help = "only of this queue; may be repeated (default: all)"
            one.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
        for one in (listing, show):
            one.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        queues = self._inspectable(chosen(options["queues"]), asked_for=bool(options["queues"]))
        getattr(self, f"_{options['verb']}")(queues, options)

    def _inspectable(self, queues: list[BaseQueue], asked_for: bool) -> list[BaseQueue]:
        """Those that can be looked into. Raises CommandError if one that was asked for cannot, or none can."""
        able = [queue for queue in queues if "inspect" not in queue.cannot and queue.dead is not None]
        unable = ", ".join(f"{queue.alias!r} ({type(queue).__name__})" for queue in queues if queue not in able)
        if unable and (asked_for or not able):
            raise CommandError(f"The error queue of {unable} cannot be looked into: its backend cannot 'inspect'.")
        if unable:
            self.stderr.write(f"Left out, as their backends cannot 'inspect': {unable}.")
        return able

    # ---- the verbs

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        limit = options["limit"]
        found = list(islice(((queue, record.entry) for queue in queues for record in _records(queue)), limit + 1))
        if options["json"]:
            self.stdout.write(json.dumps([_object(*one) for one in found[:limit]]))
        elif found:
            self.stdout.write(table(HEAD, [_row(*one) for one in found[:limit]], right=("starts",)))
            self.stdout.write("… and more: see --limit" if len(found) > limit else "", ending="")
        else:
            self.stdout.write("There are no errors.")

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        queue, record = _find(queues, options["id"])
        if options["json"]:
            self.stdout.write(json.dumps(_object(queue, record.entry, notes(record.entry.note))))
        else:
            self.stdout.write(_page(queue, record.entry))

    def _retry(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "retried", lambda queue, ids: queue.revive(ids))

    def _delete(self, queues: list[BaseQueue], options: dict) -> None:
        self._change(queues, options, "deleted", lambda queue, ids: queue.dead.remove(ids))

    def _change(self, queues: list[BaseQueue], options: dict, done: str, change: Callable) -> None:
        if bool(options["ids"]) == options["all"]:
            raise CommandError("Give the ids of messages, or --all.", returncode=2)
        wanted = list(dict.fromkeys(options["ids"]))
        parts = _all(queues) if options["all"] else _of(queues, wanted)
        changed, found = 0, set()
        for queue, ids in parts:
            changed += change(queue, ids)
            found |= set() if options["all"] else set(ids)
        self.stdout.write(f"{changed} {done}")
        if missing := [id for id in wanted if id not in found]:
            raise _missing(queues, missing)
        if changed < len(found):
            raise CommandError(f"{len(found) - changed} could not be {done}: somebody holds it, or it waits already.")


# ---- what is in them


def _records(queue: BaseQueue) -> Iterator[Record]:
    """All that is in the error queue when this begins, page by page; a delayed one is there by somebody's hand."""
    left = len(queue.dead)  # so that it ends, even if what is retried meanwhile dies again
    for state in (READY, DELAYED):
        after = None
        while left > 0 and (page := queue.dead.peek(state, min(CHUNK, left), after)):
            yield from page
            left, after = left - len(page), page[-1].cursor


def _all(queues: Sequence[BaseQueue]) -> Iterator[tuple[BaseQueue, list[str]]]:
    for queue in queues:
        ids = (record.entry.id for record in _records(queue))
        while chunk := list(islice(ids, CHUNK)):
            yield queue, chunk


def _of(queues: Sequence[BaseQueue], wanted: Sequence[str]) -> Iterator[tuple[BaseQueue, list[str]]]:
    for queue in queues:
        if ids := [id for id in wanted if queue.dead.find(id) is not None]:
            yield queue, ids


def _find(queues: Sequence[BaseQueue], id: str) -> tuple[BaseQueue, Record]:
    for queue in queues:
        if (record := queue.dead.find(id)) is not None:
            return queue, record
    raise _missing(queues, [id])


def _missing(queues: Sequence[BaseQueue], ids: Sequence[str]) -> CommandError:
    where = ", ".join(repr(queue.alias) for queue in queues)
    return CommandError(f"Not in the error queue of {where}: {', '.join(ids)}")


# ---- how it looks


def _row(queue: BaseQueue, entry: Entry) -> list[str]:
    last = _last(entry)
    reason = cut(last.get("reason") or NONE, REASON)
    return [entry.id, queue.alias, entry.label or NONE, moment(last.get("at", 0)), str(entry.attempts), reason]


def _object(queue: BaseQueue, entry: Entry, told: list[dict] | None = None) -> dict:
    last = _last(entry)
    names = ("id", "label", "priority", "attempts", "failures", "lost", "created")
    object = {"queue": queue.alias, **{name: getattr(entry, name) for name in names}, "bytes": len(entry.data)}
    object["command"] = object.pop("label")
    return object | ({"died": last.get("at"), "reason": last.get("reason")} if told is None else {"notes": told})


def _page(queue: BaseQueue, entry: Entry) -> str:
    lines = [
        f"id       {entry.id}",
        f"queue    {queue.alias}",
        f"command  {entry.label or NONE}",
        f"created  {moment(entry.created)}",
        f"starts   {entry.attempts} (failed: {entry.failures}, lost: {entry.lost})",
        f"size     {len(entry.data)} bytes",
    ]
    return "\n".join([*lines, *map(_note, notes(entry.note))])


def _note(note: dict) -> str:
    at, attempt, host = moment(note.get("at", 0)), note.get("attempt", NONE), note.get("host", NONE)
    return printable(f"\n{at}  start {attempt} on {host}: {note.get('reason')}\n{note.get('traceback') or ''}").rstrip()


def _last(entry: Entry) -> dict:
    told = notes(entry.note)
    return told[-1] if told else {}


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is no limit: give a whole number from 1.")
    return number
