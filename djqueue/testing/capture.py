"""What a block of a test enqueues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import connections

from djqueue import signals
from djqueue.enqueueing.on_commit import registered, run_registered, savepoints_of
from djqueue.testing.assertions import Enqueued, refuse_eager
from djqueue.wiring import queues


def capture_enqueued(using: str = "default") -> AbstractContextManager[list[Enqueued]]:
    """Run on_commit callbacks at the end of the block, as a commit does; yields a list of the enqueued messages::

        with capture_enqueued() as calls:
            self.client.post("/photos/", {"file": photo})
        assert [call.command for call in calls] == ["gallery.commands.make_thumbnails"]

    A ``TestCase`` never commits, so calls to be sent on commit are never sent there. At the end of this block the
    ``transaction.on_commit`` callbacks of the database alias ``using`` that were registered in it are run, once and in
    their order, djqueue's and all others, and at once what they register; an exception in one is raised, unless it was
    registered as robust. So are the callbacks of each other database that has a queue in it. The list has all messages
    that the queues accepted, in that order, also those sent at once; a message that is sent on commit, or is part of a
    transaction, is in it after the block.

    If the block raises, no callback is run. Raises RuntimeError while ``QUEUE_ALWAYS_EAGER`` is on.
    """
    refuse_eager()
    return enqueued_on_commit(using)


@contextmanager
def enqueued_on_commit(using: str = "default") -> Iterator[list[Enqueued]]:
    """:func:`capture_enqueued`, also for ``QUEUE_ALWAYS_EAGER``: callbacks are run then, and the list stays empty."""
    enqueued: list[Enqueued] = []

    def note(sender: str, id: str, queue_name: str, **kwargs) -> None:
        queue = queues[queue_name]
        record = queue.find(id) if "inspect" in queue.features else None
        entry, at = (None, None) if record is None else (record.entry, record.at)
        enqueued.append(Enqueued(id, sender, queue_name, entry, at))

    used = [connections[alias] for alias in _databases(using)]
    before = list(map(savepoints_of, used))
    signals.enqueued.connect(note)
    try:
        yield enqueued
        while any(map(registered, used, before)):
            for connection, earlier in zip(used, before, strict=True):
                run_registered(connection, earlier)
    finally:
        signals.enqueued.disconnect(note)


def _databases(using: str) -> list[str]:
    """The aliases of databases: the given one first, then the databases of the queues."""
    held = [queues[alias].database for alias in queues]
    return list(dict.fromkeys([using, *(alias for alias in held if alias is not None)]))
