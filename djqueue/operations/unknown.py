"""Commands that the consumers of a queue do not know, by what they reported and noted on messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from djqueue import conf
from djqueue.backends.base import Entry
from djqueue.discovery import is_discovered
from djqueue.messages.failures import errors_of
from djqueue.running.consumers import ConsumerRecord
from djqueue.utils import seconds

UNKNOWN_COMMAND = "unknown command"
"""The first words of the reason with which a consumer puts back a message of a command that it does not find."""


NOT_BEGUN = (UNKNOWN_COMMAND, "could not be run: ")
"""The first words of all such reasons: a message with one was not begun, which counts as no attempt."""


class Note(NamedTuple):
    """What a consumer noted on a message that it could not begin. That counts as no attempt."""

    at: float
    """When it was first noted (epoch seconds); 0 if that cannot be read."""
    reason: str
    consumer: str

    @property
    def is_of_unknown_command(self) -> bool:
        return self.reason.startswith(UNKNOWN_COMMAND)

    @property
    def fails(self) -> float:
        """When the message fails, if nothing changes: once it has waited for QUEUE_UNKNOWN_AFTER."""
        return self.at + patience()


def note_of(entry: Entry) -> Note | None:
    """Why the next attempt at a message could not be begun, when a consumer last tried; None if none did."""
    errors = errors_of(entry.errors)
    last = errors[-1] if errors else {}
    at = last.get("at")
    at = float(at) if isinstance(at, int | float) else 0.0
    reason = str(last.get("reason") or "")
    is_upcoming = last.get("attempt") == entry.attempts + 1 and reason.startswith(NOT_BEGUN)
    if not is_upcoming or at + 1e-3 < entry.created:  # it is of an attempt, or from before a requeue
        return None
    return Note(at, reason, str(last.get("consumer") or ""))


def lacking(command: str, alive: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
    """The consumers that certainly do not know a command.

    None if its module is imported only when a message names it: then a missing entry in their lists proves nothing.
    """
    if not is_discovered(command.rpartition(".")[0]):
        return []
    return [one for one in alive if one.known and command not in one.known]


def is_unknown(entry: Entry, alive: Sequence[ConsumerRecord]) -> bool:
    """Whether no live consumer knows the command of a message, as far as is known."""
    if not alive or any(entry.command in one.known for one in alive):
        return False
    note = note_of(entry)
    return len(lacking(entry.command, alive)) == len(alive) or (note is not None and note.is_of_unknown_command)


def patience() -> float:
    """Seconds for which a message of an unknown command waits before it fails."""
    return seconds(conf.get("QUEUE_UNKNOWN_AFTER"), "QUEUE_UNKNOWN_AFTER")


def renamed(command: str, known: Iterable[str]) -> str | None:
    """The probable new name of a command: the same name in another module, or a similar one in its own."""
    module, _, own = command.rpartition(".")
    known = set(known)
    elsewhere = [one for one in known if one.rpartition(".")[2] == own]
    here = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == module}
    close = get_close_matches(own, here, 1)
    return elsewhere[0] if len(elsewhere) == 1 else here[close[0]] if close else None
