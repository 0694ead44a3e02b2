"""What went wrong with an entry, attempt by attempt: a JSON list that travels with it."""

from __future__ import annotations

import json
import socket
import traceback

LONGEST_TRACEBACK = 16_384  # characters kept of one attempt
LONGEST_REASON = 1000  # characters, also of an exception's own text
MOST_RECORDS = 10


def noted(
    note: str, *, at: float, attempt: int, reason: str, exception: BaseException | None = None, owner: str = ""
) -> str:
    """The note with one more record; the oldest ones give way.

    ``at`` is epoch seconds, ``attempt`` the number of the start, ``owner`` the name of the consumer that ran it.
    """
    record = {
        "at": round(at, 3),
        "attempt": attempt,
        "reason": reason[:LONGEST_REASON],
        "exception": None if exception is None else f"{type(exception).__module__}.{type(exception).__qualname__}",
        "text": None if exception is None else text_of(exception)[:LONGEST_REASON],
        "traceback": None if exception is None else _traceback(exception)[-LONGEST_TRACEBACK:],
        "host": socket.gethostname(),
        "consumer": owner,
    }
    return json.dumps([*notes(note)[1 - MOST_RECORDS :], record])


def notes(note: str) -> list[dict]:
    """The records in a note, oldest first. Whatever else somebody wrote there is one record with that reason."""
    try:
        records = json.loads(note) if note else []
        if all(isinstance(record, dict) for record in records):
            return list(records)
    except (ValueError, TypeError, RecursionError):
        pass
    return [{"reason": note[:LONGEST_REASON]}]


def text_of(exception: BaseException) -> str:
    """What an exception says, even if saying it raises."""
    try:
        return str(exception)
    except BaseException as error:  # nothing that an exception does while it is told may decide what becomes of it
        return f"(its text raises {type(error).__name__})"


def _traceback(exception: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exception))
    except Exception as error:
        return f"{type(exception).__qualname__} (its traceback raises {type(error).__name__})"
