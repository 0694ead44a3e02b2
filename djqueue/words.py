"""How any front end shows values to people and reads them back: durations, moments, numbers, names, ids, texts.

It loads Django only to show a moment in its time zone.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

NONE = "-"
"""What is shown for a value that is unknown or missing."""

# ---- Durations

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}


class Bucket(float):
    """A duration that is known only by its bounds: the upper one in seconds, and the lower one as ``low``."""

    low: float

    @classmethod
    def between(cls, low: float, high: float) -> Bucket:
        """A bucket by its bounds; ``high`` is ``low`` where there is no upper bound."""
        bucket = cls(high)
        bucket.low = low
        return bucket

    def __str__(self) -> str:
        """As people read it: 10–30 s, 1h 00m and more."""
        high = float(self)
        if self.low == high:
            return f"{duration(high)} and more"
        first, last = duration(self.low) if self.low else "0", duration(high)
        unit = last.rpartition(" ")[2]
        return f"{first.removesuffix(f' {unit}') if unit in ('s', 'ms') else first}–{last}"


def duration(seconds: float | None) -> str:
    """A duration in at most seven characters: <0.1 ms, 0.3 ms, 33 ms, 1.2 s, 6 s, 3m 20s, 1h 05m, 12d 3h; "-" for None.

    For a duration known only by its bounds: 10–30 s.
    """
    if seconds is None:
        return NONE
    if isinstance(seconds, Bucket):
        return str(seconds)
    if seconds < 0.9995:
        number = f"{seconds * 1e3:.1f}" if seconds < 0.00995 else f"{seconds * 1e3:.0f}"
        return f"{'<0.1' if number == '0.0' else number} ms"
    if seconds < 59.95 or seconds == inf:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {left:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours < 100 else f"{hours // 24}d {hours % 24}h"


def age(seconds: float | None) -> str:
    """A duration that was measured by two clocks, so in whole seconds: 0 s, 59 s, 3m 20s; "-" for None."""
    if seconds is None:
        return NONE
    return duration(int(seconds)) if seconds >= 1 else "0 s"


def parse_span(text: str) -> float:
    """The seconds of a span of time such as 90s, 30m, 12h, 7d or 4w. Raises ValueError for another text."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} is no age: give a whole number with its unit, as in 90s, 30m, 12h, 7d, 4w.")
    return float(match[1]) * _UNITS[match[2]]


def format_span(seconds: float) -> str:
    """A span as :func:`parse_span` reads it, in the largest unit that divides it: 90s, 12h, 4w."""
    unit = next(unit for unit, size in reversed(_UNITS.items()) if not seconds % size)
    return f"{int(seconds) // _UNITS[unit]}{unit}"


# ---- Moments

RECENT = timedelta(days=300)
"""How far a moment may be from now to be shown without its year."""


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


def time_of_day(epoch: float | None = None) -> str:
    """The hour, minute and second of a time in Django's time zone, now by default."""
    local = _local(time.time() if epoch is None else epoch)
    return NONE if local is None else f"{local:%H:%M:%S}"


def iso_moment(epoch: Any) -> str | None:
    """A time in UTC as ISO 8601 writes it, for programs; None for none."""
    moment = _utc(epoch)
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _local(epoch: Any) -> datetime | None:
    from django.utils import timezone  # here, as probes use the other words without Django

    moment = _utc(epoch)
    try:
        return None if moment is None else timezone.localtime(moment)
    except (ValueError, OverflowError):  # a zone may move it beyond the possible years
        return None


def _utc(epoch: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(epoch, UTC) if epoch else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


# ---- Numbers


def number(value: int) -> str:
    """A whole number with its thousands separated."""
    return f"{value:,}"


def count(value: int | None, capped: int | None = None) -> str:
    """A count, "100,000+" where counting stopped, "-" where it is not known."""
    if value is None:
        return NONE
    return f"{number(value)}+" if capped is not None and value >= capped else number(value)


def rate(value: float | None) -> str:
    """A number of messages per second or minute: 0, 0.4, 12, 1,200; "-" where it is not known."""
    if value is None:
        return NONE
    return f"{value:.1f}" if 0 < value < 10 else number(round(value))


def attempt_of(number: int, most: int | None) -> str:
    """Which attempt it is: attempt 2 of 6; attempt 2 if it is not bounded, or beyond that, as one that was put back."""
    return f"attempt {number} of {most}" if most and number <= most else f"attempt {number}"


def counted(number: int, noun: str) -> str:
    """A number of things in words: 1 thread, 1,200 threads."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# ---- Names and ids

SHORT_ID = 8
"""Characters of an id that are shown, if they distinguish it: its end, as ids of one minute begin the same."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The last part of each dotted name, or all of it where two would be the same; other texts stay as they are."""
    last_parts = {name: _last_part(name) for name in names}
    same = Counter(last_parts.values())
    return {name: part if same[part] == 1 else name for name, part in last_parts.items()}


def _last_part(name: str) -> str:
    parts = name.split(".")
    return parts[-1] if all(part.isidentifier() for part in parts) else name


def short_ids(ids: Sequence[str], full: bool = False) -> dict[str, str]:
    """The end of each id that distinguishes it from the others."""
    length = SHORT_ID
    while not full and len({id[-length:] for id in ids}) < len(set(ids)):
        length += 1
    return {id: id if full else id[-length:] for id in ids}


def short_lane(name: str) -> str:
    """The name of a lane without the module of its command."""
    command, colon, key = name.partition(":")
    return command.rpartition(".")[2] + colon + key


# ---- Texts


def printable(text: str) -> str:
    """A text without control characters: an exception may quote untrusted text."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def cut(text: str, length: int) -> str:
    """One line of at most ``length`` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def cut_start(text: str, length: int) -> str:
    """The end of a name, at most ``length`` characters: names of one project have the same beginning."""
    return text if len(text) <= length else f"…{text[1 - length :]}"


def cut_middle(text: str, length: int) -> str:
    """The beginning and the end of a text, ``length`` characters at most."""
    if len(text) <= length:
        return text
    end = length // 2
    return f"{text[: length - end - 1]}…{text[len(text) - end :]}"
