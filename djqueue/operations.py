"""The failed queues for operators: which messages are there, which are selected, and how they are shown."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, READY, Entry, Record
from djqueue.management.tables import NONE, asking, cut, duration, moment, printable, span
from djqueue.messages.failures import errors_of

HEAD = ("id", "queue", "command", "failed", "attempts", "reason")
CHUNK = 500
REASON = 80  # characters of a reason in a table

Found = tuple[BaseQueue, Record]


def failed_queue(queue: BaseQueue) -> BaseQueue:
    """The failed queue of a queue that is not a failed queue itself."""
    assert queue.failed is not None
    return queue.failed


# ---- Which messages are selected


def _text(text: str) -> str:
    if not text.strip():  # as from a shell variable that is not set: an empty text is in every reason
        raise ArgumentTypeError("It is empty.")
    return text


def _is_named(name: str, wanted: str) -> bool:
    name, wanted = name.casefold(), wanted.casefold()
    return bool(name) and (fnmatchcase(name, wanted) or fnmatchcase(name.rpartition(".")[2], wanted))


_FILTERS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "command": (
        "NAME",
        _text,
        "only of this command: its name, dotted or bare, in whatever case; * stands for any text, ? for a character",
    ),
    "exception": ("CLASS", _text, "only what failed with this exception: its very class, named in the same way"),
    "reason": ("TEXT", _text, "only with this text in the reason, in whatever case"),
    "older": ("AGE", span, "only what failed longer ago than 90s, 30m, 12h, 7d or 4w"),
    "newer": ("AGE", span, "only what failed since"),
}
"""The arguments of a filter, as argparse knows them: metavar, type and help."""


class Filter:
    """Which messages an operator asks for: all conditions that were given must hold. False if none was given."""

    def __init__(self, options: Mapping[str, Any]):
        self._asked = {name: options[name] for name in _FILTERS if options.get(name) not in (None, "")}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __str__(self) -> str:
        return ", ".join(
            f"--{name} {duration(wanted) if _FILTERS[name][1] is span else repr(wanted)}"
            for name, wanted in self._asked.items()
        )

    def picks(self, record: Record, now: float) -> bool:
        """Whether a message is selected; ``now`` by its queue's clock."""
        asked, entry = self._asked, record.entry
        return (
            ("command" not in asked or _is_named(entry.command, asked["command"]))
            and ("exception" not in asked or _is_named(last(entry, "exception"), asked["exception"]))
            and ("reason" not in asked or asked["reason"].casefold() in last(entry, "reason").casefold())
            and ("older" not in asked or 0 < failed_at(record) < now - asked["older"])
            and ("newer" not in asked or failed_at(record) >= now - asked["newer"])
        )

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None:
        for name, (metavar, type, help) in _FILTERS.items():
            parser.add_argument(f"--{name}", metavar=metavar, type=type, help=help)


# ---- What is there


def picked(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[Found]:
    """The selected messages, queue by queue, in the order in which they failed."""
    for queue in queues:
        with asking(queue):
            now = queue.now()
            yield from ((queue, record) for record in _records(queue) if asked.picks(record, now))


def chunks(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[tuple[BaseQueue, list[str]]]:
    """The ids of the selected messages, some hundreds of one queue at a time."""
    for queue in queues:
        ids = (record.entry.id for _, record in picked([queue], asked))
        while chunk := list(islice(ids, CHUNK)):
            yield queue, chunk


def _records(queue: BaseQueue) -> Iterator[Record]:
    """All messages of the failed queue when this begins, page by page; a delayed one was put off by hand."""
    errors = failed_queue(queue)
    for state in (READY, DELAYED):
        yield from errors.walk(state, len(errors))  # bounded, as messages that are retried meanwhile may fail again


def failed_at(record: Record) -> float:
    """When a message came into the failed queue (epoch seconds, the store's clock); 0 if that is not known."""
    # For a leased or delayed message, the record has the end of the lease or delay instead.
    at = record.at if record.state == READY else _last(record.entry).get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def last(entry: Entry, key: str) -> str:
    """A value of the last error that an entry carries; "" if there is none."""
    return str(_last(entry).get(key) or "")


def _last(entry: Entry) -> dict:
    errors = errors_of(entry.errors)
    return errors[-1] if errors else {}


# ---- How they are shown


def row(queue: BaseQueue, record: Record) -> list[str]:
    """The cells below :data:`HEAD`."""
    entry, reason = record.entry, cut(last(record.entry, "reason") or NONE, REASON)
    names = [printable(name) for name in (entry.id, queue.alias, entry.command or NONE)]
    return [*names, moment(failed_at(record)), str(entry.attempts), reason]


def brief(queue: BaseQueue, record: Record) -> dict:
    """A line of the list, for JSON."""
    return _known(queue, record) | {name: last(record.entry, name) or None for name in ("exception", "reason")}


def full(queue: BaseQueue, record: Record, with_body: bool = False) -> dict:
    """All that is known of a message, for JSON. The body is encoded arguments, in base64."""
    body = {"body": b64encode(record.entry.body).decode()} if with_body else {}
    return _known(queue, record) | {"errors": errors_of(record.entry.errors)} | body


def _known(queue: BaseQueue, record: Record) -> dict:
    names = ("id", "command", "priority", "attempts", "failures", "lost", "created")
    known = {name: getattr(record.entry, name) for name in names}
    return {"queue": queue.alias, **known, "failed_at": failed_at(record), "bytes": len(record.entry.body)}


def page(queue: BaseQueue, record: Record) -> str:
    """All that is known of a message, as text."""
    entry = record.entry
    lines = [
        f"id        {entry.id}",
        f"queue     {queue.alias}",
        f"command   {entry.command or NONE}",
        f"priority  {entry.priority}",
        f"created   {moment(entry.created)}",
        f"failed    {moment(failed_at(record))}",
        f"attempts  {entry.attempts} (failed: {entry.failures}, lost: {entry.lost})",
        f"size      {len(entry.body)} bytes",
    ]
    return printable("\n".join([*lines, *map(_error, errors_of(entry.errors))]))


def _error(error: dict) -> str:
    at, where = moment(error.get("at")), error.get("consumer") or error.get("host") or NONE
    head = f"{at}  attempt {error.get('attempt', NONE)} on {where}: {error.get('reason') or NONE}"
    return f"\n{head}\n{error.get('traceback') or ''}".rstrip()
