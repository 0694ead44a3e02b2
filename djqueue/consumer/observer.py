"""How the threads of a consumer fare, for its reports: which move, and what runs since when and where."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import dropwhile
from operator import attrgetter
from traceback import FrameSummary
from typing import Any

from djqueue import health
from djqueue.consumer.coroutines import Coroutines
from djqueue.consumer.in_flight import Message
from djqueue.consumer.loop import HANGS, Loop, Member, alike
from djqueue.consumer.pool import Worker
from djqueue.consumer.pump import Pump
from djqueue.messages.failures import MACHINERY
from djqueue.utils import clock, plain

LONG = 10.0  # seconds from which on a report says where a run, or a step of a thread, is; sooner of a run that is stuck
MOST_RUNS = 50
"""How many runs are shown at most, the longest first."""
MOST_PLACES = 20
"""How many runs are shown with their place in the code, which is read again for each report."""
MOST_FRAMES = 8


class ThreadObserver:
    """Looks at what the threads of a consumer have noted. The frames of one are read only if it takes long."""

    def __init__(self, stuck_after: float | None = None):
        self._stuck_after = stuck_after
        self._between: dict[Worker, tuple[int, float]] = {}
        """Workers that neither run a message nor wait for one: how many units they had finished, and since when."""

    def look(
        self, members: Iterable[Member], messages: Iterable[Message], left_behind: Iterable[Member]
    ) -> health.Report:
        """What each thread does, and what runs since when."""
        now, live = time.monotonic(), [member for member in members if member.is_alive()]
        running = [message for message in messages if message.is_running]
        runs = sorted(alike(running, attrgetter("worker", "began")), key=lambda some: some[0].began or 0.0)
        parts = [_part(one, *one.moved, now) for one in live if _moves(one)]
        workers = [one for one in live if isinstance(one, Worker)]
        idle = _idle(workers)
        busy = idle.union(message.worker for message in running)
        self._between = {worker: self._since(worker, now) for worker in workers if worker not in busy}
        parts += [_part(worker, since, HANGS, now) for worker, (_, since) in self._between.items()]
        return {
            "parts": parts,
            "running": len(running),
            "workers": len(workers),
            "idle": len(idle),
            "runs": [_run(some, now, place, self._stuck_after) for place, some in enumerate(runs[:MOST_RUNS])],
            "left_behind": [{"worker": _short(one), "where": _of_the_command(one.stack())} for one in left_behind],
            "unanswered": sorted({alias for one in live if _moves(one) for alias in _unanswered(one)}),
        }

    def _since(self, worker: Worker, now: float) -> tuple[int, float]:
        """How many units a worker has finished, and since when it has been between these two, as far as was seen."""
        finished, before = worker.finished, self._between.get(worker)
        return before if before is not None and before[0] == finished else (finished, now)


def _moves(member: Member) -> bool:
    """Whether it notes by itself that it moves."""
    return isinstance(member, Coroutines | Pump) or (isinstance(member, Loop) and not member.stopped)


def _unanswered(member: Member) -> list[str]:
    return member.unanswered if isinstance(member, Pump) else []


def _idle(workers: Sequence[Worker]) -> set[Any]:
    """Those that wait for a message, or for a place on the event loop."""
    return {one for one in workers if one.waits or any(message.awaits_place for message in one.unit.copy())}


def _part(member: Member, moved: float, limit: float, now: float) -> health.Report:
    part: health.Report = {"name": _short(member), "moved": moved, "limit": limit}
    if isinstance(member, Pump):
        part["claims"] = True
    if isinstance(member, Loop | Pump) and member.failures:
        part["failures"] = member.failures
    if now - moved > limit - HANGS + LONG:
        part["where"] = _lines(member.stack())
    return part


def _run(some: Sequence[Message], now: float, place: int, stuck_after: float | None) -> health.Report:
    """What a worker runs: one message, or several of a batch."""
    first = some[0]
    lasted = max(0.0, clock() - (first.began or 0.0))
    worker, entry = first.worker, first.lease.entry
    run: health.Report = {"worker": "" if worker is None else _short(worker), "count": len(some)}
    run |= {"command": plain(entry.command), "id": plain(entry.id), "began": now - lasted, "limit": stuck_after}
    if lasted >= min(LONG, stuck_after or LONG) and place < MOST_PLACES:
        run["where"] = _where_runs(first)
    return run


def _short(thread: threading.Thread) -> str:
    return thread.name.removeprefix("djqueue-")


# ---- Where it is


def _where_runs(message: Message) -> list[str]:
    """Where a run is: in the stack of its thread, or of its coroutine."""
    if isinstance(message.worker, Coroutines):
        return _of_the_command(message.worker.stack_of(message))
    return _of_the_command(message.worker.stack()) if isinstance(message.worker, Member) else []


def _of_the_command(frames: list[FrameSummary]) -> list[str]:
    """The lines of a stack without those that led to the command."""
    return _lines([*dropwhile(_is_machinery, frames)] or frames)


def _is_machinery(frame: FrameSummary) -> bool:
    return frame.filename.startswith(MACHINERY) or frame.filename == threading.__file__


def _lines(frames: list[FrameSummary]) -> list[str]:
    """The innermost frames, one line for each."""
    return [_line(frame) for frame in frames[-MOST_FRAMES:]]


def _line(frame: FrameSummary) -> str:
    path = frame.filename
    with suppress(OSError):  # a command may have removed the working folder
        path = path.removeprefix(os.getcwd() + os.sep)
    return f"{path}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")
