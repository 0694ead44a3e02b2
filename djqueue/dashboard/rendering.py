"""The rows of a report as a table of a page: cells by the kinds of their values, with links and labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from djqueue.operations.clocks import Clocks
from djqueue.operations.consumers import RunRow
from djqueue.operations.reports import MOMENTS, NUMBERS, Column, Kind, shown, text_of
from djqueue.words import NONE, age, full_moment, short_ids, short_names

LONGEST_TEXT = 160
MOST_RUNS = 5
"""Runs of a consumer that are shown."""
WORDY = (Kind.RUNS, Kind.TEXT, Kind.NAMES, Kind.LANE, Kind.PAUSE)
"""What is wrapped within its cell."""


class Cell(NamedTuple):
    """A cell, and how it looks."""

    html: SafeString | str
    label: str
    title: str
    """What is shown in short."""
    style: str
    is_key: bool


class Line(NamedTuple):
    """A row of a report as it is shown."""

    row: Any
    cells: Sequence[Cell]
    actions: SafeString | str


def lines(rows: Sequence[Any], clocks: Clocks, without: Collection[str] = ()) -> tuple[list[Column], list[list[Cell]]]:
    """The columns that are shown of some rows, and the cells of each row."""
    known = sorted(shown(rows, without), key=lambda one: not one.is_key)
    ids = short_ids([getattr(row, one.name) for row in rows for one in known if one.kind is Kind.ID])
    names = short_names({getattr(row, one.name) or "" for row in rows for one in known if one.kind is Kind.COMMAND})
    short = ids | names
    return known, [[_cell(one, row, short, clocks) for one in known] for row in rows]


def _cell(column: Column, row: Any, short: dict[str, str], clocks: Clocks) -> Cell:
    value = getattr(row, column.name)
    styles = ["num"] if column.kind in NUMBERS else ["djq-words"] if column.kind in WORDY else []
    styles += ["djq-red"] if column.bad is not None and value is not None and value > column.bad else []
    html = _html(column, row, value, short, clocks)
    if column.is_key and (conditions := getattr(row, "conditions", None)):
        query = urlencode({name: _plain(value) for name, value in conditions.items()})
        html = format_html('<a href="{}?{}">{}</a>', _url("messages"), query, html)
    title = value if column.kind is Kind.COMMAND else ""
    return Cell(html, column.title.capitalize(), title, " ".join(styles), column.is_key)


def _html(column: Column, row: Any, value: Any, short: dict[str, str], clocks: Clocks) -> SafeString | str:
    kind, queue = column.kind, getattr(row, "queue", "")
    if kind is Kind.PAUSE:
        context = {"pause": value, "queue": queue, "clocks": clocks}
        return render_to_string("djqueue/dashboard/_paused.html", context) if value else NONE
    if value is None or value in ("", (), []):
        return NONE
    if kind is Kind.ID:
        link = f"{_url('message')}?{urlencode({'queue': queue, 'id': _plain(value)})}"
        return format_html('<a class="djq-id" title="{}" href="{}">{}</a>', value, link, short[value])
    if kind is Kind.COMMAND:
        return short[value]
    if kind is Kind.LANE:
        link = f"{_url('messages')}?{urlencode({'queue': queue, 'lane': _plain(value)})}"
        return format_html('<a href="{}">{}</a>', link, value)
    if kind is Kind.RUNS:
        return format_html_join("", "<div>{}</div>", ((_run(one, queue, clocks),) for one in value[:MOST_RUNS]))
    if kind is Kind.STATE:
        return format_html('<span class="djq-state djq-{}">{}</span>', value, value)
    if kind in MOMENTS:
        return ago(value, queue, clocks)
    text = text_of(kind, row, value)
    return Truncator(str(value)).chars(LONGEST_TEXT) if text is None else text


def _run(one: RunRow, queue: str, clocks: Clocks) -> SafeString:
    link = f"{_url('message')}?{urlencode({'id': _plain(one.id)})}"
    run = '<a title="{}" href="{}">{}</a> {}'
    return format_html(run, one.id, link, one.command, ago(one.since, queue, clocks))


def ago(moment: Any, queue: str, clocks: Clocks) -> SafeString | str:
    """How long ago a moment was (epoch seconds, the clock of a queue), or in what time it comes.

    The moment itself is in the title.
    """
    exact = full_moment(moment)
    if exact == NONE:
        return exact
    away = moment - clocks.now(queue)
    text = f"{age(-away)} ago" if away < 0 else f"in {age(away)}"
    return format_html('<time class="nowrap" title="{}">{}</time>', exact, text)


def _url(page: str) -> str:
    return reverse(f"admin:djqueue_dashboard_{page}")


def _plain(text: str) -> str:
    """A text as an address can have it: half of a character becomes ``?``."""
    return text.encode(errors="replace").decode()
