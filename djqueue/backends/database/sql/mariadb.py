"""MariaDB, which has no UPDATE … RETURNING.

The session's isolation level is READ COMMITTED, as Django sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from django.db import DatabaseError

from djqueue.backends.database.rows import ClaimRequest, NewRow
from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.dialect import (
    ClaimResult,
    Completion,
    Dialect,
    claimed,
    flat,
    in_order,
    is_ready,
    marks,
)
from djqueue.backends.database.sql.text import NOW

SKIPPING = "FOR UPDATE SKIP LOCKED"
BLOCK = (
    "BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; "
    "START TRANSACTION; {steps}; COMMIT; END"
)
"""Several statements in one round trip and one transaction. Without the handler an error would leave it open."""

SIGNALLED = 1644
ALL_HELD = "IF FOUND_ROWS() < %s THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'djqueue: not all are held'; END IF"
"""Behind the look at the rows that are still held: ends a block with the error SIGNALLED if some are not."""

Step = tuple[str, Sequence]
T = TypeVar("T")


class MariaDB(Dialect):
    """From version 10.6, which has SKIP LOCKED."""

    name = "mariadb"
    # UNIX_TIMESTAMP(NOW(6)) is an hour wrong in the repeated hour of the session's time zone.
    now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    fact_replaces = "ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until)"
    fact_stays = "ON DUPLICATE KEY UPDATE name = name"
    fact_counts = "ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter)"
    mark_replaces = "ON DUPLICATE KEY UPDATE until = VALUES(until), counter = VALUES(counter)"
    by_seq, by_id = "FORCE INDEX (PRIMARY)", "FORCE INDEX (djqueue_message_id)"
    by_place = "FORCE INDEX (djqueue_lane_place)"
    by_history = "FORCE INDEX (djqueue_history_place)"
    lane_stays = "ON DUPLICATE KEY UPDATE seq = djqueue_lane.seq"
    in_lanes = f"{text.NUMBERS} STRAIGHT_JOIN {text.OF_LANE}"
    # A comparison of rows is no range for its optimiser.
    behind = (
        "(sort_key > %(sort_key)s OR (sort_key = %(sort_key)s AND (sort_at > %(sort_at)s OR (sort_at = "
        "%(sort_at)s AND seq > %(seq)s))))"
    )
    before = (
        "(sort_key < %(sort_key)s OR (sort_key = %(sort_key)s AND (sort_at < %(sort_at)s OR (sort_at = "
        "%(sort_at)s AND seq < %(seq)s))))"
    )
    up_to = "(sort_key < {0} OR (sort_key = {0} AND (sort_at < {1} OR (sort_at = {1} AND seq <= {2}))))"

    # ---- put

    def keep_deadline(self, seconds: float) -> None:
        """Its time-out for statements cuts waits for locks, too."""
        own = "IF(@@max_statement_time > 0, LEAST(@@max_statement_time, %s), %s)"
        self.count(f"SET SESSION max_statement_time = {own}", [seconds, seconds])

    def insert(self, arrivals: Sequence[NewRow]) -> set[str]:
        """In the order of the call, which numbers them. Looking first spares deadlocks over ids that are there.

        VALUES, as SELECT would lock the counter of the whole table. IGNORE cuts what is too long: check before.
        """
        if len(arrivals) > 1:
            there = self._present(arrivals)
            arrivals = [arrival for arrival in arrivals if arrival.id not in there]
        if not arrivals:
            return set()
        rows, params = [], []
        for arrival in arrivals:
            values, texts = values_of(arrival.row)
            rows.append(values)
            params += [self.queue, *texts]
        sql = f"INSERT IGNORE INTO djqueue_message ({text.COLUMNS}) VALUES {', '.join(rows)} RETURNING id"
        return {row[0] for row in self.rows(sql, params)}

    # ---- claim and reap

    def take(self, ask: ClaimRequest, which: str) -> Sequence[tuple]:
        """Leases all or nothing: a worker that is killed before the answer arrives holds no lease."""
        return self._together(*self._taking(ask, which))[0]

    def _taking(self, ask: ClaimRequest, which: str) -> list[Step]:
        lease = text.leasing("@djqueue", ask.begun)
        found = "queue = %(queue)s AND state = %(leased)s AND sort_key = 0 AND sort_at = @djqueue AND token = %(token)s"
        steps = (
            f"SET @djqueue = {ask.since} + %(lease)s",
            f"UPDATE {joined('djqueue_message', 'seq', which)} SET {lease}",
            f"SELECT {text.ENTRY} FROM djqueue_message WHERE {found}",
        )
        named = ask._asdict()
        return [in_order(step, named) for step in steps]

    def change_first(self, change: str, which: str, params: Mapping[str, object]) -> int:
        return self.count(f"UPDATE {joined('djqueue_message', 'seq', which)} SET {change}", params)

    # ---- for holders of leases

    def exchange(
        self, pairs: Sequence[tuple], counter: str, ask: ClaimRequest, ended: Sequence[tuple] = ()
    ) -> tuple[Collection[int] | None, ClaimResult]:
        """One block, behind the glance of a claim."""
        glance, promoted = self.promoted(ask)
        taking = self._taking(ask, text.first_ready(ask.lifo)) if is_ready(glance, promoted) else []

        def settle(pairs: Sequence[tuple], ended: Sequence[tuple]) -> list[Sequence[tuple]]:
            return self._together(*self._completing(pairs, Completion(counter), (), ended), *taking)

        completed, *taken = self._settled(pairs, ended, settle)
        return {row[0] for row in completed}, claimed(ask, taken[0] if taken else [], glance, promoted)

    def complete(
        self, pairs: Sequence[tuple], finish: Completion, kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        def settle(pairs: Sequence[tuple], ended: Sequence[tuple]) -> Iterable[tuple]:
            return self._together(*self._completing(pairs, finish, kept, ended))[0]

        return self._settled(pairs, ended, settle)

    def _completing(
        self, pairs: Sequence[tuple], finish: Completion, kept: Sequence[tuple], ended: Sequence[tuple]
    ) -> list[Step]:
        ours, params = fence(pairs)
        remember = (
            f"{text.INSERT_FACT} SELECT CONCAT(%s, m.id), '', {NOW} + %s, m.seq FROM {ours} {self.mark_replaces}",
            [finish.marks, finish.remember, *params],
        )
        count = (
            f"{text.INSERT_FACT} SELECT %s, '', NULL, COUNT(*) FROM {ours} HAVING COUNT(*) > 0 {self.fact_counts}",
            [finish.counter, *params],
        )
        delete = (f"DELETE m FROM {ours}", params)
        steps = [*self._keeping(len(pairs), kept, ended), *[remember] * bool(finish.remember), count, delete]
        return [look(ours, params), *steps]

    def _settled(self, given: Sequence[tuple], ended: Sequence[tuple], settle: Callable[[Sequence, Sequence], T]) -> T:
        """``settle`` for given rows, which begin with their pairs, and for records.

        It writes the records as they are, and raises SIGNALLED if some rows are not held any more. That is rare; then
        those that are held are looked up and locked first.
        """
        if not ended:
            return settle(given, ended)
        if not self.joined:
            try:
                return settle(given, ended)
            except DatabaseError as error:
                if error.args[0] != SIGNALLED:
                    raise
        with self.atomic():
            held = {row[0] for row in self.rows(*look(*fence([row[:2] for row in given])))}
            rest = [row for row in given if row[0] in held] or [(0, 0, *given[0][2:])]  # of no holder
            return settle(rest, [row for row in ended if row[0] in held])

    def mark_begun(self, pairs: Sequence[tuple]) -> Iterable[tuple]:
        ours, params = fence(pairs)
        held = f"WHERE {text.HOLDS.format(now='@djqueue')}"
        errors = (f"UPDATE {ours} SET begun = 1 {held}", params)
        return self._together(("SET @djqueue = {now}", []), look(f"{ours} {held}", params), errors)[0]

    def touch(self, pairs: Sequence[tuple], lease: int) -> Iterable[tuple]:
        ours, params = fence(pairs)
        until = ("SET @djqueue = {now} + %s", [lease])
        extend = (f"UPDATE {ours} SET {text.EXTEND}, sort_at = @djqueue", params)
        return self._together(until, look(ours, params, "m.seq, @djqueue"), extend)[0]

    def write_lanes(self, rows: Sequence[tuple], opened: bool = False) -> None:
        join = f"({selected(text.WRITTEN, len(rows))}) u STRAIGHT_JOIN djqueue_lane l {self.by_seq} ON l.seq = u.seq"
        self.count(f"UPDATE {join} SET {qualified(text.ASSIGNED, 'l')}", flat(rows))

    def give_up(
        self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple] = (), ended: Sequence[tuple] = ()
    ) -> Iterable[tuple]:
        def settle(said: Sequence[tuple], ended: Sequence[tuple]) -> Iterable[tuple]:
            return self._together(*self._giving_up(queue, change, said, kept, ended))[0]

        return self._settled(said, ended, settle)

    def _giving_up(
        self, queue: str, change: str, said: Sequence[tuple], kept: Sequence[tuple], ended: Sequence[tuple]
    ) -> list[Step]:
        ours, params = fence([row[:2] for row in said])
        update = (
            f"UPDATE ({selected(text.SAID, len(said))}) u "
            f"STRAIGHT_JOIN djqueue_message m {self.by_seq} ON m.seq = u.seq AND m.token = u.token "
            f"SET m.queue = %s, {qualified(change, 'm')}",
            [*flat(said), queue],
        )
        return [look(ours, params), *self._keeping(len(said), kept, ended), update]

    def _keeping(self, number: int, kept: Sequence[tuple], ended: Sequence[tuple]) -> list[Step]:
        """Behind a look at the rows still held: statements that keep their facts, and records if it found ``number``.
        One for each fact: a table of given rows would silently cut a value of 64 KiB or more."""
        sql = (
            f"{text.INSERT_FACT} SELECT %s, %s, {NOW} + %s, 0 FROM djqueue_message WHERE seq = %s AND token = %s "
            f"{self.fact_replaces}"
        )
        facts: list[Step] = [(sql, [*fact, seq, token]) for seq, token, *fact in kept]
        if not ended:
            return facts
        check: list[Step] = [] if self.joined else [(ALL_HELD, [number])]
        return [*check, *facts, self.recording(ended)]

    def _together(self, *steps: Step) -> list[Sequence[tuple]]:
        """All or nothing; the rows of each step that has rows. In a caller's transaction a block would commit that."""
        if self.joined:
            return [rows for sql, params in steps for rows in self._results(sql, params)]
        block = BLOCK.format(steps="; ".join(sql for sql, _ in steps))
        return self._results(block, [param for _, params in steps for param in params])

    def _results(self, sql: str, params: Sequence) -> list[Sequence[tuple]]:
        self.count(sql, params)
        results = [self.cursor.fetchall()] if self.cursor.description else []
        while self.cursor.nextset():
            results += [self.cursor.fetchall()] if self.cursor.description else []
        return results

    # ---- facts and operators

    def add(self, key: str, value: bytes, ttl: int | None) -> bool:
        """The first statement makes the fact, the second decides. IGNORE would lock it for other transactions too."""
        sql = "UPDATE djqueue_fact SET value = %s, until = {now} + %s WHERE name = %s AND until <= {now}"
        with self.atomic():  # or another process may prune the row in between
            self.count(self._holding([key]), [key, b"", 0])
            return self.count(sql, [value, ttl, key]) == 1

    def requeue(self, failed: str, ids: Sequence[str]) -> int:
        movable = (
            "SELECT d.seq FROM djqueue_message d LEFT JOIN djqueue_message o ON o.queue = %s AND o.id = d.id "
            f"WHERE d.queue = %s AND d.id IN ({marks(ids)}) AND d.{text.WAITS} AND o.seq IS NULL"
        )
        sql = f"UPDATE {joined('djqueue_message', 'seq', movable, 'FOR UPDATE')} SET queue = %s, {text.REQUEUED}"
        return self.count(sql, [self.queue, failed, *ids, self.queue])

    def these(self, count: int, table: str = "djqueue_message") -> str:
        """Finds rows by their key: a SELECT or a DELETE of a list reads a small table whole, whatever index is forced,
        and waits for every row that another transaction has locked or not yet committed."""
        return f"({selected('seq', count)}) u STRAIGHT_JOIN {table} m FORCE INDEX (PRIMARY) ON m.seq = u.seq WHERE true"

    def delete_rows(self, table: str, seqs: Sequence[int]) -> int:
        return self.count(f"DELETE m FROM {self.these(len(seqs), table)}", seqs)

    def drop_tickets(self, seqs: Sequence[int]) -> set[int]:
        """A DELETE of a join returns no rows."""
        there = f"SELECT seq FROM djqueue_ticket WHERE seq IN ({marks(seqs)})"
        found = {row[0] for row in self.rows(there, seqs)}
        if found:
            self.delete_rows("djqueue_ticket", sorted(found))
        return found

    def delete_ids(self, queue: str, ids: Sequence[str], condition: str = "true") -> int:
        sql = f"SELECT seq FROM djqueue_message {self.by_id} WHERE queue = %s AND id IN ({marks(ids)}) AND {condition}"
        seqs = [row[0] for row in self.rows(sql, [queue, *ids])]
        delete = f"DELETE m FROM {self.these(len(seqs))} AND queue = %s AND {condition}"
        return self.count(delete, [*seqs, queue]) if seqs else 0

    def named_lanes(self, count: int) -> str:
        """Each by its key too; what is given compares as the column does."""
        of_lanes = "STRAIGHT_JOIN djqueue_lane l FORCE INDEX (djqueue_lane_name)"
        given = " UNION ALL ".join(["SELECT %s COLLATE utf8mb4_nopad_bin AS name"] * count)
        return f"({given}) u {of_lanes} ON l.name = u.name AND l.queue = %s ORDER BY l.name"

    def delete_some(self, table: str, key: str, condition: str, order: str, params: list, limit: int) -> int:
        picked = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT %s"
        return self.count(f"DELETE {table} FROM {joined(table, key, picked)}", [*params, limit])


def values_of(row: tuple) -> tuple[str, list]:
    """A row to insert, and the parameters behind the queue: no numbers, which need no escaping."""
    id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate, lane_number = row
    due = f"{run_at:d}" if run_at else f"{NOW} + {delay:d}"
    counts = f"{attempts:d}, {failures:d}, {lost:d}"
    state = f"IF({due} > {NOW}, {text.LATER if lane_number > 0 else text.DELAYED}, {max(lane_number, 0):d})"
    place = f"{state}, IF({due} > {NOW}, 0, {neg_priority:d}), {due}"
    values = f"(%s, %s, %s, {neg_priority:d}, %s, %s, %s, {counts}, %s, {lane_number:d}, 0, '', {NOW}, {due}, {place})"
    return values, [id, body, lane, command, errors, gate]


def fence(pairs: Sequence[tuple]) -> tuple[str, list]:
    """The rows ``m`` that are one of the pairs, each found by its key."""
    given = f"({selected('seq, token', len(pairs))}) u"
    join = "STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq AND m.token = u.token"
    return f"{given} {join}", flat(pairs)


def look(ours: str, params: list, what: str = "m.seq") -> Step:
    """The rows that are still held, locked for the next steps. A read after the change would find the next holder's."""
    return f"SELECT {what} FROM {ours} FOR UPDATE", params


def selected(columns: str, count: int) -> str:
    """Rows that are given, as a table."""
    names = columns.split(", ")
    first = "SELECT " + ", ".join(f"%s AS {name}" for name in names)
    return " UNION ALL ".join([first, *[f"SELECT {marks(names)}"] * (count - 1)])


def joined(table: str, key: str, picked: str, lock: str = SKIPPING) -> str:
    """The rows that are picked. They are found by their key because the optimiser must: it would read a small
    table whole, and wait for every row in it that another transaction has locked.
    """
    return f"({picked} {lock}) x STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.{key} = x.{key}"


def qualified(change: str, table: str) -> str:
    """The columns that are set, with their table: the other one of the join has some of the same name."""
    return ", ".join(f"{table}.{one}" for one in change.split(", "))
