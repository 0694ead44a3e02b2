"""The handle of an enqueued call, which gives its state, result, progress and errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn

from asgiref.sync import sync_to_async
from django.db import transaction

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry
from djqueue.backends.entries import DONE, FAILED
from djqueue.backends.guards import DedupMark
from djqueue.backends.stores import RESULTS
from djqueue.exceptions import CommandFailed, NoResult, QueueError, ResultTimeout
from djqueue.hints import answering
from djqueue.running.attempts import attempts_of
from djqueue.running.context import current_message
from djqueue.running.ends import End, Progress, of_cancelled
from djqueue.running.finding import UNTIL_KEPT, failed, find, held, kept, recorded
from djqueue.running.history import is_kept, record_of_end
from djqueue.running.result_store import KEPT, ask_to_stop, fact_of_end, progress_of, read_end
from djqueue.utils import seconds, value
from djqueue.wiring import queues

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which checkers know without installing it; Python has defaults from 3.13

    R_co = TypeVar("R_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

FIRST_LOOK, LAST_LOOK = 0.005, 0.5
"""Seconds between two looks for a result: ever longer, up to this."""
GONE_AFTER = 3.0
"""Seconds for which a message must have been nowhere before waiting ends: its result may come a moment later."""
CONFIRMED_AFTER = 0.05
"""Seconds between two reads of the value of a message that is done: its store may have it a moment later."""
REFUSED, UNKNOWN = "refused", "unknown"


class Cancelled(StrEnum):
    """What :meth:`Result.cancel` found; true only if the message is gone and will not run."""

    WAITING = "waiting"
    """It waited, and is gone."""
    RUNNING = "running"
    """It runs, or is about to: it was asked to stop."""
    ENDED = "ended"
    """It had ended before: it is done, has failed, or was cancelled."""
    UNKNOWN = "unknown"
    """Its queue does not have it, and nothing is known of its end."""

    def __bool__(self) -> bool:
        return self is Cancelled.WAITING


class EnqueueStatus:
    """The outcome of sending a call, which the producer gives to its handle."""

    accepted: bool | None = None
    """Whether the queue took it; None before it was sent."""
    guard = ""
    """The key of its guard, under which the store has a mark."""


@answering("result")
@value
class Result(Generic[R_co]):
    """The handle of an enqueued call. It can be made from an id, and it pickles. Raises TypeError for no id.

    For a type checker a ``Result[int]`` is the handle of a call that returns an int; one that is made from an id, or
    written without a type, is a ``Result[Any]``.
    """

    id: str
    """The message's id: the same in the logs, in ``current_message()`` and in the failed queue."""
    command: str = ""
    """The command's name."""
    queue_name: str = conf.DEFAULT_ALIAS
    """The alias of its queue."""
    kept: bool = True
    """Whether its result is kept: for as long as its ``result_ttl``, or the setting, gives."""
    sending: EnqueueStatus | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        id: str,
        command: str = "",
        queue_name: str = conf.DEFAULT_ALIAS,
        kept: bool = True,
        sending: EnqueueStatus | None = None,
    ):
        if not isinstance(id, str) or not id:
            raise TypeError(f"Result(id={id!r}): give the id of a message, a text.")
        self.id, self.command, self.queue_name = id, command, queue_name  # type: ignore[misc]  # frozen for a checker
        self.kept, self.sending = kept, sending  # type: ignore[misc]

    if not TYPE_CHECKING:  # type checkers would take a call
        do_not_call_in_templates = True

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            raise TypeError("'Result' object is not callable: use .get(timeout=seconds).")

        def _as_value(self, *_: Any) -> NoReturn:
            raise TypeError("a Result is the handle of a call, not its value: use .get(timeout=seconds).")

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _as_value
        __lt__ = __gt__ = __le__ = __ge__ = __int__ = __float__ = __getitem__ = __iter__ = _as_value

    def __reduce__(self) -> tuple[Any, ...]:
        refused = (self.sending,) if self.enqueued is False else ()  # it does not learn when it is sent
        return Result, (self.id, self.command, self.queue_name, self.kept, *refused)

    def __repr__(self) -> str:
        known = {"id": self.id, "command": self.command, "queue_name": self.queue_name, "kept": self.kept}
        known |= {"enqueued": False} if self.enqueued is False else {}
        return f"Result({', '.join(f'{name}={value!r}' for name, value in known.items())})"

    @property
    def enqueued(self) -> bool | None:
        """False if it was not put, as another call counts for it; None until it is sent, when a transaction commits."""
        return True if self.sending is None else self.sending.accepted

    @property
    def duplicate_of(self) -> Result[R_co] | None:
        """The handle of the call that counts for this one, if this one was not put; None if there is none any more."""
        if self.sending is None or self.sending.accepted is not False:
            return None
        mark = self._queue.store.get(self.sending.guard)
        return None if mark is None else Result(DedupMark.read(mark).id, self.command, self.queue_name, self.kept)

    @property
    def status(self) -> str:
        """``ready``, ``delayed``, ``running``, ``done``, ``failed``, ``expired``, ``discarded``, ``cancelled``.

        Or ``refused``: it was not put, as another call counts for it, see :attr:`duplicate_of`. Or ``unknown``: there
        is no such message, or it ended so long ago that QUEUE_HISTORY has no record of it.
        """
        if self.enqueued is False:
            return REFUSED
        try:
            end = find(self._queue, self.id)
        except NoResult:  # there is a result, which cannot be read
            return UNKNOWN
        return UNKNOWN if end is None else end.status

    @property
    def progress(self) -> Progress | None:
        """The latest report of the command by ``current_message().progress()``, or None."""
        return progress_of(self._queue, self.id)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The record of each failed start: at, attempt, reason, exception, traceback, host; the oldest first."""
        end = find(self._queue, self.id, (held, failed, kept))
        return [] if end is None else [*end.errors]

    def get(self, timeout: float | timedelta | None = None, **unknown: Never) -> R_co:
        """What the command returned; waits for it up to ``timeout`` seconds (None: as long as it takes).

        Raises ResultTimeout; CommandFailed if it failed, expired, or was discarded or cancelled; NoResult if what it
        returns is not kept, at once, or once it has ended for a handle made from an id, which does not know it before;
        RuntimeError within a transaction that would never see it, or at whose end the message is sent, and without a
        timeout in a command that runs in a worker: if all workers wait for each other, none ever ends; TypeError or
        ValueError for a timeout that is no duration.
        """
        waiting = ResultWait(self, timeout, unknown)
        while (end := waiting.look()) is None:
            time.sleep(waiting.pause)
        return self._value_of(end)

    async def aget(self, timeout: float | timedelta | None = None, **unknown: Never) -> R_co:
        """:meth:`get` for async code."""
        waiting = ResultWait(self, timeout, unknown)
        while (end := await sync_to_async(waiting.look)()) is None:
            await asyncio.sleep(waiting.pause)
        return self._value_of(end)

    async def astatus(self) -> str:
        """:attr:`status` for async code."""
        return await sync_to_async(lambda: self.status)()

    async def aprogress(self) -> Progress | None:
        """:attr:`progress` for async code."""
        return await sync_to_async(lambda: self.progress)()

    async def acancel(self) -> Cancelled:
        """:meth:`cancel` for async code."""
        return await sync_to_async(self.cancel)()

    def cancel(self) -> Cancelled:
        """Cancel it; true if it waited and is gone. If it runs, ``current_message().cancelled`` is true for it.

        The :class:`Cancelled` that it returns says what the message was: waiting, running, ended, or not known. One
        that a worker has taken and is about to begin runs too, with that flag. Raises NotSupported if the
        backend cannot look into its queue, RuntimeError within the transaction at whose end the message is sent.
        """
        queue = self._queue
        if self.enqueued is None and queue.on_commit and transaction.get_connection(queue.on_commit).in_atomic_block:
            raise RuntimeError("cancel() of a message that is not sent yet: it is when this transaction commits.")
        if not self._remove():
            ask_to_stop(queue, self.id)
            if not self._remove():  # the message may have gone back to the queue just now
                return self._not_cancelled()
        return Cancelled.WAITING

    def _remove(self) -> bool:
        """Whether it waited, and is gone."""
        queue, waits = self._queue, held(self._queue, self.id)
        entry = Entry(b"", self.id, command=self.command)
        if waits is not None and waits.entry is not None:
            entry = waits.entry
        end = of_cancelled(entry, attempts_of(queue, entry, entry.attempts), queue.now())
        keep = seconds(conf.get("QUEUE_RESULT_TTL") or KEPT, "QUEUE_RESULT_TTL")
        fact = fact_of_end(queue, self.id, end, keep) if "facts" in queue.features else None
        return queue.remove([self.id], [fact], [record_of_end(end) if is_kept(queue) else b""]) == 1

    def _not_cancelled(self) -> Cancelled:
        if held(self._queue, self.id) is not None:
            return Cancelled.RUNNING
        return Cancelled.UNKNOWN if self.status == UNKNOWN else Cancelled.ENDED

    @property
    def _queue(self) -> BaseQueue:
        return queues[self.queue_name]

    def _kept(self) -> End | None:
        return kept(self._queue, self.id)

    def _end_without_result(self) -> End | None:
        """What is known of its end where no result is kept: by the failed queue, or by the history."""
        end = find(self._queue, self.id, UNTIL_KEPT)
        if end is None or not end.is_over:
            return None
        return self._kept() or end  # it may have ended since the first look

    def _value_of(self, end: End) -> Any:
        """What the command returned. Raises CommandFailed or NoResult, with a note that names the message."""
        if end.has_value:
            return end.value
        error: QueueError = NoResult(end.reason or NOT_KEPT.format(self.id))
        if end.status != DONE:
            error = CommandFailed(end.reason, end.status, [*end.errors])
        of = f" of {self.command}" if self.command else ""
        error.add_note(f"Message {self.id}{of} in queue {self.queue_name!r}.")
        raise error

    def _refuse_to_wait_for_ever(self) -> None:
        if not self.kept:
            raise NoResult(f"the result of message {self.id} is not kept: give {self.command} a result_ttl.")
        if self.enqueued is False:
            raise NoResult(f"message {self.id} was not put: another call stands for it, see duplicate_of.")
        queue = self._queue
        aliases = {queue.database, queue.on_commit if self.enqueued is None else None} - {None}
        if any(transaction.get_connection(alias).in_atomic_block for alias in aliases):
            raise RuntimeError(
                "get() within a transaction would wait for ever: commit first, so that the message is sent."
            )


def statuses(queue: BaseQueue, ids: Sequence[str]) -> list[str]:
    """The :attr:`Result.status` of messages of a queue, most of which have ended.

    Results are read at once, and the history before the queue: only what has failed there may wait again.
    """
    results = queue.store.get_many([f"{RESULTS}{id}" for id in ids]) if "facts" in queue.features else [None] * len(ids)
    return [_status(queue, id, result) for id, result in zip(ids, results, strict=True)]


def _status(queue: BaseQueue, id: str, result: bytes | None) -> str:
    try:
        end = recorded(queue, id) if result is None else read_end(queue, id, result)
    except NoResult:  # there is a result, which cannot be read
        return UNKNOWN
    if end is None or end.status == FAILED:
        end = find(queue, id, (held, failed)) or end
    return UNKNOWN if end is None else end.status


NOT_KEPT = "message {} is done, and what it returned is not kept, or not any more: keep it with result_ttl."
_WHY_LATE = {
    "ready": ". No consumer has begun it: is one running (manage.py queue_consumer) for its queue?",
    "unknown": ". Queue {!r} has no such message: its id or its queue_name may be wrong, or its transaction not "
    "committed or rolled back.",
}


class ResultWait:
    """Looks for a result, often at first, until there is one or none can come."""

    def __init__(self, result: Result, timeout: float | timedelta | None, unknown: Collection[str]):
        for name in unknown:
            raise TypeError(f"get() has no argument {name!r}: it waits, for at most get(timeout=seconds).")
        if timeout is None and (message := current_message()) is not None:
            raise RuntimeError(
                f"get() in {message.command} could hold its worker for ever, as what it waits for may wait for a free "
                "worker: give get(timeout=seconds), or let the other command call what comes next."
            )
        self.pause = FIRST_LOOK
        self._result = result
        self._was_done: bool | None = None
        """Whether the history said so at the latest look that asked it; None before the first."""
        self._timeout = None if timeout is None else seconds(timeout, "get(timeout=…)")
        self._began = self._seen = time.monotonic()

    def look(self) -> End | None:
        """How it ended, or None: then wait for ``pause`` seconds. Raises what :meth:`Result.get` raises."""
        result, is_late = self._result, self.pause >= LAST_LOOK
        end = result._kept()
        if end is None and (self._was_done is not False or is_late or self._left() <= 0):
            end = result._end_without_result()
            if self._may_come(end):
                return None
        if end is None:
            result._refuse_to_wait_for_ever()
            is_gone = is_late and "inspect" in result._queue.features and held(result._queue, result.id) is None
            self._refuse_to_wait_longer(is_gone)
        return end

    def _may_come(self, end: End | None) -> bool:
        """Whether to look once more for what a message returned, though the history says that it is done."""
        is_last = self._was_done or not self._result.kept or self._left() <= 0
        self._was_done = end is not None and end.status == DONE
        if is_last or not self._was_done:
            return False
        self.pause = min(CONFIRMED_AFTER, self._left())
        return True

    def _left(self) -> float:
        return LAST_LOOK if self._timeout is None else self._began + self._timeout - time.monotonic()

    def _refuse_to_wait_longer(self, gone: bool) -> None:
        now, left, (id, alias) = time.monotonic(), self._left(), (self._result.id, self._result.queue_name)
        if left <= 0:
            status = self._result.status
            late = f"after {self._timeout:g} s; its status: {status}{_WHY_LATE.get(status, '').format(alias)}"
            raise ResultTimeout(f"message {id} has no result {late}")
        if not gone:
            self._seen = now
        elif now - self._seen > GONE_AFTER:
            raise NoResult(f"message {id} is neither in its queue nor among the errors, and left no result.")
        self.pause = min(LAST_LOOK, 1.5 * self.pause, left)
