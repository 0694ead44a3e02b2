"""What operators see and do in a queue in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from djqueue.backends.entries import DELAYED, LEASED, READY, Entry, LaneRecord, QueueStats, Record
from djqueue.utils import priority as checked_priority

IN_LANES = "lanes"
"""What the cursors begin with of what waits in lanes: numbers and texts do not compare, so it stands alone."""


class Item:
    """An entry and where it stands. Its place, the moment at which it first fell due, is its own unless it is moved."""

    __slots__ = ("at", "begun", "entry", "left", "owner", "place", "rank", "seq", "state", "token")

    def __init__(self, entry: Entry, seq: int, now: float):
        self.entry, self.rank, self.place, self.seq = entry, 0, entry.run_at or now, seq
        self.state, self.at, self.token, self.owner, self.begun = "", 0.0, None, "", True
        self.left: list[str] = []  # the lanes that count it as out

    def key(self) -> tuple:
        return (self.rank, self.place, self.seq) if self.state == READY else (self.at, self.seq)

    def anew(self, seq: int, now: float) -> Item:
        """The same, behind all that is there."""
        self.place, self.seq = now, seq
        return self


class MemoryOperators:
    """What does not hold leases."""

    def flush(self) -> None:
        with self._lock:
            for id in [*self._lines[READY].keys, *self._lines[DELAYED].keys]:
                self._take_out(self._items[id])
            for item in self._lanes.items():
                self._take_out(item)

    def find(self, id: str) -> Record | None:
        with self._lock:
            self._promote(self.now())
            return self._record(self._items[id]) if id in self._items else None

    def remove(self, ids: Iterable[str]) -> int:
        with self._lock:
            waiting = self._waiting(ids)
            for item in waiting:
                self._take_out(item)
            return len(waiting)

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        with self._lock:
            same = [item for item in self._waiting([id]) if item.entry.data == was]
            for item in same:
                item.entry = replace(item.entry, data=data)
            return bool(same)

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        checked_priority(priority)
        with self._lock:
            waiting = self._waiting(ids)
            for item in waiting:
                state, at = item.state, item.at
                self._leave(item)
                item.entry = replace(item.entry, priority=priority)
                item.rank = self._rank(item)
                self._stand(item, state, at)
            return len(waiting)

    def lanes(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        with self._lock:
            self._promote(self.now())
            return [one for one in self._lanes.records() if after is None or one.name > after][:limit]

    def lane(self, name: str) -> LaneRecord | None:
        with self._lock:
            self._promote(self.now())
            return self._lanes.record(name)

    def park_lane(self, name: str, why: str) -> None:
        with self._lock:
            self._lanes.park(name, why, self.now())

    def open_lane(self, name: str) -> bool:
        with self._lock:
            opened = self._lanes.open(name, self.now())
        self._bell.ring()
        return opened

    def revive(self, ids: Iterable[str]) -> int:
        if self.dead is None:
            return 0
        with self._lock:
            now = self.now()
            moved = [item for item in self.dead._waiting(ids) if item.entry.id not in self._items]
            for item in moved:
                self.dead._take_out(item)
                item.entry = replace(item.entry, attempts=0, failures=0, lost=0, created=now)
                self._take_in(item.anew(next(self._arrivals), now))
        if moved:
            self._bell.ring()
        return len(moved)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        with self._lock:
            now, trimmed = self.now(), 0
            self._promote(now)
            while trimmed < limit and (id := self._oldest.first()) is not None:
                surplus = most is not None and len(self._oldest) > most
                if not surplus and (age is None or now - self._items[id].place <= age):
                    break
                self._take_out(self._items[id])
                trimmed += 1
            return trimmed

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        if state not in self._lines:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(self._lines)}.")
        with self._lock:
            self._promote(self.now())
            cursor = tuple(json.loads(after)) if after else None
            if cursor and cursor[0] == IN_LANES:
                return self._in_lanes(cursor, limit)
            names = self._lines[state].after(cursor, limit)
            found = [self._record(self._items[name]) for name in names]
            return found + self._in_lanes((IN_LANES,), limit - len(found)) if state == READY else found

    def _in_lanes(self, cursor: tuple, limit: int) -> list[Record]:
        """What waits in lanes, lane by lane."""
        keys = {(IN_LANES, item.entry.lane, *item.key()): item for item in self._lanes.items()}
        behind = sorted(key for key in keys if key > cursor)[:limit]
        return [replace(self._record(keys[key]), cursor=json.dumps(key)) for key in behind]

    def stats(self) -> QueueStats:
        with self._lock:
            now = self.now()
            self._promote(now)
            sizes = {state: len(line) for state, line in self._lines.items()}
            sizes[READY] += len(self._lanes)
            oldest, dead = self._oldest.first(), None if self.dead is None else len(self.dead)
            age = None if oldest is None else max(0.0, now - self._items[oldest].place)
            return QueueStats(**sizes, dead=dead, done=self._done, oldest=age)

    # ---- under the lock

    def _waiting(self, ids: Iterable[str]) -> list[Item]:
        """The items of these ids that are not leased, each once, in the order of the ids."""
        items = [self._items[id] for id in dict.fromkeys(ids) if id in self._items]
        return [item for item in items if item.state != LEASED]

    def _record(self, item: Item) -> Record:
        return Record(item.entry, item.state, item.at, item.owner, cursor=json.dumps(self._key(item)))

    def _key(self, item: Item) -> tuple:
        """Where it stands in the line of its state."""
        key = item.key()
        return (key[0], -key[1], -key[2]) if self._lifo and item.state == READY else key
