"""What changes about messages that stay where they are: nobody can write on a message at SQS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from djqueue.backends import wire
from djqueue.backends.entries import Entry
from djqueue.backends.sqs_wire import LONGEST_KEPT
from djqueue.backends.store import BaseStore
from djqueue.exceptions import NotSupported


class Changes:
    """What became of entries since they were sent, in the store of their queue, as of so many receives."""

    def __init__(self, name: str, store: Callable[[], BaseStore | None]):
        self._name, self._store = name, store

    def keep(self, entry: Entry, receives: int) -> None:
        """Write down all of an entry but its body, as it is after that receive."""
        head = wire.pack(replace(entry, data=b""))
        self._needed().put(self._key(entry), f"{receives} {head}".encode(), LONGEST_KEPT)

    def of(self, entry: Entry) -> tuple[Entry, int]:
        """The entry as it is, and how many receives that counts."""
        value = self._needed().get(self._key(entry))
        if value is None:
            return entry, 0
        counted, _, head = value.decode().partition(" ")
        return replace(wire.unpack(head), data=entry.data), int(counted)

    def drop(self, entry: Entry) -> None:
        self._needed().drop(self._key(entry))

    def _needed(self) -> BaseStore:
        store = self._store()
        if store is None:
            raise NotSupported(f"The SQS queue {self._name} has no store: a FIFO queue notes there what it gives back.")
        return store

    def _key(self, entry: Entry) -> str:
        return f"sqs:{self._name}:{entry.id}"
