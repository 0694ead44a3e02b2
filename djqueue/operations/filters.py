"""Which messages an operator asks for: one filter over all states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from djqueue.backends.base import Record
from djqueue.operations.messages import about, last_error
from djqueue.running.ends import failed_at
from djqueue.words import format_span, parse_span, short_lane

ENQUEUED, FAILED = "was enqueued", "failed"
"""The moments from which an age may count, as help says them."""


@lru_cache(maxsize=4096)  # one pattern is asked about few names, many times
def is_named(name: str, wanted: str) -> bool:
    """Whether a dotted name, or its last part, matches a pattern; case is ignored, and * is any text."""
    name, wanted = name.casefold(), wanted.casefold()
    return bool(name) and (fnmatchcase(name, wanted) or fnmatchcase(name.rpartition(".")[2], wanted))


def parse_text(text: str) -> str:
    """A text that an operator searches for. Raises ValueError for an empty one."""
    if not text.strip():  # as from a shell variable that is not set: an empty text is in every reason
        raise ValueError("It is empty.")
    return text


class Condition(NamedTuple):
    """One condition of a filter, as an operator gives it."""

    metavar: str
    parse: Callable[[str], Any]
    """Reads the value. Raises ValueError for a wrong one."""
    help: str
    """``{}`` stands for the moment from which an age counts."""


CONDITIONS = {
    "command": Condition(
        "NAME",
        parse_text,
        "only of this command: its name, dotted or bare, in whatever case; * stands for any text, ? for a character",
    ),
    "exception": Condition(
        "CLASS", parse_text, "only what failed last with this exception: its very class, named in the same way"
    ),
    "reason": Condition(
        "TEXT", parse_text, "only with this text in the reason or in the description, in whatever case"
    ),
    "lane": Condition(
        "NAME", parse_text, "only in this lane, named as list shows it or in full; * stands for any text"
    ),
    "older": Condition("AGE", parse_span, "only what {} longer ago than 90s, 30m, 12h, 7d or 4w"),
    "newer": Condition("AGE", parse_span, "only what {} since"),
}


class Filter:
    """Which messages an operator asks for: all given conditions must hold. False if none was given.

    ``moment`` says from when the age of a message counts.
    """

    def __init__(self, given: Mapping[str, Any], moment: str = ENQUEUED):
        self._asked = {name: given[name] for name in CONDITIONS if given.get(name) not in (None, "")}
        self._moment = moment

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __str__(self) -> str:
        return ", ".join(
            f"--{name} {format_span(wanted) if CONDITIONS[name].parse is parse_span else repr(wanted)}"
            for name, wanted in self._asked.items()
        )

    @property
    def lane(self) -> str:
        """The lane as it was given; "" for any."""
        return str(self._asked.get("lane", ""))

    def picks(self, record: Record, now: float) -> bool:
        """Whether a message is selected; ``now`` by its queue's clock."""
        asked, entry = self._asked, record.entry
        return (
            ("command" not in asked or is_named(entry.command, asked["command"]))
            and ("lane" not in asked or _is_lane(entry.lane, asked["lane"]))
            and ("exception" not in asked or is_named(last_error(entry, "exception"), asked["exception"]))
            and ("reason" not in asked or asked["reason"].casefold() in about(entry).casefold())
            and self._is_of_age(record, now)
        )

    def _is_of_age(self, record: Record, now: float) -> bool:
        if not {"older", "newer"} & self._asked.keys():
            return True
        older, newer = self._asked.get("older"), self._asked.get("newer")
        at = failed_at(record) if self._moment == FAILED else record.entry.created
        return (older is None or 0 < at < now - older) and (newer is None or at >= now - newer)


def _is_lane(name: str, wanted: str) -> bool:
    return fnmatchcase(name, wanted) or fnmatchcase(short_lane(name), wanted)


ANY = Filter({})
