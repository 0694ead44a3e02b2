"""Where queues keep what they share: the facts that are of no queue alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore


class Place(NamedTuple):
    """A store of shared facts, and the queues that share it."""

    store: BaseStore
    queues: list[BaseQueue]


def shared_stores(queues: Iterable[BaseQueue]) -> list[Place]:
    """The shared stores of some queues, each once; none of a queue that has no store."""
    places: dict[Hashable, Place] = {}
    for queue in queues:
        if "facts" in queue.features:
            places.setdefault(queue.store.place, Place(queue.store.shared, [])).queues.append(queue)
    return list(places.values())
