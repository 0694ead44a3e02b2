"""Vacuuming the table of messages as soon as much of it is dead.

A claim passes the index entries of all messages that were completed since the last vacuum, and PostgreSQL's own comes
once a minute at best: at 20,000 messages a second that are a million.
"""

from __future__ import annotations

from django.db import connections

from djqueue.backends.database.session import Database
from djqueue.backends.database.sql.dialect import joined

LEAST = 100_000
"""Dead rows from which on to vacuum: a claim and a completion leave one each."""
VACUUM_EVERY = 2.0
"""Seconds between two checks of a consumer."""
SHARE = 5
"""A vacuum reads the indexes of all messages, so at least a fifth as many rows must be dead as are not."""


class Vacuum:
    """What one queue object has to do with it; all queues of a database are in one table."""

    def __init__(self, database: Database):
        self._db = database
        self.claimed = 0
        """How many messages were claimed since it was last looked at."""
        self._left = 0
        """Dead rows that the last vacuum had to leave, for example to a transaction that may still see them."""

    def run(self) -> bool:
        """Vacuum if that is worth while; whether it was."""
        if not self.claimed or joined(connections[self._db.alias]):
            return False
        self.claimed = 0
        dead, living = self._db.run(self._db.sql.dead_rows)
        self._left = min(self._left, dead)
        if dead - self._left < max(LEAST, living // SHARE):
            return False
        self._left = dead  # if it fails, for example by a time limit for statements
        self._db.run(self._db.sql.vacuum)
        self._left = self._db.run(self._db.sql.dead_rows)[0]
        return True
