"""Notifications of PostgreSQL: one connection of the process listens for its queues in a database, and wakes threads.

Producers notify only while somebody listens, so a process listens only while a thread waits. A notification is a hint:
threads that wait look at the queue too, as often as they would if nobody notified them.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from math import inf
from typing import Any

from django.db import connections

from djqueue.backends.database.silence import asking
from djqueue.backends.database.sql.postgresql import NOT_LISTENING, bucket_of, listening
from djqueue.messages.failures import text_of
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

FIRST_LOOK, LATER_LOOKS = 0.1, 0.15
"""Seconds between two looks of a thread that waits, at first; later this part of the time since it found something."""
IN_VAIN, FIRST_QUIET, LONGEST_QUIET = 2, 0.02, 0.25
"""How many notifications in a row may bring nothing before others are passed over, for how many seconds: as many
consumers are woken by one message, all but one of them in vain."""
UNUSED = 10
"""How many notifications in a row may find no thread that waits before the process stops listening."""
UNUSED_FOR = 2.0
"""Seconds without a thread that waits after which the connection is closed."""
ARRIVES_IN = 2.0
"""Seconds in which a notification must arrive."""
LONGEST_PAUSE = 300.0
"""Seconds between two tries to listen, at most."""
PARAMETERS = {
    "application_name": "djqueue listener",
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8000,
}
"""Of the connection, unless OPTIONS of the database say otherwise: it is idle, so a break must be checked for."""
PROBE_EVERY = 5.0
"""Seconds without a notification after which the server is asked for an answer."""


class NotDelivered(Exception):
    """A notification did not arrive."""

    def __init__(self) -> None:
        super().__init__(
            "notifications do not arrive, as behind a pooler of transactions; "
            "OPTIONS['NOTIFY'] of a queue may name a database alias that connects directly"
        )


class Listener:
    """What threads of this process wait with for notifications from the database ``database``.

    It has a thread and a connection, by the alias ``through``, while they are needed.
    """

    def __init__(self, database: str, through: str):
        self._database, self._through = database, through
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waiters: dict[threading.Event, Mapping[str, int]] = {}
        self._since: dict[int, float] = {}
        """By bucket: since when it listens (monotonic, as all moments here)."""
        self._counts: dict[str, int] = {}
        """How many notifications came for each queue that was asked for."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._verified = self._closing = False
        self._looked_at: dict[str, float] = {}
        self._used_at = self._found_at = self._quiet_until = self._retry_at = -inf
        self._unused = self._in_vain = self._failures = 0

    # ---- for the queues

    @property
    def works(self) -> bool:
        """Whether it listens, or it is time to try."""
        return time.monotonic() >= self._retry_at

    def count(self, queue: str) -> int:
        """How many notifications came for a queue: what a look at it began with."""
        return self._counts.setdefault(queue, 0)

    def looked(self, queue: str, at: float, found: bool) -> None:
        """A thread looked at a queue, at a moment, and found something or not."""
        self._looked_at[queue] = at
        if found:
            self._found_at, self._in_vain, self._quiet_until = at, 0, -inf

    def wait(self, counts: Mapping[str, int], seconds: float, look: Callable[[float], bool]) -> bool:
        """Until notifications come for one of these queues, beyond these counts, or ``look`` finds something.

        ``look`` is called with the seconds that are left. False if neither happens in time.
        """
        end, event = time.monotonic() + seconds, threading.Event()
        with self._registered(event, counts):
            while True:
                self._keep_listening(counts)
                now = time.monotonic()
                if now >= self._quiet_until and self._is_notified(counts):
                    self._wake(now)
                    return True
                if now >= end:
                    return False
                if (look_at := self._look_at(counts)) <= now:
                    self._looked_at |= dict.fromkeys(counts, now)
                    if look(end - now):
                        return True
                    continue
                event.wait(min(end, look_at, self._quiet_until if self._quiet_until > now else inf) - now)
                event.clear()

    def close(self) -> None:
        """Close the connection now, unless a thread waits."""
        with self._lock:
            self._closing = not self._waiters
        self._interrupt()

    # ---- the threads that wait

    @contextmanager
    def _registered(self, event: threading.Event, counts: Mapping[str, int]) -> Iterator[None]:
        with self._lock:
            self._waiters[event] = counts
            self._closing = False
        try:
            yield
        finally:
            with self._lock:
                del self._waiters[event]
                self._used_at = time.monotonic()

    def _is_notified(self, counts: Mapping[str, int]) -> bool:
        return any(self._counts[queue] != count for queue, count in counts.items())

    def _wake(self, now: float) -> None:
        """A thread is woken; until :meth:`looked` tells that it found something, this was in vain."""
        self._in_vain += 1
        if self._in_vain > IN_VAIN:
            self._quiet_until = now + min(LONGEST_QUIET, FIRST_QUIET * 2 ** (self._in_vain - IN_VAIN - 1))

    def _look_at(self, counts: Mapping[str, int]) -> float:
        """When to look next: as soon as it listens; then as a poller does, for what was put while nobody listened."""
        looked_at = min(self._looked_at.get(queue, -inf) for queue in counts)
        began = max(self._since.get(bucket_of(queue), inf) for queue in counts)
        if began == inf:
            return looked_at + FIRST_LOOK
        if looked_at < began:
            return began
        return looked_at + max(FIRST_LOOK, LATER_LOOKS * (looked_at - max(began, self._found_at)))

    def _keep_listening(self, counts: Mapping[str, int]) -> None:
        with self._lock:
            if self._thread is None and self.works:
                self._start()
            elif not {bucket_of(queue) for queue in counts} <= self._since.keys():
                self._interrupt()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"djqueue-listener-{self._database}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread more can be started
            self._thread = None
            self._failed(error, inf)

    def _interrupt(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._writer, b"!")

    # ---- its thread

    def _run(self) -> None:
        began = inf
        try:
            with closing(connect(self._through)) as connection:
                arrived = Arrivals(connection, self._reader)
                if not self._verified:
                    verify(connection, arrived, self._database)
                    self._verified = True
                began = time.monotonic()
                self._serve(connection, arrived)
        except Exception as error:
            self._verified = False
            self._failed(error, began)
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._since.clear()
                for event in self._waiters:
                    event.set()

    def _serve(self, connection: Any, arrived: Arrivals) -> None:
        heard = time.monotonic()
        while self._is_needed():
            self._listen(connection)
            if self._failures:
                log_safely(logger, logging.INFO, "database %s: notifications arrive now", self._database)
                self._failures = 0
            for queue in arrived.after(UNUSED_FOR / 2):
                heard = time.monotonic()
                self._notify(queue)
            if time.monotonic() - heard > PROBE_EVERY:
                self._execute(connection, "SELECT 1")
                heard = time.monotonic()
            if self._unused > UNUSED:
                with self._lock:
                    self._since.clear()
                self._execute(connection, NOT_LISTENING)
                self._unused = 0

    def _execute(self, connection: Any, sql: str) -> None:
        with asking(self._through, connection) or nullcontext():
            connection.execute(sql)

    def _is_needed(self) -> bool:
        with self._lock:
            is_in_use = not self._closing and time.monotonic() - self._used_at < UNUSED_FOR
            if not (self._waiters or is_in_use):
                self._thread = None  # a thread that waits from now on starts another one
                self._since.clear()
                return False
        return True

    def _listen(self, connection: Any) -> None:
        """Listen for all that threads wait for, which look at their queues then."""
        with self._lock:
            quiet = time.monotonic() < self._quiet_until
            wanted = {bucket_of(queue) for counts in self._waiters.values() for queue in counts}
        if not quiet and not wanted <= self._since.keys():
            self._execute(connection, listening(sorted(wanted - self._since.keys())))
            with self._lock:
                self._since |= dict.fromkeys(wanted - self._since.keys(), time.monotonic())
                for event in self._waiters:
                    event.set()

    def _notify(self, queue: str) -> None:
        with self._lock:
            if queue in self._counts:
                self._counts[queue] += 1
            woken = [event for event, counts in self._waiters.items() if queue in counts]
            if woken and time.monotonic() >= self._quiet_until:
                self._unused = 0
                for event in woken:
                    event.set()
            else:
                self._unused += 1

    def _failed(self, error: Exception, began: float) -> None:
        """The first break of a connection that worked is repaired at once, any other one after a pause."""
        if time.monotonic() - began > 1:
            return
        self._failures += 1
        pause = min(LONGEST_PAUSE, 2.0 ** min(self._failures, 10))
        self._retry_at = time.monotonic() + pause
        if self._failures == 1:
            text = "database %s: %s; its queues are polled meanwhile"
            log_safely(
                logger, logging.WARNING, text, self._database, text_of(error).strip().partition("\n")[0].rstrip(".")
            )


class Subscription:
    """The notifications for one queue, as each of its threads has seen them."""

    def __init__(self, queue: str, database: str, through: str):
        self._queue, self._key, self.through = queue, (database, through), through
        self._seen = threading.local()

    @property
    def listener(self) -> Listener:
        return listener_of(*self._key)

    def begin(self) -> None:
        """This thread begins to look at the queue."""
        self._seen.count, self._seen.at = self.listener.count(self._queue), time.monotonic()

    def end(self, found: bool) -> None:
        """It has looked, and found something or not."""
        self.listener.looked(self._queue, self._seen.at, found)

    @property
    def count(self) -> tuple[str, int]:
        """The queue, and how many notifications had come when this thread began to look at it."""
        return self._queue, getattr(self._seen, "count", self.listener.count(self._queue))


_listeners: dict[tuple[str, str], Listener] = {}
os.register_at_fork(after_in_child=_listeners.clear)


def listener_of(database: str, through: str) -> Listener:
    """The listener of this process for a database."""
    key = database, through
    return _listeners.get(key) or _listeners.setdefault(key, Listener(*key))


# ---- connections


def connect(alias: str) -> Any:
    """A connection of psycopg to the database of an alias, next to the one that Django has."""
    django = connections[alias]
    return django.Database.connect(**{**PARAMETERS, **django.get_connection_params(), "autocommit": True})


class Arrivals:
    """The notifications that arrive by a connection of psycopg."""

    def __init__(self, connection: Any, interrupt: int):
        self._connection, self._interrupt = connection, interrupt
        self._arrived: deque[str] = deque()
        connection.add_notify_handler(lambda notification: self._arrived.append(notification.payload))

    def after(self, seconds: float) -> list[str]:
        """Their payloads, as soon as there are any; nothing after some seconds, or once the pipe is written to."""
        if not self._arrived:
            self._receive(seconds)
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    def _receive(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection.fileno(), selectors.EVENT_READ)
            selector.register(self._interrupt, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(seconds)}
        if self._interrupt in ready:
            os.read(self._interrupt, 4096)
        if ready - {self._interrupt}:
            self._connection.pgconn.consume_input()
            while (notification := self._connection.pgconn.notifies()) is not None:
                self._arrived.append(notification.extra.decode(errors="replace"))


def verify(connection: Any, arrived: Arrivals, database: str) -> None:
    """Raises NotDelivered if what another connection to the database notifies does not arrive at this one."""
    channel, until = f"djqueue_{secrets.token_hex(8)}", time.monotonic() + ARRIVES_IN
    connection.execute(f"LISTEN {channel}")
    try:
        with closing(connect(database)) as other:
            other.execute(f"NOTIFY {channel}, '{channel}'")
        while channel not in arrived.after(max(0.0, until - time.monotonic())):
            if time.monotonic() >= until:
                raise NotDelivered
    finally:
        with suppress(Exception):
            connection.execute(f"UNLISTEN {channel}")
