"""Within which time a store must answer the calls of a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


class _Deadline(threading.local):
    seconds: float | None = None
    ends: ExitStack


_deadline = _Deadline()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Around calls of this thread: one that its store does not answer in ``seconds`` raises, and is not repeated.

    What it was to change may be done or not, as after a lost answer.
    """
    outer = vars(_deadline).copy()
    with ExitStack() as ends:
        _deadline.seconds, _deadline.ends = seconds, ends
        try:
            yield
        finally:
            vars(_deadline).clear()
            vars(_deadline).update(outer)


def at_end(call: Callable[[], object]) -> None:
    """Have something called when the deadline of this thread is taken away."""
    _deadline.ends.callback(call)


def deadline() -> float | None:
    """The seconds that a call of this thread has; None: no deadline was set."""
    return _deadline.seconds


def is_over(elapsed: float) -> bool:
    """Whether a call that took so many seconds has waited its deadline out."""
    return _deadline.seconds is not None and elapsed >= _deadline.seconds
