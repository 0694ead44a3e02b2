"""The pieces of SQL of which the statements are made, and what the numbers in the tables stand for.

They are format strings. Their fields are ``{now}``, and in a claim ``{since}``, ``{begun}`` and ``{limit}``:
``Dialect.filled`` fills them. Other braces are doubled.
"""

from __future__ import annotations

import re

NOW, SINCE, BEGUN, LIMIT = "{now}", "{since}", "{begun}", "{limit}"
"""The fields, for pieces that are f-strings: the clock of the database, in µs since 1970; when a claim was made, µs;
the condition which of its entries begin; and the most entries of a claim."""

READY, DELAYED, LEASED, LATER, OUT = range(5)
"""States of entries. LATER and OUT: delayed and leased, of a lane; an entry in a lane has the lane's number."""
LANE_READY, LANE_CLOSED, LANE_SCHEDULED = range(3)
"""States of lanes. A lane that is queued in its parent has the number of the parent as its state."""
FIRST_NUMBER = 16
"""The lowest number of a lane."""
WAITS = "state NOT IN (2, 4)"

PROMOTE = 500
"""The most due entries that become ready with one claim."""

ENTRY = (
    "seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors, "
    "sort_at, gate, lane_number"
)
"""The columns that become an entry."""
RECORD = f"{ENTRY}, state, sort_key, owner"

ARRIVING = "id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate, lane_number"
"""The columns of an arriving entry; delay and run_at in µs, and one of them 0.

A lane_number below 0 does not count while the entry is in a failed queue."""
ARRIVING_TYPES = tuple("text bytea int bigint bigint text text text int int int text bigint".split())
"""Their types on PostgreSQL."""

COLUMNS = (
    "queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, "
    "token, owner, created, due_since, state, sort_key, sort_at"
)
"""The columns that are written for an arriving entry: every column but seq."""


def arrived(due: str = "due") -> str:
    """The values of COLUMNS except queue, made of ARRIVING and of the moment that it is due."""
    return (
        "id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0, '', "
        f"{NOW}, {due}, CASE WHEN {due} > {NOW} THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END "
        f"WHEN lane_number > 0 THEN lane_number ELSE 0 END, CASE WHEN {due} > {NOW} THEN 0 ELSE neg_priority END, {due}"
    )


MOMENT = "CASE WHEN run_at > 0 THEN run_at ELSE {now} + delay END"
DUE = f"{MOMENT} AS due"


def named(columns: str) -> str:
    """Columns of an arriving entry as parameters."""
    return re.sub(rf"\b({ARRIVING.replace(', ', '|')})\b", r"%(\1)s", columns)


def inserting_one(values: str) -> str:
    """One arriving entry: without a table of rows, which costs more than the entry does."""
    return (
        f"INSERT INTO djqueue_message ({COLUMNS}) VALUES (%(queue)s, {named(values)}) "
        "ON CONFLICT (queue, id) DO NOTHING RETURNING id"
    )


INSERT_ONE = inserting_one(arrived(MOMENT))
INSERT_TICKET = "INSERT INTO djqueue_ticket (queue, created, name, number, gate)"
INSERT_IN_LANE = (
    f"WITH e AS ({INSERT_ONE}), t AS ({INSERT_TICKET} "
    "SELECT %(queue)s, {now}, %(lane)s, %(lane_number)s, %(gate)s FROM e) SELECT id"
)
"""One, and a ticket for its lane if it was inserted: the columns that the statement returns, before ``FROM e``."""
INSERT_PLAIN = inserting_one(
    "id, body, neg_priority, '', command, '', 0, 0, 0, '', 0, 0, '', {now}, {now}, 0, neg_priority, {now}"
)
"""One that is new, due on arrival, and in no lane: a server takes half as long to plan it."""

RANK = "CASE WHEN queue LIKE '%%:failed' THEN 0 ELSE neg_priority END"
"""The first order of ready entries, before their place; a failed queue has no priorities."""

KEPT = "seq, token, name, value, ttl"
"""A fact that is written if the lease of a row is still held."""

SAID = "seq, token, delay, attempts, failures, lost, errors"
"""What a holder changes when it gives up an entry, after the seq and token that prove its lease."""
GIVE_UP = (
    "state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END "
    f"WHEN u.delay > 0 THEN 1 ELSE 0 END, sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE {RANK} END, "
    "sort_at = CASE WHEN u.delay > 0 THEN {now} + u.delay ELSE due_since END, token = 0, owner = '', "
    "attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors"
)
"""Changes a released row, ``u`` being SAID; without a delay it keeps its ``due_since``."""


def failed(moment: str) -> str:
    """Changes a failed row. A failed queue is ordered by time of failure; the delay orders rows of one statement."""
    return (
        f"state = 0, sort_key = 0, sort_at = {moment} + u.delay, due_since = {moment} + u.delay, token = 0, "
        "owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors"
    )


MOST = 2**31 - 1
"""The largest count. A larger one in the table was written by hand."""


def leasing(until: str, begun: str = BEGUN, state: str = "%(leased)s") -> str:
    """Changes a claimed row. ``begun``: the condition that it begins."""
    return (
        f"state = {state}, sort_key = 0, sort_at = {until}, token = %(token)s, owner = %(owner)s, "
        f"attempts = CASE WHEN attempts < {MOST} THEN attempts + 1 ELSE attempts END, "
        f"begun = CASE WHEN {begun} AND lost = 0 THEN 1 ELSE 0 END"
    )


LEASE = leasing(f"{SINCE} + %(lease)s")
ALL, NONE = "1 = 1", "1 = 0"
"""Conditions: which of the claimed entries begin."""
HOLDS = "state IN (2, 4) AND sort_at > {now}"
"""The condition that a row has a lease that has not expired."""
EXTEND = (
    "lost = CASE WHEN state NOT IN (2, 4) AND begun <> 0 AND lost > 0 THEN lost - 1 ELSE lost END, "
    "state = CASE WHEN state = 4 THEN 4 ELSE 2 END, sort_key = 0"
)
"""Extends a lease, except sort_at. An entry that was reaped and not leased again was not lost: its holder lives."""
PROMOTED = f"state = 0, sort_key = {RANK}, sort_at = due_since"
PLACE_NOW = "CASE WHEN due_since > {now} THEN {now} ELSE due_since END"
MADE_DUE = (
    f"sort_at = {PLACE_NOW}, due_since = {PLACE_NOW}, "
    f"sort_key = CASE WHEN state = 3 THEN neg_priority ELSE {RANK} END, "
    "state = CASE WHEN state = 3 THEN lane_number ELSE 0 END"
)
"""Makes a delayed entry due. The state comes last: MariaDB reads what the columns before it were just set to."""
LOSE = f"lost = CASE WHEN begun <> 0 AND lost < {MOST} THEN lost + 1 ELSE lost END"
REAPED = f"{LOSE}, {PROMOTED}"
"""The token stays, so that a late worker may finish while no other worker holds the entry."""
RETURNED = "state = lane_number, sort_key = neg_priority, sort_at = due_since"
"""Back in its lane, at its place."""
REAPED_IN_LANE = f"{LOSE}, {RETURNED}, token = 0, owner = ''"
"""The lane goes on, so a late worker may not finish an entry that another worker may have begun."""
NEVER = "attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE attempts END, token = 0, owner = ''"
"""A claim that counts as nothing."""
REQUEUED = (
    "lane_number = ABS(lane_number), state = ABS(lane_number), sort_key = neg_priority, sort_at = {now}, "
    "due_since = {now}, created = {now}, token = 0, owner = '', attempts = 0, failures = 0, lost = 0"
)
"""Requeues an entry of a failed queue, as if it were put now."""

ORDER, BACKWARDS = "ORDER BY sort_key, sort_at, seq", "ORDER BY sort_key DESC, sort_at DESC, seq DESC"
NUMBERS = (
    "FROM (SELECT number FROM djqueue_lane WHERE queue = %(queue)s "
    "UNION SELECT number FROM djqueue_ticket WHERE queue = %(queue)s) l"
)
"""The numbers of the lanes of a queue, as ``l``."""
OF_LANE = "djqueue_message m ON m.queue = %(queue)s AND m.state = l.number"
"""The entries that wait in one of these lanes, as ``m``."""


def first_ready(lifo: bool, condition: str = "") -> str:
    """The first ready entries. A ``lifo`` queue stores priorities with the opposite sign."""
    ready = f"queue = %(queue)s AND state = 0{condition}"
    return f"SELECT seq FROM djqueue_message WHERE {ready} {BACKWARDS if lifo else ORDER} LIMIT %(limit)s"


def over(state: int) -> str:
    """That the moment of a state is over: past, not present, as a clock of milliseconds may lag by one."""
    return f"queue = %(queue)s AND state = {state} AND sort_key = 0 AND sort_at < {NOW}"


def first_over(state: int, limit: str | int = "%(limit)s", columns: str = "seq", condition: str = "") -> str:
    """The first of a state whose moment is over."""
    return f"SELECT {columns} FROM djqueue_message WHERE {over(state)}{condition} ORDER BY sort_at LIMIT {limit}"


def next_of(state: int) -> str:
    """The moment that is the next to be over."""
    left = f"queue = %(queue)s AND state = {state} AND sort_key = 0 AND sort_at >= {NOW}"
    return f"SELECT sort_at FROM djqueue_message WHERE {left} ORDER BY sort_at LIMIT 1"


EXPIRED = first_over(LEASED, condition=f" AND {NOW} <= %(by)s")
"""Leases of what is in no lane, unless it is later than ``by``."""
NEXT_EXPIRY = " UNION ALL ".join(f"SELECT * FROM ({next_of(state)}) x" for state in (LEASED, OUT))
NEXT_EXPIRY = f"SELECT min(sort_at) FROM ({NEXT_EXPIRY}) y"


def owned(state: int, columns: str = "seq") -> str:
    """The first leases of a state that an owner has."""
    ours = f"queue = %(queue)s AND state = {state} AND sort_key = 0 AND owner = %(owner)s"
    return f"SELECT {columns} FROM djqueue_message WHERE {ours} ORDER BY sort_at LIMIT %(limit)s"


def absent(id: str) -> str:
    """That a queue has no such id. Not by NOT EXISTS, which PostgreSQL may turn into a join that reads the queue."""
    return f"(SELECT o.seq FROM djqueue_message o WHERE o.queue = %s AND o.id = {id}) IS NULL"


# ---- history

ENDED = "seq, id, record"
"""A message that has ended: of which row, and what is kept of it."""
RECORDS = "queue, at, count, first_id, last_id, records"
INSERT_RECORDS = f"INSERT INTO djqueue_history ({RECORDS})"
NEWER = "sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count"
"""How many records are in newer rows."""

# ---- facts and lanes

LIVING = "(until IS NULL OR until > {now})"
INSERT_FACT = "INSERT INTO djqueue_fact (name, value, until, counter)"
FACT = "(%s, %s, {now} + %s, 0)"

LANE = "seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at"
WRITTEN = "seq, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at"
"""The columns that are written for an existing lane."""
ASSIGNED = ", ".join(f"{name} = u.{name}" for name in WRITTEN.split(", ")[1:])
LANE_THAT, MESSAGE = (f"FROM djqueue_{table} WHERE queue = %(queue)s AND state" for table in ("lane", "message"))
OF_LANES = (
    "(SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1)",
    f"(SELECT 1 {LANE_THAT} = {LANE_READY} ORDER BY sort_key, sort_at LIMIT 1)",
    f"(SELECT sort_at {LANE_THAT} = {LANE_SCHEDULED} AND sort_key = 0 ORDER BY sort_at LIMIT 1)",
    f"(SELECT sort_at {MESSAGE} = {LATER} AND sort_key = 0 ORDER BY sort_at LIMIT 1)",
)
"""The last four columns of a glance, by a step in an index each."""
GLANCE = (
    f"SELECT {NOW}, (SELECT sort_key {MESSAGE} = 0 ORDER BY sort_key LIMIT 1), ({first_over(DELAYED, 1)}), "
    f"({next_of(DELAYED)})"
)
"""The other columns of a glance."""


def first_entries(number: str = "%s", limit: str = "%s") -> str:
    """The first entries of a lane."""
    return (
        f"SELECT state, seq, sort_key, sort_at, lost FROM djqueue_message WHERE queue = %s AND state = {number} "
        f"{ORDER} LIMIT {limit}"
    )


def first_in_line(number: str = "%s") -> str:
    """The first lane that is queued in a parent lane."""
    return (
        "SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost FROM djqueue_lane "
        f"WHERE queue = %s AND state = {number} ORDER BY sort_key, sort_at LIMIT 1"
    )


PRIORITIES = 64
"""The number of priorities, the highest, in which the oldest ready entry is looked for."""
RANKED = "FROM djqueue_message r WHERE r.queue = %(queue)s AND r.state = 0"
OLDEST = (
    f"WITH RECURSIVE p (sort_key, n) AS (SELECT (SELECT r.sort_key {RANKED} ORDER BY r.sort_key LIMIT 1), 1 UNION ALL "
    f"SELECT (SELECT r.sort_key {RANKED} AND r.sort_key > p.sort_key ORDER BY r.sort_key LIMIT 1), n + 1 "
    f"FROM p WHERE p.sort_key IS NOT NULL AND n < {PRIORITIES}) "
    f"SELECT min((SELECT r.sort_at {RANKED} AND r.sort_key = p.sort_key ORDER BY r.sort_at LIMIT 1)) FROM p"
)
"""The oldest of the first entries by priority, a step in the index each; ``min(sort_at)`` would read all entries."""
