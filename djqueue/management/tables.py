"""Tables and pages of text for a terminal: cells, colours, widths and cuts."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TextIO

from djqueue.operations.clocks import Clocks
from djqueue.operations.reports import NUMBERS, Column, Kind, emphasis, shown, text_of
from djqueue.running.pauses import Pause
from djqueue.words import (
    NONE,
    age,
    cut,
    cut_middle,
    cut_start,
    moment,
    printable,
    short_ids,
    short_lane,
    short_names,
)


class StyledText(str):
    """The text of a cell, in the colour of a role of Django's palette."""

    role = ""

    @classmethod
    def of(cls, text: str, role: str) -> StyledText:
        cell = cls(text)
        cell.role = role
        return cell


Paint = Callable[[str, str], str]
"""Colours a text by the name of a role of Django's palette."""
_LEAST = 8
"""The fewest characters that a cut column keeps."""
GAP = "  "
"""Between two columns."""
LEAST_PROSE = 30
"""Characters of a line of sentences, however narrow the terminal is."""


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str],
    *,
    cuts: Mapping[str, Callable[[str, int], str]],
    spared: str,
    width: int | None,
    paint: Paint,
) -> tuple[list[str], int]:
    """Lines of columns as wide as they must be, and the width of a line; columns in ``right`` are aligned to the right.

    If that is wider than ``width`` characters, the columns in ``cuts`` are made narrower, the widest first and the
    ``spared`` one last, each by its own function of a text and a length.
    """
    lines = [[StyledText.of(name, "MIGRATE_LABEL") for name in head], *rows]
    widths = {str(column[0]): max(map(len, column)) for column in zip(*lines, strict=True)}
    while width is not None and _wide(widths) > width:
        wide = [name for name in cuts if widths.get(name, 0) > _LEAST]
        if not wide:
            break
        widths[max(wide, key=lambda name: (name != spared, widths[name]))] -= 1
    return [_line(line, widths, right, cuts, paint) for line in lines], _wide(widths)


def _wide(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


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
    return GAP.join(shown)


def shown_parts(parts: Mapping[str, str], paint: Paint) -> str:
    """What is known about one thing: a line for each title that has a text, with the texts below each other."""
    shown = {title: text for title, text in parts.items() if text}
    width = max(10, *(len(title) + 2 for title in shown))
    return "\n".join(paint(title.ljust(width), "MIGRATE_LABEL") + printable(text) for title, text in shown.items())


def width_of(out: TextIO) -> int | None:
    """The width of the terminal in columns; None for a file or a pipe, where nothing needs to be cut."""
    return shutil.get_terminal_size().columns if out.isatty() or os.environ.get("COLUMNS") else None


# ---- Reports

LONGEST_TEXT = 200
"""Characters of a text in a table."""
CUTS = {
    Kind.COMMAND: cut_start,
    Kind.LANE: cut_start,
    Kind.NAME: cut_middle,
    Kind.NAMES: cut_middle,
    Kind.PAUSE: cut,
    Kind.QUEUE: cut_middle,
    Kind.RUNS: cut_start,
    Kind.TEXT: cut,
}
"""How a value is shortened where the terminal is narrow."""
ROLES = {
    "busy": "WARNING",
    "cancelled": "WARNING",
    "critical": "ERROR",
    "delayed": "WARNING",
    "discarded": "WARNING",
    "expired": "WARNING",
    "failed": "ERROR",
    "gone": "ERROR",
    "ok": "SUCCESS",
    "paused": "ERROR",
    "quiet": "WARNING",
    "running": "SUCCESS",
    "stopping": "WARNING",
    "unknown": "ERROR",
    "warning": "WARNING",
}
"""The colours of states."""
EMPHASIS = {"bad": "ERROR", "warning": "WARNING"}


def report(
    rows: Sequence[Any],
    *,
    clocks: Clocks | None = None,
    without: Collection[str] = (),
    full_ids: bool = False,
    width: int | None = None,
    paint: Paint = lambda text, role: text,
) -> str:
    """A table of the rows of a report, with the columns that say something, except those in ``without``.

    Sentences go into the last column: wrapped, and the texts of a row below each other.
    """
    clocks = clocks or Clocks()
    known = shown(rows, without)
    columns = [one for one in known if one.kind is not Kind.PROSE]
    cells = [_cells(one, rows, clocks, full_ids) for one in columns]
    right = [one.title for one in columns if one.kind in (*NUMBERS, Kind.AGE, Kind.AGO)]
    cuts = {one.title: CUTS[one.kind] for one in columns if one.kind in CUTS}
    key = next((one.title for one in columns if one.is_key), "")
    form: Any = {"cuts": cuts, "spared": key, "width": width, "paint": paint}
    lines, wide = _table([one.title for one in columns], zip(*cells, strict=True), right, **form)
    if prose := [one for one in known if one.kind is Kind.PROSE]:
        texts = [_prose(prose, row, wide + len(GAP), width, paint) for row in rows]
        heads = [paint(prose[0].title, "MIGRATE_LABEL"), *texts]
        lines = [line + GAP + text for line, text in zip(lines, heads, strict=True)]
    return "\n".join(line.rstrip() for line in lines)


def _prose(columns: Sequence[Column], row: Any, begin: int, width: int | None, paint: Paint) -> str:
    """The sentences of a row, which begin at a column of the terminal; all after the first text are indented."""
    lines: list[str] = []
    for column in columns:
        indent = " " * begin + (GAP if lines else "")
        room = sys.maxsize if width is None else max(width - len(indent), LEAST_PROSE)
        form: Any = {"break_long_words": False, "break_on_hyphens": False}
        texts = textwrap.wrap(printable(getattr(row, column.name)), room, **form)
        lines += [indent + (text if column is columns[0] else paint(text, "HTTP_INFO")) for text in texts]
    return "\n".join(lines)[begin:]


def _cells(column: Column, rows: Sequence[Any], clocks: Clocks, full_ids: bool) -> list[str]:
    """The cells of a column, with ids and names as short as possible."""
    values = [getattr(row, column.name) for row in rows]
    if column.kind is Kind.ID:
        ids = short_ids(values, full_ids)
        return [StyledText.of(printable(ids[id]), "SQL_KEYWORD") for id in values]
    if column.kind is Kind.RUNS:
        values = [runs[0].command if runs else "" for runs in values]
    if column.kind in (Kind.COMMAND, Kind.RUNS):
        names = short_names({name or "" for name in values})
        role = "SQL_KEYWORD" if column.is_key else ""
        return [StyledText.of(printable(names[name or ""]) or NONE, role) for name in values]
    return [_cell(column, row, value, clocks) for row, value in zip(rows, values, strict=True)]


def _cell(column: Column, row: Any, value: Any, clocks: Clocks) -> str:
    if column.kind is Kind.PAUSE:
        return paused(value)
    text = printable(_text(column.kind, row, value, clocks)) or NONE
    if column.kind is Kind.STATE:
        return StyledText.of(text, ROLES.get(text, ""))
    if how := emphasis(column, value):
        return StyledText.of(text, EMPHASIS[how])
    return StyledText.of(text, "SQL_KEYWORD") if column.is_key else text


def _text(kind: Kind, row: Any, value: Any, clocks: Clocks) -> str:
    if kind is Kind.MOMENT:
        return moment(value)
    if kind in (Kind.AGE, Kind.AGO):
        since = age(max(0.0, clocks.now(row.queue) - value)) if value else NONE
        return f"{since} ago" if kind is Kind.AGO and value else since
    if kind is Kind.LANE:
        return short_lane(value)
    text = text_of(kind, row, value)
    return cut(str(value or ""), LONGEST_TEXT) if text is None else text


def paused(pause: Pause | None) -> str:
    """The cell that says since when, by whom and why something is paused; "-" if it is not."""
    if pause is None:
        return NONE
    why = f": {pause.why}" if pause.why else ""
    return StyledText.of(printable(f"since {moment(pause.since)} by {pause.by}{why}"), "WARNING")
