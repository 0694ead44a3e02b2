"""Connections that were dropped silently, as by a firewall: noticed within seconds by a process that serves queues.

TCP notices it by itself if its time-outs are short. But something in between may acknowledge what it does not pass on,
and then a statement waits for its answer for ever. So a thread asks the server, by a connection of its own, about
statements that take long. One that is slow, or waits for a lock, is at work there and is left alone. If the server has
nothing to do for it, twice in a row, its connection is cut, and the statement raises OperationalError.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.signals import connection_created

from djqueue.utils import descriptor_of, log_safely

logger = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds within which a dropped connection is noticed, unless OPTIONS of the queue say otherwise."""
IDLE, BETWEEN, PROBES, UNACKNOWLEDGED = 0.4, 0.2, 2, 0.8
"""TCP asks an idle peer after this part of the time, then at these intervals, so often; and how long it waits."""
LONG, EVERY = 0.3, 0.1
"""A statement that takes this part of the time is asked about. Parts of the time between two looks."""
CONNECT = 5
"""Seconds for the connection by which the thread asks, and then for its answer."""
OWN_OPTIONS = frozenset("keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout".split())
"""Options of a database by which a project chooses the time-outs of TCP: then they are left as they are."""


class Vendor(NamedTuple):
    """How a server is asked what it does for a connection."""

    number: Callable[[Any], int]
    """The number by which the server knows a connection of the driver."""
    sql: str
    """Rows of the number, what it does, and something that changes with each statement."""
    idle: str
    """What it says first of a connection for which it has nothing to do."""


VENDORS = {
    "postgresql": Vendor(
        lambda raw: raw.info.backend_pid,
        "SELECT pid, state, state_change::text FROM pg_stat_activity WHERE pid IN ({})",
        "idle",
    ),
    "mysql": Vendor(
        lambda raw: raw.thread_id(),
        "SELECT id, command, query_id FROM information_schema.processlist WHERE id IN ({})",
        "Sleep",
    ),
}
UNSEEN = object()


class PendingStatement:
    """Around statements of one connection, which wait for answers."""

    __slots__ = ("alias", "cut", "look_at", "raw", "seen", "since")

    def __init__(self, alias: str, raw: Any):
        self.alias, self.raw = alias, raw
        self.seen: object = UNSEEN
        """What the server said when it had nothing to do for it."""
        self.cut = False

    def __enter__(self) -> None:
        self.since = time.monotonic()
        self.look_at = self.since + LONG * watch.timeouts.get(self.alias, TIMEOUT)
        watch.running[self] = None

    def __exit__(self, *error: object) -> None:
        watch.running.pop(self, None)
        if self.cut:
            with watch.cutting:  # until then its descriptor must not be closed, as another file may get its number
                pass


class Watch:
    """The statements of this process that wait for answers, and the thread that asks about them."""

    def __init__(self) -> None:
        self.timeouts: dict[str, float] = {}
        """By the alias of a database that is served."""
        self.running: dict[PendingStatement, None] = {}
        self.cutting = threading.Lock()
        self._lock = threading.Lock()
        self._served: list[tuple[str, float]] = []
        self._ended: threading.Event | None = None

    @contextmanager
    def serving(self, aliases: Collection[str], timeout: float) -> Iterator[None]:
        """Notice what is dropped meanwhile; of several time-outs of one database the shortest counts."""
        served = [(alias, timeout) for alias in aliases if connections[alias].vendor in VENDORS]
        with self._lock:
            self._change([*self._served, *served])
        try:
            yield
        finally:
            with self._lock:
                rest = Counter(self._served)
                rest.subtract(served)  # of a child that was forked meanwhile there are none
                self._change([*rest.elements()])

    def _change(self, served: list[tuple[str, float]]) -> None:
        self._served = served
        self.timeouts = dict(sorted(served, key=lambda one: -one[1]))  # of one alias the last counts
        if self._served and self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._run, args=[self._ended], name="djqueue-silence", daemon=True).start()
        elif not self._served and self._ended is not None:
            self._ended.set()
            self._ended = None

    def _run(self, ended: threading.Event) -> None:
        try:
            while not ended.wait(EVERY * min(self.timeouts.values(), default=TIMEOUT)):
                self.tick(time.monotonic())
        finally:
            connections.close_all()

    def tick(self, now: float) -> None:
        """Ask about what takes long."""
        late = [one for one in list(self.running) if now >= one.look_at]
        for alias in {one.alias for one in late}:
            try:
                self._look([one for one in late if one.alias == alias], now)
            except Exception as error:  # while the server cannot be asked, nothing is known
                log_safely(logger, logging.DEBUG, "database %s cannot be asked about its connections: %s", alias, error)
            finally:
                connections[alias].close()

    def _look(self, late: Sequence[PendingStatement], now: float) -> None:
        said = what_is_done(late[0].alias, [one.raw for one in late])
        for one, (is_over, what) in zip(late, said, strict=True):
            if not is_over:
                one.seen, one.look_at = UNSEEN, now + (now - one.since) / 2
            elif one.seen is UNSEEN or one.seen != what:
                one.seen = what
            else:
                self._cut(one)

    def _cut(self, one: PendingStatement) -> None:
        with self.cutting:
            one.cut, one.look_at = True, inf
            if one not in self.running:
                return
            _shut_down(one.raw)
        text = "The database %r has answered, and no answer arrived: the connection was dropped and is replaced"
        log_safely(logger, logging.WARNING, text, one.alias)


watch = Watch()


os.register_at_fork(after_in_child=watch.__init__)  # type: ignore[misc]


def asking(alias: str, raw: Any) -> PendingStatement | None:
    """Around statements of a connection of the driver; None where nothing is watched."""
    return PendingStatement(alias, raw) if alias in watch.timeouts else None


def is_pooled(alias: str) -> bool:
    """Whether the server knows this thread's connection by another number than the driver: through a pooler."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        return not _rows(connection, cursor, [connection.connection])


def _rows(connection: Any, cursor: Any, raws: Sequence[Any]) -> dict[int, tuple[str | None, object]]:
    vendor = VENDORS[connection.vendor]
    cursor.execute(vendor.sql.format(", ".join(str(vendor.number(raw)) for raw in raws)))
    return {number: (what, change) for number, what, change in cursor.fetchall()}


def what_is_done(alias: str, raws: Sequence[Any]) -> list[tuple[bool, object]]:
    """Whether the server has nothing to do for connections of the driver, and what changes once it has.

    By a connection of this thread. Behind a pooler, which gives numbers of its own, nothing is known.
    """
    connection = connections[alias]
    vendor, options = VENDORS[connection.vendor], connection.settings_dict["OPTIONS"]
    own = {key: value for key, value in options.items() if key != "pool"}
    connection.settings_dict = connection.settings_dict | {"OPTIONS": {"connect_timeout": CONNECT} | own}
    with connection.cursor() as cursor, _answered(connection.connection):
        rows = _rows(connection, cursor, [connection.connection, *raws])
        if vendor.number(connection.connection) not in rows:
            return [(False, None)] * len(raws)
    known = [rows.get(vendor.number(raw), (vendor.idle, None)) for raw in raws]
    return [((what or "").startswith(vendor.idle), change) for what, change in known]


@contextmanager
def _answered(raw: Any) -> Iterator[None]:
    """Cut the connection by which the thread asks, if no answer comes by that either."""
    lock, is_over = threading.Lock(), False

    def cut() -> None:
        with lock:
            if not is_over:
                _shut_down(raw)

    timer = threading.Timer(CONNECT, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:  # until then its descriptor must not be closed
            is_over = True


def _shut_down(raw: Any) -> None:
    with suppress(OSError), _socket_of(raw) as end:
        end.shutdown(socket.SHUT_RDWR)


# ---- The time-outs of TCP


def _socket_of(raw: Any) -> socket.socket:
    """A second descriptor of the socket to the server."""
    descriptor = descriptor_of(raw)
    if descriptor is None:
        raise OSError("it has no socket")
    return socket.socket(fileno=os.dup(descriptor))


def tcp_options(timeout: float) -> dict[str, int]:
    """The options of a socket, by their names in the module ``socket``. Not every platform has all of them."""
    return {
        "TCP_KEEPIDLE": max(1, round(IDLE * timeout)),
        "TCP_KEEPINTVL": max(1, round(BETWEEN * timeout)),
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": max(1000, round(UNACKNOWLEDGED * timeout * 1000)),
    }


def _created(connection: Any, **kwargs: Any) -> None:
    """Give a new connection to a database that is served its time-outs, unless the project chose some."""
    timeout = watch.timeouts.get(connection.alias)
    if timeout is None or not OWN_OPTIONS.isdisjoint(connection.settings_dict["OPTIONS"]):
        return
    with suppress(OSError), _socket_of(connection.connection) as end:
        if end.family not in (socket.AF_INET, socket.AF_INET6):
            return
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in tcp_options(timeout).items():
            if (option := getattr(socket, name, None)) is not None:
                end.setsockopt(socket.IPPROTO_TCP, option, value)


connection_created.connect(_created, dispatch_uid=__name__)
