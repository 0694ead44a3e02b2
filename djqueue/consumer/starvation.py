"""Whether this process is at its limits, of memory, descriptors or threads, and for how long."""

from __future__ import annotations

import errno
import gc
import os
import time

from djqueue.messages.failures import chained, text_of

PATIENCE = 1.0  # seconds after which it will not pass by itself
ROOM = 2 << 20  # bytes: more than the interpreter asks for at a time
NUMBERS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
WORDS = ("can't start new thread", "can't allocate lock")


def is_for_want(error: BaseException) -> bool:
    """Whether something failed because the process was at its limits, as far as the exceptions say so."""
    return any(map(_says_so, chained([error])))


def at_limits() -> bool:
    """Whether the process cannot open one file more, or take some memory: drivers tell that in words of their own."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        bytearray(ROOM)
    except (OSError, MemoryError):
        return True
    return False


class Starvation:
    """For how long a thread has found the process at its limits, whatever it tried."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.lasts = False
        """Whether that is so long that only another process can go on."""

    def add(self, error: BaseException) -> bool:
        """Something failed; whether for want of what the process has no more of. Then garbage has been collected."""
        if not (is_for_want(error) or at_limits()):
            self.end()
            return False
        gc.collect()
        self._note()
        return True

    def look(self) -> bool:
        """Whether the process is at its limits just now, without its garbage too."""
        if at_limits():
            gc.collect()
            if at_limits():
                self._note()
                return True
        self.end()
        return False

    def end(self) -> None:
        """It has what it needs."""
        self._since, self.lasts = None, False

    def _note(self) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        self.lasts = now - self._since >= PATIENCE


def _says_so(error: BaseException) -> bool:
    kind = type(error)  # by which it is known, whatever it says itself
    if issubclass(kind, OSError):
        return OSError.errno.__get__(error) in NUMBERS
    return issubclass(kind, MemoryError) or (issubclass(kind, RuntimeError) and text_of(error).startswith(WORDS))
