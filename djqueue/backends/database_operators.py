"""What operators see and do in a queue in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from djqueue.backends.database_desk import make_lanes
from djqueue.backends.database_lanes import change_lane
from djqueue.backends.database_rows import LONGEST, STATES, chunks, lane_record_of, micros, record_of
from djqueue.backends.entries import LEASED, READY, LaneRecord, QueueStats, Record
from djqueue.backends.sql.common import Dialect
from djqueue.backends.sql.gated import number_of
from djqueue.backends.sql.operators import CAP
from djqueue.backends.sql.session import Session
from djqueue.flow.gates import Lane
from djqueue.utils import priority as checked_priority

PAGE = 50
"""So many lanes are looked into at once."""


class DatabaseOperators:
    """What does not hold leases."""

    # ---- entries

    def revive(self, ids: Iterable[str]) -> int:
        if self.dead is None:
            return 0
        return sum(self._run(_revived, self._sql, self.dead.name, self.name, chunk) for chunk in chunks(ids))

    def find(self, id: str) -> Record | None:
        return next(map(self._record, self._do(self._sql.find, id)), None)

    def remove(self, ids: Iterable[str]) -> int:
        return sum(self._noted(self._sql.remove, chunk) for chunk in chunks(ids))

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        checked_priority(priority)
        own = priority if self._lifo else ~priority
        return sum(self._noted(self._sql.reprioritise, chunk, own, ~priority) for chunk in chunks(ids))

    def _noted(self, verb: Callable, ids: Sequence[str], *args) -> int:
        """Change entries that wait; their lanes will be looked at."""
        self._claims.stir()
        if self.dead is None:  # nothing stands in a lane there
            return self._do(verb, ids, *args)
        return self._run(_changed, self._sql, self.name, verb, ids, *args)

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        return self._do(self._sql.amend, id, was, data)

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Finds what is too old by a step in the index, and counts no further than to ``most``.

        If something waits in lanes it counts, and orders, all that is ready.
        """
        laned = self.dead is not None and self._do(self._sql.is_laned)
        trimmed = 0 if age is None else self._do(self._sql.trim_older, micros(age), limit)
        if age is not None and laned and trimmed < limit:
            trimmed += self._do(self._sql.trim_lanes_older, micros(age), limit - trimmed)
        if most is not None and trimmed < limit:
            verb = self._sql.trim_mixed if laned else self._sql.trim_surplus
            trimmed += self._do(verb, most, limit - trimmed)
        if laned and trimmed:
            self._call_lanes()
        return trimmed

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        """What waits in lanes comes after what is in none, lane by lane."""
        if state not in STATES:
            raise ValueError(f"peek(state={state!r}): the states are {', '.join(dict.fromkeys(STATES))}.")
        if state != LEASED:
            self._do(self._sql.promote)
            self._settle_in()
        *place, lane = after.split(".", 3) if after else ("",)
        place = [int(part) for part in place]
        found = [] if lane else self._peek_own(state, limit, place)
        if state == READY and self.dead is not None:
            found += self._peek_lanes(limit - len(found), lane, place)
        return found

    def _peek_own(self, state: str, limit: int, place: list[int]) -> list[Record]:
        backwards = state == READY and self._lifo and self.dead is not None
        numbers = [number for number, name in enumerate(STATES) if name == state]
        rows = [row for n in numbers for row in self._do(self._sql.peek, n, limit, place, backwards)]
        # By ord, moment, seq, as each of them is.
        rows.sort(key=lambda row: (row[-3], row[12], row[0]), reverse=backwards)
        return [self._record(row) for row in rows[:limit]]

    def _peek_lanes(self, limit: int, lane: str, place: list[int]) -> list[Record]:
        """From a place in a lane on, in the order of their names."""
        rows = [*self._do(self._sql.peek_in, [number_of(lane)], limit, place)] if lane else []
        names = {number_of(lane): lane}
        while limit > len(rows) and (page := self._do(self._sql.lane_page, lane, PAGE)):
            order = {number: order for order, (_, number) in enumerate(page)}
            found = self._do(self._sql.peek_in, [*order], limit - len(rows))
            rows += sorted(found, key=lambda row: (order[row[15]], row[-3], row[12], row[0]))
            names |= {number: name for name, number in page}
            lane = page[-1][0]
        return [record_of(row, self._lifo, names[row[15]]) for row in rows[:limit]]

    def flush(self) -> None:
        while self._do(self._sql.flush):
            pass
        for numbers in self._numbers() if self.dead is not None else ():
            while self._do(self._sql.flush_lanes, numbers):
                pass
        self._call_lanes()

    def _call_lanes(self) -> None:
        """Some of them may have become empty."""
        self._do(self._sql.call_lanes)
        self._claims.stir()

    def _numbers(self) -> Iterator[list[int]]:
        """The lanes of the queue in which something may wait, some at a time."""
        name, made = "", (0, 0)
        while page := self._do(self._sql.lane_page, name, PAGE):
            yield [number for _, number in page]
            name = page[-1][0]
        while page := self._do(self._sql.ticket_page, made, PAGE):
            yield list({number for *_, number in page})
            made = page[-1][:2]

    def stats(self) -> QueueStats:
        """Counts stop at 100,000."""
        dead = self.dead.name if self.dead is not None else ""
        row = self._do(self._sql.stats, dead, self._counters)
        own, laned, due, later_due, delayed, later, leased, out, buried, done, now, *heads = row
        oldest = min((moment for moment in heads if moment is not None), default=None)
        return QueueStats(
            ready=min(own + laned + due + later_due, CAP),
            delayed=min(delayed + later, CAP),
            leased=min(leased + out, CAP),
            dead=buried if dead else None,
            done=int(done or 0),
            oldest=None if oldest is None else max(0.0, (now - oldest) / 1e6),
            capped=CAP,
        )

    def __len__(self) -> int:
        """Counts them all: in milliseconds up to some 10,000."""
        return self._do(self._sql.length)

    def _record(self, row: tuple) -> Record:
        return record_of(row, self._lifo)

    # ---- lanes

    def lanes(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        self._settle_in()
        rows = self._do(self._sql.lane_rows, "name > %s ORDER BY name LIMIT %s", [after or "", limit])
        return [lane_record_of(row, waiting) for row, waiting in rows]

    def lane(self, name: str) -> LaneRecord | None:
        self._settle_in()
        rows = self._do(self._sql.lane_rows, "name = %s", [name])
        return next((lane_record_of(row, waiting) for row, waiting in rows), None)

    def park_lane(self, name: str, why: str) -> None:
        """Raises ValueError for a name that no lane can have."""
        if not 0 < len(name) <= LONGEST["lane"]:
            raise ValueError(f"A lane's name has {len(name)} characters; it may have 1 to {LONGEST['lane']}.")
        self._settle_in()
        self._run(make_lanes, self._sql, self.name, {name: ""})
        self._change_lane(name, lambda lane, now: replace(lane, parked=why or "parked"))

    def open_lane(self, name: str) -> bool:
        return self._change_lane(name, _opened)

    def _change_lane(self, name: str, change: Callable[[Lane, int], Lane]) -> bool:
        self._claims.stir()
        return self._run(change_lane, self._sql, self.name, name, change)


def _opened(lane: Lane, now: int) -> Lane:
    return replace(lane, parked="", open_at=0) if lane.parked or lane.open_at > now else lane


def _changed(run: Session, sql: Dialect, queue: str, verb: Callable, ids: Sequence[str], *args) -> int:
    with run.atomic():
        sql.begin(run)
        if lanes := sql.lanes_of(run, queue, ids):
            sql.leave_tickets(run, queue, [(name, number, "") for name, number, _ in lanes])
        return verb(run, queue, ids, *args)


def _revived(run: Session, sql: Dialect, dead: str, queue: str, ids: Sequence[str]) -> int:
    with run.atomic():
        sql.begin(run)
        if lanes := sql.lanes_of(run, dead, ids):
            sql.leave_tickets(run, queue, lanes)
        return sql.revive(run, dead, queue, ids)
