"""Plots as SVG, made of values on the server: stacked bars and lines, with a title for each span of time.

They have neither script nor style inside; their colours come from the style sheet, by the classes of their series. The
words next to a plot belong to the page, so that they stay legible however narrow it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from djqueue.words import duration, full_moment, number

WIDTH, HEIGHT = 600.0, 120.0
SMALL_WIDTH, SMALL_HEIGHT = 96.0, 24.0
FILLED = 0.8
"""The part of its span that a bar takes."""
LEAST = 0.04
"""The least part of the height that a bar has, so that one failure among thousands is visible."""


LINES = 0.97
"""The part of the height up to which lines go."""


class Series(NamedTuple):
    """Values of one kind."""

    name: str
    """In words; the class of its bars or its line too."""
    values: Sequence[float | None]
    """One for each span of time, oldest first; None where there is none."""


class Plot(NamedTuple):
    """A plot, and what the page says around it."""

    title: str
    svg: SafeString
    names: Sequence[str]
    """Of its series."""
    most: str
    """The highest value, in words."""
    first: float
    last: float
    """When the first span of time began and when the last did (epoch seconds)."""


class Words(NamedTuple):
    """The words by which a plot says what it shows."""

    value: Callable[[float], str]
    moment: Callable[[float], str]
    """Of epoch seconds."""


COUNTS = Words(lambda value: number(round(value)), full_moment)
TIMES = Words(duration, full_moment)


def spark(title: str, series: Sequence[Series]) -> SafeString:
    """A small plot of stacked bars, which goes into a table; ``title`` has its sum in words."""
    return _svg("djq-spark", title, _bars(series, SMALL_WIDTH, SMALL_HEIGHT), SMALL_WIDTH, SMALL_HEIGHT)


def bars(title: str, starts: Sequence[float], series: Sequence[Series], words: Words) -> Plot:
    """A plot of counts, stacked on each other."""
    return _plot(title, starts, series, words, _top_of_sums(series), _bars(series, WIDTH, HEIGHT))


def lines(title: str, starts: Sequence[float], series: Sequence[Series], words: Words) -> Plot:
    """A plot of values that do not add up, such as durations."""
    top = max((value for one in series for value in one.values if value is not None), default=0.0)
    drawn = [_path(one.name, _line(one.values, top)) for one in series] if top else []
    return _plot(title, starts, series, words, top, drawn)


def _plot(
    title: str,
    starts: Sequence[float],
    series: Sequence[Series],
    words: Words,
    top: float,
    drawn: Sequence[SafeString],
) -> Plot:
    names, most = [one.name for one in series], words.value(top)
    inside = [*drawn, *_titles(starts, series, words)]
    svg = _svg("djq-plot", f"{title}: {', '.join(names)}; at most {most}", inside, WIDTH, HEIGHT)
    return Plot(title, svg, names, most, starts[0], starts[-1])


def _svg(kind: str, title: str, inside: Sequence[SafeString], width: float, height: float) -> SafeString:
    box = f"0 0 {width:g} {height:g}"
    return format_html(
        '<svg class="{}" role="img" viewBox="{}" preserveAspectRatio="none"><title>{}</title>{}</svg>',
        *(kind, box, title, format_html_join("", "{}", ((one,) for one in inside))),
    )


def _titles(starts: Sequence[float], series: Sequence[Series], words: Words) -> list[SafeString]:
    """What a browser shows for the span of time under the pointer."""
    wide = WIDTH / len(starts)
    found = []
    for place, start in enumerate(starts):
        known = [(one.name, one.values[place]) for one in series]
        text = ", ".join(f"{name} {words.value(value)}" for name, value in known if value is not None)
        box = f"{place * wide:.1f}", f"{wide:.1f}", f"{HEIGHT:g}"
        rect = '<rect x="{}" width="{}" height="{}"><title>{}: {}</title></rect>'
        found.append(format_html(rect, *box, words.moment(start), text or "nothing"))
    return found


# ---- Shapes


def _path(name: str, drawn: str) -> SafeString:
    return format_html('<path class="djq-{}" d="{}"/>', name, drawn)


def _columns(series: Sequence[Series]) -> Sequence[tuple[float | None, ...]]:
    """The values of each span of time."""
    return list(zip(*(one.values for one in series), strict=True))


def _top_of_sums(series: Sequence[Series]) -> float:
    return max((sum(value or 0 for value in values) for values in _columns(series)), default=0.0)


def _bars(series: Sequence[Series], width: float, height: float) -> list[SafeString]:
    """The bars of each series, stacked on the bars of the series before."""
    columns, top = _columns(series), _top_of_sums(series)
    wide, shapes = width / max(1, len(columns)), [""] * len(series)
    for place, values in enumerate(columns):
        floor = height
        for one, value in enumerate(values):
            if value:
                tall = min(max(value / top, LEAST) * height, floor)
                across = wide * FILLED
                shapes[one] += f"M{place * wide:.1f} {floor:.1f}h{across:.1f}v{-tall:.1f}h{-across:.1f}z"
                floor -= tall
    return [_path(given.name, shape) for given, shape in zip(series, shapes, strict=True) if shape]


def _line(values: Sequence[float | None], top: float) -> str:
    """A line with a gap where there is no value; a value between two gaps is a dash."""
    wide, drawn, was = WIDTH / len(values), "", None
    for place, value in enumerate(values):
        if value is not None:
            at = f"{place * wide:.1f} {HEIGHT * (1 - LINES * value / top):.1f}"
            drawn += f"{'M' if was is None else 'L'}{at}h{wide:.1f}"
        was = value
    return drawn
