"""The statements by which people look into a queue and change it. All are bounded, but for ``length``."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.fragments import (
    BACKWARDS,
    COUNTED,
    DELAYED,
    FIRST_NUMBER,
    LATER,
    OPEN,
    ORDER,
    READY,
    REQUEUED,
    WAITS,
    absent,
    marks,
    number_of,
)
from djqueue.backends.database.sql.lanes import LANE, Lanes, numbers

CAP = 100_000
"""Counting stops here."""
CHUNK = 5000
"""So many rows one statement of a flush deletes at most."""
PRIORITIES = 64
"""The oldest ready entry is looked for among so many priorities, the highest."""


class Inspection(Lanes):
    """What does not hold leases."""

    def find(self, run: Session, queue: str, id: str) -> list[tuple]:
        """Rows of RECORD, with now at the end."""
        return run.rows(f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %s AND id = %s", [queue, id])

    def peek(
        self, run: Session, queue: str, state: int, limit: int, after: Sequence[int] | None, backwards: bool = False
    ) -> list[tuple]:
        """The same, of one state, in order or in the opposite one."""
        behind, order = (self.before, BACKWARDS) if backwards else (self.behind, ORDER)
        params = {"queue": queue, "state": state, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        sql = (
            f"SELECT {self.record}, NOW FROM djqueue_message WHERE queue = %(queue)s AND state = %(state)s "
            f"{f'AND {behind}' if after else ''} {order} LIMIT %(limit)s"
        )
        return placed(run.rows(sql, params))

    def remove(self, run: Session, queue: str, ids: Sequence[str]) -> int:
        return self.delete_ids(run, queue, ids, WAITS)

    def reprioritise(self, run: Session, queue: str, ids: Sequence[str], own: int, laned: int) -> int:
        """Give entries that wait another rank, in a lane that one."""
        neg_priority = "CASE WHEN lane_number = 0 THEN %s ELSE %s END"
        sql = (
            f"UPDATE djqueue_message {self.by_id} SET neg_priority = {neg_priority}, "
            f"sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%%:failed' THEN 0 ELSE {neg_priority} END "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS}"
        )
        return run.count(sql, [own, laned, own, laned, queue, *ids])

    def amend(self, run: Session, queue: str, id: str, was: bytes, body: bytes) -> bool:
        sql = f"UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND {WAITS} AND body = %s"
        return run.count(sql, [body, queue, id, was]) == 1

    def trim_older(self, run: Session, queue: str, age: int, limit: int) -> int:
        """Delete ready entries of an error queue whose moment is more than ``age`` µs ago; how many.

        All of them have one rank, so the first is the oldest: nothing to delete is one read.
        """
        ready = "queue = %s AND state = 0"
        first = f"SELECT sort_key, sort_at FROM djqueue_message WHERE {ready} {ORDER} LIMIT 1"
        for (sort_key,) in run.rows(f"SELECT sort_key FROM ({first}) f WHERE sort_at < NOW - %s", [queue, age]):
            old = f"{ready} AND sort_key = %s AND sort_at < NOW - %s"
            return self._delete_first(run, old, [queue, sort_key, age], limit)
        return 0

    def trim_surplus(self, run: Session, queue: str, most: int, limit: int) -> int:
        """Delete what is ready and stands before the last ``most``; how many. Those who do so at once agree on it."""
        sql = (
            "SELECT sort_key, sort_at, seq FROM djqueue_message WHERE queue = %s AND state = 0 "
            "ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1 OFFSET %s"
        )
        for last in run.rows(sql, [queue, most]):
            surplus = f"queue = %s AND state = 0 AND {self.up_to.format(*last)}"
            return self._delete_first(run, surplus, [queue], limit)
        return 0

    def _delete_first(self, run: Session, condition: str, params: list, limit: int) -> int:
        return self.delete_some(run, "djqueue_message", "seq", condition, "sort_key, sort_at, seq", params, limit)

    def requeue(self, run: Session, dead: str, queue: str, ids: Sequence[str]) -> int:
        sql = (
            f"UPDATE djqueue_message AS m SET queue = %s, {REQUEUED} "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS} "
            f"AND {absent('m.id')}"
        )
        return run.count(sql, [queue, dead, *ids, queue])

    def flush(self, run: Session, queue: str) -> int:
        """Delete a chunk of what is ready in no lane, or else of what is delayed; how many."""
        for state in (READY, DELAYED, LATER):
            if deleted := self._delete_first(run, "queue = %s AND state = %s", [queue, state], CHUNK):
                return deleted
        return 0

    # ---- lanes

    def lane_page(self, run: Session, queue: str, after: str, limit: int) -> list[tuple]:
        """Names and numbers of lanes, in the order of the names."""
        sql = "SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s"
        return [(name, number_of(name)) for (name,) in run.rows(sql, [queue, after, limit])]

    def ticket_page(self, run: Session, queue: str, after: tuple, limit: int) -> list[tuple]:
        """Moments, seqs and numbers of tickets."""
        sql = (
            "SELECT created, seq, name FROM djqueue_ticket WHERE queue = %s AND created >= %s "
            "AND (created > %s OR seq > %s) ORDER BY created, seq LIMIT %s"
        )
        rows = run.rows(sql, [queue, after[0], *after, limit])
        return [(*numbers((made, seq)), number_of(name)) for made, seq, name in rows]

    def peek_in(
        self, run: Session, queue: str, numbers: Sequence[int], limit: int, after: Sequence[int] | None = None
    ) -> list[tuple]:
        """Rows of RECORD with now, up to so many of each of these lanes; behind a place, if one is given."""
        params = {"queue": queue, "limit": limit}
        if after:
            params |= zip(("sort_key", "sort_at", "seq"), after, strict=True)
        part = (
            f"SELECT {self.record}, NOW AS looked FROM djqueue_message WHERE queue = %(queue)s AND state = {{}} "
            f"{f'AND {self.behind}' if after else ''} {ORDER} LIMIT %(limit)s"
        )
        parts = [f"SELECT * FROM ({part.format(number)}) x" for number in numbers]
        return placed(run.rows(" UNION ALL ".join(parts), params))

    def flush_lanes(self, run: Session, queue: str, numbers: Sequence[int]) -> int:
        """Delete a chunk of what waits in lanes; how many."""
        which = f"queue = %s AND state IN ({', '.join(map(str, numbers))})"
        return self.delete_some(run, "djqueue_message", "seq", which, "state, sort_key, sort_at, seq", [queue], CHUNK)

    def call_lanes(self, run: Session, queue: str) -> None:
        """Leave a ticket for every lane from which something might leave."""
        run.count(
            "INSERT INTO djqueue_ticket (queue, created, name, number, gate) SELECT queue, NOW, name, number, '' "
            f"FROM djqueue_lane WHERE queue = %s AND (state = {OPEN} OR state >= {FIRST_NUMBER})",
            [queue],
        )

    def lane_rows(self, run: Session, queue: str, condition: str, params: list) -> list[tuple]:
        """Lanes: their row of LANE, and how many wait in each."""
        sql = f"SELECT {LANE} FROM djqueue_lane WHERE queue = %s AND {condition}"
        rows = run.rows(sql, [queue, *params])
        counts = {}
        if rows:
            states = ", ".join(str(number_of(row[1])) for row in rows)
            sql = f"SELECT state, count(*) FROM djqueue_message WHERE queue = %s AND state IN ({states}) GROUP BY state"
            counts = dict(run.rows(sql, [queue]))
        return [(row, counts.get(number_of(row[1]), 0)) for row in rows]

    def length(self, run: Session, queue: str) -> int:
        sql = (
            "SELECT (SELECT count(*) FROM djqueue_message WHERE queue = %(queue)s AND state IN (0, 1, 3)) "
            f"+ (SELECT count(*) {self.in_lanes})"
        )
        return run.rows(sql, {"queue": queue})[0][0]

    def stats(self, run: Session, queue: str, dead: str, counters: Sequence[str]) -> tuple:
        """ready, due, delayed, leased, dead (capped), done, now; first moments of what is due and of what is ready.

        The first three and the moments: in no lane, and then in lanes.
        """
        due, later = (f"state = {state} AND sort_key = 0 AND sort_at" for state in (DELAYED, LATER))
        mine = "FROM djqueue_message WHERE queue = %(queue)s AND"
        counts = ", ".join(
            f"(SELECT count(*) FROM (SELECT 1 {which} LIMIT {CAP}) x)"
            for which in (
                f"{mine} state = 0",
                self.in_lanes,
                f"{mine} {due} < NOW",
                f"{mine} {later} < NOW",
                f"{mine} {due} >= NOW",
                f"{mine} {later} >= NOW",
                f"{mine} state = 2",
                f"{mine} state = 4",
                "FROM djqueue_message WHERE queue = %(failed)s AND state = 0",
            )
        )
        sql = (
            f"SELECT {counts}, (SELECT sum({COUNTED}) FROM djqueue_fact WHERE name IN ({self._named(counters)})), NOW, "
            f"(SELECT min(sort_at) {mine} {due} < NOW), (SELECT min(sort_at) {mine} {later} < NOW), "
            f"({self._oldest()}), (SELECT min(sort_at) FROM (SELECT m.sort_at {self.in_lanes} LIMIT {CAP}) x)"
        )
        return run.rows(sql, {"queue": queue, "failed": dead} | {f"k{i}": k for i, k in enumerate(counters)})[0]

    def _named(self, values: Sequence) -> str:
        return ", ".join(f"%(k{i})s" for i in range(len(values)))

    def _oldest(self) -> str:
        """The heads of the priorities, a step in the index each; ``min(sort_at)`` would read all that is ready."""
        ready = "FROM djqueue_message r WHERE r.queue = %(queue)s AND r.state = 0"
        return (
            f"WITH RECURSIVE p (sort_key, n) AS (SELECT (SELECT r.sort_key {ready} ORDER BY r.sort_key LIMIT 1), 1 "
            f"UNION ALL SELECT (SELECT r.sort_key {ready} AND r.sort_key > p.sort_key ORDER BY "
            "r.sort_key LIMIT 1), n + 1 "
            f"FROM p WHERE p.sort_key IS NOT NULL AND n < {PRIORITIES}) "
            f"SELECT min((SELECT r.sort_at {ready} AND r.sort_key = p.sort_key ORDER BY r.sort_at LIMIT 1)) FROM p"
        )


def placed(rows: list[tuple]) -> list[tuple]:
    """Rows of RECORD with now. Raises TypeError where their places are no numbers."""
    for row in rows:
        numbers((row[-3], row[12]))
    return rows
