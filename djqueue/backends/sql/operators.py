"""The statements by which people look into a queue and change it. All are bounded, but for ``length``."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.sql.session import Session
from djqueue.backends.sql.text import DELAYED, READY, RECORD, REVIVED, absent, marks

CAP = 100_000
"""Counting stops here."""
CHUNK = 5000
"""So many rows one statement of a flush deletes at most."""
PRIORITIES = 64
"""The oldest ready entry is looked for among so many priorities, the highest."""


class Operators:
    """What does not hold leases."""

    behind = "(ord, moment, seq) > (%(ord)s, %(moment)s, %(seq)s)"
    up_to = "(ord, moment, seq) <= ({0}, {1}, {2})"

    def find(self, run: Session, queue: str, id: str) -> list[tuple]:
        """Rows of RECORD, with now at the end."""
        return run.rows(f"SELECT {RECORD}, NOW FROM djqueue_message WHERE queue = %s AND id = %s", [queue, id])

    def peek(self, run: Session, queue: str, state: int, limit: int, after: Sequence[int] | None) -> list[tuple]:
        """The same, of one state, in order."""
        params = {"queue": queue, "state": state, "limit": limit}
        if after:
            params |= zip(("ord", "moment", "seq"), after, strict=True)
        sql = (
            f"SELECT {RECORD}, NOW FROM djqueue_message WHERE queue = %(queue)s AND state = %(state)s "
            f"{f'AND {self.behind}' if after else ''} ORDER BY ord, moment, seq LIMIT %(limit)s"
        )
        return run.rows(sql, params)

    def remove(self, run: Session, queue: str, ids: Sequence[str]) -> int:
        sql = f"DELETE FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)}) AND state < 2"
        return run.count(sql, [queue, *ids])

    def amend(self, run: Session, queue: str, id: str, was: bytes, body: bytes) -> bool:
        sql = "UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND state < 2 AND body = %s"
        return run.count(sql, [body, queue, id, was]) == 1

    def trim_older(self, run: Session, queue: str, age: int, limit: int) -> int:
        """Delete what is ready and whose moment was longer ago, µs; how many. Nothing to delete is one read.

        Of other priorities than that of an error queue the foremost are looked at, one after the other.
        """
        trimmed = 0
        while trimmed < limit and (deleted := self._trim_heads(run, queue, age, limit - trimmed)):
            trimmed += deleted
        return trimmed

    def _trim_heads(self, run: Session, queue: str, age: int, limit: int) -> int:
        ready = "FROM djqueue_message WHERE queue = %(queue)s AND state = 0"
        first, dead = f"SELECT ord, moment {ready} ORDER BY ord, moment, seq", f"SELECT moment {ready} AND ord = 0"
        sql = (
            f"SELECT ord FROM ({first} LIMIT 1) f WHERE moment < NOW - %(age)s "
            f"UNION SELECT 0 FROM ({dead} ORDER BY moment LIMIT 1) d WHERE moment < NOW - %(age)s"
        )
        for (ord,) in run.rows(sql, {"queue": queue, "age": age}):
            old = "queue = %s AND state = 0 AND ord = %s AND moment < NOW - %s"
            return self._delete_first(run, old, [queue, ord, age], limit)
        return 0

    def trim_surplus(self, run: Session, queue: str, most: int, limit: int) -> int:
        """Delete what is ready and stands before the last ``most``; how many. Those who do so at once agree on it."""
        sql = (
            "SELECT ord, moment, seq FROM djqueue_message WHERE queue = %s AND state = 0 "
            "ORDER BY ord DESC, moment DESC, seq DESC LIMIT 1 OFFSET %s"
        )
        for last in run.rows(sql, [queue, most]):
            surplus = f"queue = %s AND state = 0 AND {self.up_to.format(*last)}"
            return self._delete_first(run, surplus, [queue], limit)
        return 0

    def _delete_first(self, run: Session, condition: str, params: list, limit: int) -> int:
        return self.delete_some(run, "djqueue_message", "seq", condition, "ord, moment, seq", params, limit)

    def revive(self, run: Session, dead: str, queue: str, ids: Sequence[str]) -> int:
        sql = (
            f"UPDATE djqueue_message AS m SET queue = %s, {REVIVED} "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND state < 2 "
            f"AND {absent('m.id')}"
        )
        return run.count(sql, [queue, dead, *ids, queue])

    def flush(self, run: Session, queue: str) -> int:
        """Delete a chunk of what is ready, or else of what is delayed; how many."""
        for state in (READY, DELAYED):
            if deleted := self._delete_first(run, "queue = %s AND state = %s", [queue, state], CHUNK):
                return deleted
        return 0

    def length(self, run: Session, queue: str) -> int:
        return run.rows("SELECT count(*) FROM djqueue_message WHERE queue = %s AND state IN (0, 1)", [queue])[0][0]

    def stats(self, run: Session, queue: str, dead: str, counters: Sequence[str]) -> tuple:
        """ready, due, delayed, leased, dead (capped), done, now; first moment of what is due and of what is ready."""
        due = "state = 1 AND ord = 0 AND moment"
        counts = ", ".join(
            f"(SELECT count(*) FROM (SELECT 1 FROM djqueue_message WHERE {condition} LIMIT {CAP}) x)"
            for condition in (
                "queue = %(queue)s AND state = 0",
                f"queue = %(queue)s AND {due} < NOW",
                f"queue = %(queue)s AND {due} >= NOW",
                "queue = %(queue)s AND state = 2",
                "queue = %(dead)s AND state = 0",
            )
        )
        sql = (
            f"SELECT {counts}, (SELECT sum(tally) FROM djqueue_fact WHERE k IN ({self._named(counters)})), NOW, "
            f"(SELECT min(moment) FROM djqueue_message WHERE queue = %(queue)s AND {due} < NOW), ({self._oldest()})"
        )
        return run.rows(sql, {"queue": queue, "dead": dead} | {f"k{i}": k for i, k in enumerate(counters)})[0]

    def _named(self, values: Sequence) -> str:
        return ", ".join(f"%(k{i})s" for i in range(len(values)))

    def _oldest(self) -> str:
        """The heads of the priorities, a step in the index each; ``min(moment)`` would read all that is ready."""
        ready = "FROM djqueue_message r WHERE r.queue = %(queue)s AND r.state = 0"
        return (
            f"WITH RECURSIVE p (ord, n) AS (SELECT (SELECT r.ord {ready} ORDER BY r.ord LIMIT 1), 1 "
            f"UNION ALL SELECT (SELECT r.ord {ready} AND r.ord > p.ord ORDER BY r.ord LIMIT 1), n + 1 "
            f"FROM p WHERE p.ord IS NOT NULL AND n < {PRIORITIES}) "
            f"SELECT min((SELECT r.moment {ready} AND r.ord = p.ord ORDER BY r.moment LIMIT 1)) FROM p"
        )
