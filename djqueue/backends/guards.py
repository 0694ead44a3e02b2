"""Guards: the condition under which an entry is accepted by a put, and how that is decided.

A guard leaves a *mark* under its key in the store of its queue. Decision, mark and entry are one atomic step where
queue and store are one technology. Everything here is a pure function of the mark, of what became of the entry that it
names, and of the time; Redis does the same in ``scripts/guards.lua``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf
from typing import NamedTuple

from djqueue.backends.entries import DELAYED, LEASED, READY, Entry
from djqueue.exceptions import InvalidQueueError
from djqueue.utils import seconds, whole

UNIQUE_FOR = 86_400.0
"""Seconds for which a mark of :class:`Unique` is kept after it was last asked for."""
WAITED_FOR = 3600.0
"""Seconds for which the mark of a scheduled entry outlives its due time: it may wait in a backlog."""


@dataclass(frozen=True, slots=True)
class OnceGuard:
    """Accept the entry next to this only if ``key`` was not used in the last ``ttl`` seconds."""

    key: str
    ttl: float


@dataclass(frozen=True, slots=True)
class UniqueGuard:
    """Accept an entry only if no entry that was accepted under ``key`` still waits or, if ``running``, is leased."""

    key: str
    running: bool = True


@dataclass(frozen=True, slots=True)
class DebounceGuard:
    """Let one entry under ``key`` fall due every ``window`` seconds at most, and one after the last arrival.

    The first is accepted as it is. An entry that arrives within ``window`` seconds of it is accepted with a delay until
    they are over; entries that arrive while that one waits are refused. ``always_delay`` delays the first by the window
    too. So does ``extend``, and each entry that arrives while it waits postpones it to a window from then, but never
    to later than ``max_wait`` seconds after the first.
    """

    key: str
    window: float
    always_delay: bool = False
    extend: bool = False
    max_wait: float = inf


Guard = OnceGuard | UniqueGuard | DebounceGuard


class DedupMark(NamedTuple):
    """What is known under a key: the entry last accepted. Moments are microseconds since 1970."""

    id: str
    at: int = 0
    """When it fell or falls due; 0 of a unique one that is not delayed."""
    first: int = 0
    """When the first of the calls arrived that it represents."""
    scheduled: bool = False
    """Whether it was delayed: then it represents the calls that arrive while it waits."""

    @classmethod
    def read(cls, value: bytes) -> DedupMark:
        """From its bytes; a mark of another form is nothing but an id."""
        head, _, id = value.decode("utf-8", "surrogatepass").partition(" +")
        try:
            at, first, scheduled = head.split(" ")
            return cls(id, int(at), int(first), scheduled == "1")
        except ValueError:
            return cls(value.decode("utf-8", "surrogatepass"))

    def written(self) -> bytes:
        """The mark as bytes: ``at first scheduled +id``, or just the id if it was never due."""
        if not self.at and " +" not in self.id:
            return self.id.encode("utf-8", "surrogatepass")
        return f"{self.at} {self.first} {self.scheduled:d} +{self.id}".encode("utf-8", "surrogatepass")


class Decision(NamedTuple):
    """What a guard decides."""

    accept: bool
    mark: DedupMark | None = None
    """The mark to write; None leaves the old one."""
    ttl: float = inf
    """Seconds for which to keep it."""
    delay: float = 0.0
    """For an accepted entry: seconds until it is due, instead of its own delay; 0: its own."""
    postpone: int = 0
    """For a refused entry: when the waiting entry of the mark is due instead, µs; 0: unchanged."""


def decide(guard: Guard, entry: Entry, mark: DedupMark | None, state: str | None, now: float) -> Decision:
    """Decide at ``now`` (epoch seconds); ``state``: of the entry that the mark names, None if it is gone."""
    return _RULES[type(guard)](guard, entry, mark, state, now)


def _once(guard: OnceGuard, entry: Entry, mark: DedupMark | None, state: str | None, now: float) -> Decision:
    return Decision(True, DedupMark(entry.id), guard.ttl) if mark is None else Decision(False)


def _unique(guard: UniqueGuard, entry: Entry, mark: DedupMark | None, state: str | None, now: float) -> Decision:
    if mark is not None and (state in (READY, DELAYED) or (guard.running and state == LEASED)):
        return Decision(False, mark, max(0.0, mark.at / 1e6 - now) + UNIQUE_FOR)
    due = now + entry.delay if entry.delay else max(now, entry.run_at)
    return Decision(True, DedupMark(entry.id, _micros(due) if due > now else 0), due - now + UNIQUE_FOR)


def _debounce(guard: DebounceGuard, entry: Entry, mark: DedupMark | None, state: str | None, now: float) -> Decision:
    at, window = _micros(now), _micros(guard.window)
    if mark is not None and mark.scheduled and state in (READY, DELAYED):
        return _postponed(guard, mark, at, window) if guard.extend else Decision(False)
    if guard.always_delay or guard.extend:
        return _scheduled(guard, entry, at + window, at)
    if mark is None or at - mark.at >= window:
        return Decision(True, DedupMark(entry.id, at, at), guard.window)
    # A scheduled entry that is gone before it was due was removed by an operator: this one takes its place.
    return _scheduled(guard, entry, mark.at if mark.scheduled and mark.at > at else mark.at + window, at)


def _scheduled(guard: DebounceGuard, entry: Entry, due: int, at: int) -> Decision:
    delay = (due - at) / 1e6
    return Decision(True, DedupMark(entry.id, due, at, True), delay + max(guard.window, WAITED_FOR), delay)


def _postponed(guard: DebounceGuard, mark: DedupMark, at: int, window: int) -> Decision:
    latest = inf if guard.max_wait == inf else mark.first + _micros(guard.max_wait)
    due = int(min(at + window, latest))
    if mark.at <= at or due <= mark.at:
        return Decision(False)
    return Decision(False, mark._replace(at=due), (due - at) / 1e6 + max(guard.window, WAITED_FOR), postpone=due)


def _micros(seconds: float) -> int:
    return ceil(round(seconds * 1e6, 3))


_RULES: dict[type, Callable[..., Decision]] = {OnceGuard: _once, UniqueGuard: _unique, DebounceGuard: _debounce}


# ---- Ids of finished entries, which a queue may remember so that none is put again: REMEMBER_DONE and KEEP_DONE


KEEP_DONE = 100_000
"""The number of ids that are kept if only a time bounds them."""

Span = float | timedelta | None


def remembering(remember_done: Span, keep_done: int | None) -> tuple[float, int]:
    """For how many seconds the ids of finished entries are remembered, and how many at most.

    (0, 0) if they are not; infinity if only a count bounds them. Raises InvalidQueueError.
    """
    try:
        if keep_done is not None:
            keep_done = whole(keep_done, "OPTIONS['KEEP_DONE']", least=0)
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
        """Forget ids that are too many or too old; they are in the order in which their entries ended."""
        while self._ends and (len(self._ends) > self._most or next(iter(self._ends.values())) <= now):
            self._ends.popitem(last=False)
