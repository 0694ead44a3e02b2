"""Forms that are sent once: each has a number of its own, and a second click finds that it was used."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

from djqueue.backends.base import BaseQueue

KEPT = 3600.0  # seconds


def new() -> str:
    """The number of a form."""
    return token_hex(16)


def is_first(number: str, queues: Sequence[BaseQueue]) -> bool:
    """Whether a form with this number is sent for the first time, as far as one of the queues can remember that."""
    able = [queue.store.shared for queue in queues if "facts" in queue.features]
    for store in sorted(able, key=lambda store: store.is_local):  # another process may get the second click
        return store.add(f"form:sent:{number[:64]}", b"", KEPT)
    return True
