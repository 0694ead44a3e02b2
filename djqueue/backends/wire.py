"""How an entry travels through a queue that knows only text: one JSON line around its body."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import fields, replace
from math import inf
from typing import Protocol

from djqueue.backends.entries import Entry, Lease
from djqueue.messages.envelope import new_id
from djqueue.utils import tell

logger = logging.getLogger(__name__)

_MARK = "djq:"
_FIELDS = {field.name: field.default for field in fields(Entry) if field.name not in ("data", "delay", "hold")}


def due(entry: Entry, now: float) -> Entry:
    """The entry with its delay turned into a moment."""
    return replace(entry, run_at=now + entry.delay, delay=0.0) if entry.delay else entry


def stamped(entry: Entry, now: float) -> Entry:
    """The entry as it is on arrival."""
    return replace(due(entry, now), created=now)


def pack(entry: Entry) -> str:
    """An entry as one text; what a field says by default is left out."""
    head = {name: value for name, default in _FIELDS.items() if (value := getattr(entry, name)) != default}
    return f"{_MARK}{json.dumps(head)}\n{b64encode(entry.data).decode()}"


def unpack(text: str) -> Entry:
    """The entry in a text; text that ``pack`` did not write is an entry of its own, whose body is that text."""
    try:
        mark, head, body = text[: len(_MARK)], *text[len(_MARK) :].split("\n", 1)
        if mark != _MARK:
            raise ValueError("not written by pack")
        known = {name: value for name, value in json.loads(head).items() if name in _FIELDS}
        return Entry(b64decode(body, validate=True), **known)
    except (ValueError, TypeError, AttributeError):
        return Entry(text.encode("utf-8", "surrogateescape"), new_id())


class FourVerbs(Protocol):
    """What is asked of a queue here."""

    name: str

    def write(self, data: str) -> None: ...
    def read(self) -> str | None: ...
    def __len__(self) -> int: ...


def read_due(queue: FourVerbs, limit: int, now: float, ready: list[Lease], early: dict[str, float]) -> None:
    """Read until ``limit`` are due or all that wait were seen; of the early ones, in how many seconds they are due.

    Those go to the end at once, so that never more than one is nowhere but here.
    """
    left = inf
    while len(ready) < limit and left > 0 and (text := queue.read()) is not None:
        entry = unpack(text)
        if entry.run_at <= now:
            ready.append(Lease(replace(entry, attempts=entry.attempts + 1), claimed=now))
        else:
            queue.write(pack(entry))
            left = 0 if entry.id in early else min(left, len(queue))
            early[entry.id] = entry.run_at - now
        left -= 1


def write_back(queue: FourVerbs, leases: Sequence[Lease], now: float) -> list[Lease]:
    """Write the entries of leases; those that were written. Raises only if that was none: a retry would repeat them."""
    written = []
    for lease in leases:
        try:
            queue.write(pack(due(lease.entry, now)))
        except Exception:
            if not written:
                raise
            extra = {"queue_name": queue.name, "entry_id": lease.entry.id}
            tell(logger, logging.ERROR, "An entry could not be put back and is lost.", exc_info=True, extra=extra)
        else:
            written.append(lease)
    return written
