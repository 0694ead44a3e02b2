"""What a form asks for, and a check that it is done only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest

from djqueue.backends.base import BaseQueue
from djqueue.operations.outcomes import ActionResult

KEPT = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Meant:
    """What a form asks for."""

    what: str
    """What it is done to, in words."""
    queues: Sequence[BaseQueue]
    """The queues whose stores remember that it was done."""
    do: Callable[[ActionResult], None]
    """Does it, and records in the outcome what was done."""
    question: Callable[[], str]
    """The question to ask first; "" for none."""
    fields: Sequence[tuple[str, str]]
    """What the form of the question repeats."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the question shows besides that."""


def is_repeated(request: HttpRequest, queues: Sequence[BaseQueue]) -> bool:
    """Whether a confirmed form was sent before; if so, its user is notified."""
    number = request.POST.get("number", "")
    if not number or _is_first(number, queues):
        return False
    notices.info(request, "That was done already.")
    return True


def _is_first(number: str, queues: Sequence[BaseQueue]) -> bool:
    """Whether a form with this number is sent for the first time, as far as one of the queues can remember."""
    able = [queue.store.shared for queue in queues if "facts" in queue.features]
    for store in sorted(able, key=lambda store: store.is_local):  # another process may get the second click
        return store.add(f"form:sent:{number[:64]}", b"", KEPT)
    return True
