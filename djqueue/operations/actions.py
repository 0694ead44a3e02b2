"""What operators did to the queues: who, when, what and to how many; the store keeps the last actions."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running.shared import change, shared_stores
from djqueue.utils import UNREADABLE, json_list, log_safely, plain
from djqueue.wiring import queues as all_queues

logger = logging.getLogger(__name__)

KEY = "actions"
MOST = 200
"""Actions that a store keeps."""
KEPT = 365 * 86_400.0  # seconds after the last action


@report_row
class Action:
    """One action of an operator."""

    at: float = column("when", Kind.AGE)
    """When, in epoch seconds by the clock of the store."""
    by: str = column("who", Kind.NAME)
    """Who: ``user@host``, or what the caller gave."""
    queue: str = column("queue", Kind.QUEUE)
    """The alias of the queue."""
    action: str = column("action", Kind.NAME)
    """What was done, as a verb: pause, resume, cancel, remove, requeue, …"""
    what: str = column("what")
    """To what, in words."""
    count: int = column("how many", Kind.NUMBER)
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

    ``by`` is :func:`operator` by default. It never raises: the action is done, and must not be repeated.
    """
    by = by or operator()
    words = plain(by), plain(action), plain(what), queue.alias, count
    extra = {"event": "operated", "queue": queue.alias, "count": count}
    log_safely(logger, logging.INFO, "%s: %s %s (queue %s, count %d)", *words, extra=extra)
    if "facts" in queue.features:
        try:
            store = queue.store.shared
            _add(store, Action(store.now(), by, queue.alias, action, what, count))
        except Exception as error:
            log_safely(logger, logging.ERROR, "An action could not be recorded", exc_info=error, extra=extra)


def actions(aliases: Iterable[str] | None = None, limit: int = MOST) -> list[Action]:
    """The last actions on these queues (aliases of QUEUES, all by default), the newest first."""
    chosen = list(dict.fromkeys(all_queues if aliases is None else aliases))
    stores = [shared.store for shared in shared_stores(all_queues[alias] for alias in chosen)]
    found = [action for store in stores for action in _read(store.get(KEY)) if action.queue in chosen]
    found.reverse()  # of one moment, the latest comes first too
    return sorted(found, key=lambda action: -action.at)[:limit]


def _add(store: BaseStore, action: Action) -> None:
    change(store, KEY, lambda was: json.dumps([astuple(one) for one in [*_read(was), action][-MOST:]]).encode(), KEPT)


def _read(text: bytes | None) -> list[Action]:
    """The actions in a fact, except what cannot be read."""
    actions = map(_action_of, json_list(text))
    return [one for one in actions if one is not None]


def _action_of(fields: Any) -> Action | None:
    """An action as it was written, perhaps by a version with more fields; None if it cannot be read."""
    try:
        at, by, queue, action, what, count, *_ = fields
        return Action(float(at), str(by), str(queue), str(action), str(what), int(count))
    except UNREADABLE:
        return None
