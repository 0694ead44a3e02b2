"""Deleting all waiting or failed messages of a queue."""

from __future__ import annotations

from djqueue.backends.base import BaseQueue
from djqueue.operations.actions import record


def count(queue: BaseQueue, failed: bool = False) -> int:
    """How many messages a purge would delete, as far as the backend counts."""
    stats = queue.stats()
    return (stats.failed or 0) if failed else stats.ready + (stats.delayed or 0)


def purge(queue: BaseQueue, failed: bool = False, by: str = "") -> int:
    """Delete all waiting or all failed messages, and return about how many; running ones continue."""
    there = count(queue, failed)
    if failed and queue.failed is not None:
        queue.failed.flush()
    elif not failed:
        queue.flush()
    if there:
        record(queue, "purge", "what has failed" if failed else "what waits", there, by)
    return there
