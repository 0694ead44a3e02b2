"""How full the throttle of a queue is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from djqueue.backends.base import BaseQueue
from djqueue.flow.windows import Window
from djqueue.throttle import ThrottledQueue
from djqueue.words import age, number


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """The throttle of a queue now; as a text it says what a queue is."""

    window: Window | None
    """The window in force."""
    configured: Window
    """The window of this process, which may be another one."""
    used: int
    is_throttled: bool
    """Whether nothing may leave the queue now."""
    wait: float
    """Seconds until something may, as far as only time decides that; else infinity."""

    def __str__(self) -> str:
        wait = f" for {age(self.wait)}" if self.wait < inf else ""
        state = f"throttled{wait}" if self.is_throttled else "not throttled now"
        settings = "" if self.window == self.configured else f"; its settings say {self.configured}"
        return f"{state} (at most {self.window}, {number(self.used)} used{settings})"


def throttle_of(queue: BaseQueue) -> ThrottleState | None:
    """The throttle of a queue; to ask spends nothing of it; None without one. Raises what its client raises."""
    if not isinstance(queue, ThrottledQueue):
        return None
    store, limit = queue.store.shared, queue.rate_limit
    grant = store.acquire(limit, 0)
    return ThrottleState(grant.window, limit.window, store.used(limit), bool(grant.reason), grant.retry_after)
