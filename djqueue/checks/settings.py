"""System checks of the settings, one by one: their names and their values."""

from __future__ import annotations

import os
from collections.abc import Iterator

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured

from djqueue import conf
from djqueue.checks.catalogue import TAG, near_or_moved, say
from djqueue.utils import nearest


@register(TAG)
def check_names(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E001, W001: what looks like a setting of ours. Without a similar one of ours it may well be somebody else's."""
    for name in dir(settings):
        if name.startswith("QUEUE") and name.isupper() and name not in conf.SETTINGS:
            id = "E001" if nearest(name, conf.SETTINGS) else "W001"
            yield say(id, where=name, near=near_or_moved(name, conf.SETTINGS))


@register(TAG)
def check_values(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E007, E013."""
    for name, setting in conf.SETTINGS.items():
        if not is_valid(name):
            where, value = _said(name)
            yield say("E007", where=where, value=repr(value), wanted=setting.wanted)
    if is_valid("QUEUE_SERIALIZER") and not accepted(conf.get("QUEUE_SERIALIZER")):
        yield say("E013", where="QUEUE_SERIALIZER", serializer=conf.get("QUEUE_SERIALIZER"))


def is_valid(name: str) -> bool:
    """Whether the value of a setting can be read, and is one that it may have."""
    try:
        return conf.SETTINGS[name].is_valid(conf.get(name))
    except ImproperlyConfigured:
        return False


def _said(name: str) -> tuple[str, object]:
    """Who says a setting, and what."""
    if conf.comes_from_environment(name):
        variable = conf.variable_of(name)
        return f"The environment variable {variable}", os.environ[variable]
    return name, conf.get(name)


def accepted(serializer: str) -> bool:
    """Whether a consumer would decode it; yes while QUEUE_ACCEPT itself is wrong."""
    return not is_valid("QUEUE_ACCEPT") or serializer in conf.get("QUEUE_ACCEPT")
