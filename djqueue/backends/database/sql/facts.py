"""The statements of the facts, and of the guards that are kept as facts."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.base import Statements
from djqueue.backends.database.sql.fragments import WAITS, flat, marks

LIVING = "(until IS NULL OR until > NOW)"
FACT = "(%s, %s, NOW + %s, 0)"


class Facts(Statements):
    """Keys are whole; values are bytes; times are µs, and None is for ever."""

    def get(self, run: Session, key: str) -> bytes | None:
        found = run.rows(f"SELECT value FROM djqueue_fact WHERE name = %s AND {LIVING}", [key])
        return bytes(found[0][0]) if found else None

    def get_many(self, run: Session, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of those keys that there are."""
        found = run.rows(f"SELECT name, value FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {LIVING}", keys)
        return {key: bytes(value) for key, value in found}

    def get_as_of(self, run: Session, key: str) -> tuple[int, bytes | None]:
        """The same, and the moment."""
        sql = f"SELECT NOW, (SELECT value FROM djqueue_fact WHERE name = %s AND {LIVING})"
        now, value = run.rows(sql, [key])[0]
        return now, None if value is None else bytes(value)

    def living(self, run: Session, keys: Sequence[str]) -> list[str]:
        """Those of the keys that there are."""
        if not keys:
            return []
        return [
            row[0]
            for row in run.rows(f"SELECT name FROM djqueue_fact WHERE name IN ({marks(keys)}) AND {LIVING}", keys)
        ]

    def put(self, run: Session, facts: Sequence[tuple]) -> None:
        """Set whole facts: keys that differ, in their order, each with its value and its time."""
        rows = ", ".join([FACT] * len(facts))
        run.count(
            f"INSERT INTO djqueue_fact (name, value, until, counter) VALUES {rows} {self.fact_replaces}", flat(facts)
        )

    def add(self, run: Session, key: str, value: bytes, ttl: int | None) -> bool:
        """Set unless it is there; one statement decides, whoever else is about to."""
        sql = (
            f"INSERT INTO djqueue_fact (name, value, until, counter) VALUES {FACT} "
            f"{self.fact_replaces} WHERE djqueue_fact.until <= NOW"
        )
        return run.count(sql, [key, value, ttl]) == 1

    def swap(self, run: Session, key: str, was: bytes, value: bytes, ttl: int | None) -> bool:
        sql = f"UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND value = %s AND {LIVING}"
        return run.count(sql, [value, ttl, key, was]) == 1

    def keep(self, run: Session, key: str, value: bytes, ttl: int) -> bool:
        sql = f"UPDATE djqueue_fact SET until = NOW + %s WHERE name = %s AND value = %s AND {LIVING}"
        return run.count(sql, [ttl, key, value]) == 1

    def drop(self, run: Session, key: str, value: bytes | None) -> bool:
        same, params = ("", [key]) if value is None else (" AND value = %s", [key, value])
        return run.count(f"DELETE FROM djqueue_fact WHERE name = %s AND {LIVING}{same}", params) == 1

    def prune(self, run: Session, limit: int) -> int:
        """Delete what is over, the oldest first; how many."""
        return self.delete_some(run, "djqueue_fact", "name", "until <= NOW", "until", [], limit)

    def surplus(self, run: Session, prefix: str, keep: int, limit: int) -> int:
        """Of the keys that begin so, delete those that would be over first, until ``keep`` are left; how many.

        In order of ``until`` and then of ``counter``: many may have the same moment.
        """
        within = [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
        sql = (
            "SELECT until, counter FROM djqueue_fact WHERE name >= %s AND name < %s "
            "ORDER BY until DESC, counter DESC LIMIT 1 OFFSET %s"
        )
        last = run.rows(sql, [*within, keep])
        if not last:
            return 0
        (until, counter), condition = (
            last[0],
            "name >= %s AND name < %s AND (until < %s OR (until = %s AND counter <= %s))",
        )
        params = [*within, until, until, counter]
        return self.delete_some(run, "djqueue_fact", "name", condition, "until, counter", params, limit)

    # ---- Guards: what must be known, and locked, for a put with a condition that Python decides on. All of it is
    # within one transaction, which has what it locks until it ends.

    def hold(self, run: Session, keys: Sequence[str]) -> dict[str, bytes]:
        """Lock facts, made if need be, in the order of the keys, waiting for whoever has them; those that there are."""
        rows = run.rows(f"{self._holding(keys)} RETURNING name, value, {LIVING}", flat([(key, b"", 0) for key in keys]))
        return {key: bytes(value) for key, value, lives in rows if lives}

    def hold_as_of(self, run: Session, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """The same, and a moment since which they are ours."""
        return self.hold(run, keys), self.clock(run)

    def _holding(self, keys: Sequence[str]) -> str:
        rows = ", ".join([FACT] * len(keys))
        return f"INSERT INTO djqueue_fact (name, value, until, counter) VALUES {rows} {self.fact_stays}"

    def look(self, run: Session, queue: str, ids: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Now, and the states of those of the entries that there are."""
        sql = (
            "SELECT NOW, m.id, m.state FROM (SELECT 1 AS one) x "
            f"LEFT JOIN djqueue_message m ON m.queue = %s AND m.id IN ({marks(ids)})"
        )
        rows = run.rows(sql, [queue, *ids])
        return rows[0][0], {id: state for _, id, state in rows if id is not None}

    def withhold(self, run: Session, queue: str, ids: Sequence[str]) -> set[str]:
        """Lock entries that wait, so that no claim has them before the transaction ends; those that could be locked.

        Never waits: who has one locked is about to lease or to delete it.
        """
        sql = (
            f"SELECT id FROM djqueue_message {self.by_id} WHERE queue = %s AND id IN ({marks(ids)}) AND {WAITS} "
            "FOR UPDATE SKIP LOCKED"
        )
        return {row[0] for row in run.rows(sql, [queue, *ids])}

    def postpone(self, run: Session, queue: str, id: str, due: int) -> None:
        sql = "UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3)"
        run.count(sql, [due, due, queue, id])
