"""Entries and leases into rows and back, and the batches in which they go to the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil, inf
from operator import itemgetter
from typing import NamedTuple
from urllib.parse import quote, unquote

from djqueue.backends.database.sql.text import (
    ALL,
    FIRST_NUMBER,
    LANE_CLOSED,
    LANE_READY,
    LANE_SCHEDULED,
    MOST,
    NOW,
    leasing,
)
from djqueue.backends.database.sql.text import LEASED as STATE_LEASED
from djqueue.backends.entries import DELAYED, LEASED, READY, Entry, LaneRecord, Lease, Record
from djqueue.backends.guards import Guard, OnceGuard
from djqueue.flow import gates
from djqueue.flow.gates import UNREADABLE, Gate
from djqueue.utils import portions, slices

STATES = (READY, DELAYED, LEASED, DELAYED, LEASED)
"""By their number in the table; higher ones are ready in a lane."""
LANE_STATES = {LANE_READY: gates.LANE_READY, LANE_CLOSED: gates.LANE_CLOSED, LANE_SCHEDULED: gates.LANE_SCHEDULED}
LONGEST_ID, LONGEST_NAME = 64, 255
LONGEST = {"id": LONGEST_ID, "lane": LONGEST_NAME, "command": LONGEST_NAME}
BEYOND = 2**31
FAR = 2**61
"""µs: a moment plus that still has 64 bits."""
BATCH, BATCH_BYTES = 1000, 4 * 2**20
"""The most entries, and bytes, of one statement. Quoting may double the bytes: MariaDB takes 16 MiB."""
NEW = (0, 0, 0)
"""Attempts, failures and lost starts of what was never claimed."""
BODY, DELAY, LANE, COMMAND, ERRORS = 1, 3, 5, 6, 7
"""Their places in the row of an arrival. Behind the delay is the moment."""
PLAIN = (0, 0, "", "", *NEW, "", 0)
"""What a plain arrival has around its command."""


class Token(NamedTuple):
    """Proof of ownership: the row, what the claim wrote into it, and the id that it is good for."""

    seq: int
    secret: int
    id: str
    lane: str = ""
    """Which it has left, if that has a gate."""
    is_counted: bool = False
    """Whether that lane counts it as in flight, and may open when it is settled."""


class NewRow(NamedTuple):
    """An entry to put: its row of ARRIVING; and of its guard the key, and for how many µs it holds ("" and 0: none)."""

    row: tuple
    key: str
    ttl: int
    entry: Entry
    guard: Guard | None

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def is_plain(self) -> bool:
        """Whether it is new, due on arrival, and in no lane."""
        return self.row[DELAY:COMMAND] + self.row[ERRORS:] == PLAIN

    def lane(self, ruled: bool) -> tuple | None:
        """Name, number and gate of the lane that it enters, if it may do so at once.

        Where guards are ruled on (``ruled``) a delay begins before the entry is inserted, and may be over by then.
        """
        name, gate, lane_number = self.row[LANE], *self.row[-2:]
        return (name, lane_number, gate) if lane_number > 0 and (ruled or not self.row[DELAY]) else None

    def in_no_lane(self) -> NewRow:
        """The row for a failed queue, where an entry keeps the name of its lane but does not wait in it."""
        return self._replace(row=(*self.row[:-1], -self.row[-1]))

    def due(self, now: int) -> int:
        """When it is due, µs."""
        delay, run_at = self.row[DELAY:LANE]
        return run_at or now + delay

    def due_at(self, due: int) -> NewRow:
        """The arrival with another moment at which it is due, to the microsecond."""
        return self._replace(row=(*self.row[:DELAY], 0, due, *self.row[LANE:]))


class ClaimRequest(NamedTuple):
    """A claim."""

    queue: str
    limit: int
    lease: int
    token: int
    owner: str
    lifo: bool = False
    leased: int = STATE_LEASED
    """The state of what is leased."""
    look: bool = True
    """Whether to read the state of lanes with the claim; a claim that will be full does not need it."""
    since: str = NOW
    """When it was claimed, µs; the moment for which a throttle was asked, if one was."""
    begun: str = ALL
    """What of it begins with the claim: a condition."""

    @property
    def change(self) -> str:
        """What it changes of a row, as of that moment and with that condition."""
        return leasing(f"{self.since} + %(lease)s", self.begun)


def micros(seconds: float) -> int:
    """Microseconds, rounded up: never early. A longer time than a column can hold is cut to its maximum."""
    moment = seconds * 1e6
    return ceil(moment) if -FAR < moment < FAR else FAR if moment > 0 else -FAR


def seconds_to(moment: int | None, now: int) -> float:
    """Seconds from one to the other, both in µs, never negative; infinity if there is no such moment."""
    return inf if moment is None else max(0.0, (moment - now) / 1e6)


# ---- the numbers of lanes, and their gates


def gate_of(text: str, lane: str = "") -> Gate:
    """The gate in a text. A lane without a definition has a gate that is always open. No lane is its own parent."""
    gate = Gate.read(text) if text else Gate()
    return UNREADABLE if lane and gate.parent == lane else gate


@lru_cache(maxsize=4096)
def number_of(name: str) -> int:
    """The state of what waits in a lane: a hash of its name. That two names share one is as good as impossible."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 2 | FIRST_NUMBER


# ---- into rows


def arrival_of(entry: Entry, key: str = "", guard: Guard | None = None, lifo: bool = False) -> NewRow:
    """An entry to put, next to a guard whose mark has that key. Raises ValueError for a field that does not fit.

    With ``lifo`` priorities are stored with the opposite sign, but not in lanes.
    """
    if len(entry.id) > LONGEST_ID or len(entry.lane) > LONGEST_NAME or len(entry.command) > LONGEST_NAME:
        raise _too_long(entry)
    if not -BEYOND <= entry.priority < BEYOND:
        raise ValueError(f"Entry.priority is {entry.priority}; it may have 32 bits.")
    delay = max(0, micros(entry.delay)) if entry.delay else 0
    run_at = micros(entry.run_at) if entry.run_at and not delay else 0
    lane_number = number_of(entry.lane) if entry.gate else 0
    neg_priority = entry.priority if lifo and not lane_number else ~entry.priority
    texts = entry.lane, entry.command, entry.errors
    row = (entry.id, entry.body, neg_priority, delay, run_at, *texts, *counts_of(entry), entry.gate, lane_number)
    return NewRow(row, key, micros(guard.ttl) if isinstance(guard, OnceGuard) else 0, entry, guard)


def _too_long(entry: Entry) -> ValueError:
    field = next(field for field, longest in LONGEST.items() if len(getattr(entry, field)) > longest)
    return ValueError(f"Entry.{field} has {len(getattr(entry, field))} characters; it may have {LONGEST[field]}.")


def counts_of(entry: Entry) -> tuple[int, ...]:
    """Attempts, failures and lost ones, as far as a column goes."""
    counts = entry.attempts, entry.failures, entry.lost
    return counts if counts == NEW else tuple(max(-MOST, min(count, MOST)) for count in counts)


def is_ours(lease: Lease) -> bool:
    """Whether the token of a lease is of this backend, and for this entry."""
    return isinstance(lease.token, Token) and lease.token.id == lease.entry.id


def token_of(lease: Lease) -> Token:
    """The token of a lease of this backend."""
    assert isinstance(lease.token, Token)
    return lease.token


def pairs_of(leases: Iterable[Lease]) -> list[tuple]:
    """The seq and token of each lease, which prove that a row is held."""
    return [token_of(lease)[:2] for lease in leases]


def plain_pairs(leases: Sequence[Lease]) -> list[tuple]:
    """The pairs of leases, sorted; none unless one statement completes them and no lane may open: all are leases of
    this backend that no lane counts, at most BATCH, and of each row there is one."""
    pairs = []
    for lease in leases:
        token = lease.token
        if not isinstance(token, Token) or token.is_counted or token.id != lease.entry.id:
            return []
        pairs.append(token[:2])
    pairs.sort()
    return pairs if len(dict(pairs)) == len(pairs) <= BATCH else []


def said_of(leases: Iterable[Lease], delay_of: Callable[[Lease], int]) -> list[tuple]:
    """Rows of SAID: the new state of leased entries, with the delay in µs."""
    return [(*token_of(lease)[:2], delay_of(lease), *counts_of(lease.entry), lease.entry.errors) for lease in leases]


def delay_of(lease: Lease) -> int:
    """The delay of the released entry, µs; 0 if its lane waits instead."""
    return 0 if lease.entry.hold and token_of(lease).lane else max(0, micros(lease.entry.delay))


def kept_of(leases: Iterable[Lease], facts: Mapping[object, tuple]) -> list[tuple]:
    """Rows of KEPT: of leases the facts of which we know the key, the value and the time in µs."""
    return [(*token_of(lease)[:2], *facts[lease.token]) for lease in leases if lease.token in facts]


# ---- history


def ended_of(leases: Iterable[Lease], records: Mapping[object, bytes]) -> list[tuple]:
    """Rows of ENDED: the seq, the id and the record of leases that have one."""
    return [(token_of(lease).seq, lease.entry.id, records[lease.token]) for lease in leases if lease.token in records]


def ended_by(leases: Sequence[Lease], history: Sequence[bytes]) -> list[tuple]:
    """Rows of ENDED of leases that each have a record, or b"" for none."""
    pairs = zip(leases, history, strict=True) if history else ()
    return [(token_of(lease).seq, lease.entry.id, record) for lease, record in pairs if record]


def records_of(ended: Sequence[tuple]) -> tuple[int, str, str, str]:
    """The columns of one row of the history: the count, the least id and the greatest, and the records as text."""
    ids = [row[1] for row in ended]
    return len(ids), min(ids), max(ids), text_of([(id, record.decode(errors="replace")) for _, id, record in ended])


def text_of(records: Sequence[tuple[str, str]]) -> str:
    """Ids with their records as text: a line for each, behind a line break, so that what begins a line is found."""
    whole = "".join([id for id, _ in records])
    if whole.isascii() and whole.isalnum():
        return "".join([f"\n{id} {record}" for id, record in records])
    return "".join([f"\n{key_of(id)} {record}" for id, record in records])


def lines_of(text: str) -> list[tuple[str, str]]:
    """The ids and records in a text, the newest first: a record begins with its moment."""
    lines = [line.partition(" ")[::2] for line in text.split("\n")]
    return sorted(((unquote(key), record) for key, record in lines if record), key=itemgetter(1), reverse=True)


def key_of(id: str) -> str:
    """An id as it stands in a line: without spaces and line breaks."""
    return id if id.isascii() and id.isalnum() else quote(id, safe="", errors="replace")


# ---- out of rows


def entry_of(row: tuple, lifo: bool = False) -> Entry:
    """From the columns of ENTRY. ``run_at`` is 0 unless the entry had a moment of its own."""
    _, body, id, rank, due_since, created, lane, attempts, failures, lost, command, errors, _, gate, number = row[:15]
    run_at = 0.0 if due_since == created else due_since / 1e6
    priority = rank if lifo and not number else ~rank
    counts = attempts, failures, lost
    return Entry(bytes(body), id, priority, run_at, 0.0, lane, *counts, created / 1e6, command, errors, gate)


def lease_of(row: tuple, ask: ClaimRequest, run: str = "", is_counted: bool = False, first: bool = True) -> Lease:
    """The lease of a claimed row. Its moment is the change of the row: later than the start of the claim.

    ``is_counted``: whether its lane counts it as in flight. ``first``: whether it is the first of its unit; the entries
    behind have not begun.
    """
    until, entry = row[12], entry_of(row, ask.lifo)
    token = Token(row[0], ask.token, row[2], row[6] if row[14] > 0 else "", is_counted)
    begun = first and not entry.lost and ask.begun == ALL
    return Lease(entry, token, (until - ask.lease) / 1e6, until / 1e6, run, begun)


def order_of(row: tuple) -> tuple:
    """By which entries run: priority, first due time, arrival."""
    return row[3], *place_of(row)


def place_of(row: tuple) -> tuple:
    """By which the entries of a failed queue do."""
    return row[4], row[0]


def state_of(number: int) -> str:
    return STATES[number] if number < len(STATES) else READY


def record_of(row: tuple, lifo: bool = False, lane: str = "") -> Record:
    """A record from the columns of RECORD and the time; ``lane`` is where it waits, whatever lane its row has.

    A delayed entry that is due is shown as ready; the next claim will write that.
    """
    seq, moment, _, _, number, sort_key, owner, now = row[0], *row[12:]
    entry, state = entry_of(row, lifo), state_of(number)
    state = READY if state == DELAYED and moment < now else state
    holder = owner if state == LEASED else ""
    return Record(entry, state, moment / 1e6, holder, f"{sort_key}.{moment}.{seq}.{lane}")


def lane_record_of(row: tuple, waiting: int, capped: int, out: int) -> LaneRecord:
    """From the columns of LANE; what waits was counted up to ``capped``, and ``out`` have left and are not settled."""
    _, name, _, gate, in_flight, _, _, paused, _, number, _, moment = row
    state, opens = LANE_STATES.get(number, gates.LANE_QUEUED), moment / 1e6 if number == LANE_SCHEDULED else 0.0
    parent = gate_of(gate).parent
    return LaneRecord(
        name,
        state,
        waiting,
        max(in_flight, out),
        opens,
        paused,
        parent,
        gate,
        name,
        capped if waiting == capped else None,
    )


# ---- batches


def rounds(
    leases: Iterable[Lease], facts: Mapping[object, tuple], records: Mapping[object, bytes]
) -> Iterator[dict[int, Lease]]:
    """Batches by row, sorted, so that two transactions lock the same rows in the same order.

    The database answers with rows, so leases of different claims of one row are in different batches.
    """
    rest, none = sorted(leases, key=token_of), ("", b"", 0)
    while rest:
        batch: dict[int, Lease] = {}
        left, size = [], 0
        for lease in rest:
            seq, beside = token_of(lease).seq, len(facts.get(lease.token, none)[1]) + len(records.get(lease.token, b""))
            weight = _size(lease.entry.errors) + beside
            if seq in batch or len(batch) == BATCH or (batch and size + weight > BATCH_BYTES):
                left.append(lease)
            else:
                batch[seq] = lease
                size += weight
        yield batch
        rest = left


def batches(arrivals: Iterable[NewRow]) -> Iterator[list[NewRow]]:
    """Batches of arrivals, each as large as one statement takes."""
    return portions(arrivals, BATCH, BATCH_BYTES, lambda one: len(one.row[BODY]) + _size(one.row[ERRORS]))


def _size(text: str) -> int:
    """In bytes, as it is sent."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Without repetitions and without what no column holds, as many as one statement takes."""
    return slices(filter(is_text, dict.fromkeys(values)), BATCH)


def is_text(value: str) -> bool:
    """Whether every database can hold a text: not with NUL, and not with half of a character."""
    try:
        return "\0" not in value and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False
