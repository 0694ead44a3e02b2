"""An entry as one text, for queues that know only text: a JSON line, then the body."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import fields, replace

from djqueue.backends.entries import Entry
from djqueue.messages.envelope import new_id

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
    """The entry in a text; text that ``pack`` did not write is an entry of its own, whose body is that text."""
    try:
        mark, head, body = text[: len(_MARK)], *text[len(_MARK) :].split("\n", 1)
        if mark != _MARK:
            raise ValueError("not written by pack")
        known = {name: value for name, value in json.loads(head).items() if name in _FIELDS}
        return Entry(b64decode(body, validate=True), **known)
    except (ValueError, TypeError, AttributeError):
        return Entry(text.encode("utf-8", "surrogateescape"), new_id())
