"""What an exception keeps alive: the frames that it went through, and their callers, with all their locals."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from types import FrameType


def chained(exceptions: Iterable[BaseException]) -> Iterator[BaseException]:
    """They, their causes and contexts, and what is in groups; each once, whatever their own classes say of it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [*exceptions]
    while left:
        exception = left.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        left += [BaseException.__cause__.__get__(exception), BaseException.__context__.__get__(exception)]
        if issubclass(type(exception), BaseExceptionGroup):
            left += BaseExceptionGroup.exceptions.__get__(exception)
        yield exception


def release(exceptions: Iterable[BaseException]) -> None:
    """Have all frames that have ended let go of their locals; the lines of the tracebacks stay.

    A frame whose locals lead to its own exception, as those of whoever judges it do, would else live until the next
    full garbage collection, with all that its callees held.
    """
    cleared: set[FrameType] = set()
    for exception in chained(exceptions):
        for frame, _ in traceback.walk_tb(BaseException.__traceback__.__get__(exception)):
            _clear(frame, cleared)


def _clear(frame: FrameType | None, cleared: set[FrameType]) -> None:
    while frame is not None and frame not in cleared:
        try:
            frame.clear()
        except RuntimeError:  # it still runs, and so do its callers
            return
        cleared.add(frame)
        frame = frame.f_back
