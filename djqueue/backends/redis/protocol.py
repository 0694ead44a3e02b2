"""What travels between a Redis queue and its scripts. The form of an envelope is in ``scripts/common.lua``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import repeat
from math import ceil, inf

from djqueue import utils
from djqueue.backends.entries import LEASED, READY, Entry, Fact, LaneRecord, Lease, Record
from djqueue.backends.guards import UNIQUE_FOR, WAITED_FOR, DebounceGuard, Guard, OnceGuard, UniqueGuard

AT_ONCE = 1000
"""Entries in one call of a script; a verb over more of them is several calls."""
BYTES_AT_ONCE = 2**23
FAR = 2**53 - 1  # microseconds; the last whole number that a script can distinguish from the next
MOMENT = 16  # digits with which a place begins
TOKEN = 16  # characters
BEGUN = ord("1")
REPEATED = 300
"""Bytes of the part of an envelope that entries have in common, at most."""
UNREADABLE = b"its envelope cannot be read"
TYPES: dict[str, str] = dict.fromkeys(("body", "env", "own", "meta", "lanes", "out", "history", "history_old"), "hash")
TYPES |= dict.fromkeys(
    (
        *("ready", "delayed", "leases", "done", "wait", "aged", "results"),
        *("lanes_ready", "lanes_scheduled", "lanes_queued", "names"),
    ),
    "zset",
)
TYPES |= {"recent": "list", "bell": "list", "inbox": "stream", "repeated": "zset"}
"""The type of the key of each part. All other keys are strings."""


def text(value: str) -> bytes:
    """A text as bytes, even if it is no valid Unicode."""
    return value.encode("utf-8", "surrogatepass")


def untext(value: bytes) -> str:
    """The inverse of ``text``; what is no text at all is replaced."""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def type_of(key: bytes) -> str:
    """The type that a key has to be of."""
    return TYPES.get(untext(key.partition(b"}:")[2].removeprefix(b"failed:")), "string")


def microseconds(seconds: float) -> int:
    """A whole number of microseconds, at most the largest that a script can distinguish from the next."""
    return min(round(seconds * 1e6), FAR) if seconds < inf else FAR


def milliseconds(seconds: float) -> int:
    """For how long a fact is kept: at least one, the shortest time that Redis knows."""
    return max(1, ceil(min(seconds * 1e6, FAR) / 1000))


def until(span: int) -> float:
    """A script's microseconds until something, -1 for never, as seconds."""
    return inf if span < 0 else span / 1e6


def moment(score: bytes) -> float:
    """A script's moment, in seconds; one that no clock shows, as it was written by hand, is as far off as can be."""
    return int(max(-FAR, min(float(score), FAR))) / 1e6


def condition(guard: Guard | None) -> bytes:
    """A guard as ``scripts/guards.lua`` reads it."""
    return b"-" if guard is None else _CONDITIONS[type(guard)](guard).encode()


def _once(guard: OnceGuard) -> str:
    return f"once,{milliseconds(guard.ttl)}"


def _unique(guard: UniqueGuard) -> str:
    return f"unique,{guard.running:d},{_span(UNIQUE_FOR)}"


def _debounce(guard: DebounceGuard) -> str:
    kept, flags = max(guard.window, WAITED_FOR), f"{guard.always_delay:d},{guard.extend:d}"
    return f"debounce,{_span(guard.window)},{_span(kept)},{flags},{_span(guard.max_wait)}"


def _span(seconds: float) -> int:
    """Microseconds, rounded up."""
    return ceil(round(min(seconds * 1e6, FAR), 3))


_CONDITIONS: dict[type, Callable[..., str]] = {OnceGuard: _once, UniqueGuard: _unique, DebounceGuard: _debounce}


def is_plain(entry: Entry) -> bool:
    """Whether it is new, due on arrival, and waits in no lane."""
    placed = entry.lane or entry.gate or entry.run_at or entry.delay
    return not (placed or entry.attempts or entry.failures or entry.lost or entry.errors)


@lru_cache(maxsize=1024)
def plain_envelope(priority: int, command: str) -> bytes:
    """The envelope of a plain entry, behind its moments."""
    return text(f"{priority:d} 0 0 0 0 {len(command)}\n{command}")


def envelope(entry: Entry) -> bytes:
    """When the entry is due, and the envelope, which a script completes."""
    if is_plain(entry):
        return b"0 " + plain_envelope(entry.priority, entry.command)
    due = f"+{microseconds(entry.delay)}" if entry.delay > 0 else max(0, microseconds(entry.run_at))
    counts = f"{entry.priority:d} {entry.attempts} {entry.lost} {entry.failures}"
    if entry.gate:
        return text(f"{due} {counts} ") + _gated(entry)
    lengths = f"{len(entry.lane)} {len(entry.command)}"
    return text(f"{due} {counts} {lengths}\n{entry.lane}{entry.command}{entry.errors}")


def _gated(entry: Entry) -> bytes:
    """A script reads the lane and the gate, so the lengths are of bytes."""
    words = [text(word) for word in (entry.lane, entry.command, entry.gate)]
    return b" ".join(b"%d" % len(word) for word in words) + b"\n" + b"".join(words) + text(entry.errors)


def accepted(entry: Entry, guard: Guard | None) -> tuple[bytes, bytes, bytes]:
    """The arguments of ``put`` for an entry: id, data, and the guard with the envelope."""
    if guard is None and not entry.gate:
        return text(entry.id), entry.body, b"- " + envelope(entry)
    said = b"%b%b %b" % (b"@" if entry.gate else b"", condition(guard), envelope(entry))
    return text(entry.id), entry.body, said


def entry_of(id: bytes, envelope: bytes, data: bytes) -> Entry:
    """Raises ValueError if the envelope cannot be read."""
    _, run_at, created, rest = envelope.split(b" ", 3)
    words = _words_once(rest) if len(rest) < REPEATED else _words(rest)
    priority, attempts, lost, failures, lane, command, errors, gate = words
    due, born = int(run_at) / 1e6, int(created) / 1e6
    return Entry(data, untext(id), priority, due, 0.0, lane, attempts, failures, lost, born, command, errors, gate, "")


def _words(rest: bytes) -> tuple[int, int, int, int, str, str, str, str]:
    """The part of an envelope behind its moments."""
    head, words = untext(rest).split("\n", 1)
    priority, attempts, lost, failures, lane_size, command_size, *gate_size = head.split(" ")
    lane_end, gate = int(lane_size), ""
    command_end = lane_end + int(command_size)
    if any(gate_size):
        words, lane_end, command_end, gate = _ungated(rest, lane_end, command_end, int(*gate_size))
    counts = int(priority), int(attempts), int(lost), int(failures)
    return *counts, words[:lane_end], words[lane_end:command_end], words[command_end:], gate


_words_once = lru_cache(maxsize=1024)(_words)
"""For short ones: most entries of a command differ in nothing but their moments."""


def shown(id: bytes, envelope: bytes, data: bytes) -> Entry:
    """The entry as it can be shown; if it cannot be read, its errors have the reason."""
    try:
        return entry_of(id, envelope, data)
    except ValueError:
        return Entry(data, untext(id), errors=f"its envelope cannot be read: {envelope[:300]!r}")


def _ungated(envelope: bytes, lane_end: int, command_end: int, gate: int) -> tuple[str, int, int, str]:
    """From an envelope with a gate: its words without the gate, where lane and command end in them, and the gate."""
    words, gate_end = envelope.split(b"\n", 1)[1], command_end + gate
    ends = [untext(words[:lane_end]), untext(words[lane_end:command_end]), untext(words[gate_end:])]
    return "".join(ends), len(ends[0]), len(ends[0]) + len(ends[1]), untext(words[command_end:gate_end])


def leases_of(
    found: list, units: list[int], begun: bytes, token: str, claimed: float, until: float
) -> tuple[list[Lease], list[bytes]]:
    """From id, envelope, data of each; of each too, which unit of several it belongs to, and whether it has begun.

    Also the id and the reason of each that cannot be read.
    """
    leases: list[Lease] = []
    faults: list[bytes] = []
    rows = iter(found)
    runs = [f"{unit}:{token}" if unit else "" for unit in units] or repeat("")
    for id, envelope, data, run, flag in zip(rows, rows, rows, runs, begun, strict=False):  # the runs may be endless
        try:
            entry = entry_of(id, envelope, data)
        except (ValueError, OverflowError):
            faults += (id, UNREADABLE)
        else:
            leases.append(Lease(entry, token, claimed, until, run, flag == BEGUN))
    return leases, faults


def lane_of(
    name: bytes, state: bytes, waiting: int, out: int, opens: bytes, paused: bytes, parent: bytes, gate: bytes
) -> LaneRecord:
    """From what ``lanes_of`` replies."""
    words = (untext(paused), untext(parent), untext(gate), untext(name))
    return LaneRecord(untext(name), state.decode(), waiting, out, moment(opens), *words)


def seen_records(state: str, found: Sequence[bytes]) -> list[Record]:
    """From what ``peek`` and ``newest`` reply: six values of each entry."""
    return [_seen_record(state, *row) for row in zip(*[iter(found)] * 6, strict=True)]


def _seen_record(
    state: str, score: bytes, member: bytes, id: bytes, envelope: bytes, data: bytes, owned: bytes
) -> Record:
    place = envelope[:MOMENT]
    at = moment(score) if state != READY else moment(place) if place.isdigit() else 0.0
    cursor = f"{score.decode()} {untext(member)}"  # a number and a place, or "lanes" and a place in them
    return Record(shown(id, envelope, data), state, at, _owner(owned, state), cursor)


def found_record(state: bytes, at: bytes, id: bytes, envelope: bytes, data: bytes, owned: bytes) -> Record:
    """The record in a reply of ``find``."""
    return Record(shown(id, envelope, data), state.decode(), moment(at), _owner(owned, state.decode()))


def _owner(owned: bytes, state: str) -> str:
    """The owner. A reaped entry keeps the token of its last holder, but has no owner."""
    return untext(owned[TOKEN + 1 :]) if state == LEASED else ""


def proof(lease: Lease) -> tuple[bytes, str]:
    """What proves that a lease is held: id and token."""
    return text(lease.entry.id), str(lease.token)


def tokens_of(leases: Sequence[Lease]) -> str | None:
    """The tokens as one text; None if they are more than one call carries, or one is none of ours."""
    tokens = "".join([str(lease.token) for lease in leases])
    return tokens if len(leases) <= AT_ONCE and len(tokens) == len(leases) * TOKEN else None


def verdict(lease: Lease) -> tuple[bytes, str, bytes]:
    """Id, token, and the envelope of the entry as its holder changed it."""
    return text(lease.entry.id), str(lease.token), envelope(lease.entry)


def returned(lease: Lease) -> tuple[bytes, str, bytes]:
    """Id, token and envelope of an entry that is released; before the envelope what waits with it."""
    return text(lease.entry.id), str(lease.token), text(lease.entry.hold) + envelope(lease.entry)


def fact_args(fact: Fact | None, place: int) -> tuple[str, bytes]:
    """A fact as ``scripts/facts.lua`` reads it: the number of its key, for how long, its value."""
    return ("", b"") if fact is None else (f"{place} {milliseconds(fact.ttl)}", fact.value)


slices = partial(utils.slices, most=AT_ONCE)
"""Slices that one call should carry, by number."""
portions = partial(utils.portions, most=AT_ONCE, most_bytes=BYTES_AT_ONCE)
"""Slices that one call should carry, by number and by bytes."""
