"""What is in the error queues, which of it is asked for, and how it is told."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, READY, Entry, Record
from djqueue.management.tables import NONE, asking, cut, duration, moment, printable, span
from djqueue.messages.failures import errors_of

HEAD = ("id", "queue", "command", "died", "starts", "reason")
CHUNK = 500
REASON = 80  # characters of it in a table

Found = tuple[BaseQueue, Record]


# ---- which are asked for


def _text(text: str) -> str:
    # An empty one, say of a variable that nobody set, would be in every reason.
    if not text.strip():
        raise ArgumentTypeError("It is empty.")
    return text


def _is_named(name: str, wanted: str) -> bool:
    name, wanted = name.casefold(), wanted.casefold()
    return bool(name) and (fnmatchcase(name, wanted) or fnmatchcase(name.rpartition(".")[2], wanted))


class _Test(NamedTuple):
    """One thing that can be asked: its argument, and whether it is true of a record, by the clock of its queue."""

    metavar: str
    type: Callable[[str], Any]
    help: str
    holds: Callable[[Any, Record, float], bool]


_TESTS = {
    "command": _Test(
        "NAME",
        _text,
        "only of this command: its name, dotted or bare, in whatever case; * stands for any text, ? for a character",
        lambda wanted, record, now: _is_named(record.entry.command, wanted),
    ),
    "exception": _Test(
        "CLASS",
        _text,
        "only what died of this exception: the name of the very class, in the same way",
        lambda wanted, record, now: _is_named(last(record.entry, "exception"), wanted),
    ),
    "reason": _Test(
        "TEXT",
        _text,
        "only with this text in the reason, in whatever case",
        lambda wanted, record, now: wanted.casefold() in last(record.entry, "reason").casefold(),
    ),
    "older": _Test(
        "AGE",
        span,
        "only what died longer ago than 90s, 30m, 12h, 7d or 4w",
        lambda wanted, record, now: 0 < died(record) < now - wanted,
    ),
    "newer": _Test("AGE", span, "only what died since", lambda wanted, record, now: died(record) >= now - wanted),
}


class Filter:
    """The messages that an operator asks for: those for which all that was said is true. False if nothing was said."""

    def __init__(self, options: Mapping[str, Any]):
        self._asked = {name: options[name] for name in _TESTS if options.get(name) not in (None, "")}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __str__(self) -> str:
        return ", ".join(
            f"--{name} {duration(wanted) if _TESTS[name].type is span else repr(wanted)}"
            for name, wanted in self._asked.items()
        )

    def picks(self, record: Record, now: float) -> bool:
        """Whether it is asked for; ``now`` by its queue's clock."""
        return all(_TESTS[name].holds(wanted, record, now) for name, wanted in self._asked.items())

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None:
        for name, test in _TESTS.items():
            parser.add_argument(f"--{name}", metavar=test.metavar, type=test.type, help=test.help)


# ---- what is there


def picked(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[Found]:
    """What is asked for, queue by queue, in the order in which it died."""
    for queue in queues:
        with asking(queue):
            now = queue.now()
            yield from ((queue, record) for record in _records(queue) if asked.picks(record, now))


def chunks(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[tuple[BaseQueue, list[str]]]:
    """The ids of what is asked for, some hundreds of one queue at a time."""
    for queue in queues:
        ids = (record.entry.id for _, record in picked([queue], asked))
        while chunk := list(islice(ids, CHUNK)):
            yield queue, chunk


def _records(queue: BaseQueue) -> Iterator[Record]:
    """All that is in the error queue when this begins, page by page; a delayed one is there by somebody's hand."""
    for state in (READY, DELAYED):
        yield from queue.failed.walk(state, len(queue.failed))  # bounded, as what is retried meanwhile may die again


def died(record: Record) -> float:
    """When it came into the error queue (epoch seconds, the store's clock); 0 if nobody knows."""
    # Of one that somebody holds there, or has delayed, the record says when that is over.
    at = record.at if record.state == READY else _last(record.entry).get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def last(entry: Entry, key: str) -> str:
    """What the last record of its note says about something; "" if nothing."""
    return str(_last(entry).get(key) or "")


def _last(entry: Entry) -> dict:
    told = errors_of(entry.errors)
    return told[-1] if told else {}


# ---- how it is told


def row(queue: BaseQueue, record: Record) -> list[str]:
    """The cells below :data:`HEAD`."""
    entry, reason = record.entry, cut(last(record.entry, "reason") or NONE, REASON)
    names = [printable(name) for name in (entry.id, queue.alias, entry.command or NONE)]
    return [*names, moment(died(record)), str(entry.attempts), reason]


def brief(queue: BaseQueue, record: Record) -> dict:
    """A line of the list, for JSON."""
    return _told(queue, record) | {name: last(record.entry, name) or None for name in ("exception", "reason")}


def full(queue: BaseQueue, record: Record, with_body: bool = False) -> dict:
    """All that is known of it, for JSON. The body is encoded arguments, in base64."""
    body = {"body": b64encode(record.entry.body).decode()} if with_body else {}
    return _told(queue, record) | {"notes": errors_of(record.entry.errors)} | body


def _told(queue: BaseQueue, record: Record) -> dict:
    entry = record.entry
    counts = {name: getattr(entry, name) for name in ("priority", "attempts", "failures", "lost", "created")}
    names = {"id": entry.id, "queue": queue.alias, "command": entry.command}
    return {**names, **counts, "died": died(record), "bytes": len(entry.body)}


def page(queue: BaseQueue, record: Record) -> str:
    """All that is known of it, for people."""
    entry = record.entry
    lines = [
        f"id        {entry.id}",
        f"queue     {queue.alias}",
        f"command   {entry.command or NONE}",
        f"priority  {entry.priority}",
        f"created   {moment(entry.created)}",
        f"died      {moment(died(record))}",
        f"starts    {entry.attempts} (failed: {entry.failures}, lost: {entry.lost})",
        f"size      {len(entry.body)} bytes",
    ]
    return printable("\n".join([*lines, *map(_note, errors_of(entry.errors))]))


def _note(note: dict) -> str:
    at, where = moment(note.get("at")), note.get("consumer") or note.get("host") or NONE
    head = f"{at}  start {note.get('attempt', NONE)} on {where}: {note.get('reason') or NONE}"
    return f"\n{head}\n{note.get('traceback') or ''}".rstrip()
