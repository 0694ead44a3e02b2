"""What lanes are called in the tables, and their gates as text."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from djqueue.backends.sql.text import FIRST_NUMBER
from djqueue.flow.gates import UNREADABLE, Gate


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
