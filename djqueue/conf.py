"""Settings, read late, as plain values. Nothing here imports a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from djqueue.utils import is_exception, priority, seconds, whole

# ---- What a setting may be

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of djqueue."""

    default: Any
    is_valid: Check = lambda value: True
    """Whether the system checks accept a value. QUEUES has checks of its own; a backend judges QUEUE_CONNECTION."""
    wanted: str = ""
    """What the system checks ask for instead of any other value."""
    parse: Callable[[str], Any] | None = None
    """Reads the environment variable of the same name, which counts where the project has no such setting."""
    alias: str = ""
    """Another name that the environment variable may have, as sharded-queue calls it."""


def _is(*types: type) -> Check:
    return lambda value: isinstance(value, types)


def _one_of(*choices: str) -> Check:
    return lambda value: isinstance(value, str) and value in choices


def _list_of(is_valid: Check) -> Check:
    return lambda value: isinstance(value, list | tuple | set | frozenset) and all(map(is_valid, value))


def _or_none(is_valid: Check) -> Check:
    return lambda value: value is None or is_valid(value)


def _passes(check: Callable[..., object], **bounds: float) -> Check:
    """Whether a check of an argument accepts the value."""

    def passes(value: object) -> bool:
        try:
            check(value, "it", **bounds)
        except (TypeError, ValueError):
            return False
        return True

    return passes


def _at_least(least: float) -> Check:
    return _passes(seconds, least=least)


def _is_batch_size(value: Any) -> bool:
    return _is_count(value) and value <= 1000


def _is_shard(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _are_serializers(value: Any) -> bool:
    return _list_of(_is_serializer)(value) and bool(value)


_is_text = _is(str)
_is_count = _passes(whole, least=1)
_is_duration = _at_least(0)
_is_serializer = _one_of("pickle", "json")


def _thread(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


SETTINGS: dict[str, Setting] = {
    "QUEUES": Setting({}),
    "QUEUE_CLASS": Setting("djqueue.backends.database.DatabaseQueue", _is_text, "the dotted path of a class"),
    "QUEUE_NAME": Setting("default", _is_text, "a text"),
    "QUEUE_CONNECTION": Setting(""),
    "QUEUE_OPTIONS": Setting({}, _is(Mapping), "a dictionary"),
    "QUEUE_ALWAYS_EAGER": Setting(False, _is(bool), "True or False"),
    "QUEUE_SERIALIZER": Setting("pickle", _is_serializer, "'pickle' or 'json'"),
    "QUEUE_ACCEPT": Setting(("pickle", "json"), _are_serializers, "a list of 'pickle', 'json' or both"),
    "QUEUE_MODELS": Setting("pickle", _one_of("pickle", "reference"), "'pickle' or 'reference'"),
    "QUEUE_MAX_MESSAGE_SIZE": Setting(2**20, _is_count, "a whole number of bytes, at least 1"),
    "QUEUE_MAX_LOST": Setting(3, _is_count, "a whole number, at least 1"),
    "QUEUE_MAX_STARTS": Setting(1000, _or_none(_is_count), "a whole number, at least 1, or None"),
    "QUEUE_UNKNOWN_AFTER": Setting(3600, _is_duration, "seconds, or a timedelta"),
    "QUEUE_RETRY_ON": Setting((), _list_of(is_exception), "a list of exception classes"),
    "QUEUE_MAX_ATTEMPTS": Setting(5, _is_count, "a whole number, at least 1"),
    "QUEUE_TIME_LIMIT_GRACE": Setting(5, _is_duration, "seconds, or a timedelta"),
    "QUEUE_RESULT_TTL": Setting(None, _or_none(_is_duration), "None, seconds, or a timedelta"),
    "QUEUE_MAX_ERRORS": Setting(None, _or_none(_is_count), "a whole number, at least 1, or None"),
    "QUEUE_MAX_ERROR_AGE": Setting(
        None, _or_none(_at_least(1)), "at least a second, as a number or a timedelta, or None"
    ),
    "QUEUE_MAX_POLL_INTERVAL": Setting(
        1.0, _at_least(0.001), "at least a millisecond, as a number or a timedelta", float, "QUEUE_COORDINATOR_DELAY"
    ),
    "QUEUE_CONSUMER_PREFIX": Setting("", _is_text, "a text", str, "QUEUE_COORDINATOR_PREFIX"),
    "QUEUE_LEASE": Setting(
        60.0, _at_least(0.1), "at least 0.1 seconds, as a number or a timedelta", float, "QUEUE_COORDINATOR_TIMEOUT"
    ),
    "QUEUE_DEFAULT_PRIORITY": Setting(0, _passes(priority), "a whole number of 32 bits", int),
    "QUEUE_DEFAULT_THREAD": Setting(0, _is_shard, "a whole number, or a text", _thread),
    "QUEUE_LANE_PREFIX": Setting("", _is_text, "a text", str, "QUEUE_TUBE_PREFIX"),
    "QUEUE_BATCH_SIZE": Setting(128, _is_batch_size, "a whole number from 1 to 1000", int, "QUEUE_WORKER_BATCH_SIZE"),
    "QUEUE_WORKER_EMPTY_LIMIT": Setting(16, _passes(whole, least=0), "a whole number, at least 0", int),
    "QUEUE_WORKER_EMPTY_PAUSE": Setting(0.1, _is_duration, "seconds, or a timedelta", float),
}
"""Every setting of djqueue."""

# ---- Reading them

_UNSAID = object()

DEFAULT_ALIAS = "default"
QUEUE_KEYS = ("CLASS", "NAME", "CONNECTION", "STORE", "OPTIONS", "THROTTLE")
COMMON_OPTIONS = ("LEASE", "ON_COMMIT")
"""The options that every queue has, whatever its class."""


@cache
def get(name: str) -> Any:
    """The value of a setting of djqueue, or its default. Asked for several times per message, hence cached.

    Raises ImproperlyConfigured for an environment variable that cannot be read.
    """
    value = getattr(settings, name, _UNSAID)
    if value is not _UNSAID:
        return value
    setting, variable = SETTINGS[name], variable_of(name)
    if variable is None or setting.parse is None:
        return setting.default
    text = os.environ[variable]
    try:
        return setting.parse(text)
    except ValueError as error:
        wanted = "a whole number" if setting.parse is int else "seconds"
        raise ImproperlyConfigured(f"The environment variable {variable} is {text!r}: give {wanted}.") from error


def variable_of(name: str) -> str | None:
    """The environment variable that says a setting, by the setting's name or its alias; None if none counts."""
    setting = SETTINGS[name]
    if setting.parse is None or getattr(settings, name, _UNSAID) is not _UNSAID:
        return None
    return next((variable for variable in (name, setting.alias) if variable in os.environ), None)


def _forget(**kwargs) -> None:
    get.cache_clear()


setting_changed.connect(_forget, dispatch_uid="djqueue.conf")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One entry of QUEUES, completed."""

    alias: str
    path: str
    name: str
    connection: Any = ""
    store: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    throttle: Mapping[str, Any] | None = None


def queue_configs() -> dict[str, QueueConfig]:
    """The queues of this project by alias. Without ``QUEUES["default"]`` the QUEUE_… settings make the default one."""
    configs = {alias: _config(alias, given) for alias, given in get("QUEUES").items()}
    if DEFAULT_ALIAS not in configs:
        configs[DEFAULT_ALIAS] = _config(DEFAULT_ALIAS, {"NAME": get("QUEUE_NAME"), "OPTIONS": get("QUEUE_OPTIONS")})
    return configs


def _config(alias: str, given: Mapping[str, Any]) -> QueueConfig:
    return QueueConfig(
        alias,
        given.get("CLASS", get("QUEUE_CLASS")),
        given.get("NAME", alias),
        given.get("CONNECTION", "" if "CLASS" in given else get("QUEUE_CONNECTION")),
        given.get("STORE"),
        given.get("OPTIONS", {}),
        given.get("THROTTLE"),
    )
