"""The statements of a put whose guards are ruled on in Python: what must be known, and locked, for that."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.backends.sql.facts import FACT, LIVING
from djqueue.backends.sql.session import Session
from djqueue.backends.sql.text import WAITS, flat, marks


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
