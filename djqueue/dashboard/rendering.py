"""The rows of a report as a table of a page: cells by the kinds of their values, with links and labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join, strip_tags
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import Truncator, capfirst

from djqueue.dashboard.plots import Series, spark
from djqueue.operations.by_command import CommandRow
from djqueue.operations.clocks import Clocks
from djqueue.operations.consumers import RunRow
from djqueue.operations.reports import MOMENTS, NUMBERS, Column, Kind, emphasis, shown, text_of
from djqueue.words import NONE, age, full_moment, short_ids, short_names

LONGEST_TEXT = 160
MOST_RUNS = 5
"""Runs of a consumer that are shown."""
WORDY = (Kind.RUNS, Kind.TEXT, Kind.PROSE, Kind.NAMES, Kind.LANE, Kind.PAUSE)
"""What is wrapped within its cell."""
SHORT, LONGEST_WORD = 14, 20
"""Characters of a text that stays on one line, and of a word that is never broken."""
EMPHASIS = {"bad": "djq-red", "warning": "djq-amber"}
PAGES = {CommandRow: "command"}
"""The page that the name of a row links to, with its conditions as the query; the page of messages for all others."""


class Cell(NamedTuple):
    """A cell, and how it is shown."""

    html: SafeString | str
    label: str
    title: str
    """The kinds that are shortened."""
    style: str
    is_key: bool


class ShownRow(NamedTuple):
    """A row of a report as it is shown."""

    row: Any
    cells: Sequence[Cell]
    actions: SafeString | str


def lines(rows: Sequence[Any], clocks: Clocks, without: Collection[str] = ()) -> tuple[list[Column], list[list[Cell]]]:
    """The shown columns of some rows, and the cells of each row; columns of sentences share a cell."""
    known = sorted(shown(rows, without), key=lambda one: not one.is_key)
    prose = [one for one in known if one.kind is Kind.PROSE]
    known = [one for one in known if one not in prose[1:]]
    ids = short_ids([getattr(row, one.name) for row in rows for one in known if one.kind is Kind.ID])
    names = short_names({getattr(row, one.name) or "" for row in rows for one in known if one.kind is Kind.COMMAND})
    short = ids | names
    return known, [[_cell(one, row, short, clocks, prose) for one in known] for row in rows]


def _cell(column: Column, row: Any, short: dict[str, str], clocks: Clocks, prose: Sequence[Column]) -> Cell:
    value = getattr(row, column.name)
    styles = ["num"] if column.kind in NUMBERS else ["djq-words"] if column.kind in WORDY else []
    styles += [EMPHASIS[how]] if column not in prose and (how := emphasis(column, value)) else []
    html = _prose(prose, row) if column in prose else _html(column, row, value, short, clocks)
    styles += [] if column.kind in NUMBERS else [_width(strip_tags(str(html)))]
    if column.is_key and (conditions := getattr(row, "conditions", None)):
        query = urlencode({name: _plain(value) for name, value in conditions.items()})
        html = format_html('<a href="{}?{}">{}</a>', url(PAGES.get(type(row), "messages")), query, html)
    title = value if column.kind is Kind.COMMAND else ""
    return Cell(html, capfirst(column.title), title, " ".join(filter(None, styles)), column.is_key)


def _html(column: Column, row: Any, value: Any, short: dict[str, str], clocks: Clocks) -> SafeString | str:
    kind, queue = column.kind, getattr(row, "queue", "")
    if kind is Kind.PAUSE:
        context = {"pause": value, "queue": queue, "clocks": clocks}
        return render_to_string("djqueue/dashboard/_paused.html", context) if value else NONE
    if value is None or value in ("", (), []):
        return NONE
    if kind is Kind.ID:
        link = f"{url('message')}?{urlencode({'queue': queue, 'id': _plain(value)})}"
        return format_html('<a class="djq-id" title="{}" href="{}">{}</a>', value, link, short[value])
    if kind is Kind.COMMAND:
        return _name(short[value])
    if kind is Kind.LANE:
        link = f"{url('messages')}?{urlencode({'queue': queue, 'lane': _plain(value)})}"
        return format_html('<a href="{}">{}</a>', link, _name(value))
    if kind is Kind.RUNS:
        return format_html_join("", "<div>{}</div>", ((_run(one, queue, clocks),) for one in value[:MOST_RUNS]))
    if kind is Kind.STATE:
        return format_html('<span class="djq-state djq-{}">{}</span>', value, value)
    if kind in MOMENTS:
        return ago(value, queue, clocks)
    if kind is Kind.TREND:
        counts = [Series(name, [getattr(one, name) for one in value.points]) for name in ("done", "failed")]
        return spark(f"{text_of(kind, row, value)} in the {column.title}", counts)
    if kind is Kind.NAME:
        return _name(str(value))
    text = text_of(kind, row, value)
    return Truncator(str(value)).chars(LONGEST_TEXT) if text is None else text


def _prose(columns: Sequence[Column], row: Any) -> SafeString | str:
    """The sentences of a row below each other; sentences after the first column are subdued."""
    known = [(one, text) for one in columns if (text := getattr(row, one.name))]
    lines = ((EMPHASIS.get(emphasis(one, text), "quiet" if one is not columns[0] else ""), text) for one, text in known)
    return format_html_join("", '<div class="{}">{}</div>', lines) or NONE


def _width(text: str) -> str:
    """The style of a cell, chosen by its text."""
    longest = max(map(len, text.split()), default=0)
    return "djq-long" if longest > LONGEST_WORD else "nowrap" if len(text) <= SHORT else ""


def _name(text: str) -> SafeString | str:
    """A name; a long one can be broken after each of its parts."""
    if len(text) <= LONGEST_WORD:
        return text
    return format_html_join(SafeString("<wbr>"), "{}", ((part,) for part in re.split(r"(?<=[._:/@-])", text)))


def _run(one: RunRow, queue: str, clocks: Clocks) -> SafeString:
    link = f"{url('message')}?{urlencode({'id': _plain(one.id)})}"
    run = '<a title="{}" href="{}">{}</a> {}'
    return format_html(run, one.id, link, _name(one.command), ago(one.since, queue, clocks))


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


def url(page: str) -> str:
    return reverse(f"admin:djqueue_dashboard_{page}")


def _plain(text: str) -> str:
    """A text that fits into an address: half of a character becomes ``?``."""
    return text.encode(errors="replace").decode()
