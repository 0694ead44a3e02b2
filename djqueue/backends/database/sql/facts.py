"""The statements of the facts."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.fragments import WAITS, flat, marks

LIVING = "(until IS NULL OR until > NOW)"
FACT = "(%s, %s, NOW + %s, 0)"


class Facts:
    """Keys are whole; values are bytes; times are µs, and None is for ever."""

    now = ""
    """Microseconds since 1970, by the clock of the database."""
    by_seq = by_id = ""
    """What makes a vendor change rows by way of the primary key, or of the index of the ids."""
    fact_replaces = "ON CONFLICT (k) DO UPDATE SET value = excluded.value, until = excluded.until"

    def clock(self, run: Session) -> int:
        return run.rows("SELECT NOW")[0][0]

    def get(self, run: Session, key: str) -> bytes | None:
        found = run.rows(f"SELECT value FROM djqueue_fact WHERE k = %s AND {LIVING}", [key])
        return bytes(found[0][0]) if found else None

    def get_many(self, run: Session, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of those keys that there are."""
        found = run.rows(f"SELECT k, value FROM djqueue_fact WHERE k IN ({marks(keys)}) AND {LIVING}", keys)
        return {key: bytes(value) for key, value in found}

    def get_as_of(self, run: Session, key: str) -> tuple[int, bytes | None]:
        """The same, and the moment."""
        sql = f"SELECT NOW, (SELECT value FROM djqueue_fact WHERE k = %s AND {LIVING})"
        now, value = run.rows(sql, [key])[0]
        return now, None if value is None else bytes(value)

    def living(self, run: Session, keys: Sequence[str]) -> list[str]:
        """Those of the keys that there are."""
        if not keys:
            return []
        return [row[0] for row in run.rows(f"SELECT k FROM djqueue_fact WHERE k IN ({marks(keys)}) AND {LIVING}", keys)]

    def put(self, run: Session, facts: Sequence[tuple]) -> None:
        """Set whole facts: keys that differ, in their order, each with its value and its time."""
        rows = ", ".join([FACT] * len(facts))
        run.count(f"INSERT INTO djqueue_fact (k, value, until, tally) VALUES {rows} {self.fact_replaces}", flat(facts))

    def add(self, run: Session, key: str, value: bytes, ttl: int | None) -> bool:
        """Set unless it is there; one statement decides, whoever else is about to."""
        sql = (
            f"INSERT INTO djqueue_fact (k, value, until, tally) VALUES {FACT} "
            f"{self.fact_replaces} WHERE djqueue_fact.until <= NOW"
        )
        return run.count(sql, [key, value, ttl]) == 1

    def swap(self, run: Session, key: str, was: bytes, value: bytes, ttl: int | None) -> bool:
        sql = f"UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE k = %s AND value = %s AND {LIVING}"
        return run.count(sql, [value, ttl, key, was]) == 1

    def keep(self, run: Session, key: str, value: bytes, ttl: int) -> bool:
        sql = f"UPDATE djqueue_fact SET until = NOW + %s WHERE k = %s AND value = %s AND {LIVING}"
        return run.count(sql, [ttl, key, value]) == 1

    def drop(self, run: Session, key: str, value: bytes | None) -> bool:
        same, params = ("", [key]) if value is None else (" AND value = %s", [key, value])
        return run.count(f"DELETE FROM djqueue_fact WHERE k = %s AND {LIVING}{same}", params) == 1

    def prune(self, run: Session, limit: int) -> int:
        """Delete what is over, the oldest first; how many."""
        return self.delete_some(run, "djqueue_fact", "k", "until <= NOW", "until", [], limit)

    def surplus(self, run: Session, prefix: str, keep: int, limit: int) -> int:
        """Of the keys that begin so, delete those that would be over first, until ``keep`` are left; how many.

        In order of ``until`` and then of ``tally``: many may have the same moment.
        """
        within = [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
        sql = (
            "SELECT until, tally FROM djqueue_fact WHERE k >= %s AND k < %s "
            "ORDER BY until DESC, tally DESC LIMIT 1 OFFSET %s"
        )
        last = run.rows(sql, [*within, keep])
        if not last:
            return 0
        (until, tally), condition = last[0], "k >= %s AND k < %s AND (until < %s OR (until = %s AND tally <= %s))"
        params = [*within, until, until, tally]
        return self.delete_some(run, "djqueue_fact", "k", condition, "until, tally", params, limit)

    def delete_some(
        self, run: Session, table: str, key: str, condition: str, order: str, params: list, limit: int
    ) -> int:
        """Delete the first ``limit`` rows under a condition; how many."""
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s"
        return run.count(f"DELETE FROM {table} WHERE {key} IN ({picked})", [*params, limit])

    def these(self, count: int, table: str = "djqueue_message") -> str:
        """So many rows of a table by their seqs, as ``m``: what stands behind FROM, up to their condition."""
        return f"{table} m WHERE m.seq IN ({marks(range(count))})"

    def delete_rows(
        self, run: Session, table: str, seqs: Sequence[int], condition: str = "true", params: Sequence = ()
    ) -> int:
        """Delete the rows of a table with these seqs, if they fulfil a condition; how many."""
        which = f"seq IN ({marks(seqs)}) AND {condition}"
        return run.count(f"DELETE FROM {table} WHERE {which}", [*seqs, *params])

    def delete_ids(self, run: Session, queue: str, ids: Sequence[str], condition: str = "true") -> int:
        """Delete the entries of a queue with these ids, if they fulfil a condition; how many."""
        sql = f"DELETE FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)}) AND {condition}"
        return run.count(sql, [queue, *ids])


# ---- Puts with conditions that Python decides on: what must be known, and locked, for that


class Guarding:
    """All of it within one transaction, which has what it locks until it ends."""

    fact_stays = "ON CONFLICT (k) DO UPDATE SET tally = djqueue_fact.tally"
    """Nothing changes, but the row is ours."""
    by_id = ""
    """What makes a vendor look for ids by their index, though the table is small: only what is looked for is locked."""

    def hold(self, run: Session, keys: Sequence[str]) -> dict[str, bytes]:
        """Lock facts, made if need be, in the order of the keys, waiting for whoever has them; those that there are."""
        rows = run.rows(f"{self._holding(keys)} RETURNING k, value, {LIVING}", flat([(key, b"", 0) for key in keys]))
        return {key: bytes(value) for key, value, lives in rows if lives}

    def hold_as_of(self, run: Session, keys: Sequence[str]) -> tuple[dict[str, bytes], int]:
        """The same, and a moment since which they are ours."""
        return self.hold(run, keys), self.clock(run)

    def _holding(self, keys: Sequence[str]) -> str:
        rows = ", ".join([FACT] * len(keys))
        return f"INSERT INTO djqueue_fact (k, value, until, tally) VALUES {rows} {self.fact_stays}"

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
        sql = "UPDATE djqueue_message SET moment = %s, place = %s WHERE queue = %s AND id = %s AND state IN (1, 3)"
        run.count(sql, [due, due, queue, id])
