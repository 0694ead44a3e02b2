"""A unit of work, and the database of one queue, which runs units of work and single statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from django.db import connections

from djqueue.backends.database.session import Session, run
from djqueue.backends.database.sql.dialects import dialect_of
from djqueue.backends.database.sql.messages import Dialect


class UnitOfWork(NamedTuple):
    """What a verb of several statements needs: the open session, the vendor's statements, the name of the queue."""

    session: Session
    sql: Dialect
    queue: str

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that will write, or the caller's."""
        with self.session.atomic():
            self.sql.begin(self.session)
            yield


class Database:
    """The database of one queue. Each call has a session of its own, and is repeated after a deadlock."""

    def __init__(self, alias: str, queue: str):
        self.alias, self.queue = alias, queue

    @cached_property
    def sql(self) -> Dialect:
        """The statements of its vendor. Looked up late, as that may connect."""
        return dialect_of(connections[self.alias])

    def run(self, verb: Callable, *args) -> Any:
        """``verb(session, *args)``"""
        return run(self.alias, self.sql.now, verb, *args)

    def do(self, verb: Callable, *args) -> Any:
        """``verb(session, queue, *args)``: most statements are called so."""
        return run(self.alias, self.sql.now, verb, self.queue, *args)

    def work(self, verb: Callable, *args) -> Any:
        """``verb(unit of work, *args)``"""
        return run(self.alias, self.sql.now, _in_unit, self.sql, self.queue, verb, *args)


def _in_unit(session: Session, sql: Dialect, queue: str, verb: Callable, *args) -> Any:
    return verb(UnitOfWork(session, sql, queue), *args)
