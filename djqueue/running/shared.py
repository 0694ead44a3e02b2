"""The stores of what queues share: facts that belong to no queue alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore
from djqueue.exceptions import QueueError

FOR_EVER = 50 * 365 * 86_400.0  # seconds: a fact that is compared and set needs a time to live
TRIES = 100  # of a change, while other processes change the same fact


class Shared(NamedTuple):
    """A store of shared facts, and the queues that share it."""

    store: BaseStore
    queues: list[BaseQueue]


def shared_stores(queues: Iterable[BaseQueue]) -> list[Shared]:
    """The shared stores of some queues, each once; none of a queue that keeps no facts."""
    found: dict[Hashable, Shared] = {}
    for queue in queues:
        if "facts" in queue.features:
            found.setdefault(queue.store.place, Shared(queue.store.shared, [])).queues.append(queue)
    return list(found.values())


def change(store: BaseStore, key: str, how: Callable[[bytes | None], bytes | None], ttl: float = FOR_EVER) -> bool:
    """Set a fact to what ``how`` makes of it (None: there is none), against others; whether that was a change."""
    for _ in range(TRIES):
        was = store.get(key)
        wanted = how(was)
        if wanted == was:
            return False
        if store.swap_many([(key, was, wanted)], ttl):
            return True
    raise QueueError(f"Other processes changed {key!r} {TRIES} times meanwhile: try again.")
