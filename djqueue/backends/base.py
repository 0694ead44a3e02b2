"""The base classes of a backend, and the values and stores that it deals with."""

from __future__ import annotations

from functools import partialmethod
from typing import NoReturn

from djqueue.backends.entries import (
    PAGE,
    Claimed,
    Entry,
    Fact,
    LaneRecord,
    Lease,
    Leases,
    QueueStats,
    Reaped,
    Record,
    Refusal,
    listed,
)
from djqueue.backends.guards import DebounceGuard, Guard, OnceGuard, UniqueGuard
from djqueue.backends.history import BaseHistory, HistoryRow
from djqueue.backends.items import ItemVerbs
from djqueue.backends.lanes import BaseLanes
from djqueue.backends.stores import BaseStore, NoStore, RateLimit
from djqueue.backends.verbs import FAILED_SUFFIX, FEATURES, ConsumerVerbs, OperatorVerbs, Unanswered, walk
from djqueue.exceptions import InvalidMessage, NotSupported
from djqueue.hints import answering
from djqueue.messages.envelope import new_id

__all__ = [
    "FAILED_SUFFIX",
    "FEATURES",
    "PAGE",
    "Guard",
    "BaseQueue",
    "BaseHistory",
    "BaseLanes",
    "BaseStore",
    "RateLimit",
    "Claimed",
    "DebounceGuard",
    "Entry",
    "Fact",
    "HistoryRow",
    "OnceGuard",
    "LaneRecord",
    "Lease",
    "LeasedQueue",
    "Leases",
    "NoStore",
    "QueueStats",
    "Reaped",
    "Record",
    "Refusal",
    "Unanswered",
    "UniqueGuard",
    "listed",
    "walk",
]


class QueueVerbs(ItemVerbs, ConsumerVerbs, OperatorVerbs):
    """All that is called of a queue: by a consumer, by operators, and for items."""


@answering("queue")
class BaseQueue(QueueVerbs):
    """A queue in four verbs; all other verbs use these. Messages are delivered at most once.

    A third party writes ``__init__(name, connection)``, ``write``, ``read``, ``flush`` and ``__len__``, and the queue
    works with the consumer. ``read`` removes, so what a worker holds when it dies is lost. A backend that can do better
    derives from :class:`LeasedQueue`.
    """


REQUIRED = ("put", "claim", "complete", "touch", "release", "fail", "stats", "flush")
"""The verbs that every :class:`LeasedQueue` has to write."""


class LeasedQueue(BaseQueue):
    """A queue with leases, at least once: the base of a backend that writes the leased verbs.

    Required are ``put``, ``claim``, ``complete``, ``touch``, ``release``, ``fail``, ``stats`` and ``flush``, and
    ``reap`` unless leases run out by themselves in the store. With "inspect" in :attr:`features`, operators need
    ``requeue``, ``find``, ``remove``, ``amend``, ``peek``, ``reprioritise``, ``promote`` and ``trim`` too. ``write``,
    ``read`` and ``__len__`` come with this class, and all else has a working default. A call of a required verb that
    is missing raises NotSupported, which names it.
    """

    features = FEATURES - {"transaction", "begin", "lanes", "shards", "history"}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for verb in REQUIRED:
            if getattr(cls, verb) is getattr(BaseQueue, verb):
                setattr(cls, verb, partialmethod(LeasedQueue._refuse, verb))

    def _refuse(self, verb: str, *args: object, **kwargs: object) -> NoReturn:
        raise self._cannot(verb)

    def _cannot(self, verb: str) -> NotSupported:
        own = type(self).__name__
        return NotSupported(f"{own} lacks {verb}(): write it, as its LeasedQueue has no default for it.")

    def write(self, data: str) -> None:
        """Put ``data`` as an entry of its own, behind all others of its priority. Raises QueueFull as ``put`` does."""
        self.put([Entry(data.encode(), new_id())])

    def read(self) -> str | None:
        """Claim and complete the next due entry, at most once; its body, None when nothing is due.

        What is no text, as the message of a command, is put aside as ``take`` does it, and InvalidMessage is raised.
        """
        lease = next(iter(self.reserve(1)), None)
        if lease is None:
            return None
        try:
            text = lease.entry.body.decode()
        except UnicodeDecodeError as error:
            self._put_aside(lease, "read() met what is no text")
            raise InvalidMessage("it is no text that write() put: take() items, have a consumer run calls") from error
        self.complete([lease])
        return text

    def __len__(self) -> int:
        stats = self.stats()
        return stats.ready + (stats.delayed or 0)
