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

    def revive(self, run: Session, dead: str, queue: str, ids: Sequence[str]) -> int:
        sql = (
            f"UPDATE djqueue_message AS m SET queue = %s, {REVIVED} "
            f"WHERE queue = %s AND id IN ({marks(ids)}) AND state < 2 "
            f"AND {absent('m.id')}"
        )
        return run.count(sql, [queue, dead, *ids, queue])

    def flush(self, run: Session, queue: str) -> int:
        """Delete a chunk of what is ready, or else of what is delayed; how many."""
        where, order = "queue = %s AND state = %s", "ord, moment, seq"
        for state in (READY, DELAYED):
            if deleted := self.delete_some(run, "djqueue_message", "seq", where, order, [queue, state], CHUNK):
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
