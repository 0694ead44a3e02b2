"""How a consumer waits for work at SQS, whose client has no descriptor to poll: a thread receives for it."""

from __future__ import annotations

import threading
from typing import Protocol

from django.db import connections

from djqueue.backends.bells import Bell, Waker

UNTAKEN = 1.0
"""Seconds for which what was received waits for a claim of a consumer that does not wait any more."""
ENDS_IN = 5.0
"""Seconds that closing waits for the end of a poll, which takes one."""


class Receiving(Protocol):
    """What a bell needs of a queue."""

    @property
    def has_kept(self) -> bool: ...
    def keep_next(self) -> bool: ...
    def give_back_kept(self) -> None: ...


class SqsBell(Bell):
    """Its thread polls only while it is armed. What comes too late to be claimed goes back."""

    is_heard = True

    def __init__(self, queue: Receiving):
        self._queue, self._waker = queue, Waker()
        self._changed = threading.Condition()
        self._is_armed = self._is_closed = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def fileno(self) -> int | None:
        return self._waker.fileno()

    def arm(self) -> bool:
        self._raise_error()
        if self._queue.has_kept:
            return True
        with self._changed:
            self._is_armed = True
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="djqueue-sqs", daemon=True)
                self._thread.start()
        return False

    def disarm(self) -> None:
        self._is_armed = False

    def hear(self) -> bool:
        self._waker.clear()
        self._raise_error()
        return self._queue.has_kept

    def close(self) -> None:
        with self._changed:
            self._is_armed, self._is_closed = False, True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(ENDS_IN)
            if self._thread.is_alive():
                return  # it closes the descriptor itself
        self._waker.close()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # ---- its thread

    def _run(self) -> None:
        try:
            while self._is_to_poll():
                try:
                    if self._queue.keep_next():
                        self._ring()
                        self._give_back()
                except Exception as error:
                    self._error = error
                    self._ring()
        finally:
            connections.close_all()  # of the store in which a FIFO queue notes what it gave back
            self._waker.close()

    def _ring(self) -> None:
        self._is_armed = False
        self._waker.wake()

    def _is_to_poll(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_armed or self._is_closed)
            return not self._is_closed

    def _give_back(self) -> None:
        """Unless a claim takes it soon."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_armed or self._is_closed, UNTAKEN)
        if not self._is_armed:
            self._queue.give_back_kept()
