"""What the operators' commands share: the queues they are asked about, and text that people can read."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import InvalidQueueError
from djqueue.wiring import queues

NONE = "-"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}


def chosen(aliases: Iterable[str] | None) -> list[BaseQueue]:
    """The queues of these aliases, or all queues. Raises CommandError for one that cannot be made."""
    try:
        return [queues[alias] for alias in dict.fromkeys(aliases or queues)]
    except InvalidQueueError as error:
        raise CommandError(str(error), returncode=2) from error


def able(queues: list[BaseQueue], feature: str, refusal: str, asked_for: bool) -> tuple[list[BaseQueue], str]:
    """The queues that have a feature, and the names of the others.

    Raises CommandError, the ``refusal`` with these names, if one that was asked for lacks it, or all do.
    """
    found = [queue for queue in queues if feature in queue.features]
    others = ", ".join(f"{one.alias!r} ({type(one.unthrottled).__name__})" for one in queues if one not in found)
    if others and (asked_for or not found):
        raise CommandError(refusal.format(others))
    return found, others


@contextmanager
def asking(queue: BaseQueue) -> Iterator[None]:
    """A block that asks a queue. Raises CommandError for errors of its client, with the findings of its checks."""
    try:
        yield
    except Exception as error:
        lines = [f"Queue {queue.alias!r} ({queue.describe()}) cannot be asked: {error}"]
        with suppress(Exception):  # the checks ask the store too, and may fail like it
            lines += [f"{message.msg} {message.hint or ''}".rstrip() for message in queue.check()]
        raise CommandError("\n".join(lines)) from error


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Columns as wide as they must be; those named in ``right`` are aligned to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = "  ".join(f"{{:{'>' if name in right else ''}{width}}}" for name, width in zip(head, widths, strict=True))
    return "\n".join(form.format(*line).rstrip() for line in lines)


def count(number: int | None, capped: int | None) -> str:
    """A count, "100000+" where counting stopped, "-" where it is not known."""
    if number is None:
        return NONE
    return f"{number}+" if capped is not None and number >= capped else str(number)


def duration(seconds: float | None) -> str:
    """Two units at most: "3 min 20 s"."""
    if seconds is None:
        return NONE
    left, parts = int(seconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def span(text: str) -> float:
    """The seconds of a duration such as 90s, 30m, 12h, 7d or 4w."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no age: give a whole number with its unit, as in 90s, 30m, 12h, 7d, 4w.")
    return float(match[1]) * _SPANS[match[2]]


def limit(text: str) -> int:
    """How many an operator wants to see."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is no limit: give a whole number from 1.")
    return number


def moment(epoch: Any) -> str:
    """A time in Django's time zone, to the second; "-" for what is none."""
    try:
        return timezone.localtime(datetime.fromtimestamp(epoch, UTC)).isoformat(" ", "seconds") if epoch else NONE
    except (TypeError, ValueError, OverflowError, OSError):
        return NONE


def cut(text: str, length: int) -> str:
    """One line of at most ``length`` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def printable(text: str) -> str:
    """A text without control characters for a terminal: an exception may quote text from a stranger."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
