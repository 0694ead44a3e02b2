"""What a plain test of a project enqueues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connections

from djqueue import events
from djqueue.queues import queues

logger = logging.getLogger(__name__)


class Enqueued(NamedTuple):
    """A message that a queue has accepted."""

    id: str
    command: str
    """The command's name, ``"app.commands.churn_data"``."""
    queue_name: str
    """The alias of its queue."""


@contextmanager
def enqueued_on_commit(using: str = "default") -> Iterator[list[Enqueued]]:
    """Commit, as far as callbacks are concerned, at the end of the block; yields a list of what was enqueued::

        with enqueued_on_commit() as enqueued:
            self.client.post("/photos/", {"file": photo})
        assert [message.command for message in enqueued] == ["gallery.commands.make_thumbnails"]

    A ``TestCase`` never commits, so what is sent on commit is never sent there. At the end of this block the
    ``transaction.on_commit`` callbacks of the database alias ``using`` that were registered in it are run, once and in
    their order, djqueue's and all others, and what they register as well; an exception in one is raised, unless it was
    registered as robust. So are those of each other database that has a queue in it. The list has what the queues
    accepted, in that order, what was sent at once included; what is sent on commit, or is part of a transaction,
    stands in it after the block.

    If the block raises, no callback is run. Nothing is enqueued, and nothing told, while ``QUEUE_ALWAYS_EAGER`` is on.
    """
    enqueued: list[Enqueued] = []

    def note(sender: str, id: str, queue_name: str, **kwargs) -> None:
        enqueued.append(Enqueued(id, sender, queue_name))

    starts = {alias: len(connections[alias].run_on_commit) for alias in _databases(using)}
    events.enqueued.connect(note)
    try:
        yield enqueued
        while registered := [alias for alias, start in starts.items() if len(connections[alias].run_on_commit) > start]:
            _, callback, robust = connections[registered[0]].run_on_commit.pop(starts[registered[0]])
            _run(callback, robust)
    finally:
        events.enqueued.disconnect(note)


def _databases(using: str) -> list[str]:
    """The alias that was given first, then those of the queues."""
    held = [queues[alias].database for alias in queues]
    return list(dict.fromkeys([using, *(alias for alias in held if alias is not None)]))


def _run(callback: Callable[[], object], robust: bool) -> None:
    try:
        callback()
    except Exception:
        if not robust:
            raise
        logger.exception("An on_commit callback failed")
