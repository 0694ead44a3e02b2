"""Pauses: what operators have stopped for a while, for all consumers. One fact of the shared store has them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.backends.stores import BaseStore
from djqueue.flow.gates import LANE_SCHEDULED
from djqueue.running.shared import change
from djqueue.utils import UNREADABLE, json_list

KEY = "pauses"
QUEUE, COMMAND, SCHEDULE = KINDS = ("queue", "command", "schedule")

WORDS = ("kind", "name", "queue", "by", "why")

Key = tuple[str, str, str]
"""The kind, the name and the queue of a pause."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What is paused, by whom, why and how long. Moments are epoch seconds by the clock of the store."""

    kind: str
    """queue, command or schedule."""
    name: str
    """Of the queue in its store, of the command, or of the schedule."""
    queue: str = ""
    """The name of the only queue in which a command or a schedule is paused; "" for all queues of the store."""
    by: str = ""
    why: str = ""
    since: float = 0.0
    until: float | None = None
    """When it ends by itself; None for never."""

    @property
    def key(self) -> Key:
        """What is paused: there is one pause of it."""
        return self.kind, self.name, self.queue

    def covers(self, queue: BaseQueue) -> bool:
        """Whether it stops something of this queue."""
        own = queue.base_name
        return self.name == own if self.kind == QUEUE else self.queue in ("", own)


class Pauses:
    """The pauses of a store as they were read."""

    def __init__(self, pauses: Iterable[Pause] = ()):
        self._pauses: Mapping[Key, Pause] = {one.key: one for one in pauses}
        self.has_commands = any(one.kind == COMMAND for one in self._pauses.values())

    def __len__(self) -> int:
        return len(self._pauses)

    def at(self, now: float) -> list[Pause]:
        """Those in force at a moment, the oldest first."""
        return sorted((one for one in self._pauses.values() if ends(one) > now), key=lambda one: one.since)

    def find(self, kind: str, name: str, queue: BaseQueue, now: float) -> Pause | None:
        """The pause of a command or a schedule, as it holds in a queue, or of the queue itself; None without one."""
        for own in ("", queue.base_name):
            pause = self._pauses.get((kind, name, own))
            if pause is not None and ends(pause) > now:
                return pause
        return None

    def of_queue(self, queue: BaseQueue, now: float) -> Pause | None:
        """The pause of a queue; None without one."""
        return self.find(QUEUE, queue.base_name, queue, now)

    @classmethod
    def read(cls, text: bytes | None) -> Pauses:
        """The pauses in a fact, but for what cannot be read: anything that reaches the store may have written it."""
        pauses = map(_pause_of, json_list(text))
        return cls(one for one in pauses if one is not None)


def _pause_of(written: Any) -> Pause | None:
    """A pause as it was written, by another version maybe, which knows fields that are not known here; else None."""
    try:
        words = {name: str(written[name]) for name in WORDS if name in written}
        until = written.get("until")
        return Pause(**words, since=float(written.get("since", 0.0)), until=None if until is None else float(until))
    except UNREADABLE:
        return None


def read(store: BaseStore) -> Pauses:
    """The pauses of a shared store."""
    return Pauses.read(store.get(KEY))


def add(store: BaseStore, pause: Pause, now: float) -> bool:
    """Pause; whether it was not paused before. Of a pause that holds already, only ``why`` and ``until`` change."""
    key, is_new = pause.key, False

    def with_it(text: bytes | None) -> bytes | None:
        nonlocal is_new
        kept = {one.key: one for one in Pauses.read(text).at(now)}
        was = kept.get(key, replace(pause, since=now))
        is_new = key not in kept
        kept[key] = replace(was, why=pause.why or was.why, until=pause.until or was.until)
        return _written(kept.values())

    change(store, KEY, with_it)
    return is_new


def drop(store: BaseStore, key: Key, now: float) -> Pause | None:
    """Resume; the pause that was in force, None if there was none."""
    found: list[Pause] = []

    def without_it(text: bytes | None) -> bytes | None:
        pauses = Pauses.read(text).at(now)
        found[:] = [one for one in pauses if one.key == key]
        return _written(one for one in pauses if one not in found)

    change(store, KEY, without_it)
    return found[0] if found else None


def bring_up(queue: BaseQueue, ids: Sequence[str], lanes: Iterable[str]) -> None:
    """Let messages be due now that were put off, and lanes go on whose first message was: their command is resumed."""
    if ids:
        queue.promote(ids)
    for name in lanes:
        lane = queue.lanes.get(name)
        if lane is not None and lane.state == LANE_SCHEDULED and not lane.paused_reason:
            queue.lanes.resume(name)


def ends(pause: Pause) -> float:
    """When it ends by itself; infinity for never."""
    return inf if pause.until is None else pause.until


def _written(pauses: Iterable[Pause]) -> bytes | None:
    kept = [asdict(one) for one in pauses]
    return json.dumps(kept).encode() if kept else None
