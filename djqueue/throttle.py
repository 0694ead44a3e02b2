"""A queue around a queue that lets a number of entries leave in a window of time; what is put is never held up.

That is decided by the clock of the store, in one step with the claim where the backend can. A claim that finds nothing
spends nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from djqueue.backends.base import BaseQueue, Claimed, LeasedQueue, RateLimit
from djqueue.exceptions import InvalidQueueError
from djqueue.flow.windows import Window
from djqueue.utils import near, seconds

SETTINGS = ("limit", "window", "moderate", "elastic", "elastic_buffer", "window_name", "mod_name")
"""The settings of a throttle, here and as ``QUEUES[alias]["THROTTLE"]``."""
REQUIRED = ("limit", "window")
OWN = "queue:"
"""With this begin the names of rate limits that belong to one queue."""
LONGEST_NAME = 200
"""Characters of a name that queues share a rate limit by."""

TAKES_OUT = frozenset({"claim_within", "pop", "refusal", "reserve", "take", "take_many"})
"""The verbs that BaseQueue makes of ``claim``: they are throttled too. All others are those of the queue within."""


class ThrottledQueue(BaseQueue):
    """The queue ``queue``, which lets at most ``limit`` entries leave in any interval of ``window`` seconds.

    ``moderate`` spaces them evenly, ``window / limit`` seconds apart (with a limit of one that is nothing new). With
    ``elastic`` too, once ``limit`` of them left, spacing is given up while more than ``elastic_buffer`` of the slots of
    the last window are unused: delayed entries catch up, within the limit. Queues that have the same ``window_name``
    share the limit, if they are on one server or database; queues with the same ``mod_name`` share the spacing. Of
    different settings the stricter hold while both are in use.

    ``queue.limit = 10`` and ``queue.window = 2`` hold at once, for all processes, whatever their own settings are;
    earlier entries count. A limit of 0 is a pause. Raises TypeError or ValueError for invalid settings,
    InvalidQueueError for a queue without a store.
    """

    def __new__(cls, *given: Any, **settings: Any) -> Self:
        """Refuses arguments as other packages take them. A subclass may take others."""
        if cls.__init__ is ThrottledQueue.__init__:
            if len(given) > 1:
                raise TypeError(
                    "ThrottledQueue takes a queue, and its settings by name: ThrottledQueue(queue, limit=10, window=5)."
                )
            for name in settings.keys() - {"queue", *SETTINGS}:
                raise TypeError(f"ThrottledQueue has no setting {name!r}: {near(name, SETTINGS)}")
        return super().__new__(cls, *given, **settings)

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
        if not isinstance(queue, BaseQueue):
            raise TypeError(f"A ThrottledQueue goes around a queue, not around {queue!r}.")
        if queue.store is None or "facts" not in queue.features:
            raise InvalidQueueError(
                f"The queue {queue.name!r} has no store, which a throttled queue needs to count: give it a STORE."
            )
        self.queue = queue
        self.window_name, self.mod_name = _name(window_name, "window_name"), _name(mod_name, "mod_name")
        span = Window(limit, seconds(window, "window", least=0.001), moderate, elastic, elastic_buffer)
        if mod_name is not None and not moderate:
            raise ValueError("mod_name shares the spacing that moderate=True makes: give both, or neither.")
        self.rate_limit = self._given_rate_limit = RateLimit(
            self.window_name or queue.own_rate_limit, span, self.mod_name or ""
        )

    # ---- the settings

    @property
    def limit(self) -> int:
        """How many may leave in a window."""
        return self.rate_limit.window.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._change(limit=limit)

    @property
    def window(self) -> float:
        """Its length in seconds."""
        return self.rate_limit.window.seconds

    @window.setter
    def window(self, window: float | timedelta) -> None:
        self._change(seconds=window)

    def _change(self, **settings) -> None:
        rate_limit = replace(self.rate_limit, window=replace(self.rate_limit.window, **settings))
        self.store.shared.change_rate_limit(rate_limit)
        self.rate_limit = rate_limit

    @property
    def moderation(self) -> float | None:
        """Seconds between two that leave; None if nothing spaces them."""
        return self.rate_limit.window.spacing / 1e6 or None

    @property
    def elastic(self) -> bool:
        """Whether what fell behind catches up."""
        return self.rate_limit.window.elastic

    @property
    def elastic_buffer(self) -> int:
        """How many slots of a window catching up leaves unused."""
        return self.rate_limit.window.buffer

    @property
    def own_rate_limit(self) -> str:
        """The name of the rate limit that a throttle around this one has: several windows may hold at once."""
        return f"{self.queue.own_rate_limit}:outer"

    # ---- what is throttled

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed:
        """As in the contract, within the throttle; no unit waits for a worker. Sets :attr:`refusal`."""
        if limit <= ahead:
            return Claimed((), 0.0)
        claimed = self.queue.claim_within(self.rate_limit, limit - ahead, lease, owner, begin)
        self._last_claim.refusal = claimed.refusal
        return claimed

    read = LeasedQueue.read

    def clear(self) -> None:
        """Flush, and forget what was spent, for all queues with the same ``window_name``."""
        self.queue.clear()
        self.reset()

    def reset(self) -> None:
        """Forget what was spent, and settings that were changed, for all queues with the same ``window_name``."""
        self.store.shared.forget_rate_limit(self.rate_limit)
        self.rate_limit = self._given_rate_limit

    # ---- the rest

    def __len__(self) -> int:
        return len(self.queue)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the queue within beyond the contract, such as the bell that a wait for several queues uses."""
        if name == "queue":
            raise AttributeError(name)
        return getattr(self.queue, name)

    @property
    def connection_key(self) -> Hashable:
        return (type(self), self.queue.connection_key)


def _of_the_queue_within(name: str) -> property:
    return property(lambda self: getattr(self.queue, name), lambda self, value: setattr(self.queue, name, value))


for _verb in dir(BaseQueue):
    if (
        hasattr(BaseQueue, _verb)
        and not _verb.startswith("_")
        and _verb not in TAKES_OUT
        and _verb not in vars(ThrottledQueue)
    ):
        setattr(ThrottledQueue, _verb, _of_the_queue_within(_verb))


def unthrottled(queue: BaseQueue) -> BaseQueue:
    """The queue of the backend itself: this one, or the queue within throttled ones."""
    while isinstance(queue, ThrottledQueue):
        queue = queue.queue
    return queue


def throttled(queue: BaseQueue, given: Mapping[str, Any], where: str) -> ThrottledQueue:
    """The queue with the throttle that a setting describes. Raises InvalidQueueError that names the setting."""
    for key in given:
        if key not in SETTINGS:
            raise InvalidQueueError(f"{where} has the unknown key {key!r}: {near(key, SETTINGS)}")
    if lacking := [key for key in REQUIRED if key not in given]:
        raise InvalidQueueError(f"{where} lacks {' and '.join(map(repr, lacking))}: give limit and window, in seconds.")
    try:
        return ThrottledQueue(queue, **given)
    except (TypeError, ValueError) as error:
        raise InvalidQueueError(f"{where}: {error}") from error


def _name(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME or value.startswith(OWN):
        raise ValueError(f"{what} is {value!r}: give a text of 1 to {LONGEST_NAME} characters, not beginning {OWN!r}.")
    return value
