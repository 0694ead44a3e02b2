"""What the statements of every subject are made with: the words in which vendors differ, and deleting rows.

The subjects are one class each, and each extends the one before: :class:`Statements`, facts, lanes, inspection, and the
verbs that move entries (:class:`djqueue.backends.database.sql.messages.Dialect`), which a vendor's class extends.
"""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.database.session import Session
from djqueue.backends.database.sql.fragments import NUMBERS, OF_LANE, RECORD, marks


class Statements:
    """The words are those of SQLite and PostgreSQL, where they agree."""

    name: str = ""
    now: str = ""
    """Microseconds since 1970, by the clock of the database."""

    by_seq: str = ""
    """Makes a vendor find rows by their primary key, though the table is small: only what is looked for is locked."""
    by_id: str = ""
    """The same by the index of the ids."""
    by_place: str = ""
    """The same by the index of the places of lanes."""
    locking: str = "FOR UPDATE"
    skipping: str = "FOR UPDATE SKIP LOCKED"

    fact_replaces: str = "ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until"
    fact_stays: str = "ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter"
    """Nothing changes, but the row is locked."""
    lane_stays: str = "ON CONFLICT (queue, name) DO NOTHING"

    record: str = RECORD
    """How these columns are read."""
    in_lanes: str = f"{NUMBERS} CROSS JOIN {OF_LANE}"
    """What waits in the lanes of a queue, lane by lane."""
    behind: str = "(sort_key, sort_at, seq) > (%(sort_key)s, %(sort_at)s, %(seq)s)"
    before: str = "(sort_key, sort_at, seq) < (%(sort_key)s, %(sort_at)s, %(seq)s)"
    up_to: str = "(sort_key, sort_at, seq) <= ({0}, {1}, {2})"

    @property
    def died(self) -> str:
        """The moment of a failure, which tells it from the one before."""
        return "NOW"

    def clock(self, run: Session) -> int:
        return run.rows("SELECT NOW")[0][0]

    def delete_some(
        self, run: Session, table: str, key: str, condition: str, order: str, params: list, limit: int
    ) -> int:
        """Delete the first ``limit`` rows under a condition; how many."""
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s"
        return run.count(f"DELETE FROM {table} WHERE {key} IN ({picked})", [*params, limit])

    def these(self, count: int, table: str = "djqueue_message") -> str:
        """``count`` rows of a table by their seqs, as ``m``: what stands behind FROM, up to a further condition."""
        return f"{table} m WHERE m.seq IN ({marks(range(count))})"

    def delete_rows(self, run: Session, table: str, seqs: Sequence[int]) -> int:
        """Delete the rows of a table with these seqs; how many."""
        return run.count(f"DELETE FROM {table} WHERE seq IN ({marks(seqs)})", seqs)

    def delete_ids(self, run: Session, queue: str, ids: Sequence[str], condition: str = "true") -> int:
        """Delete the entries of a queue with these ids, if they fulfil a condition; how many."""
        sql = f"DELETE FROM djqueue_message WHERE queue = %s AND id IN ({marks(ids)}) AND {condition}"
        return run.count(sql, [queue, *ids])
