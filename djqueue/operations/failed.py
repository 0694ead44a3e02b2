"""The failed queues for operators: which messages are there, which are selected, and how they are shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import islice
from math import inf
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, READY, Entry, Record
from djqueue.exceptions import InvalidMessage, UnknownCommand
from djqueue.messages.failures import errors_of, kind_of, text_of
from djqueue.operations.queues import asking
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.running.describing import arguments_of
from djqueue.words import NONE, SHORT_ID, format_span, parse_span

CHUNK = 500
LEAST_PART = 4
"""Characters of an id that stand for it, of its beginning, its end, or the short form, if they fit no other."""
AN_ID = f"its id, or {LEAST_PART} or more characters of it: the first, the last, or the first of those that are listed"

Found = tuple[BaseQueue, Record]


def failed_queue(queue: BaseQueue) -> BaseQueue:
    """The failed queue of a queue that is not a failed queue itself."""
    assert queue.failed is not None
    return queue.failed


# ---- Which messages are selected


def wanted_text(text: str) -> str:
    """A text that an operator looks for. Raises ValueError for an empty one."""
    if not text.strip():  # as from a shell variable that is not set: an empty text is in every reason
        raise ValueError("It is empty.")
    return text


def is_named(name: str, wanted: str) -> bool:
    """Whether a dotted name, or the last part of it, is what is asked for; in whatever case, * is any text."""
    name, wanted = name.casefold(), wanted.casefold()
    return bool(name) and (fnmatchcase(name, wanted) or fnmatchcase(name.rpartition(".")[2], wanted))


Arguments = dict[str, tuple[str, Callable[[str], Any], str]]
"""The arguments of a filter by their names: what stands for the value, what reads it (or raises ValueError), help."""
ARGUMENTS: Arguments = {
    "command": (
        "NAME",
        wanted_text,
        "only of this command: its name, dotted or bare, in whatever case; * stands for any text, ? for a character",
    ),
    "exception": ("CLASS", wanted_text, "only what failed with this exception: its very class, named in the same way"),
    "reason": ("TEXT", wanted_text, "only with this text in the reason or in the description, in whatever case"),
    "older": ("AGE", parse_span, "only what failed longer ago than 90s, 30m, 12h, 7d or 4w"),
    "newer": ("AGE", parse_span, "only what failed since"),
}


class Filter:
    """Which messages an operator asks for: all conditions that were given must hold. False if none was given."""

    arguments: Arguments = ARGUMENTS

    def __init__(self, options: Mapping[str, Any]):
        self._asked = {name: options[name] for name in self.arguments if options.get(name) not in (None, "")}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __str__(self) -> str:
        return ", ".join(
            f"--{name} {format_span(wanted) if self.arguments[name][1] is parse_span else repr(wanted)}"
            for name, wanted in self._asked.items()
        )

    def picks(self, record: Record, now: float) -> bool:
        """Whether a message is selected; ``now`` by its queue's clock."""
        asked, entry, at = self._asked, record.entry, self._moment(record)
        return (
            ("command" not in asked or is_named(entry.command, asked["command"]))
            and ("exception" not in asked or is_named(last(entry, "exception"), asked["exception"]))
            and ("reason" not in asked or asked["reason"].casefold() in about(entry).casefold())
            and ("older" not in asked or 0 < at < now - asked["older"])
            and ("newer" not in asked or at >= now - asked["newer"])
        )

    def _moment(self, record: Record) -> float:
        """The moment from which the age of a message counts."""
        return failed_at(record)


# ---- What is there


def picked(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[Found]:
    """The selected messages, queue by queue, in the order in which they failed."""
    for queue in queues:
        with asking(queue):
            now = queue.now()
            yield from ((queue, record) for record in records(queue) if asked.picks(record, now))


def chunks(queues: Iterable[BaseQueue], asked: Filter) -> Iterator[tuple[BaseQueue, list[str]]]:
    """The ids of the selected messages, some hundreds of one queue at a time."""
    for queue in queues:
        ids = (record.entry.id for _, record in picked([queue], asked))
        while chunk := list(islice(ids, CHUNK)):
            yield queue, chunk


def found_by(queues: Iterable[BaseQueue], parts: Iterable[str]) -> dict[str, list[Found]]:
    """The messages for whose ids each of these texts stands; none for a text of less than four characters."""
    found: dict[str, list[Found]] = {part: [] for part in parts}
    asked = tuple(part for part in found if len(part) >= LEAST_PART)
    for one in picked(queues, Filter({})) if asked else ():
        for part in asked:
            if is_part(part, one[1].entry.id):
                found[part].append(one)
    return found


def is_part(part: str, id: str) -> bool:
    """Whether a text stands for an id: for its beginning, its end, or the beginning of the end that is listed."""
    is_long_enough = len(part) >= LEAST_PART
    return is_long_enough and (id.startswith(part) or id.endswith(part) or id[-SHORT_ID:].startswith(part))


def records(queue: BaseQueue, most: float = inf) -> Iterator[Record]:
    """The messages of the failed queue, page by page; a delayed one was put off by hand.

    At most ``most`` of each state, or as many as there are when this begins: what is retried meanwhile may fail again.
    """
    errors = failed_queue(queue)
    most = len(errors) if most == inf else most
    for state in (READY, DELAYED):
        yield from errors.walk(state, most)


def first_and_last(queue: BaseQueue, most: int) -> tuple[list[Record], bool]:
    """Messages of the failed queue, and whether these are all; else they are the half of ``most`` that failed first,
    and the half that failed last."""
    errors, half = failed_queue(queue), most // 2
    first, delayed = [*errors.walk(READY, half)], [*errors.walk(DELAYED, half)]
    last = errors.newest(half + 1) if len(first) == half else []
    ids = {record.entry.id for record in first}
    are_all = len(delayed) < half and (len(last) <= half or last[half].entry.id in ids)
    found = {record.entry.id: record for record in [*first, *last[:half], *delayed]}
    return [*found.values()], are_all


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


def about(entry: Entry) -> str:
    """What a message was about, if its command described it, and why it failed."""
    return " · ".join(filter(None, [description(entry), last(entry, "reason")])) or NONE


def description(entry: Entry) -> str:
    """What the command's ``describe`` said of the call at the last attempt that got so far; "" for nothing."""
    said = (str(error.get("description") or "") for error in reversed(errors_of(entry.errors)))
    return next(filter(None, said), "")


def brief(queue: BaseQueue, record: Record) -> dict:
    """A line of the list, for JSON."""
    reasons = {name: last(record.entry, name) or None for name in ("exception", "reason")}
    return _known(queue, record) | reasons | {"description": description(record.entry) or None}


def full(queue: BaseQueue, record: Record, with_body: bool = False) -> dict:
    """All that is known of a message, for JSON. The body is encoded arguments, in base64."""
    body = {"body": b64encode(record.entry.body).decode()} if with_body else {}
    return _known(queue, record) | {"errors": errors_of(record.entry.errors)} | body


def _known(queue: BaseQueue, record: Record) -> dict:
    names = ("id", "command", "priority", "attempts", "failures", "lost", "created")
    known = {name: getattr(record.entry, name) for name in names}
    return {"queue": queue.alias, **known, "failed_at": failed_at(record), "bytes": len(record.entry.body)}


def call_of(queue: BaseQueue, record: Record) -> tuple[str, str]:
    """The call of a message as code, or "" and why it cannot be shown. What is not signed is never decoded."""
    try:
        envelope = open_entry(queue, record.entry)
        command = registry.find(envelope.command)
        args, kwargs = envelope.arguments()  # reads model instances
    except InvalidMessage as error:
        return "", str(error)
    except UnknownCommand as error:
        return "", f"it is not known which of its arguments are sensitive: {error}"
    except Exception as error:
        return "", f"{kind_of(error)}: {text_of(error)}"
    return arguments_of(command, args, kwargs), ""


# ---- How they are counted


@dataclass(slots=True)
class Group:
    """Failed messages of one command that failed with one exception."""

    command: str
    exception: str
    """Its dotted name; for what never raised, the beginning of the reason."""
    raised: bool
    count: int = 0
    first: float = inf
    """When the first of them failed (epoch seconds)."""
    last: float = 0.0
    id: str = ""
    """The id of the last."""
    reason: str = ""
    """Why the last failed."""


def grouped(found: Iterable[Found]) -> list[Group]:
    """The messages by command and exception, the most frequent first."""
    groups: dict[tuple[str, str], Group] = {}
    for _, record in found:
        entry = record.entry
        raised, reason = last(entry, "exception"), last(entry, "reason")
        key = entry.command, raised or reason.partition(":")[0] or NONE
        group = groups.setdefault(key, Group(*key, raised=bool(raised)))
        at = failed_at(record)
        group.count, group.first = group.count + 1, min(group.first, at)
        if at >= group.last:
            group.last, group.id, group.reason = at, entry.id, reason
    return sorted(groups.values(), key=lambda group: (-group.count, -group.last))


def group_object(group: Group) -> dict:
    """A group, for JSON."""
    known = asdict(group)
    return known | {"exception": group.exception if known.pop("raised") else None, "reason": group.reason or None}
