"""A queue around a queue: what is put is never held up, and so many may leave in a window of time.

Whether something may leave is decided by the clock of the store, in one step with the claim where the backend can.
What finds nothing to claim spends nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from djqueue.backends.base import BaseQueue, Budget, Claimed, LeasedQueue
from djqueue.exceptions import InvalidQueueError
from djqueue.flow.windows import Window
from djqueue.utils import nearest

SETTINGS = ("limit", "window", "moderate", "elastic", "elastic_buffer", "window_name", "mod_name")
"""What a throttle is told, here and as ``QUEUES[alias]["THROTTLE"]``."""
REQUIRED = ("limit", "window")
ELSEWHERE = {"NAME": "window_name"}
"""What a command's Throttle calls them."""
OWN = "queue:"
"""With this begin the names of budgets that belong to one queue."""
LONGEST_NAME = 200
"""Characters of a name that queues share a budget by."""

PASSED = (
    # what it is
    "alias", "bytes_at_once", "cannot", "connection", "database", "dead", "lease", "logical", "name", "on_commit",
    "options", "poll", "store", "wakes",
    # of the four verbs, those that take nothing out
    "flush", "write",
    # of what the consumer calls, all but the claims
    "begin", "bury", "complete", "defer", "put", "reap", "release", "revive", "stats", "sweep", "touch",
    # what operators call
    "amend", "find", "lane", "lanes", "open_lane", "park_lane", "peek", "remove", "reprioritise", "trim",
    # time and connection
    "check", "close", "describe", "now",
)  # fmt: skip
"""What a throttled queue has and does as the queue within: all of the contract that takes nothing out of it."""


class _Passed:
    """An attribute or a verb of the queue within."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, queue: ThrottledQueue | None, owner: type | None = None) -> Any:
        return self if queue is None else getattr(queue.queue, self._name)

    def __set__(self, queue: ThrottledQueue, value: object) -> None:
        setattr(queue.queue, self._name, value)


def _passing(names: Sequence[str]):
    def on(cls: type) -> type:
        for name in names:
            setattr(cls, name, _Passed(name))
        return cls

    return on


@_passing(PASSED)
class ThrottledQueue(BaseQueue):
    """The queue ``queue``, of which at most ``limit`` entries leave in any interval of ``window`` seconds.

    ``moderate`` spaces them evenly, ``window / limit`` seconds apart (with a limit of one that is nothing new). With
    ``elastic`` too, once ``limit`` of them left, spacing is given up while more than ``elastic_buffer`` of the slots of
    the last window are unused: what fell behind catches up, within the limit. Queues that have the same ``window_name``
    share what may leave, if they are on one server or database; those with the same ``mod_name`` share the spacing. Of
    different settings the stricter hold while both are in use.

    ``queue.limit = 10`` and ``queue.window = 2`` hold at once, for all processes, whatever their own settings say; what
    has left counts. A limit of 0 is a pause. Raises TypeError or ValueError for settings that make no sense,
    InvalidQueueError for a queue without a store.
    """

    def __init__(
        self,
        queue: BaseQueue,
        *,
        limit: int,
        window: float | timedelta,
        moderate: bool = False,
        elastic: bool = False,
        elastic_buffer: int = 0,
        window_name: str | None = None,
        mod_name: str | None = None,
    ):
        self.queue = _with_store(queue)
        self.window_name, self.mod_name = _name(window_name, "window_name"), _name(mod_name, "mod_name")
        span = Window(limit, window, moderate, elastic, elastic_buffer)
        if mod_name is not None and not moderate:
            raise ValueError("mod_name shares the spacing that moderate=True makes: give both, or neither.")
        self.budget = self._given_budget = Budget(self.window_name or queue.own_budget, span, self.mod_name or "")

    # ---- the settings

    @property
    def limit(self) -> int:
        """How many may leave in a window."""
        return self.budget.window.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._change(limit=limit)

    @property
    def window(self) -> float:
        """Its length in seconds."""
        return self.budget.window.seconds

    @window.setter
    def window(self, window: float | timedelta) -> None:
        self._change(seconds=window)

    def _change(self, **settings) -> None:
        budget = replace(self.budget, window=replace(self.budget.window, **settings))
        self.store.shared.change_budget(budget)
        self.budget = budget

    @property
    def moderation(self) -> float | None:
        """Seconds between two that leave; None if nothing spaces them."""
        return self.budget.window.spacing / 1e6 or None

    @property
    def elastic(self) -> bool:
        """Whether what fell behind catches up."""
        return self.budget.window.elastic

    @property
    def elastic_buffer(self) -> int:
        """How many slots of a window catching up leaves unused."""
        return self.budget.window.buffer

    @property
    def own_budget(self) -> str:
        """The name of the budget that a throttle around this one has: several windows may hold at once."""
        return f"{self.queue.own_budget}:outer"

    # ---- what is throttled

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """As the contract says, within the throttle; nothing of it waits for a worker. Tells :attr:`refusal`."""
        if limit <= ahead:
            return Claimed((), 0.0)
        claimed = self.queue.claim_within(self.budget, limit - ahead, lease, owner, begin)
        self._told.refusal = claimed.refusal
        return claimed

    read = LeasedQueue.read

    def clear(self) -> None:
        """Flush, and forget what was spent: of everybody who has its ``window_name``, if it has one."""
        self.queue.clear()
        self.reset()

    def reset(self) -> None:
        """Forget what was spent, and what was set while it was in use; the items stay.

        That is so for everybody who has its ``window_name``, if it has one: settings hold again.
        """
        self.store.shared.forget_budget(self.budget)
        self.budget = self._given_budget

    # ---- the rest

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def feed(self) -> Hashable:
        return (type(self), self.queue.feed)

    @property
    def server(self) -> Hashable:
        return self.queue.server

    def nap(self, seconds: float, beside: Sequence[ThrottledQueue] = ()) -> bool:
        return self.queue.nap(seconds, [other.queue for other in beside])

    def nap_until(self, due: float, pause: float, beside: Sequence[ThrottledQueue] = ()) -> bool:
        return self.queue.nap_until(due, pause, [other.queue for other in beside])


def bare(queue: BaseQueue) -> BaseQueue:
    """The queue within all that is around it."""
    while isinstance(queue, ThrottledQueue):
        queue = queue.queue
    return queue


def throttled(queue: BaseQueue, given: dict[str, Any], where: str) -> ThrottledQueue:
    """The queue with the throttle that a setting describes. Raises InvalidQueueError that names the setting."""
    for key in given:
        if key not in SETTINGS:
            meant = nearest(key, SETTINGS, ELSEWHERE)
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(SETTINGS)}."
            raise InvalidQueueError(f"{where} has the unknown key {key!r}: {hint}")
    if lacking := [key for key in REQUIRED if key not in given]:
        raise InvalidQueueError(f"{where} lacks {' and '.join(map(repr, lacking))}: give limit and window, in seconds.")
    try:
        return ThrottledQueue(queue, **given)
    except (TypeError, ValueError) as error:
        raise InvalidQueueError(f"{where}: {error}") from error


def _with_store(queue: object) -> BaseQueue:
    if not isinstance(queue, BaseQueue):
        raise TypeError(f"A ThrottledQueue goes around a queue, not around {queue!r}.")
    if queue.store is None or "facts" in queue.cannot:
        raise InvalidQueueError(
            f"The queue {queue.name!r} has no store to keep in what has left: a throttled queue needs one."
        )
    return queue


def _name(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME or value.startswith(OWN):
        raise ValueError(f"{what} is {value!r}: give a text of 1 to {LONGEST_NAME} characters, not beginning {OWN!r}.")
    return value
