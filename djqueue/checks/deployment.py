"""What is fine on a developer's machine only: ``manage.py check --deploy``."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks.security.base import (
    SECRET_KEY_INSECURE_PREFIX,
    SECRET_KEY_MIN_LENGTH,
    SECRET_KEY_MIN_UNIQUE_CHARACTERS,
)
from django.core.exceptions import ImproperlyConfigured

from djqueue import conf
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.checks.catalogue import TAG, say
from djqueue.checks.queues import made
from djqueue.checks.values import accepted
from djqueue.throttle import bare


@register(TAG, deploy=True)
def check_deployment(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E014, W003, W004."""
    if accepted("pickle"):
        yield from (say("E014", where=name) for name, key in _keys() if _is_weak(key))
    for config, queue in made():
        if isinstance(bare(queue), MemoryQueue):
            yield say("W003", alias=config.alias)
    if conf.get("QUEUE_ALWAYS_EAGER") is True:
        yield say("W004")


def _keys() -> Iterator[tuple[str, str | bytes]]:
    """All that a signature may be made with."""
    try:
        yield "SECRET_KEY", settings.SECRET_KEY
    except ImproperlyConfigured:  # it is empty
        yield "SECRET_KEY", ""
    yield from ((f"SECRET_KEY_FALLBACKS[{number}]", key) for number, key in enumerate(settings.SECRET_KEY_FALLBACKS))


def _is_weak(key: str | bytes) -> bool:
    """As Django's own check security.W009 judges, which is but a warning."""
    text = key.decode("latin-1") if isinstance(key, bytes) else key
    few = len(text) < SECRET_KEY_MIN_LENGTH or len(set(text)) < SECRET_KEY_MIN_UNIQUE_CHARACTERS
    return few or text.startswith(SECRET_KEY_INSECURE_PREFIX)
