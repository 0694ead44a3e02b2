"""The values that travel between a queue and its callers. They decide nothing and touch nothing."""

from __future__ import annotations

import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, NamedTuple

from djqueue.messages.envelope import new_id
from djqueue.messages.metadata import request_id
from djqueue.utils import plain, value

READY, DELAYED, LEASED, FAILED, DONE = "ready", "delayed", "leased", "failed", "done"
EMPTY = "empty"
PAGE = 500
"""Records per call, where all are wanted."""


@value
class Entry:
    """What a queue holds. The body is written once; only the envelope around it changes."""

    body: bytes
    """Opaque: no queue ever reads it."""
    id: str
    """At most 64 characters, made by the producer and never reused. Identity only, never order."""
    priority: int = 0
    """A 32-bit integer; higher goes first."""
    run_at: float = 0.0
    """Due at this moment (epoch seconds); 0 means due on arrival, or ``delay`` seconds after it."""
    delay: float = 0.0
    """Seconds from now, by the store's clock, until the entry is due. Read by ``put`` and ``release``."""
    lane: str = ""
    """The name of its lane: entries of one lane may have to wait for each other; empty means none."""
    attempts: int = 0
    """Starts, counted when the entry is claimed; one that was never begun, and never given back, counts too."""
    failures: int = 0
    """Starts that ended in an exception."""
    lost: int = 0
    """Starts that never reported: they had begun, and their lease ran out. Counted by ``reap``."""
    created: float = 0.0
    """When the store accepted it (epoch seconds, the store's clock)."""
    command: str = ""
    """The command's name, or the key that marks a unique item; at most 255 characters. For operators; the signed body
    decides what runs."""
    errors: str = ""
    """What went wrong so far, a JSON list; it travels with retries and into the failed queue."""
    gate: str = ""
    """The gate of its lane as text, by :meth:`Gate.written`. Without one a lane is a name and delays nothing."""
    hold: str = ""
    """What waits with it when it is released: HOLD_ORDER or HOLD_LANE for the delay, HOLD_PAUSE until it is resumed."""


@value
class Lease:
    """An entry that a consumer holds until a moment, with the proof."""

    entry: Entry
    token: Any = None
    """Proof of ownership, new and random at every claim."""
    claimed: float = 0.0
    """When it was claimed (epoch seconds, the store's clock)."""
    until: float = inf
    """When it runs out (epoch seconds, the store's clock) unless it is touched."""
    run: str = ""
    """Leases of one claim with the same run are one unit of work: for one worker, in this order."""
    begun: bool = True
    """Whether the store takes the entry to be running: if the lease runs out, that start is lost. An entry
    that does not begin with its claim, is not the first of its run, or was lost before, begins with ``begin``."""


Leases = Lease | Sequence[Lease]
"""What the verbs take that settle: one lease, or many."""


def listed(leases: Leases) -> Sequence[Lease]:
    """Many leases, of one or many. Raises TypeError for an id, which does not say whose attempt it is."""
    if isinstance(leases, str | bytes):
        raise TypeError(f"{leases!r} is no lease: give the lease that the queue handed out, or a list of such.")
    return [leases] if isinstance(leases, Lease) else leases


def untried(lease: Lease) -> Lease:
    """The lease to release if an entry was claimed and not begun: the claim does not count as an attempt."""
    return replace(lease, entry=replace(lease.entry, attempts=lease.entry.attempts - 1, delay=0.0, hold=""))


class Fact(NamedTuple):
    """A small fact to be kept in the store of a queue."""

    key: str
    value: bytes
    ttl: float
    """Seconds for which it is kept."""


class Refusal(NamedTuple):
    """Why nothing was handed out, and when to retry."""

    reason: str
    """"empty": nothing is due; "limited": the window of a throttle is full; "spaced": its last one is too near."""
    retry_after: float
    """Seconds until that may have changed; infinity if nothing is known to come."""


class Claimed(list):
    """The leases of one claim, and ``retry_after``: seconds until more may be claimable.

    0 means claim again at once (the claim was full, or stopped early); infinity means that nothing is known to come.
    ``reason`` is why a throttle of the whole queue refused: "limited", "spaced" or "".
    """

    __slots__ = ("retry_after", "reason")

    def __init__(self, leases=(), retry_after: float = inf, reason: str = ""):
        super().__init__(leases)
        self.retry_after, self.reason = retry_after, reason

    @property
    def refusal(self) -> Refusal | None:
        """Why it is empty, if it is."""
        return None if self else Refusal(self.reason or EMPTY, self.retry_after)


@dataclass(frozen=True, slots=True)
class Reaped:
    """How many expired leases a call of ``reap`` gave back, and the seconds until the next may expire."""

    count: int = 0
    next: float = inf
    now: float = 0.0
    """By the store's clock, epoch seconds; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as an operator sees it."""

    entry: Entry
    state: str
    """ready, delayed or leased."""
    at: float
    """When it fell or falls due, or when its lease runs out (epoch seconds, the store's clock)."""
    owner: str = ""
    """The consumer that holds it, if it is leased."""
    cursor: str = ""
    """Pass this as ``after`` to go on behind this record."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of one queue; None where the backend does not know."""

    ready: int = 0
    delayed: int | None = None
    leased: int | None = None
    failed: int | None = None
    done: int | None = None
    oldest: float | None = None
    """Seconds that the longest waiting ready entry has been due."""
    capped: int | None = None
    """Counting stopped here: a count that equals it means "at least"."""


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """A lane as an operator sees it: why does it not run?"""

    name: str
    state: str
    """``ready`` (its first entry may leave), ``scheduled``, ``queued`` (it waits in :attr:`parent`), or ``closed``."""
    waiting: int
    """How many wait in it, due ones only."""
    in_flight: int
    """How many have left it and are not settled."""
    opens: float = 0.0
    """When it opens by itself (epoch seconds, the store's clock); 0 if that is no matter of time."""
    paused_reason: str = ""
    """Why it is paused, if it is."""
    parent: str = ""
    gate: str = ""
    """The gate as text, by :meth:`Gate.written`."""
    cursor: str = ""
    """Pass this as ``after`` to go on behind this record."""
    capped: int | None = None
    """Counting what waits stopped here: at least this number waits."""


def log_extra(queue_alias: str, entry: Entry, **more: object) -> dict[str, object]:
    """The ``extra`` of a log record about a message, by the keys of :data:`djqueue.logs.KEYS`; never the arguments."""
    about = {
        "message_id": plain(entry.id),
        "command": plain(entry.command),
        "queue": queue_alias,
        "attempt": entry.attempts,
        "worker": threading.current_thread().name,
        **more,
    }
    return about | {"request_id": request} if (request := request_id.get()) else about


# ---- An entry as one text, for queues that know only text: a JSON line, then the body


_MARK = "djq:"
_FIELDS = {field.name: field.default for field in fields(Entry) if field.name not in ("body", "delay", "hold")}


def due(entry: Entry, now: float) -> Entry:
    """The entry with its delay turned into a moment."""
    return replace(entry, run_at=now + entry.delay, delay=0.0) if entry.delay else entry


def stamped(entry: Entry, now: float) -> Entry:
    """The entry as it is on arrival."""
    return replace(due(entry, now), created=now)


def pack(entry: Entry) -> str:
    """An entry as one text; fields that have their default are left out."""
    head = {name: value for name, default in _FIELDS.items() if (value := getattr(entry, name)) != default}
    return f"{_MARK}{json.dumps(head)}\n{b64encode(entry.body).decode()}"


def unpack(text: str) -> Entry:
    """The entry in a text; a text that ``pack`` did not write becomes an entry with this text as its body."""
    try:
        mark, head, body = text[: len(_MARK)], *text[len(_MARK) :].split("\n", 1)
        if mark != _MARK:
            raise ValueError("not written by pack")
        known = {name: value for name, value in json.loads(head).items() if name in _FIELDS}
        return Entry(b64decode(body, validate=True), **known)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Entry(text.encode("utf-8", "surrogateescape"), new_id())
