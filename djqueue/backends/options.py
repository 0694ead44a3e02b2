"""What the options REMEMBER_DONE and KEEP_DONE mean, whatever the backend."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from math import inf

from djqueue.exceptions import InvalidQueueError
from djqueue.utils import seconds, whole

KEEP_DONE = 100_000
"""So many ids are kept if only a time bounds them."""


Span = float | timedelta | None


def remembering(remember_done: Span, keep_done: int | None) -> tuple[float, int]:
    """For how many seconds the ids of finished entries are remembered, and how many at most.

    (0, 0) if they are not; infinity if only a count bounds them. Raises InvalidQueueError.
    """
    try:
        if keep_done is not None:
            whole(keep_done, "OPTIONS['KEEP_DONE']", least=0)
        span = 0.0 if remember_done is None else seconds(remember_done, "OPTIONS['REMEMBER_DONE']")
    except (TypeError, ValueError) as error:
        raise InvalidQueueError(str(error)) from error
    if not span and not keep_done:
        return 0.0, 0
    return span or inf, keep_done or KEEP_DONE


class Finished:
    """The ids of finished entries in memory, for ``span`` seconds and ``most`` of them; none for (0, 0)."""

    def __init__(self, span: float, most: int):
        self._span, self._most = span, most
        self._ends: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, id: str) -> bool:
        return id in self._ends

    def add(self, id: str, now: float) -> None:
        if self._span:
            self._ends[id] = now + self._span
            self.forget(now)

    def forget(self, now: float) -> None:
        """They stand in the order in which they ended, so the first to forget is at the front."""
        while self._ends and (len(self._ends) > self._most or next(iter(self._ends.values())) <= now):
            self._ends.popitem(last=False)
