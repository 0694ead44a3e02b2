"""System checks of the settings, one by one: their names and their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured

from djqueue import conf
from djqueue.checks.catalogue import TAG, near_or_moved, say
from djqueue.messages.codecs import CODECS
from djqueue.policies.options import OPTIONS, is_exception
from djqueue.utils import nearest, seconds, whole


def _passes(check: Callable[..., object], **bounds: float) -> Callable[[object], bool]:
    """Whether a check of an argument takes it."""

    def passes(value: object) -> bool:
        try:
            check(value, "it", **bounds)
        except (TypeError, ValueError):
            return False
        return True

    return passes


_is_count = _passes(whole, least=1)
_is_duration = _passes(seconds)


def _is_option(name: str) -> Callable[[object], bool]:
    """Whether it would do as an option of a command, where all of them come to one value."""

    def passes(value: object) -> bool:
        try:
            return OPTIONS[name](value) == {name: value} and not callable(value) and value is not None
        except (TypeError, ValueError):
            return False

    return passes


def _is_none_or(is_good: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_good(value)


def _is_codec(value: object) -> bool:
    return isinstance(value, str) and value in CODECS


def _are_codecs(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and bool(value) and all(map(_is_codec, value))


def _are_exceptions(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(map(is_exception, value))


VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "QUEUE_CLASS": (lambda value: isinstance(value, str), "the dotted path of a class"),
    "QUEUE_NAME": (lambda value: isinstance(value, str), "a text"),
    "QUEUE_OPTIONS": (lambda value: isinstance(value, Mapping), "a dictionary"),
    "QUEUE_ALWAYS_EAGER": (lambda value: isinstance(value, bool), "True or False"),
    "QUEUE_CODEC": (_is_codec, "'pickle' or 'json'"),
    "QUEUE_ACCEPT": (_are_codecs, "a list of 'pickle', 'json' or both"),
    "QUEUE_MODELS": (lambda value: value in ("pickle", "reference"), "'pickle' or 'reference'"),
    "QUEUE_MAX_MESSAGE_SIZE": (_is_count, "a whole number of bytes, at least 1"),
    "QUEUE_MAX_LOST": (_is_count, "a whole number, at least 1"),
    "QUEUE_MAX_STARTS": (_is_none_or(_is_count), "a whole number, at least 1, or None"),
    "QUEUE_UNKNOWN_AFTER": (_is_duration, "seconds, or a timedelta"),
    "QUEUE_RETRY_ON": (_are_exceptions, "a list of exception classes"),
    "QUEUE_MAX_ATTEMPTS": (_is_count, "a whole number, at least 1"),
    "QUEUE_TIME_LIMIT_GRACE": (_is_duration, "seconds, or a timedelta"),
    "QUEUE_RESULT_TTL": (_is_none_or(_is_duration), "None, seconds, or a timedelta"),
    "QUEUE_MAX_ERRORS": (_is_none_or(_is_count), "a whole number, at least 1, or None"),
    "QUEUE_MAX_ERROR_AGE": (
        _is_none_or(_passes(seconds, least=1.0)),
        "at least a second, as a number or a timedelta, or None",
    ),
    "QUEUE_COORDINATOR_DELAY": (_passes(seconds, least=0.001), "at least a millisecond, as a number or a timedelta"),
    "QUEUE_COORDINATOR_PREFIX": (lambda value: isinstance(value, str), "a text"),
    "QUEUE_COORDINATOR_TIMEOUT": (_passes(seconds, least=0.1), "at least 0.1 seconds, as a number or a timedelta"),
    "QUEUE_DEFAULT_PRIORITY": (_is_option("priority"), "a whole number of 32 bits"),
    "QUEUE_DEFAULT_THREAD": (_is_option("shard"), "a whole number, or a text"),
    "QUEUE_TUBE_PREFIX": (lambda value: isinstance(value, str), "a text"),
    "QUEUE_WORKER_BATCH_SIZE": (_is_option("run"), "a whole number from 1 to 1000"),
    "QUEUE_WORKER_EMPTY_LIMIT": (_passes(whole, least=0), "a whole number, at least 0"),
    "QUEUE_WORKER_EMPTY_PAUSE": (_is_duration, "seconds, or a timedelta"),
}
"""What each setting may be. QUEUES has checks of its own, and a QUEUE_CONNECTION is what its backend makes of it."""


@register(TAG)
def check_names(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E001, W001: what looks like a setting of ours. Without a similar one of ours it may well be somebody else's."""
    for name in dir(settings):
        if name.startswith("QUEUE") and name.isupper() and name not in conf.DEFAULTS:
            id = "E001" if nearest(name, conf.DEFAULTS) else "W001"
            yield say(id, where=name, near=near_or_moved(name, conf.DEFAULTS))


@register(TAG)
def check_values(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E007, E013."""
    for name, (is_good, wanted) in VALUES.items():
        if not _is_right(name, is_good):
            where, value = _said(name)
            yield say("E007", where=where, value=repr(value), wanted=wanted)
    if _is_codec(conf.get("QUEUE_CODEC")) and not accepted(conf.get("QUEUE_CODEC")):
        yield say("E013", where="QUEUE_CODEC", codec=conf.get("QUEUE_CODEC"))


def _is_right(name: str, is_good: Callable[[object], bool]) -> bool:
    try:
        return is_good(conf.get(name))
    except ImproperlyConfigured:
        return False


def _said(name: str) -> tuple[str, object]:
    """Who says a setting, and what."""
    if conf.comes_from_environment(name):
        return f"The environment variable {name}", os.environ[name]
    return name, conf.get(name)


def accepted(codec: str) -> bool:
    """Whether a consumer would decode it; yes while QUEUE_ACCEPT itself is wrong."""
    accept = conf.get("QUEUE_ACCEPT")
    return not _are_codecs(accept) or codec in accept
