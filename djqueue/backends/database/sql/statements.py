"""What all statements are made of: shared pieces of SQL, the words in which vendors differ, and the facts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b

from djqueue.backends.database.session import Session
from djqueue.flow.gates import UNREADABLE, Gate

READY, DELAYED, LEASED, LATER, OUT = range(5)
"""Of entries. The last two are delayed and leased ones of a lane; what waits in a lane has its number as its state."""
OPEN, NOWHERE, TIMED = range(3)
"""Of lanes. One in the line of another has the number of that as its state."""
FIRST_NUMBER = 16
"""Of lanes."""
WAITS = "state NOT IN (2, 4)"

PROMOTE = 500
"""So many due entries become ready with one claim at most."""

ENTRY = (
    "seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors, "
    "sort_at, gate, lane_number"
)
"""The columns that become an entry."""
RECORD = f"{ENTRY}, state, sort_key, owner"

ARRIVING = "id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate, lane_number"
"""What is known of an entry that arrives; delay and run_at in µs, and one of them 0.

A lane_number below 0 does not count while it stands in an error queue."""
ARRIVING_WIDTH = 13

COLUMNS = (
    "queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, "
    "token, owner, created, due_since, state, sort_key, sort_at"
)
"""What is written of it: every column but seq."""
ARRIVED = (
    "id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0, '', NOW, due, "
    "CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN "
    "lane_number ELSE 0 END, "
    "CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due"
)
"""The same but for queue, made of ARRIVING and DUE."""
DUE = "CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due"

RANK = "CASE WHEN queue LIKE '%%:failed' THEN 0 ELSE neg_priority END"
"""What orders what is ready before its place does; an error queue knows no priorities."""

KEPT = "seq, token, name, value, ttl"
"""A fact that is kept if a row is still ours."""

SAID = "seq, token, delay, attempts, failures, lost, errors"
"""What a holder says of an entry on giving it up, and the proof that it may."""
SAID_WIDTH = 7
GIVE_UP = (
    "state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay "
    "> 0 THEN 1 ELSE 0 END, "
    f"sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE {RANK} END, "
    "sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '', "
    "attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors"
)
"""What becomes of the row, ``u`` being SAID; without a delay it has its old ``due_since``."""
FAIL = (
    "state = 0, sort_key = 0, sort_at = FAILED_AT + u.delay, due_since = FAILED_AT + u.delay, token = 0, owner = '', "
    "attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors"
)
"""The same in an error queue, whose order is that of the deaths; the delay tells those of one statement apart."""

MOST = 2**31 - 1
"""What a count goes to, and no further: whoever can write to the table may have set it so."""
LEASE = (
    "state = %(leased)s, sort_key = 0, sort_at = SINCE + %(lease)s, token = %(token)s, owner = %(owner)s, "
    f"attempts = CASE WHEN attempts < {MOST} THEN attempts + 1 ELSE attempts END, "
    "begun = CASE WHEN BEGUN AND lost = 0 THEN 1 ELSE 0 END"
)
"""SINCE and BEGUN are said by the ask of a claim: see :func:`leasing`."""
MOST_DONE = 10**15
COUNTED = (
    "CASE WHEN djqueue_fact.counter < 0 THEN 0 "
    f"WHEN djqueue_fact.counter < {MOST_DONE} THEN djqueue_fact.counter ELSE {MOST_DONE} END"
)
"""A count, up to one that may be added to, and that a sum of all counts still takes."""
ALL, NONE = "1 = 1", "1 = 0"
"""Of what is claimed this has begun: conditions."""
HOLDS = "state IN (2, 4) AND sort_at > NOW"
"""Of a lease."""
EXTEND = (
    "lost = CASE WHEN state NOT IN (2, 4) AND begun <> 0 AND lost > 0 THEN lost - 1 ELSE lost END, "
    "state = CASE WHEN state = 4 THEN 4 ELSE 2 END, sort_key = 0"
)
"""But for sort_at. What was reaped and not taken was not lost: its holder lives."""
PROMOTED = f"state = 0, sort_key = {RANK}, sort_at = due_since"
LOSE = f"lost = CASE WHEN begun <> 0 AND lost < {MOST} THEN lost + 1 ELSE lost END"
REAPED = f"{LOSE}, {PROMOTED}"
"""The token stays, so that a late worker may finish while nobody else has it."""
RETURNED = "state = lane_number, sort_key = neg_priority, sort_at = due_since"
"""Back in its lane, at its place."""
REAPED_IN_LANE = f"{LOSE}, {RETURNED}, token = 0, owner = ''"
"""Its lane goes on, so a late worker may not finish what others may have begun."""
NEVER = "attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE attempts END, token = 0, owner = ''"
"""A claim that counts as nothing."""
REQUEUED = (
    "lane_number = ABS(lane_number), state = ABS(lane_number), sort_key = neg_priority, sort_at = "
    "NOW, due_since = NOW, created = NOW, "
    "token = 0, owner = '', attempts = 0, failures = 0, lost = 0"
)
"""As if put now."""

ORDER, BACKWARDS = "ORDER BY sort_key, sort_at, seq", "ORDER BY sort_key DESC, sort_at DESC, seq DESC"
NUMBERS = (
    "FROM (SELECT number FROM djqueue_lane WHERE queue = %(queue)s "
    "UNION SELECT number FROM djqueue_ticket WHERE queue = %(queue)s) l"
)
"""The numbers of the lanes of a queue, as ``l``."""
OF_LANE = "djqueue_message m ON m.queue = %(queue)s AND m.state = l.number"
"""What waits in one of them, as ``m``."""
FIRST_READY = f"SELECT seq FROM djqueue_message WHERE queue = %(queue)s AND state = 0 {ORDER} LIMIT %(limit)s"
LAST_READY = FIRST_READY.replace(ORDER, BACKWARDS)
"""Of a queue whose last come first: it keeps priorities the other way round."""


def first_over(state: int, limit: str | int = "%(limit)s") -> str:
    """The first of a state whose moment is over: past, not present, as a clock of milliseconds may lag by one."""
    return (
        f"SELECT seq FROM djqueue_message WHERE queue = %(queue)s AND state = {state} AND sort_key = "
        "0 AND sort_at < NOW "
        f"ORDER BY sort_at LIMIT {limit}"
    )


def over_by(state: int) -> str:
    """The same, but none later than ``by``."""
    return first_over(state).replace("sort_at < NOW", "sort_at < NOW AND NOW <= %(by)s")


def next_of(state: int) -> str:
    """The moment that is the next to be over."""
    return (
        f"SELECT sort_at FROM djqueue_message WHERE queue = %(queue)s AND state = {state} AND "
        "sort_key = 0 AND sort_at >= NOW "
        "ORDER BY sort_at LIMIT 1"
    )


def soonest(*states: int) -> str:
    """The same of several states."""
    return (
        f"SELECT min(sort_at) FROM ({' UNION ALL '.join(f'SELECT * FROM ({next_of(state)}) x' for state in states)}) y"
    )


def absent(id: str) -> str:
    """That a queue has no such id. Not by NOT EXISTS, which PostgreSQL may turn into a join that reads the queue."""
    return f"(SELECT o.seq FROM djqueue_message o WHERE o.queue = %s AND o.id = {id}) IS NULL"


def leasing(since: str, begun: str) -> str:
    """LEASE, of what was claimed at a moment and of which so much has begun."""
    return LEASE.replace("SINCE", since).replace("BEGUN", begun)


def marks(values: Collection) -> str:
    """Placeholders for that many values."""
    return ", ".join(["%s"] * len(values))


def rows_of_marks(width: int, count: int, mark: str = "%s") -> str:
    """Placeholders for ``count`` rows of ``width`` values."""
    return ", ".join([f"({', '.join([mark] * width)})"] * count)


def flat(rows: Collection[tuple]) -> list:
    """The values of all rows, one after the other."""
    return [value for row in rows for value in row]


# ---- The numbers of lanes, and their gates as text


def gate_of(text: str, lane: str = "") -> Gate:
    """What was written, but of a lane that nobody defined: a gate that is always open. No lane is within itself."""
    gate = Gate.read(text) if text else Gate()
    return UNREADABLE if lane and gate.within == lane else gate


@lru_cache(maxsize=1024)
def text_of(gate: Gate) -> str:
    return gate.written()


@lru_cache(maxsize=4096)
def number_of(name: str) -> int:
    """The state of what waits in a lane: a hash of its name. That two names share one is as good as impossible."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 2 | FIRST_NUMBER


# ---- The subjects are one class each, and each extends the one before: Statements, Facts, Lanes, Inspection, Dialect


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
