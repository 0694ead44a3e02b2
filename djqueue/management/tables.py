"""Tables and pages of text for a terminal: cells, colours, widths and cuts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TextIO

from djqueue.running.pauses import Pause
from djqueue.words import NONE, moment, printable


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


def paused(pause: Pause | None) -> str:
    """The cell that says since when and by whom something is paused, and why; "-" if it is not."""
    if pause is None:
        return NONE
    why = f": {pause.why}" if pause.why else ""
    return Cell.of(printable(f"since {moment(pause.since)} by {pause.by}{why}"), "WARNING")
