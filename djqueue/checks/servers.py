"""The servers behind the queues.

The checks that connect run with ``manage.py check --database ALIAS``, and for queues that are in no database with
``check --deploy`` too. Before ``migrate`` and ``test`` Django runs the same checks; they ask the databases only.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator

from django.conf import settings
from django.core.checks import CheckMessage, Tags, register
from django.core.checks.security.base import (
    SECRET_KEY_INSECURE_PREFIX,
    SECRET_KEY_MIN_LENGTH,
    SECRET_KEY_MIN_UNIQUE_CHARACTERS,
)
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.checks import TAG, say
from djqueue.checks.settings import accepted, made
from djqueue.throttle import unthrottled

OWN_LOOPS = 5
"""Threads of a consumer that use a database in addition to its workers: for each server the pump, the housekeeper, the
reaper and the scheduler, and the announcer, as receivers of signals may. Each may want one while every worker does."""

USUAL_POOL = 4
"""The ``min_size`` of psycopg's pool, which is its ``max_size`` too unless that is given."""


def databases_of(queue: BaseQueue) -> set[str]:
    """The aliases of the databases that a queue lives in, or keeps its facts in."""
    return {part.database for part in (queue, queue.store) if part is not None and part.database}


@register(TAG)
def check_pools(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """W005. Does not connect."""
    from djqueue.consumer import Options  # here, as a web process has no other use for the consumer

    threads = Options().threads
    needed = threads + OWN_LOOPS
    for alias in sorted({alias for _, queue in made() for alias in databases_of(queue)}):
        size = _pool_size(alias)
        if size is not None and size < needed:
            yield say("W005", alias=alias, size=size, threads=threads, needed=needed, own=OWN_LOOPS)


def _pool_size(alias: str) -> int | None:
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if connections[alias].vendor != "postgresql" or not pool:
        return None
    given = {} if pool is True else pool
    return given.get("max_size") or given.get("min_size", USUAL_POOL)


@register(Tags.database, TAG)
def check_databases(app_configs=None, databases: Collection[str] | None = None, **kwargs) -> list[CheckMessage]:
    """E2…, W2…, of the databases given."""
    from djqueue.backends.database import checks  # here, as it imports models

    chosen = set(databases or ())
    queues = [queue for _, queue in made()]
    aliases = sorted({alias for queue in queues for alias in databases_of(queue) & chosen})
    found = [message for alias in aliases for message in checks.check(alias)]
    said = (message for queue in queues if queue.database in chosen for message in queue.check())
    messages = [*found, *said]
    if _is_command("migrate"):  # it runs this very check before it makes the tables
        return _once(message for message in messages if message.id != checks.LACKING)
    if _is_command("check") and "--deploy" not in sys.argv:
        messages += check_other_servers()
    return _once(messages)


def _is_command(name: str) -> bool:
    """Whether this process was started as that command of manage.py."""
    return sys.argv[1:2] == [name]


@register(TAG, deploy=True)
def check_other_servers(app_configs=None, **kwargs) -> list[CheckMessage]:
    """E1…, W1…, and what third-party backends report."""
    others = [queue for _, queue in made() if not queue.database]
    return _once(message for queue in others for message in queue.check())


def _once(messages: Iterable[CheckMessage]) -> list[CheckMessage]:
    """Each message once: all queues of one server report the same."""
    found: list[CheckMessage] = []
    for message in messages:  # which has no hash
        if message not in found:
            found.append(message)
    return found


# ---- What is fine on a developer's machine only: ``manage.py check --deploy``


@register(TAG, deploy=True)
def check_deployment(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E014, W003, W004."""
    if accepted("pickle"):
        yield from (say("E014", where=name) for name, key in _keys() if _is_weak(key))
    for config, queue in made():
        if isinstance(unthrottled(queue), MemoryQueue):
            yield say("W003", alias=config.alias)
    if conf.get("QUEUE_ALWAYS_EAGER") is True:
        yield say("W004")


def _keys() -> Iterator[tuple[str, str | bytes]]:
    """All keys that a signature may be made with."""
    try:
        yield "SECRET_KEY", settings.SECRET_KEY
    except ImproperlyConfigured:  # it is empty
        yield "SECRET_KEY", ""
    yield from ((f"SECRET_KEY_FALLBACKS[{number}]", key) for number, key in enumerate(settings.SECRET_KEY_FALLBACKS))


def _is_weak(key: str | bytes) -> bool:
    """Whether a key is weak by the rule of Django's own check security.W009, which is only a warning."""
    text = key.decode("latin-1") if isinstance(key, bytes) else key
    few = len(text) < SECRET_KEY_MIN_LENGTH or len(set(text)) < SECRET_KEY_MIN_UNIQUE_CHARACTERS
    return few or text.startswith(SECRET_KEY_INSECURE_PREFIX)
