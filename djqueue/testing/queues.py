"""Queues that are a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.test import override_settings

from djqueue import conf
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.wiring import Queues
from djqueue.wiring import queues as all_queues


@contextmanager
def memory_queues() -> Iterator[Queues]:
    """Have an empty queue in memory under every alias of QUEUES, and ``QUEUE_ALWAYS_EAGER`` off; yields ``queues``.

    A block, or a decorator of a test; in a whole class: ``self.enterContext(memory_queues())`` in its ``setUp``. The
    queues keep their names, and those options that a queue in memory has; they are not throttled. Enter it before
    anything is enqueued: a call that waits for a commit goes to the queue of the time of the call.
    """
    given = {alias: _in_memory(config) for alias, config in conf.queue_configs().items()}
    with override_settings(QUEUES=given, QUEUE_ALWAYS_EAGER=False):
        yield all_queues


def _in_memory(config: conf.QueueConfig) -> dict[str, Any]:
    known = MemoryQueue.options.union(conf.COMMON_OPTIONS)
    options = {name: value for name, value in config.options.items() if name in known}
    base = {"CLASS": f"{MemoryQueue.__module__}.{MemoryQueue.__qualname__}", "NAME": config.name, "OPTIONS": options}
    return base | ({"STORE": False} if config.store is False else {})
