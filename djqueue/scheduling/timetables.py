"""When something is due again and again: timetables that can be written down and read again, each with its next tick.

Ticks are aware datetimes in UTC. They are computed from where a timetable starts, never from the tick before, so that
they do not drift. A Rule says what becomes of those that nobody was there to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

from djqueue.scheduling.crontab import Crontab
from djqueue.utils import seconds

SHORTEST = 1.0
"""Seconds between two ticks at least."""

_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many seconds: at ``start``, and at each multiple after it."""

    every: float
    start: datetime

    kind: ClassVar[str] = "every"

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment."""
        span = timedelta(seconds=self.every)
        passed = max(0, (after - self.start) // span + 1)
        try:
            return self.start + passed * span
        except OverflowError:  # behind the end of the calendar
            return None

    def __str__(self) -> str:
        return f"every {self.every:g} s"

    def written(self) -> list:
        return [self.kind, self.every, self.start.isoformat()]

    @classmethod
    def read(cls, every: float, start: str) -> Interval:
        return cls(every, datetime.fromisoformat(start))


@dataclass(frozen=True, slots=True)
class Calendar:
    """As a :func:`~djqueue.scheduling.crontab.crontab` says, but not before ``start``."""

    crontab: Crontab
    start: datetime

    kind: ClassVar[str] = "crontab"

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment."""
        return self.crontab.next(max(after, self.start - _MICROSECOND))

    def __str__(self) -> str:
        return repr(self.crontab)

    def written(self) -> list:
        fields = [self.crontab.month, self.crontab.day, self.crontab.day_of_week]
        zone = self.crontab.time_zone
        name = None if zone is None else _zone_name(zone)
        return [self.kind, [*fields, self.crontab.hour, self.crontab.minute, name], self.start.isoformat()]

    @classmethod
    def read(cls, fields: list, start: str) -> Calendar:
        return cls(Crontab(*fields), datetime.fromisoformat(start))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """As a recurrence rule of iCalendar says (``FREQ=WEEKLY;BYDAY=MO``), in the wall time of a zone, from ``start``.

    A time that the clocks skip ticks when the clock would show it, had it not been put forward; one that comes twice
    ticks the first time.
    """

    rrule: str
    zone: str
    start: datetime
    _walk: list = field(default_factory=list, init=False, repr=False, compare=False)
    """The last two ticks that were found, and those behind them: a rule can only be followed from its beginning."""

    kind: ClassVar[str] = "rrule"

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
            if tick > last:  # what two wall times have in common is one tick
                yield tick
                last = tick

    def __str__(self) -> str:
        return f"rrule {self.rrule} ({self.zone})"

    def written(self) -> list:
        return [self.kind, self.rrule, self.zone, self.start.isoformat()]

    @classmethod
    def read(cls, rrule: str, zone: str, start: str) -> Recurrence:
        return cls(rrule, zone, datetime.fromisoformat(start))


Timetable = Interval | Calendar | Recurrence

ON_TIME = timedelta(minutes=1, microseconds=-1)
"""A tick that is late by no more than that was not missed, by ``missed="skip"``: crontabs count in minutes."""


class Rule(NamedTuple):
    """What becomes of ticks that nobody was there to see."""

    missed: str = "latest"
    max_lateness: timedelta = timedelta(hours=1)

    @classmethod
    def of(cls, missed: str, max_lateness: float | timedelta) -> Rule:
        """A rule, checked. Raises TypeError or ValueError that names the argument."""
        if missed not in ("latest", "skip", "all"):
            raise ValueError(f"missed is {missed!r}: choose 'latest', 'skip' or 'all'.")
        return cls(missed, timedelta(seconds=seconds(max_lateness, "max_lateness", least=1.0)))

    def pick(self, ticks: list[datetime], now: datetime) -> list[datetime]:
        """Those of the due ticks that are to run, oldest first."""
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
    """What :meth:`written` wrote."""
    kind, *values = written
    return _READERS[kind](*values)


def _calendar(given: object, start: datetime) -> Calendar:
    if not isinstance(given, Crontab):
        raise TypeError(f"crontab is {given!r}: give crontab(hour=0, minute=0).")
    if given.time_zone is not None:
        _zone_name(given.time_zone)
    return Calendar(given, start.astimezone(UTC))


def _recurrence(given: object, start: datetime) -> Recurrence:
    if not isinstance(given, str) or "DTSTART" in given.upper():
        raise TypeError(f"rrule is {given!r}: give a rule as text, as in 'FREQ=DAILY;BYHOUR=6', and start= beside it.")
    zone = _zone_name(start.tzinfo, "the time zone of start")
    made = Recurrence(given, zone, start.astimezone(UTC).replace(microsecond=0))
    try:
        next(made._ticks(), None)
    except (ValueError, TypeError, AttributeError) as error:  # whatever its parser stumbles over
        raise ValueError(f"rrule is {given!r}: {error}") from error
    return made


MAKERS: dict[str, Callable[[Any, datetime], Timetable]] = {
    "every": lambda value, start: Interval(seconds(value, "every", least=SHORTEST), start.astimezone(UTC)),
    "crontab": _calendar,
    "rrule": _recurrence,
}
"""How each way of saying it becomes a timetable. The start that it keeps is in UTC, and so are its ticks."""

_READERS = {kind.kind: kind.read for kind in (Interval, Calendar, Recurrence)}


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
