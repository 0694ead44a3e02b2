"""What a call returns when it enqueues."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """The handle of an enqueued call."""

    id: str
    """The message's id: the same in the logs, in ``current_message()`` and in the error queue."""
    command: str
    """The command's name."""
    queue_name: str
    """The alias of its queue."""
