"""Schedules: ``crontab()`` is a predicate on datetimes that also knows its next tick.

A schedule is five fields and a time zone. All five fields must match the local wall time; unlike in cron, ``day``
and ``day_of_week`` are no exception. A field is a number or a comma list of these pieces::

    *       every value                   a-b     the values from a to b, both included
    n       that value                    a-b/n   every n-th of them, beginning with a
    */n     every n-th value, beginning with the first legal one (month */6 is 1 and 7)

Weekdays 0 and 7 are Sunday, so 5-7 is Friday to Sunday. Weekdays and months may be named (``mon`` or ``monday``).

When the clocks change, one of two rules holds.

* A schedule is *fixed* when it names its hours and its minutes one by one or as plain ranges (``hour=2, minute=30``).
  Each of its wall times is one tick, every day: a time that the clocks skip ticks at the first moment after the gap
  (several skipped times, and that moment itself, are one tick), a time that comes twice ticks the first time.
* A schedule is *elapsed* when its hour or minute has a step, or admits every value (``minute="*/15"``,
  ``hour="*", minute=30``, ``hour="*/2", minute=30``, ``hour=5, minute="*/15"``). Its ticks keep their distance in
  real time: a time that comes twice ticks twice, and a time that the clocks skip ticks when the clock would show it,
  had it not been put forward (02:30 at 03:30, after a jump from 02:00 to 03:00). For most schedules that is a tick
  anyway; so an hourly schedule simply goes on, and a two-hourly one never waits for three hours.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Never, Self
from zoneinfo import ZoneInfo

from croniter import croniter
from django.utils import timezone

from djqueue.hints import hint
from djqueue.utils import seconds

__all__ = ["Crontab", "crontab"]

_MONTHS = "january february march april may june july august september october november december".split()
_WEEKDAYS = "sunday monday tuesday wednesday thursday friday saturday".split()
_PIECE = re.compile(r"(?:\*|([0-9]{1,4}|[a-z]{3,9})(?:-([0-9]{1,4}|[a-z]{3,9}))?)(?:/([0-9]{1,4}))?")


class _Field(NamedTuple):
    every: range
    numbers: range
    names: dict[str, int]
    legal: str


def _numbered(names: list[str], first: int) -> dict[str, int]:
    """Names, whole and by their first three letters, with their numbers."""
    return {text: number for number, name in enumerate(names, first) for text in (name, name[:3])}


_FIELDS = {
    "minute": _Field(range(60), range(60), {}, "0-59"),
    "hour": _Field(range(24), range(24), {}, "0-23"),
    "day": _Field(range(1, 32), range(1, 32), {}, "1-31"),
    "month": _Field(range(1, 13), range(1, 13), _numbered(_MONTHS, 1), "1-12 or jan-dec"),
    "day_of_week": _Field(range(7), range(8), _numbered(_WEEKDAYS, 0), "0-7 or sun-sat, 0 being Sunday"),
}  # in the order of a cron expression
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class _LeftOut(str):
    """A field that was not given."""


@dataclass(frozen=True, repr=False, init=False)
class Crontab:
    """A schedule of five fields, as in ``crontab(hour=3, minute=30)``; ``crontab`` is another name of this class.

    Fields are given by name, as each package has another order of them; the error for fields by position has the call
    with names to write.
    ``time_zone`` is an IANA name or a tzinfo; without one the schedule follows Django's default time zone, which is
    looked up at each use. A field that is left out admits every value: ``crontab(hour=3)`` is due sixty times, and
    ``manage.py check`` warns of it unless ``minute="*"`` is given. Immutable; two are equal when they were written
    alike.

    ValueError, which names the field, the piece and what is legal, for anything that is not understood, and for dates
    that no year has (31 February); TypeError for a field that there is not, or that is given by position.
    """

    month: str = "*"
    day: str = "*"
    day_of_week: str = "*"
    hour: str = "*"
    minute: str = "*"
    time_zone: tzinfo | None = field(default=None, hash=False)

    lacks_minute: ClassVar[bool] = False
    """Whether other fields were given and the minute was left out, so that each minute is due."""

    def __init__(
        self,
        *given: Never,
        month: str | int = "*",
        day: str | int = "*",
        day_of_week: str | int = "*",
        hour: str | int = "*",
        minute: str | int = _LeftOut("*"),
        time_zone: str | tzinfo | None = None,
        **unknown: Never,
    ):
        others = {"month": month, "day": day, "day_of_week": day_of_week, "hour": hour}
        if given:
            named = others | {"minute": minute, "time_zone": time_zone or "*"} | unknown
            raise TypeError(_order_hint(given, {name: value for name, value in named.items() if value != "*"}))
        if unknown:
            raise TypeError(_field_hint(*next(iter(unknown.items()))))
        for name, value in {**others, "minute": minute}.items():
            object.__setattr__(self, name, _text(name, value))
        object.__setattr__(self, "time_zone", _time_zone(time_zone))
        if isinstance(minute, _LeftOut) and any(value != "*" for value in others.values()):
            object.__setattr__(self, "lacks_minute", True)
        if not croniter.is_valid(self.expression, strict=True):
            raise ValueError(f"crontab month={self.month!r}, day={self.day!r}: no year has such a date")

    @classmethod
    def parse(cls, expression: str, time_zone: str | tzinfo | None = None) -> Self:
        """The schedule of a line as cron has it: ``crontab.parse("30 2 * * *")``, or ``"@daily"``.

        The five fields are minute, hour, day, month and day of the week; instead of them ``@hourly``, ``@daily``,
        ``@weekly``, ``@monthly`` or ``@yearly``. Raises TypeError for what is no text, and ValueError for what is not
        understood; also where both a day and a weekday are given, as cron runs at each of them, and a schedule here
        when both match.
        """
        if not isinstance(expression, str):
            raise TypeError(f"crontab.parse({expression!r}): give a text of five fields, as in '30 2 * * *'.")
        words = _NICKNAMES.get(expression.strip().lower(), expression).split()
        if len(words) != 5:
            raise ValueError(
                f"crontab.parse({expression!r}): give five fields, minute hour day month day_of_week, "
                f"or one of {', '.join(_NICKNAMES)}"
            )
        minute, hour, day, month, day_of_week = words
        if not day.startswith("*") and not day_of_week.startswith("*"):
            raise ValueError(
                f"crontab.parse({expression!r}): cron runs this on day {day} and on each {day_of_week} as well. Write "
                "two schedules, or crontab(day=..., day_of_week=...) for when both match"
            )
        return cls(month=month, day=day, day_of_week=day_of_week, hour=hour, minute=minute, time_zone=time_zone)

    def __call__(self, dt: datetime) -> bool:
        """Whether the minute of ``dt`` is a tick; seconds do not matter.

        For an aware ``dt`` the answer agrees with ``next``, through clock changes too. A naive one is read as local
        wall time of the schedule's zone, and only compared with the fields: it is true of a time that the clocks
        skip, and cannot distinguish the two passes of a time that comes twice. TypeError for anything but a datetime.
        """
        if not isinstance(dt, datetime):
            raise TypeError(f"a schedule is asked about a datetime, not {dt!r}")
        if dt.utcoffset() is None:
            return self._matches(dt)
        local = dt.astimezone(self._zone)
        minute = local.astimezone(UTC) - timedelta(seconds=local.second, microseconds=local.microsecond)
        return self.next(minute - timedelta.resolution) == minute

    def next(self, after: datetime) -> datetime | None:
        """Return the first tick strictly after the aware datetime ``after``, in UTC.

        None when none is left before the calendar ends, with the year 9999. ValueError for a naive ``after``,
        OverflowError for one in the first or last two days of the calendar.
        """
        if not isinstance(after, datetime) or after.utcoffset() is None:
            raise ValueError(f"next() needs an aware datetime, not {after!r}")
        zone = self._zone
        found: list[datetime] = []
        for wall in self._walls(after.astimezone(zone)):
            once, again = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
            if found and min(once, again) >= min(found):  # no later wall time can tick before this one
                break
            found += [tick for tick in self._ticks(once, again) if tick > after]
        return min(found, default=None)

    def __repr__(self) -> str:
        given = [
            f"{f.name}={_shown(getattr(self, f.name))}" for f in fields(self) if getattr(self, f.name) != f.default
        ]
        return f"crontab({', '.join(given)})"

    def __str__(self) -> str:
        """Its fields as cron has them; unlike cron, it is due when both a day and a weekday match."""
        return f"{self.line} (day and weekday)" if "*" not in (self.day[:1], self.day_of_week[:1]) else self.line

    @property
    def line(self) -> str:
        """Minute, hour, day, month and day of the week, as :meth:`parse` reads them."""
        return " ".join(getattr(self, name) for name in _FIELDS)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._given,)

    @property
    def _given(self) -> tuple[Any, ...]:
        """Its fields and its zone in the order of :func:`dataclasses.fields`."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def _zone(self) -> tzinfo:
        return self.time_zone or timezone.get_default_timezone()

    @cached_property
    def _values(self) -> dict[str, frozenset[int]]:
        return {name: _values(name, getattr(self, name)) for name in _FIELDS}

    @cached_property
    def _elapsed(self) -> bool:
        return any("/" in getattr(self, name) or _is_full(name, self._values[name]) for name in ("hour", "minute"))

    @property
    def expression(self) -> str:
        """The fields as plain lists, so that no notation of croniter's own ever reaches it."""
        lists = {name: ",".join(map(str, sorted(values))) for name, values in self._values.items()}
        return " ".join("*" if _is_full(name, self._values[name]) else lists[name] for name in _FIELDS)

    @cached_property
    def _croniter(self) -> croniter:
        return croniter(self.expression, datetime(2000, 1, 1), ret_type=datetime, day_or=False)

    def _matches(self, wall: datetime) -> bool:
        shown = (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
        return all(value in values for value, values in zip(shown, self._values.values(), strict=True))

    def _walls(self, local: datetime) -> Iterator[datetime]:
        """Naive wall times that match, in order, from as far back as a clock change near ``local`` reaches."""
        steps = copy(self._croniter)  # a croniter has a position, which threads must not share
        back = _reach(local, _reach(local, timedelta(days=1)))
        steps.set_current(local.replace(tzinfo=None, second=0, microsecond=0) - back)
        while True:
            try:
                yield steps.get_next()
            except (ValueError, OverflowError):  # past the year 9999
                return

    def _ticks(self, once: datetime, again: datetime) -> set[datetime]:
        """The ticks of a wall time, given its reading by the clock before a change, and by the one after it."""
        if once <= again:
            return {once, again} if self._elapsed else {once}
        return {once} if self._elapsed else {_end_of_gap(again, once, self._zone)}


def _remade(given: Iterable[Any]) -> Crontab:
    """The schedule with these fields and zone; pickles refer to this function."""
    return Crontab(**dict(zip([f.name for f in fields(Crontab)], given, strict=True)))


crontab = Crontab
"""The class as it is written in a decorator: ``@periodic_command(crontab(hour=0, minute=0))``."""


def _field_hint(name: str, value: object) -> str:
    places = ("number in a crontab", "crontab") if isinstance(value, int) else ("crontab",)
    said = hint(name, *places, value=value) or f"there are {', '.join(_FIELDS)} and time_zone"
    return f"crontab has no field {name!r}: {said}."


_ORDERS = {
    "djutils": ("month", "day", "day_of_week", "hour", "minute"),
    "Celery": ("minute", "hour", "day_of_week", "day", "month"),
    "huey": ("minute", "hour", "day", "month", "day_of_week"),
}
"""In which order other packages take the fields."""


def _order_hint(given: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Why fields are refused that were given by position, with the line to write for each order that makes sense."""
    first = given[0]
    if isinstance(first, str) and (len(first.split()) == 5 or first in _NICKNAMES):
        return f"crontab({first!r}): a line of cron is crontab.parse({first!r})."
    packages: dict[str, list[str]] = {}
    for package, order in _ORDERS.items():
        if line := _by_name(given, order, named):
            packages.setdefault(line, []).append(package)
    lines = [f"From {' and '.join(which)} it is {line}." for line, which in packages.items()]
    return (
        f"crontab({', '.join(map(repr, given))}): give the fields by name, as each package has another order of them. "
        f"{' '.join(lines) or 'Write them as in crontab(minute=5, hour=3).'}"
    )


def _by_name(given: tuple[Any, ...], order: tuple[str, ...], named: dict[str, Any]) -> str | None:
    """The call with names that a call by position meant; None if it makes no sense in this order."""
    values = dict(zip(order, given, strict=False))
    if len(given) > len(order) or values.keys() & named.keys():
        return None
    try:
        Crontab(**(values | named))
    except (TypeError, ValueError):
        return None
    both = values | named
    meant = {
        name: both.get(name, "*") for name in Crontab.__match_args__ if both.get(name, "*") != "*" or name == "minute"
    }
    return f"crontab({', '.join(f'{name}={value!r}' for name, value in meant.items())})"


def _reach(local: datetime, within: timedelta) -> timedelta:
    """By how much the clocks change within that time before or after a moment."""
    moments = (local.astimezone(UTC) + shift for shift in (-within, timedelta(0), within))
    offsets: list[Any] = [moment.astimezone(local.tzinfo).utcoffset() for moment in moments]
    return max(offsets) - min(offsets)


def _end_of_gap(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The moment of the one clock change between two times, to the second."""

    def changed(second: int) -> bool:
        return (before + timedelta(seconds=second)).astimezone(zone).utcoffset() == new

    new = after.astimezone(zone).utcoffset()
    span = int((after - before).total_seconds())
    return before + timedelta(seconds=bisect_left(range(span), True, key=changed))


def _is_full(name: str, values: frozenset[int]) -> bool:
    return len(values) == len(_FIELDS[name].every)


def _shown(value: str | tzinfo) -> str:
    return repr(value.key if isinstance(value, ZoneInfo) and value.key else value)


def _text(name: str, given: object) -> str:
    """A field as text; refuses what is neither text nor a whole number."""
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return str(given)
    raise ValueError(f"crontab {name}={given!r}: a field is a str or an int; legal values are {_FIELDS[name].legal}")


def _values(name: str, text: str) -> frozenset[int]:
    """The numbers that a field admits, Sunday as 0."""
    allowed = _FIELDS[name]
    try:
        pieces = [_piece(allowed, piece) for piece in text.split(",")]
    except ValueError as error:
        raise ValueError(f"crontab {name}={text!r}: {error}; legal values are {allowed.legal}") from None
    return frozenset(0 if value == 7 and name == "day_of_week" else value for piece in pieces for value in piece)


def _piece(allowed: _Field, piece: str) -> range:
    match = _PIECE.fullmatch(piece.lower())
    if not match:
        raise ValueError(f"{piece!r} is not *, n, a-b, */n or a-b/n" if piece else "there is an empty piece")
    first, last, step = match.groups()
    values = _span(allowed, piece, first, last or first) if first else allowed.every
    if step is None:
        return values
    if first and not last:
        raise ValueError(f"{piece!r} is a step without a range, which */n and a-b/n have")
    if not 1 <= int(step) <= len(values):
        raise ValueError(f"the step of {piece!r} is not a number from 1 to {len(values)}")
    return values[:: int(step)]


def _span(allowed: _Field, piece: str, first: str, last: str) -> range:
    low, high = (int(text) if text.isdigit() else allowed.names.get(text, -1) for text in (first, last))
    if last in ("sun", "sunday") and low:  # the Sunday that ends a week
        high = 7
    if low not in allowed.numbers or high not in allowed.numbers:
        raise ValueError(f"{piece!r} is out of range")
    if low > high:
        raise ValueError(f"{piece!r} is a reversed range")
    return range(low, high + 1)


def _time_zone(given: object) -> tzinfo | None:
    if isinstance(given, str):
        try:
            return ZoneInfo(given)
        except (KeyError, ValueError, OSError):  # unknown, no relative path, a directory
            text = f"crontab time_zone={given!r}: no such IANA time zone (Europe/Berlin, say) is known"
            raise ValueError(text) from None
    if given is None:
        return None
    if not isinstance(given, tzinfo):
        raise ValueError(f"crontab time_zone={given!r}: not an IANA name, a tzinfo or None")
    local = datetime(2026, 1, 15, 12, tzinfo=UTC).astimezone(given)
    if local.replace(tzinfo=given).utcoffset() != local.utcoffset():
        raise ValueError(f"crontab time_zone={given!r}: cannot read wall times (as pytz); use zoneinfo or an IANA name")
    return given


# ---- Timetables: an interval, a crontab or a recurrence rule, from a start on; stored as lists


SHORTEST = 1.0
"""The shortest time between two ticks of an interval, in seconds."""

_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every ``every`` seconds: at ``start``, and at each multiple after it."""

    every: float
    start: datetime = EPOCH

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment; None past the end of the calendar."""
        span = timedelta(seconds=self.every)
        passed = max(0, (after - self.start) // span + 1)
        try:
            return self.start + passed * span
        except OverflowError:
            return None

    def __call__(self, dt: datetime) -> bool:
        """Whether a tick is in the minute of ``dt``; a naive one is local wall time."""
        local = dt if dt.utcoffset() is not None else timezone.make_aware(dt, timezone.get_default_timezone())
        minute = local.astimezone(UTC).replace(second=0, microsecond=0)
        tick = self.next(minute - _MICROSECOND)
        return tick is not None and tick < minute + timedelta(minutes=1)

    def __str__(self) -> str:
        return f"every {self.every:g} s"

    def written(self) -> list:
        return ["every", self.every, self.start.isoformat()]


@dataclass(frozen=True, slots=True)
class Calendar:
    """The ticks of a :func:`~djqueue.timetables.crontab`, but none before ``start``."""

    crontab: Crontab
    start: datetime

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment."""
        return self.crontab.next(max(after, self.start - _MICROSECOND))

    def __str__(self) -> str:
        return str(self.crontab)

    def written(self) -> list:
        *given, zone = self.crontab._given
        return ["crontab", [*given, zone and _zone_name(zone)], self.start.isoformat()]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The ticks of a recurrence rule of iCalendar (``FREQ=WEEKLY;BYDAY=MO``), in a zone's wall time, from ``start``.

    A time that the clocks skip ticks when the clock would show it, had it not been put forward; one that comes twice
    ticks the first time.
    """

    rrule: str
    zone: str
    start: datetime
    _walk: list = field(default_factory=list, init=False, repr=False, compare=False)
    """The last two ticks found, and the iterator of the next: a rule can only be followed from its beginning."""

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment."""
        ticks: Any
        before, found, ticks = self._walk or (None, None, None)
        if before is None or before > after:
            before, found, ticks = _EARLIEST, _EARLIEST, self._ticks()
        while found is not None and found <= after:
            before, found = found, next(ticks, None)
        self._walk[:] = [before, found, ticks]
        return found

    def _ticks(self) -> Iterator[datetime]:
        last = self.start - _MICROSECOND
        for wall in _rule(self.rrule, self.start.astimezone(ZoneInfo(self.zone))):
            tick = wall.astimezone(UTC)
            if tick > last:  # two wall times at one moment are one tick
                yield tick
                last = tick

    def __str__(self) -> str:
        return f"rrule {self.rrule} ({self.zone})"

    def written(self) -> list:
        return ["rrule", self.rrule, self.zone, self.start.isoformat()]


Timetable = Interval | Calendar | Recurrence
Ticking = Crontab | Interval
"""Schedules of a periodic command that know their next tick; a plain callable is asked about every minute."""

ON_TIME = timedelta(minutes=1, microseconds=-1)
"""With ``missed="skip"`` a tick that is no later than this was not missed: crontabs count in minutes."""


class Rule(NamedTuple):
    """Which ticks are made up for at which no consumer ran."""

    missed: str = "latest"
    max_lateness: timedelta = timedelta(hours=1)

    @classmethod
    def of(cls, missed: str, max_lateness: float | timedelta) -> Rule:
        """A rule, checked. Raises TypeError or ValueError that names the argument."""
        if missed not in ("latest", "skip", "all"):
            raise ValueError(f"missed is {missed!r}: choose 'latest', 'skip' or 'all'.")
        return cls(missed, timedelta(seconds=seconds(max_lateness, "max_lateness", least=1.0)))

    def pick(self, ticks: list[datetime], now: datetime) -> list[datetime]:
        """The due ticks that are to run, oldest first."""
        oldest = now - (ON_TIME if self.missed == "skip" else self.max_lateness)
        found = [tick for tick in ticks if tick >= oldest]
        if self.missed == "skip" and len(found) > 1:  # the next one comes soon
            return []
        return found if self.missed == "all" else found[-1:]


def timetable(given: dict[str, Any], start: datetime) -> Timetable:
    """The timetable of exactly one of every, crontab and rrule, from an aware ``start``: an rrule is in its wall time.

    Raises TypeError or ValueError that names it.
    """
    said = {kind: value for kind, value in given.items() if value is not None}
    if len(said) != 1:
        raise TypeError(f"Give one of {', '.join(MAKERS)}; {' and '.join(said) or 'nothing'} was given.")
    [(kind, value)] = said.items()
    return MAKERS[kind](value, start)


def read(written: list) -> Timetable:
    """The timetable that ``written()`` wrote down."""
    kind, *values, start = written
    return _READERS[kind](*values, datetime.fromisoformat(start))


def _calendar(given: object, start: datetime) -> Calendar:
    if not isinstance(given, Crontab):
        line = f", or crontab.parse({given!r})" if isinstance(given, str) else ""
        raise TypeError(f"crontab is {given!r}: give crontab(hour=0, minute=0){line}.")
    if given.time_zone is not None:
        _zone_name(given.time_zone)
    return Calendar(given, start.astimezone(UTC))


def _recurrence(given: object, start: datetime) -> Recurrence:
    if not isinstance(given, str) or "DTSTART" in given.upper():
        raise TypeError(f"rrule is {given!r}: give a rule as text, as in 'FREQ=DAILY;BYHOUR=6', and start= with it.")
    zone = _zone_name(start.tzinfo, "the time zone of start")
    made = Recurrence(given, zone, start.astimezone(UTC).replace(microsecond=0))
    try:
        next(made._ticks(), None)
    except (ValueError, TypeError, AttributeError) as error:  # its parser may raise any of these
        raise ValueError(f"rrule is {given!r}: {error}. Give one as in 'FREQ=DAILY;BYHOUR=6'.") from None
    return made


def interval(every: object, start: datetime = EPOCH) -> Interval:
    """The ticks at a start and at all multiples after it. Raises TypeError or ValueError that names ``every``."""
    return Interval(seconds(every, "every", least=SHORTEST), start.astimezone(UTC))


MAKERS: dict[str, Callable[[Any, datetime], Timetable]] = {
    "every": interval,
    "crontab": _calendar,
    "rrule": _recurrence,
}
"""Makes a timetable of each argument of ``schedules.add``. The start that it keeps is in UTC, and so are its ticks."""

_READERS: dict[str, Callable[..., Timetable]] = {
    "every": Interval,
    "crontab": lambda fields, start: Calendar(_remade(fields), start),
    "rrule": Recurrence,
}


def _rule(text: str, start: datetime) -> Any:
    try:
        from dateutil.rrule import rrulestr
    except ImportError as error:
        raise ImportError("rrule= needs python-dateutil: pip install 'django-djqueue[rrule]'") from error
    return rrulestr(text, dtstart=start)


def _zone_name(zone: tzinfo | None, what: str = "crontab time_zone") -> str:
    name = "UTC" if zone is UTC else getattr(zone, "key", None)
    if name is None:
        raise ValueError(
            f"{what} is {zone!r}, which cannot be written down: give one with an IANA name (Europe/Berlin)."
        )
    return name
