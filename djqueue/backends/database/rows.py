"""Entries and leases into rows and back, and the batches in which they go to the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil, inf
from typing import NamedTuple

from djqueue.backends.database.sql.messages import Arrival, Ask
from djqueue.backends.database.sql.statements import ALL, MOST, NOWHERE, OPEN, TIMED, gate_of, number_of
from djqueue.backends.entries import DELAYED, LEASED, READY, Entry, LaneRecord, Lease, Record
from djqueue.backends.guards import AnyGuard, Guard
from djqueue.flow import gates
from djqueue.utils import portions, slices

STATES = (READY, DELAYED, LEASED, DELAYED, LEASED)
"""By their number in the table; higher ones are ready in a lane."""
LANE_STATES = {OPEN: gates.OPEN, NOWHERE: gates.NOWHERE, TIMED: gates.TIMED}
LONGEST = {"id": 64, "lane": 255, "command": 255}
BEYOND = 2**31
FAR = 2**61
"""µs: a moment plus that still has 64 bits."""
BATCH, BATCH_BYTES = 1000, 4 * 2**20
"""One statement takes so many entries, of so many bytes, at most. Quoting may double those: MariaDB takes 16 MiB."""
NEW = (0, 0, 0)
"""Attempts, failures and lost starts of what was never claimed."""
BODY, DELAY, LANE, NOTE = 1, 3, 5, 7
"""Their places in the row of an arrival. Behind the delay is the moment."""


class Token(NamedTuple):
    """Proof of ownership: the row, what the claim wrote into it, and the id that it is good for."""

    seq: int
    secret: int
    id: str
    lane: str = ""
    """Which it has left, if that has a gate."""


def micros(seconds: float) -> int:
    """Microseconds, rounded up: never early. What is further off than a column can say is as far as it can."""
    moment = seconds * 1e6
    return ceil(moment) if -FAR < moment < FAR else FAR if moment > 0 else -FAR


def counts_of(entry: Entry) -> tuple[int, int, int]:
    """Attempts, failures and lost ones, as far as a column goes."""
    counts = entry.attempts, entry.failures, entry.lost
    return counts if counts == NEW else tuple(max(-MOST, min(count, MOST)) for count in counts)


def seconds_to(moment: int | None, now: int) -> float:
    """Seconds from one to the other, both in µs, never negative; infinity if there is no such moment.

    SQLite gives what somebody wrote, of whatever type.
    """
    return max(0.0, (moment - now) / 1e6) if isinstance(moment, int) else inf


# ---- into rows


def arrival_of(entry: Entry, key: str = "", guard: AnyGuard | None = None, lifo: bool = False) -> Arrival:
    """An entry to put, beside a guard whose mark has that key. Raises ValueError for a field that does not fit.

    Where the last come first (``lifo``), priorities are the other way round, but in lanes.
    """
    if len(entry.id) > 64 or len(entry.command) > 255 or len(entry.lane) > 255:
        raise ValueError(_too_long(entry))
    if not -BEYOND <= entry.priority < BEYOND:
        raise ValueError(f"Entry.priority is {entry.priority}; it may have 32 bits.")
    delay = max(0, micros(entry.delay))
    run_at = 0 if delay else micros(entry.run_at)
    lane_number = number_of(entry.lane) if entry.gate else 0
    neg_priority = entry.priority if lifo and not lane_number else ~entry.priority
    row = (
        entry.id,
        entry.body,
        neg_priority,
        delay,
        run_at,
        entry.lane,
        entry.command,
        entry.errors,
        *counts_of(entry),
        entry.gate,
        lane_number,
    )
    return Arrival(row, key, micros(guard.ttl) if isinstance(guard, Guard) else 0, entry, guard)


def lane_of(arrival: Arrival, ruled: bool) -> tuple | None:
    """Name, number and gate of the lane that an arrival enters, if it may do so at once.

    Where guards are ruled on (``ruled``) a delay begins before the entry is inserted, and may be over by then.
    """
    name, gate, lane_number = arrival.row[LANE], *arrival.row[-2:]
    return (name, lane_number, gate) if lane_number > 0 and (ruled or not arrival.row[DELAY]) else None


def in_no_lane(arrival: Arrival) -> Arrival:
    """In an error queue it has a lane, and does not stand in it."""
    return arrival._replace(row=(*arrival.row[:-1], -arrival.row[-1]))


def due_of(arrival: Arrival, now: int) -> int:
    """When an arrival is due, µs."""
    delay, run_at = arrival.row[DELAY:LANE]
    return run_at or now + delay


def due_at(arrival: Arrival, due: int) -> Arrival:
    """The arrival with another moment at which it is due, to the microsecond."""
    return arrival._replace(row=(*arrival.row[:DELAY], 0, due, *arrival.row[LANE:]))


def _too_long(entry: Entry) -> str:
    field = next(field for field, longest in LONGEST.items() if len(getattr(entry, field)) > longest)
    return f"Entry.{field} has {len(getattr(entry, field))} characters; it may have {LONGEST[field]}."


def pairs_of(leases: Iterable[Lease]) -> list[tuple]:
    """By which a row is known to be ours."""
    return [lease.token[:2] for lease in leases]


def said_of(leases: Iterable[Lease], delay_of: Callable[[Lease], int]) -> list[tuple]:
    """What holders say of their entries; a delay in µs."""
    rows = []
    for lease in leases:
        rows.append((*lease.token[:2], delay_of(lease), *counts_of(lease.entry), lease.entry.errors))
    return rows


def delay_of(lease: Lease) -> int:
    """What its holder says, µs; if its lane waits instead, it does not."""
    return 0 if lease.entry.hold and lease.token.lane else max(0, micros(lease.entry.delay))


# ---- out of rows


def entry_of(row: tuple, lifo: bool = False) -> Entry:
    """From the columns of ENTRY. ``place`` is what ``created`` is unless the entry had a moment of its own."""
    (
        _,
        body,
        id,
        neg_priority,
        due_since,
        created,
        lane,
        attempts,
        failures,
        lost,
        command,
        errors,
        _,
        gate,
        lane_number,
    ) = row[:15]
    run_at, priority = (
        0.0 if due_since == created else due_since / 1e6,
        neg_priority if lifo and not lane_number else ~neg_priority,
    )
    counts = attempts, failures, lost
    return Entry(bytes(body), id, priority, run_at, 0.0, lane, *counts, created / 1e6, command, errors, gate)


def lease_of(row: tuple, ask: Ask, run: str = "", lane: str = "", first: bool = True) -> Lease:
    """The lease that a claim brought. It was claimed when the row was changed: later than it began.

    ``first``: of its unit; those behind have not begun.
    """
    until, entry = row[12], entry_of(row, ask.lifo)
    token = Token(row[0], ask.token, row[2], lane)
    begun = first and not entry.lost and ask.begun == ALL
    return Lease(entry, token, (until - ask.lease) / 1e6, until / 1e6, run, begun)


def order_of(row: tuple) -> tuple:
    """By which entries run: priority, first due time, arrival."""
    return row[3], *place_of(row)


def place_of(row: tuple) -> tuple:
    """By which the entries of an error queue do."""
    return row[4], row[0]


def state_of(number: int) -> str:
    return STATES[number] if number < len(STATES) else READY


def record_of(row: tuple, lifo: bool = False, lane: str = "") -> Record:
    """From the columns of RECORD and the time; ``lane`` is the one in which it waits, whatever its row says of it.

    A delayed entry that is due is ready for whoever looks; the next claim will write it down.
    """
    seq, moment, _, _, number, sort_key, owner, now = row[0], *row[12:]
    entry, state = entry_of(row, lifo), state_of(number)
    at = moment if isinstance(moment, int) else 0  # SQLite gives what somebody wrote
    state = READY if state == DELAYED and at < now else state
    holder = owner if state == LEASED else ""
    return Record(entry, state, at / 1e6, holder, f"{sort_key}.{moment}.{seq}.{lane}")


def lane_record_of(row: tuple, waiting: int) -> LaneRecord:
    """From the columns of LANE."""
    _, name, _, gate, in_flight, _, _, paused, _, number, _, moment = row
    state, opens = LANE_STATES.get(number, gates.LINE), moment / 1e6 if number == TIMED else 0.0
    within = gate_of(gate).within
    return LaneRecord(name, state, waiting, in_flight, opens, paused, within, gate, name)


# ---- batches


def is_ours(lease: Lease) -> bool:
    """Whether this token can have come from here, and for this entry."""
    return isinstance(lease.token, Token) and lease.token.id == lease.entry.id


def kept_of(leases: Iterable[Lease], facts: Mapping[Token, tuple]) -> list[tuple]:
    """Rows of KEPT: of leases the facts of which we know the key, the value and the time in µs."""
    return [(*lease.token[:2], *facts[lease.token]) for lease in leases if lease.token in facts]


def rounds(leases: Iterable[Lease], facts: Mapping[Token, tuple] | None = None) -> Iterator[dict[int, Lease]]:
    """Batches by row, sorted, so that two who change the same rows queue up.

    The database answers with rows, so leases of different claims of one row are in different batches.
    """
    rest, none = sorted(leases, key=lambda lease: lease.token), ("", b"", 0)
    while rest:
        batch: dict[int, Lease] = {}
        left, size = [], 0
        for lease in rest:
            weight = _size(lease.entry.errors) + (len(facts.get(lease.token, none)[1]) if facts else 0)
            is_full = len(batch) == BATCH or (batch and size + weight > BATCH_BYTES)
            if lease.token.seq in batch or is_full:
                left.append(lease)
            else:
                batch[lease.token.seq] = lease
                size += weight
        yield batch
        rest = left


def weight_of(arrival: Arrival) -> int:
    """Its bytes."""
    return len(arrival.row[BODY]) + _size(arrival.row[NOTE])


def batches(values: Iterable, weigh: Callable[..., int] = weight_of) -> Iterator[list]:
    """As many as one statement takes."""
    return portions(values, BATCH, BATCH_BYTES, weigh)


def _size(text: str) -> int:
    """In bytes, as it is sent."""
    return len(text.encode("utf-8", "surrogatepass"))


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Without repetitions, as many as one statement takes."""
    return slices(dict.fromkeys(values), BATCH)
