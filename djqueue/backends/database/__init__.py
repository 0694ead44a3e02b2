"""The database backend: queues in tables of PostgreSQL, MariaDB or SQLite, through Django's connections."""

from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.database.store import DatabaseStore

__all__ = ["DatabaseQueue", "DatabaseStore"]
