"""Within which time a store must answer the calls of a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


class _Deadline(threading.local):
    """The deadline of the calling thread. Each call of a store reads it, so it is an attribute and no function."""

    seconds: float | None = None
    """How long a call may take; None: no deadline was set."""
    ends: ExitStack


current = _Deadline()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Around calls of this thread: one that its store does not answer in ``seconds`` raises, and is not repeated.

    What it was to change may be done or not, as after a lost answer.
    """
    outer = vars(current).copy()
    with ExitStack() as ends:
        current.seconds, current.ends = seconds, ends
        try:
            yield
        finally:
            vars(current).clear()
            vars(current).update(outer)


def at_end(call: Callable[[], object]) -> None:
    """Have something called when the deadline of this thread is taken away."""
    current.ends.callback(call)


def is_over(elapsed: float) -> bool:
    """Whether a call that took so many seconds has waited its deadline out."""
    return current.seconds is not None and elapsed >= current.seconds
