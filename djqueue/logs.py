"""Log records about messages: what they carry, and that they never cost more than themselves."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from djqueue.backends.base import BaseQueue
    from djqueue.backends.entries import Entry


def tell(logger: logging.Logger, level: int, text: str, *args, **kwargs) -> None:
    """Log, and never raise. A handler whose mail server is away must not end a thread nor change a verdict."""
    try:
        logger.log(level, text, *args, **kwargs)
    except BaseException:
        _show_trouble()


def _show_trouble() -> None:
    """What a handler has raised, where that can be shown: standard error may be closed."""
    try:
        traceback.print_exc(file=sys.stderr)
    except BaseException:
        pass


def about(queue: BaseQueue, entry: Entry) -> dict:
    """The ``extra`` of a record about a message. Never its arguments."""
    return {
        "message_id": plain(entry.id),
        "command": plain(entry.label),
        "queue": queue.alias,
        "attempt": entry.attempts,
        "worker": threading.current_thread().name,
    }


def plain(text: str) -> str:
    """A text that came from a store, without what could forge a line of a log."""
    return "".join(char if char.isprintable() else "?" for char in text)
