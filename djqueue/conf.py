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

DEFAULTS: dict[str, Any] = {
    "QUEUES": {},
    "QUEUE_CLASS": "djqueue.backends.database.DatabaseQueue",
    "QUEUE_NAME": "default",
    "QUEUE_CONNECTION": "",
    "QUEUE_OPTIONS": {},
    "QUEUE_ALWAYS_EAGER": False,
    "QUEUE_CODEC": "pickle",
    "QUEUE_ACCEPT": ("pickle", "json"),
    "QUEUE_MODELS": "pickle",
    "QUEUE_MAX_MESSAGE_SIZE": 2**20,
    "QUEUE_MAX_LOST": 3,
    "QUEUE_MAX_STARTS": 1000,
    "QUEUE_UNKNOWN_AFTER": 3600,
    "QUEUE_RETRY_ON": (),
    "QUEUE_MAX_ATTEMPTS": 5,
    "QUEUE_TIME_LIMIT_GRACE": 5,
    "QUEUE_RESULT_TTL": None,
    "QUEUE_MAX_ERRORS": None,
    "QUEUE_MAX_ERROR_AGE": None,
    "QUEUE_COORDINATOR_DELAY": 1.0,
    "QUEUE_COORDINATOR_PREFIX": "",
    "QUEUE_COORDINATOR_TIMEOUT": 60.0,
    "QUEUE_DEFAULT_PRIORITY": 0,
    "QUEUE_DEFAULT_THREAD": 0,
    "QUEUE_TUBE_PREFIX": "",
    "QUEUE_WORKER_BATCH_SIZE": 128,
    "QUEUE_WORKER_EMPTY_LIMIT": 16,
    "QUEUE_WORKER_EMPTY_PAUSE": 0.1,
}
"""Every setting of djqueue, with its default."""


def _thread(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


FROM_ENVIRONMENT: dict[str, tuple[Callable[[str], Any], str]] = {
    "QUEUE_COORDINATOR_DELAY": (float, "seconds"),
    "QUEUE_COORDINATOR_PREFIX": (str, "a text"),
    "QUEUE_COORDINATOR_TIMEOUT": (float, "seconds"),
    "QUEUE_DEFAULT_PRIORITY": (int, "a whole number"),
    "QUEUE_DEFAULT_THREAD": (_thread, "a whole number, or a text"),
    "QUEUE_TUBE_PREFIX": (str, "a text"),
    "QUEUE_WORKER_BATCH_SIZE": (int, "a whole number"),
    "QUEUE_WORKER_EMPTY_LIMIT": (int, "a whole number"),
    "QUEUE_WORKER_EMPTY_PAUSE": (float, "seconds"),
}
"""The settings that, where the project says nothing, environment variables of the same name say: their types."""

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
    return _from_environment(name) if value is _UNSAID else value


def comes_from_environment(name: str) -> bool:
    """Whether an environment variable says a setting, and the project does not."""
    return name in FROM_ENVIRONMENT and name in os.environ and getattr(settings, name, _UNSAID) is _UNSAID


def _from_environment(name: str) -> Any:
    text = os.environ.get(name) if name in FROM_ENVIRONMENT else None
    if text is None:
        return DEFAULTS[name]
    kind, wanted = FROM_ENVIRONMENT[name]
    try:
        return kind(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"The environment variable {name} is {text!r}: give {wanted}.") from error


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
    configs = {alias: _from_dict(alias, given) for alias, given in get("QUEUES").items()}
    configs.setdefault(DEFAULT_ALIAS, _from_settings())
    return configs


def _from_settings() -> QueueConfig:
    return QueueConfig(
        DEFAULT_ALIAS,
        get("QUEUE_CLASS"),
        get("QUEUE_NAME"),
        get("QUEUE_CONNECTION"),
        options=get("QUEUE_OPTIONS"),
    )


def _from_dict(alias: str, given: Mapping[str, Any]) -> QueueConfig:
    return QueueConfig(
        alias,
        given.get("CLASS", get("QUEUE_CLASS")),
        given.get("NAME", alias),
        given.get("CONNECTION", "" if "CLASS" in given else get("QUEUE_CONNECTION")),
        given.get("STORE"),
        given.get("OPTIONS", {}),
        given.get("THROTTLE"),
    )
