"""What operators did to the queues: who, when, what and to how many. The store keeps the last of these actions."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
from collections.abc import Iterable
from typing import NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore
from djqueue.exceptions import QueueError
from djqueue.running.places import shared_stores
from djqueue.utils import plain, tell
from djqueue.wiring import queues as all_queues

logger = logging.getLogger(__name__)

KEY = "actions"
MOST = 200
"""Actions that a store keeps."""
KEPT = 365 * 86_400.0  # seconds after the last action
TRIES = 100  # of a change, while other processes record too


class Action(NamedTuple):
    """One action of an operator."""

    at: float
    """When, in epoch seconds by the clock of the store."""
    by: str
    """Who: ``user@host``, or what the caller gave."""
    queue: str
    """The alias of the queue."""
    action: str
    """What was done, as a verb: pause, resume, cancel, remove, requeue, …"""
    what: str
    """To what, in words."""
    count: int
    """To how many."""


def operator() -> str:
    """Who runs this process: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def record(queue: BaseQueue, action: str, what: str, count: int, by: str = "") -> None:
    """Record an action that was done, in the log and, if the queue has one, in its store.

    ``by`` is :func:`operator` by default. It never raises: the action is done, and is not to be repeated.
    """
    by = by or operator()
    told = plain(by), plain(action), plain(what), queue.alias, count
    extra = {"event": "operated", "queue": queue.alias, "count": count}
    tell(logger, logging.INFO, "%s: %s %s (queue %s, count %d)", *told, extra=extra)
    if "facts" in queue.features:
        try:
            store = queue.store.shared
            _add(store, Action(store.now(), by, queue.alias, action, what, count))
        except Exception as error:
            tell(logger, logging.ERROR, "An action could not be recorded", exc_info=error, extra=extra)


def actions(aliases: Iterable[str] | None = None, limit: int = MOST) -> list[Action]:
    """The last actions on these queues (aliases of QUEUES, all by default), the newest first."""
    chosen = list(dict.fromkeys(all_queues if aliases is None else aliases))
    places = shared_stores(all_queues[alias] for alias in chosen)
    found = [action for place in places for action in _read(place.store.get(KEY)) if action.queue in chosen]
    return sorted(found, key=lambda action: -action.at)[:limit]


def _add(store: BaseStore, action: Action) -> None:
    for _ in range(TRIES):
        was = store.get(KEY)
        kept = [*_read(was), action][-MOST:]
        if store.swap(KEY, was, json.dumps(kept).encode(), KEPT):
            return
    raise QueueError(f"Other processes recorded actions {TRIES} times meanwhile.")


def _read(text: bytes | None) -> list[Action]:
    """The actions in a fact; none if it cannot be read."""
    try:
        return [Action(float(at), *map(str, words), int(count)) for at, *words, count in json.loads(text or b"[]")]
    except (TypeError, ValueError):
        return []
