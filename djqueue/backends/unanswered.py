"""Claims whose answer never came: what they may have leased is nobody's, and is given back by their tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from djqueue.utils import clock


class Unanswered:
    """The tokens of one queue object's claims that raised, each until its leases would have run out.

    They are kept for so long because the server may still be at work on what a lost connection asked of it.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}

    @contextmanager
    def asking(self, token: int, lease: float) -> Iterator[None]:
        """Around a claim of so many seconds: its token is remembered if it raises."""
        asked = clock()
        try:
            yield
        except BaseException:
            with self._lock:
                self._until[token] = asked + lease
            raise

    def tokens(self) -> list[int]:
        """Those that are not over yet."""
        if not self._until:
            return []
        with self._lock:
            now = clock()
            self._until = {token: until for token, until in self._until.items() if until > now}
            return list(self._until)
