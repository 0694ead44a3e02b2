"""What a call returns when it enqueues, and what can be learnt by it: state, result, progress, errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from djqueue import conf
from djqueue.backends.base import BaseQueue, Lease, Record
from djqueue.backends.entries import LEASED
from djqueue.exceptions import CommandFailed, EncodeError, InvalidMessage, MessageTooLarge, NoResult, ResultTimeout
from djqueue.logs import tell
from djqueue.message import pack_item, unpack_item
from djqueue.notes import notes
from djqueue.queues import queues
from djqueue.verdicts import Verdict

logger = logging.getLogger(__name__)

FIRST_LOOK, LAST_LOOK = 0.005, 0.5
"""Seconds between two looks of one who waits for a result: ever longer, up to this."""
KEPT = 86_400.0
"""Seconds for which progress and the wish to cancel are kept."""

DONE, FAILED, CANCELLED, RUNNING, UNKNOWN = "done", "failed", "cancelled", "running", "unknown"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running command says that it is."""

    done: float
    total: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The handle of an enqueued call. It can be made anew from an id, and it pickles."""

    id: str
    """The message's id: the same in the logs, in ``current_message()`` and in the error queue."""
    command: str = ""
    """The command's name."""
    queue_name: str = conf.DEFAULT_ALIAS
    """The alias of its queue."""
    enqueued: bool | None = True
    """False if it was not put, as another call stands for it; None while that is not known: it is sent on commit."""

    @property
    def status(self) -> str:
        """``ready``, ``delayed``, ``running``, ``done``, ``failed``, ``expired``, ``discarded``, ``cancelled``.

        Or ``unknown``: it is over and nobody asked for its result, or its result is not kept any more.
        """
        kept = self._kept()
        if kept is not None:
            return kept["status"]
        record = self._record()
        if record is not None:
            return RUNNING if record.state == LEASED else record.state
        return FAILED if self._dead() is not None else UNKNOWN

    @property
    def progress(self) -> Progress | None:
        """What the command last said by ``current_message().progress()``, or None."""
        value = self._queue.store.get(_progress_key(self.id))
        return None if value is None else Progress(**_unpacked(self._queue, self.id, value))

    @property
    def errors(self) -> list[dict]:
        """What each failed start left: at, attempt, reason, exception, traceback, host; the oldest first."""
        record = self._record() or self._dead()
        if record is not None:
            return notes(record.entry.note)
        return (self._kept() or {}).get("errors", [])

    def get(self, timeout: float | None = None) -> Any:
        """What the command returned; waits for it up to ``timeout`` seconds (None: as long as it takes).

        Raises ResultTimeout; CommandFailed if it failed, expired, or was discarded or cancelled; NoResult if none is
        kept; RuntimeError within a transaction on the queue's database, which would never see it.
        """
        began, pause = time.monotonic(), FIRST_LOOK
        while (kept := self._kept()) is None:
            left = self._left(began, timeout)
            time.sleep(min(pause, left))
            pause = min(LAST_LOOK, 1.5 * pause)
        return _value_of(kept)

    async def aget(self, timeout: float | None = None) -> Any:
        """:meth:`get` for async code."""
        began, pause = time.monotonic(), FIRST_LOOK
        while (kept := await sync_to_async(self._kept)()) is None:
            left = await sync_to_async(self._left)(began, timeout)
            await asyncio.sleep(min(pause, left))
            pause = min(LAST_LOOK, 1.5 * pause)
        return _value_of(kept)

    def cancel(self) -> bool:
        """Have it not run: True if it waited and is gone. If it runs it is told so, by ``current_message().cancelled``.

        Raises NotSupported if the backend cannot look into its queue.
        """
        queue = self._queue
        if not queue.remove([self.id]):
            queue.store.put(_cancel_key(self.id), b"1", KEPT)
            if not queue.remove([self.id]):  # it may have gone back just now
                return False
        keep = conf.get("QUEUE_RESULT_TTL") or KEPT
        _keep(queue, [(self.id, {"status": CANCELLED, "reason": "cancelled before it ran"}, keep)])
        return True

    # ---- inside

    @property
    def _queue(self) -> BaseQueue:
        return queues[self.queue_name]

    def _kept(self) -> dict | None:
        value = self._queue.store.get(_result_key(self.id))
        return None if value is None else _unpacked(self._queue, self.id, value)

    def _record(self) -> Record | None:
        return None if "inspect" in self._queue.cannot else self._queue.find(self.id)

    def _dead(self) -> Record | None:
        dead = self._queue.dead
        return None if dead is None or "inspect" in dead.cannot else dead.find(self.id)

    def _left(self, began: float, timeout: float | None) -> float:
        """Seconds that may still be waited. Raises what :meth:`get` raises when waiting is of no use."""
        self._refuse_to_wait_for_ever()
        left = LAST_LOOK if timeout is None else began + timeout - time.monotonic()
        if left <= 0:
            raise ResultTimeout(f"message {self.id} has no result after {timeout:g} s; its status: {self.status}")
        return left

    def _refuse_to_wait_for_ever(self) -> None:
        database = self._queue.database
        if database is not None and transaction.get_connection(database).in_atomic_block:
            raise RuntimeError(
                "get() within a transaction would wait for ever: commit first, so that the message is sent."
            )
        if self.enqueued is False:
            raise NoResult(f"message {self.id} was not put: another call stands for it.")


def _value_of(kept: Mapping[str, Any]) -> Any:
    if kept["status"] != DONE:
        raise CommandFailed(kept.get("reason", ""), kept["status"], kept.get("errors"))
    if "value" not in kept:
        raise NoResult(kept.get("reason", "it was not kept"))
    return kept["value"]


# ---- written by those who run


def record(queue: BaseQueue, settled: Sequence[tuple[Lease, Verdict]]) -> None:
    """Keep the results of what ended, for those who asked. A store that fails costs the results, not the work."""
    facts = [(lease.entry.id, _outcome(lease, verdict), verdict.keep) for lease, verdict in settled]
    try:
        _keep(queue, facts)
    except Exception as error:
        ids = [lease.entry.id for lease, _ in settled]
        text = "The results of %d messages could not be kept"
        tell(logger, logging.ERROR, text, len(ids), exc_info=error, extra={"queue": queue.alias, "message_ids": ids})


def _outcome(lease: Lease, verdict: Verdict) -> dict[str, Any]:
    status = _STATUS.get(verdict.outcome.value, verdict.outcome.value)
    told = {"status": status, "attempt": lease.entry.attempts, "seconds": verdict.seconds}
    if status == DONE:
        return told | {"value": verdict.value}
    return told | {"reason": verdict.reason, "errors": notes(lease.entry.note)}


_STATUS = {"dead": FAILED}
"""Outcomes that holders of results know by another name."""


def _keep(queue: BaseQueue, facts: Sequence[tuple[str, dict, float]]) -> None:
    queue.store.put_many([(_result_key(id), _packed(queue, id, told), keep) for id, told, keep in facts])


def report_progress(queue: BaseQueue, id: str, progress: Progress) -> None:
    """Keep how far a command is, for a day."""
    queue.store.put(_progress_key(id), _packed(queue, id, asdict(progress)), KEPT)


def is_cancelled(queue: BaseQueue, id: str) -> bool:
    """Whether somebody wants it to stop."""
    return queue.store.get(_cancel_key(id)) is not None


# ---- as bytes: signed, and good for this message alone


def _packed(queue: BaseQueue, id: str, told: dict[str, Any]) -> bytes:
    pack = partial(pack_item, id=id, queue=_bound_to(queue), models=conf.get("QUEUE_MODELS"))
    try:
        return pack(told, codec=conf.get("QUEUE_CODEC"), max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"))
    except (EncodeError, MessageTooLarge) as error:
        rest = {name: value for name, value in told.items() if name not in ("value", "errors")}
        return pack({**rest, "reason": f"what it returned could not be kept: {error}"}, codec="json")


def _unpacked(queue: BaseQueue, id: str, value: bytes) -> dict[str, Any]:
    accept, most = conf.get("QUEUE_ACCEPT"), 2 * conf.get("QUEUE_MAX_MESSAGE_SIZE")
    try:
        return unpack_item(value, id=id, queue=_bound_to(queue), accept=accept, max_size=most)
    except InvalidMessage as error:
        raise NoResult(f"what is kept of message {id} cannot be trusted or read: {error.reason}") from error


def _bound_to(queue: BaseQueue) -> str:
    """No queue can have this name: a result can never pass for a message, nor an item for a result."""
    return f"{queue.logical}:result"


def _result_key(id: str) -> str:
    return f"result:{id}"


def _progress_key(id: str) -> str:
    return f"progress:{id}"


def _cancel_key(id: str) -> str:
    return f"cancel:{id}"
