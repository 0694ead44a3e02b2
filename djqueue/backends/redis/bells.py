"""How a consumer waits for work on Redis: a BLPOP on a connection of its own, whose answer is the ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis.exceptions import MovedError, ResponseError

from djqueue.backends.bells import Bell
from djqueue.backends.redis.connection import FAULTS, RedisKeyOfWrongType, RedisLink
from djqueue.utils import clock, descriptor_of

LONGEST = 20.0
"""Seconds of one BLPOP. One that is not answered then was dropped with its connection."""
LATE = 5.0
"""Seconds by which its answer may be late."""


class RedisBell(Bell):
    """What rings are lists of the queues; whoever pops from one takes a ring, so what waits in vain is unblocked."""

    is_heard = True

    def __init__(self, link: RedisLink, lists: Sequence[bytes]):
        self._link, self._lists = link, lists
        self._client: Any = None
        """That of the server that has the lists."""
        self._connection: Any = None
        self._number: int | None = None
        """Of the connection, by which the server unblocks it; None: the server does not say."""
        self._overdue: float | None = None
        """When the answer of the BLPOP is overdue (by our clock); None: there is none."""
        self._is_unblocked = self._is_lost = False
        self._aside: set[bytes] = set()
        """Those of the lists that are none, and stop their own queues alone."""

    def fileno(self) -> int | None:
        return None if self._overdue is None else descriptor_of(self._connection)

    def arm(self) -> bool:
        """As in the contract. Rings of before wait in the lists; a connection that broke may have taken one."""
        rang = self._is_unblocked and self._take_what_is_left()
        if self._overdue is not None and clock() > self._overdue:
            self._lose()
        if self._overdue is None:
            self._block()
        rang, self._is_lost = rang or self._is_lost, False
        return rang

    def disarm(self) -> None:
        if self._overdue is None or self._is_unblocked:
            return
        self._is_unblocked = True
        try:
            if self._number is None:
                self._lose()
                self._is_lost = False
            else:
                self._link.commands.send_first(self._client, ("CLIENT", "UNBLOCK", self._number))
        except FAULTS:
            self._lose()

    def hear(self) -> bool:
        return self._overdue is not None and self._take()

    def close(self) -> None:
        self._link.commands.forget_first()
        self._lose()

    # ---- the BLPOP

    def _take_what_is_left(self) -> bool:
        """The answer of a BLPOP that was unblocked: nothing, or a ring of before. It may still be on its way."""
        self._is_unblocked = False
        if self._link.commands.forget_first():  # no command followed, so it was not unblocked
            return False
        with self._answering():
            is_there = self._connection.can_read(0)
        return is_there and self._take()

    def _block(self) -> None:
        lists = [one for one in self._lists if one not in self._aside]
        with self._answering():
            if self._connection is None:
                self._connect()
            self._connection.send_command("BLPOP", *lists, LONGEST)
        self._overdue, self._is_unblocked = clock() + LONGEST + LATE, False

    def _connect(self) -> None:
        self._client = self._link.client_at(self._lists[0])
        pool = self._client.connection_pool
        self._connection = pool.connection_class(**pool.connection_kwargs)
        self._connection.connect()
        self._connection.send_command("CLIENT", "ID")
        self._number = None
        with suppress(ResponseError):  # its user may not ask
            self._number = int(self._connection.read_response())

    def _take(self) -> bool:
        """Read the answer; whether it is a ring. A list of a wrong type is for its queue to complain about."""
        with self._answering():
            try:
                rang = self._connection.read_response() is not None
            except ResponseError as error:
                if not isinstance(odd := self._link.told(error, self._lists), RedisKeyOfWrongType):
                    raise
                self._aside.update(odd.keys)
                if self._aside.issuperset(self._lists):
                    raise odd from None
                rang = True
        self._overdue = None
        if not rang:
            self._aside.clear()  # look again
        return rang

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """After an error the next call connects again, which finds where the lists are by then."""
        try:
            yield
        except MovedError:
            self._lose()
            self._link.execute("LLEN", self._lists[0])  # by which the client learns where
        except FAULTS as error:
            self._lose()
            raise self._link.told(error, self._lists) from None
        except BaseException:
            self._lose()
            raise

    def _lose(self) -> None:
        self._is_lost = self._is_lost or self._connection is not None
        with suppress(Exception):
            if self._connection is not None:
                self._connection.disconnect()
        self._connection = self._overdue = None
        self._is_unblocked = False
        self._aside.clear()
