"""Tags and filters by which the dashboard shows moments, counts and durations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django import template
from django.template import Context
from django.template.loader import get_template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from djqueue import words
from djqueue.dashboard import rendering, seeing
from djqueue.dashboard.site import TABS
from djqueue.operations import acting
from djqueue.operations.reports import NUMBERS, key_of

register = template.Library()


@register.simple_tag(takes_context=True)
def report(
    context: Context,
    rows: Sequence[Any],
    kind: str = "",
    actions: str = "",
    boxes: object = None,
    without: str = "",
) -> SafeString:
    """The rows of a report as a table.

    A row that is about a target of a ``kind`` gets the buttons for it, or what the template ``actions`` makes of a
    ``row``; their column is left out if no row has any. With ``boxes`` each row can be selected. ``without`` names
    columns that are left out.
    """
    columns, cells = rendering.lines(rows, context["clocks"], without.split())
    acts = [_actions(context, kind, actions, row) for row in rows]
    values = {
        "columns": columns,
        "numbers": [kind.name for kind in NUMBERS],
        "boxes": boxes,
        "has_actions": any(acts),
        "lines": [rendering.ShownRow(*line) for line in zip(rows, cells, acts, strict=True)],
    }
    return get_template("djqueue/dashboard/_report.html").render(values)


def _actions(context: Context, kind: str, template: str, row: Any) -> SafeString | str:
    if not (kind or template):
        return ""
    allowed = [one for one in acting.named(kind) if context["may"][one.permission] and one.fits(row)]
    with context.push(row=row, name=key_of(row) if kind else "", acts=[(one, one.queue_of(row)) for one in allowed]):
        made = context.template.engine.get_template(template or "djqueue/dashboard/_acts.html").render(context)
    return SafeString(made.strip())


@register.filter
def action(name: str) -> acting.BaseAction:
    """The action of this name."""
    return acting.ACTIONS[name]


@register.simple_tag(takes_context=True)
def ago(context: Context, moment: Any, queue: str) -> SafeString | str:
    """How long ago a moment was, by the clock of a queue, or in what time it comes."""
    return rendering.ago(moment, queue, context["clocks"])


@register.simple_tag
def exact(moment: Any) -> str:
    """A moment with its date, to the second."""
    return words.full_moment(moment)


@register.simple_tag
def time_of(moment: Any) -> str:
    """The hour and minute of a moment, in Django's time zone."""
    return words.full_moment(moment)[11:16]


@register.filter
def number(count: int | None, capped: int | None = None) -> str:
    """A count: "-" if it is not known, "100,000+" where counting stopped."""
    return words.count(count, capped)


register.filter("rate", words.rate)
register.filter("duration", words.duration)
register.filter("age", words.age)


@register.simple_tag
def named(queue: str, id: str) -> str:
    """The value of the checkbox that selects a message."""
    return json.dumps([queue, id])


@register.simple_tag
def more(kind: str) -> SafeString | str:
    """A link to the page that shows more of a kind of problem or reason; "" if none does."""
    page = seeing.PAGES.get(kind)
    return format_html('<a href="{}">{}</a>', rendering.url(page), TABS[page]) if page else ""
