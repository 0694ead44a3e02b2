"""The stores of what queues share: facts that belong to no queue alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore
from djqueue.exceptions import QueueError

FOR_EVER = 50 * 365 * 86_400.0  # seconds: a fact that is compared and set needs a time to live
TRIES = 100  # of a change, while other processes change the same fact
How = Callable[[bytes | None], bytes | None]
"""Makes of a fact what it is to be; None: there is none."""


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


def change(store: BaseStore, key: str, how: How, ttl: float = FOR_EVER) -> bool:
    """Set a fact to what ``how`` makes of it (None: there is none), against others; whether that was a change."""
    return change_many(store, {key: how}, ttl)


def change_many(store: BaseStore, hows: Mapping[str, How], ttl: float = FOR_EVER) -> bool:
    """Change facts, each by its function, in one step; whether that was a change. Raises QueueError.

    The answer of a step may be lost, and the next call finds what it has changed: a function that must not do its
    change twice notes it in the fact.
    """
    for _ in range(TRIES):
        found = zip(hows.items(), store.get_many([*hows]), strict=True)
        changes = [(key, was, wanted) for (key, how), was in found if (wanted := how(was)) != was]
        if not changes:
            return False
        if store.swap_many(changes, ttl):
            return True
    names = ", ".join(map(repr, hows))
    raise QueueError(f"Other processes changed {names} {TRIES} times meanwhile: try again.")
