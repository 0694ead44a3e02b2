"""What the pages of the dashboard show moments, counts and durations by."""

from __future__ import annotations

import json
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from djqueue import words
from djqueue.running.consumers import ConsumerRecord

register = template.Library()


@register.simple_tag(takes_context=True)
def ago(context: Context, moment: Any, queue: str) -> SafeString | str:
    """How long ago a moment was (epoch seconds, the clock of a queue), or in what time it comes.

    The moment itself is in the title.
    """
    exact = words.full_moment(moment)
    if exact == words.NONE:
        return exact
    away = moment - context["clocks"].now(queue)
    text = f"{words.age(-away)} ago" if away < 0 else f"in {words.age(away)}"
    return format_html('<time class="nowrap" title="{}">{}</time>', exact, text)


@register.simple_tag(takes_context=True)
def since(context: Context, moment: Any, queue: str) -> SafeString | str:
    """For how long something has lasted, by the clock of a queue; the moment of its beginning is in the title."""
    exact = words.full_moment(moment)
    if exact == words.NONE:
        return exact
    lasted = max(0.0, context["clocks"].now(queue) - moment)
    return format_html('<time class="nowrap" title="since {}">{}</time>', exact, words.age(lasted))


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
    """The value of the box that selects a message."""
    return json.dumps([queue, id])


@register.simple_tag
def capacity(consumer: ConsumerRecord) -> str:
    """How many messages a consumer runs at a time."""
    return words.number(consumer.threads + consumer.coroutines)
