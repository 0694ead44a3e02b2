"""What the operators' commands share: the queues they are asked about, and text that people can read."""

from __future__ import annotations

import os
import re
import shutil
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO, TypeVar

from django.core.management.base import CommandError
from django.utils import timezone

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import InvalidQueueError, QueueError, StoreError
from djqueue.logs import lasted
from djqueue.running.pauses import Pause
from djqueue.wiring import queues

T = TypeVar("T")
NONE = "-"
RECENT = timedelta(days=300)
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
    except CommandError:  # of the block itself
        raise
    except StoreError as error:  # which has looked at its store itself
        raise CommandError(str(error.of_queue(queue.alias))) from error
    except Exception as error:
        lines = [f"Queue {queue.alias!r} ({queue.describe()}) cannot be asked: {error}"]
        with suppress(Exception):  # the checks ask the store too, and may fail like it
            lines += [f"{message.msg} {message.hint or ''}".rstrip() for message in queue.check()]
        raise CommandError("\n".join(lines)) from error


@contextmanager
def told() -> Iterator[None]:
    """A block that asks the stores of several queues. Raises CommandError for what is wrong, in one line."""
    try:
        yield
    except CommandError:
        raise
    except QueueError as error:
        raise CommandError(str(error), returncode=2 if isinstance(error, InvalidQueueError) else 1) from error
    except Exception as error:
        raise CommandError(f"A store cannot be asked: {error}") from error


def of_each(queues: Iterable[BaseQueue], look: Callable[[BaseQueue], Iterable[T]]) -> tuple[list[T], list[str]]:
    """What a look at each queue finds, and what is wrong with those that cannot be asked, each text once."""
    found: list[T] = []
    failures: dict[str, None] = {}  # queues of one store fail alike
    for queue in queues:
        try:
            with asking(queue):
                found += look(queue)
        except CommandError as error:
            failures |= dict.fromkeys(str(error).splitlines())
    return found, list(failures)


class Cell(str):
    """A cell that stands out: its text, in the colour of a role of Django's palette."""

    role = ""

    @classmethod
    def of(cls, text: str, role: str) -> Cell:
        cell = cls(text)
        cell.role = role
        return cell


Paint = Callable[[str, str], str]
"""Colours a text by the name of a role of Django's palette."""
_LEAST = 8
"""Characters that a column which is cut keeps."""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    *,
    without: Collection[str] = (),
    cuts: Mapping[str, Callable[[str, int], str]] | None = None,
    spared: str = "",
    width: int | None = None,
    paint: Paint = lambda text, role: text,
) -> str:
    """Columns as wide as they must be; those in ``right`` are aligned to the right, those in ``without`` left out.

    If that is wider than ``width`` characters, the columns in ``cuts`` are made narrower, the widest first and the
    ``spared`` one last, each by its own function of a text and a length.
    """
    shown = [index for index, name in enumerate(head) if name not in without]
    lines = [[line[index] for index in shown] for line in ([Cell.of(name, "MIGRATE_LABEL") for name in head], *rows)]
    widths = {str(column[0]): max(map(len, column)) for column in zip(*lines, strict=True)}
    while width is not None and sum(widths.values()) + 2 * (len(widths) - 1) > width:
        wide = [name for name in cuts or () if widths.get(name, 0) > _LEAST]
        if not wide:
            break
        widths[max(wide, key=lambda name: (name != spared, widths[name]))] -= 1
    return "\n".join(_line(line, widths, right, cuts or {}, paint) for line in lines)


def _line(
    cells: Sequence[str],
    widths: Mapping[str, int],
    right: Collection[str],
    cuts: Mapping[str, Callable[[str, int], str]],
    paint: Paint,
) -> str:
    shown = []
    for cell, (name, width) in zip(cells, widths.items(), strict=True):
        text = cuts[name](cell, width) if len(cell) > width else str(cell)
        blank = " " * (width - len(text))
        painted = paint(text, getattr(cell, "role", ""))
        shown.append(blank + painted if name in right else painted + blank)
    return "  ".join(shown).rstrip()


def shown_parts(parts: Mapping[str, str], paint: Paint) -> str:
    """What is known of one thing: a line for each title that has a text, with the texts below each other."""
    shown = {title: text for title, text in parts.items() if text}
    width = max(10, *(len(title) + 2 for title in shown))
    return "\n".join(paint(title.ljust(width), "MIGRATE_LABEL") + printable(text) for title, text in shown.items())


def width_of(out: TextIO) -> int | None:
    """The columns of the terminal that is written to; None for a file or a pipe, where nothing needs to be cut."""
    return shutil.get_terminal_size().columns if out.isatty() or os.environ.get("COLUMNS") else None


def number(value: int) -> str:
    """A whole number with its thousands separated."""
    return f"{value:,}"


def count(value: int | None, capped: int | None) -> str:
    """A count, "100,000+" where counting stopped, "-" where it is not known."""
    if value is None:
        return NONE
    return f"{number(value)}+" if capped is not None and value >= capped else number(value)


def duration(seconds: float | None) -> str:
    """As the log writes it, in whole seconds: 59 s, 3m 20s, 1h 05m."""
    if seconds is None:
        return NONE
    return lasted(int(seconds)) if seconds >= 60 else f"{int(seconds)} s"


def class_of(seconds: float) -> str:
    """A duration as the log writes it; of one that is known only by its class the bounds: 10–30 s, 1h 00m and more."""
    low = getattr(seconds, "low", None)
    if low is None:
        return lasted(seconds)
    if low == seconds:
        return f"{lasted(low)} and more"
    first, last = lasted(low) if low else "0", lasted(seconds)
    unit = last.rpartition(" ")[2]
    return f"{first.removesuffix(f' {unit}') if unit in ('s', 'ms') else first}–{last}"


def age(seconds: float) -> str:
    """As ``span`` reads it, in the largest unit of which it is a multiple: 90s, 12h, 4w."""
    unit = next(unit for unit, size in reversed(_SPANS.items()) if not seconds % size)
    return f"{int(seconds) // _SPANS[unit]}{unit}"


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
    """A time in Django's time zone: ``14:03:07`` today, ``Nov 21 14:03`` lately, else the date; "-" for none."""
    local, now = _local(epoch), _local(time.time())
    if local is None or now is None:
        return NONE
    if local.date() == now.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%b %d %H:%M}" if abs(now - local) < RECENT else f"{local:%Y-%m-%d}"


def full_moment(epoch: Any) -> str:
    """A time in Django's time zone, with the date and to the second; "-" for none."""
    local = _local(epoch)
    return NONE if local is None else f"{local:%Y-%m-%d %H:%M:%S}"


def time_of_day() -> str:
    """Now, in Django's time zone."""
    return f"{_local(time.time()):%H:%M:%S}"


def _local(epoch: Any) -> datetime | None:
    try:
        return timezone.localtime(datetime.fromtimestamp(epoch, UTC)) if epoch else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def cut(text: str, length: int) -> str:
    """One line of at most ``length`` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def cut_start(text: str, length: int) -> str:
    """The end of a name, at most ``length`` characters: names of one project begin alike."""
    return text if len(text) <= length else f"…{text[1 - length :]}"


def cut_middle(text: str, length: int) -> str:
    """The beginning and the end of a text, ``length`` characters at most."""
    if len(text) <= length:
        return text
    end = length // 2
    return f"{text[: length - end - 1]}…{text[len(text) - end :]}"


def printable(text: str) -> str:
    """A text without control characters for a terminal: an exception may quote text from a stranger."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def paused(pause: Pause | None) -> str:
    """The cell that says since when and by whom something is paused, and why; "-" if it is not."""
    if pause is None:
        return NONE
    why = f": {pause.why}" if pause.why else ""
    return Cell.of(printable(f"since {moment(pause.since)} by {pause.by}{why}"), "WARNING")
