"""Reports: rows of dataclasses whose fields say how any front end shows them.

A row holds values: moments as epoch seconds, durations in seconds, whole names and ids. :func:`as_json` is the form for
programs; ``management/tables.py`` and ``dashboard/rendering.py`` are those for people.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum, auto
from functools import cache, singledispatch
from math import inf
from typing import Any, TypeVar, cast, dataclass_transform

from djqueue.words import NONE, age, count, duration, iso_moment, rate


class Kind(Enum):
    """What a value is, which decides how it is shown."""

    ID = auto()
    """The id of a message."""
    COMMAND = auto()
    """A dotted name."""
    QUEUE = auto()
    """An alias."""
    LANE = auto()
    NAME = auto()
    """Another name, as that of a consumer or a schedule."""
    STATE = auto()
    """A word: a state, or how something ended."""
    MOMENT = auto()
    """Epoch seconds, by the clock of the queue in the field ``queue``."""
    AGE = auto()
    """The same, shown as how long ago that is."""
    AGO = auto()
    """The same, for something that happened repeatedly: the last time."""
    DURATION = auto()
    """How many seconds something ran; 0 if it did not."""
    SECONDS = auto()
    """Seconds between two clocks or heartbeats, shown as whole ones."""
    COUNT = auto()
    """A number of messages; where counting stopped, it is the number in the field ``capped``."""
    NUMBER = auto()
    PART = auto()
    """A number out of a maximum, which is in the field ``workers``."""
    RATE = auto()
    """A number per second or minute, which may have a fraction."""
    TEXT = auto()
    PROSE = auto()
    """Sentences, which are wrapped and never cut."""
    NAMES = auto()
    """Several names."""
    RUNS = auto()
    """What a consumer runs, the longest first."""
    TREND = auto()
    """Counts over time: a total with ``done`` and ``failed``, and points with the same."""
    PAUSE = auto()
    """A pause, or None."""


NUMBERS = (Kind.DURATION, Kind.SECONDS, Kind.COUNT, Kind.NUMBER, Kind.PART, Kind.RATE)
"""What is aligned to the right."""
MOMENTS = (Kind.MOMENT, Kind.AGE, Kind.AGO)


@dataclass(frozen=True, slots=True)
class Column:
    """How a field of a row is shown."""

    title: str
    """Its head; "" for what only programs get."""
    kind: Kind
    optional: bool
    """Whether it is left out where no row has a value."""
    is_key: bool
    """Whether it names the row."""
    bad: float | None
    """A value above this is bad news, and so is any text."""
    warning: float | None
    """A value above this stands out."""
    in_json: bool
    """Whether programs get it; else it is made of fields that they get."""
    name: str = ""


def column(
    title: str = "",
    kind: Kind = Kind.TEXT,
    *,
    optional: bool = False,
    key: bool = False,
    bad: float | None = None,
    warning: float | None = None,
    in_json: bool = True,
    **more: Any,
) -> Any:
    """A field of a row, and how it is shown; ``more`` is for :func:`dataclasses.field`."""
    return field(metadata={"column": Column(title, kind, optional, key, bad, warning, in_json)}, **more)


T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(column, field))
def report_row(cls: type[T]) -> type[T]:
    """A class of rows: a frozen dataclass whose fields are columns."""
    return dataclass(frozen=True, slots=True)(cls)


@cache
def columns(cls: Hashable) -> tuple[Column, ...]:
    """The columns of a class of rows."""
    known = [(one.name, one.metadata.get("column")) for one in fields(cast("Any", cls))]
    return tuple(replace(one, name=name) for name, one in known if one is not None)


def columns_of(row: Any) -> tuple[Column, ...]:
    """The columns of a row."""
    return columns(cast("Hashable", type(row)))


def key_of(row: Any) -> Any:
    """The value that names a row."""
    return next(getattr(row, one.name) for one in columns_of(row) if one.is_key)


def shown(rows: Sequence[Any], without: Collection[str] = ()) -> list[Column]:
    """The columns that people see of these rows: columns with a title, except optional ones without a value."""
    return [
        one
        for one in (columns_of(rows[0]) if rows else ())
        if one.title
        and one.name not in without
        and not (one.optional and all(getattr(row, one.name) in (None, "", 0, ()) for row in rows))
    ]


def emphasis(column: Column, value: Any) -> str:
    """How much a value stands out: ``bad``, ``warning`` or not."""
    size = inf if isinstance(value, str) and value else value or 0.0
    if column.bad is not None and size > column.bad:
        return "bad"
    return "warning" if column.warning is not None and size > column.warning else ""


def text_of(kind: Kind, row: Any, value: Any) -> str | None:
    """The text of a value of a row, where all front ends show it alike; None for the other kinds."""
    if kind is Kind.DURATION:
        return duration(value) if value else NONE
    if kind is Kind.PART:
        return f"{count(value)}/{count(row.workers)}"
    if kind is Kind.SECONDS:
        return age(value)
    if kind in (Kind.COUNT, Kind.NUMBER):
        return count(value, getattr(row, "capped", None) if kind is Kind.COUNT else None)
    if kind is Kind.RATE:
        return rate(value)
    if kind is Kind.NAMES:
        return ", ".join(value)
    if kind is Kind.TREND:
        return f"{count(value.total.done)} done and {count(value.total.failed)} failed" if value else NONE
    return None


@singledispatch
def as_json(row: Any) -> Any:
    """A row, or a value in one, for programs: its fields by their names, moments as ISO 8601 in UTC, null for none."""
    if is_dataclass(row) and not isinstance(row, type):
        if known := columns_of(row):
            return {one.name: _json_value(one, getattr(row, one.name)) for one in known if one.in_json}
        return {one.name: as_json(getattr(row, one.name)) for one in fields(row)}
    if isinstance(row, Mapping):
        return {name: as_json(value) for name, value in row.items()}
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        return as_json(row._asdict())
    if isinstance(row, list | tuple):
        return [as_json(one) for one in row]
    return None if row == "" else row


def _json_value(column: Column, value: Any) -> Any:
    return iso_moment(value) if column.kind in MOMENTS else as_json(value)
