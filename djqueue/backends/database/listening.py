"""How a consumer waits for work on PostgreSQL: notifications, on a connection of its own.

Producers notify only while somebody listens, so a thread listens only while it waits. A notification is a hint.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from math import inf
from typing import Any

from django.db import OperationalError, connections

from djqueue.backends.bells import Bell
from djqueue.backends.database.sql.postgresql import NOT_LISTENING, bucket_of, listening
from djqueue.backends.deadlines import current
from djqueue.messages.failures import text_of
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

IN_VAIN, FIRST_QUIET, LONGEST_QUIET = 2, 0.02, 0.25
"""How many notifications in a row may bring nothing before others are passed over, for how many seconds: as many
consumers are woken by one message, all but one of them in vain."""
UNUSED = 10
"""How many notifications in a row may find a thread that does not wait before it stops listening."""
ARRIVES_IN = 2.0
"""Seconds in which a notification must arrive."""
LONGEST_PAUSE = 300.0
"""Seconds between two tries to listen, at most."""
ANSWERS_IN = 5.0
"""Seconds in which the server must answer a statement of a connection that listens."""
PROBE_EVERY = 5.0
"""Seconds without a sign of the server after which it is asked for an answer."""
PARAMETERS = {
    "application_name": "djqueue listener",
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8000,
}
"""Of the connection, unless OPTIONS of the database say otherwise: it is idle, so a break must be checked for."""


class NotDelivered(Exception):
    """A notification did not arrive."""

    def __init__(self) -> None:
        super().__init__(
            "notifications do not arrive, as behind a pooler of transactions; "
            "OPTIONS['NOTIFY'] of a queue may name a database alias that connects directly"
        )


class Delivery:
    """Whether notifications from the database ``database`` arrive at connections by the alias ``through``.

    All threads of a process share it.
    """

    def __init__(self, database: str, through: str):
        self.database, self.through = database, through
        self.is_verified = False
        self._retry_at = -inf
        self._failures = 0

    @property
    def works(self) -> bool:
        """Whether they arrive, or it is time to try."""
        return time.monotonic() >= self._retry_at

    def verified(self) -> None:
        """One has arrived."""
        self.is_verified = True
        if self._failures:
            log_safely(logger, logging.INFO, "database %s: notifications arrive now", self.database)
            self._failures = 0

    def failed(self, error: Exception, began: float) -> None:
        """The first break of a connection that worked is repaired at once, any other one after a pause."""
        self.is_verified = False
        if time.monotonic() - began > 1:
            return
        self._failures += 1
        self._retry_at = time.monotonic() + min(LONGEST_PAUSE, 2.0 ** min(self._failures, 10))
        if self._failures == 1:
            why = text_of(error).strip().partition("\n")[0].rstrip(".")
            text = "database %s: %s; its queues are polled meanwhile"
            log_safely(logger, logging.WARNING, text, self.database, why)


_deliveries: dict[tuple[str, str], Delivery] = {}
os.register_at_fork(after_in_child=_deliveries.clear)


def delivery_of(database: str, through: str) -> Delivery:
    """What this process knows of notifications from a database."""
    key = database, through
    return _deliveries.get(key) or _deliveries.setdefault(key, Delivery(*key))


class PostgresBell(Bell):
    """What rings are notifications for the queues of some names.

    ``found``: how often a claim of them found something. While its connection is broken the queues are polled.
    """

    def __init__(self, delivery: Delivery, names: Collection[str], found: Callable[[], int]):
        self._delivery, self._names, self._found = delivery, names, found
        self._listener: Listener | None = None
        self._token = ""
        """What must arrive before ``_verify_by`` to verify that notifications do."""
        self._verify_by = self._began = inf
        self._is_listening = self._is_armed = self._is_missed = False
        self._unused = self._in_vain = 0
        self._quiet_until = -inf
        self._found_before = found()

    @property
    def is_heard(self) -> bool:  # type: ignore[override]
        """Not while its notifications are passed over, or may not arrive."""
        return self._is_listening and not self._token and not self._is_quiet

    @property
    def _is_quiet(self) -> bool:
        """Whether notifications are passed over, as the last ones brought nothing."""
        return time.monotonic() < self._quiet_until and self._found() == self._found_before

    def fileno(self) -> int | None:
        return None if self._listener is None or self._is_quiet else self._listener.fileno()

    def arm(self) -> bool:
        """As in the contract; what was put while nobody listened has sent no notification. Raises nothing."""
        self._is_armed = True
        return self._delivery.works and self._guarded(self._arm)

    def disarm(self) -> None:
        """What has arrived until now was of no use, if this thread did not wait for it."""
        if self._is_listening:
            self._guarded(self._take)
        self._is_armed = self._is_missed = False

    def hear(self) -> bool:
        return self._guarded(self._take) and not self._is_quiet and self._wake()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        self._is_listening, self._token = False, ""
        if listener is not None:
            listener.close()

    def _guarded(self, step: Callable[[], bool]) -> bool:
        """After an error the next call that arms it connects again; then the queues are worth asking."""
        try:
            return step()
        except Exception as error:
            self.close()
            self._delivery.failed(error, self._began)
            return False

    def _arm(self) -> bool:
        listener = self._listener or self._connect()
        if not self._is_listening:
            if self._is_quiet:
                return False
            listener.ask(listening(sorted({bucket_of(name) for name in self._names})))
            self._is_listening, self._unused = True, 0
            return True
        if self._token and time.monotonic() > self._verify_by:
            raise NotDelivered
        listener.probe()
        return self._take() and not self._is_quiet and self._wake()

    def _connect(self) -> Listener:
        self._began = inf  # until it is known to work
        self._listener = listener = Listener(self._delivery.through)
        if self._delivery.is_verified:
            self._began = time.monotonic()
        else:
            self._begin_to_verify(listener)
        return listener

    def _begin_to_verify(self, listener: Listener) -> None:
        """Notify by another connection to the database, as one's own notifications arrive everywhere."""
        self._token = f"djqueue_{secrets.token_hex(8)}"
        listener.ask(f"LISTEN {self._token}")
        with closing(Listener(self._delivery.database)) as other:
            other.ask(f"NOTIFY {self._token}, '{self._token}'")
        self._verify_by = time.monotonic() + ARRIVES_IN

    def _take(self) -> bool:
        """Take what has arrived; whether something has that it waits for."""
        if (listener := self._listener) is None:
            return False
        arrived = listener.arrived()
        if self._token and self._token in arrived:
            listener.ask(f"UNLISTEN {self._token}")
            self._token, self._began = "", time.monotonic()
            self._delivery.verified()
        rings = sum(name in self._names for name in arrived)
        self._unused = 0 if self._is_armed and not self._is_quiet else self._unused + rings
        if self._unused > UNUSED:
            listener.ask(NOT_LISTENING)
            self._is_listening, self._unused = False, 0
        self._is_missed = self._is_missed or rings > 0
        return self._is_missed

    def _wake(self) -> bool:
        """It rings; until a claim finds something, this was in vain."""
        found = self._found()
        self._in_vain = self._in_vain + 1 if found == self._found_before else 1
        self._found_before, self._is_missed = found, False
        if self._in_vain > IN_VAIN:
            pause = min(LONGEST_QUIET, FIRST_QUIET * 2 ** (self._in_vain - IN_VAIN - 1))
            self._quiet_until = time.monotonic() + pause
        return True


class Listener:
    """A connection of psycopg that listens, next to the one that Django has. Each statement has a deadline.

    Raises OperationalError for a statement that fails or is not answered in time, and what the driver raises.
    """

    def __init__(self, alias: str):
        self._connection = connect(alias)
        self._pgconn = self._connection.pgconn
        self._arrived: list[str] = []
        self._seen = time.monotonic()
        self._asked: float | None = None
        """When an answer was asked for that has not come (monotonic)."""

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._connection.fileno()

    def ask(self, sql: str) -> None:
        """Run statements, once an answer that was asked for has come."""
        end = time.monotonic() + min(ANSWERS_IN, current.seconds or inf)
        self._finish(end)
        self._send(sql)
        self._finish(end)

    def probe(self) -> None:
        """Ask for an answer if there was no sign of the server for long; a later call raises if none has come."""
        now = time.monotonic()
        if self._asked is not None:
            self._receive()
            if self._asked is not None and now - self._asked > ANSWERS_IN:
                raise OperationalError("the server does not answer")
        elif now - self._seen > PROBE_EVERY:
            self._send("SELECT 1")

    def arrived(self) -> list[str]:
        """The payloads of the notifications that have arrived since this was last asked."""
        self._receive()
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        """Close the connection; never raises."""
        with suppress(Exception):
            self._connection.close()

    def _send(self, sql: str) -> None:
        self._pgconn.send_query(sql.encode())
        self._asked = time.monotonic()

    def _finish(self, end: float) -> None:
        while self._asked is not None:
            unsent = self._pgconn.flush()
            poller = select.poll()
            poller.register(self.fileno(), select.POLLIN | (select.POLLOUT if unsent else 0))
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise OperationalError("the server does not answer")
            self._receive()

    def _receive(self) -> None:
        self._pgconn.consume_input()
        while self._asked is not None and not self._pgconn.is_busy():
            if (result := self._pgconn.get_result()) is None:
                self._asked, self._seen = None, time.monotonic()
            elif result.error_message:
                raise OperationalError(result.error_message.decode(errors="replace"))
        while (notification := self._pgconn.notifies()) is not None:
            self._arrived.append(notification.extra.decode(errors="replace"))
            self._seen = time.monotonic()


def connect(alias: str) -> Any:
    """A connection of psycopg to the database of an alias, next to the one that Django has."""
    django = connections[alias]
    return django.Database.connect(**{**PARAMETERS, **django.get_connection_params(), "autocommit": True})
