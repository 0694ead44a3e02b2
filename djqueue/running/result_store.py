"""What the store keeps of a message next to its queue: how it ended, signed; its progress; a request to cancel it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry, Fact, Lease
from djqueue.backends.stores import RESULTS
from djqueue.exceptions import InvalidMessage, NoResult
from djqueue.messages.envelope import DEFAULT_MAX_SIZE, pack_item, unpack_item
from djqueue.messages.failures import LONGEST_REASON, kind_of, text_of
from djqueue.policies.outcomes import Verdict
from djqueue.running.attempts import Attempt, written
from djqueue.running.ends import End, Progress, of_run
from djqueue.utils import log_safely, plain

logger = logging.getLogger(__name__)

KEPT = 86_400.0
"""Seconds for which progress and a request to cancel are kept."""
LOST = "%s returned a value of the type %s, which cannot be kept: %s. Return None or other values, or drop result_ttl"
RESULT, PROGRESS, CANCEL = "result", "progress", "cancel"
"""The kinds of records that are kept of a message."""
ABOUT_OF = attrgetter("status", "command", "worker", "attempts", "enqueued", "began", "ended", "seconds", "reason")
"""The first fields of an end, in order, which a record has as one list."""
OF_ENTRY = ("body", "priority", "run_at")
"""What a record has of the message itself, if that came through Django's tasks."""


def fact_of(queue: BaseQueue, lease: Lease, verdict: Verdict) -> Fact:
    """The end of a message as a fact of the store."""
    return Fact(f"{RESULTS}{lease.entry.id}", verdict.packed or packed_end(queue, lease, verdict), verdict.keep)


def fact_of_end(queue: BaseQueue, id: str, end: End, keep: float) -> Fact:
    """The end of a message as a fact of the store, for ``keep`` seconds."""
    return Fact(f"{RESULTS}{id}", _packed_end(queue, id, end), keep)


def packed_end(queue: BaseQueue, lease: Lease, verdict: Verdict) -> bytes:
    """The record of the end of a message, as bytes."""
    return _packed_end(queue, lease.entry.id, of_run(lease, verdict))


def end_of(queue: BaseQueue, id: str) -> End | None:
    """How a message ended, by its result. Raises NoResult if that cannot be trusted or read."""
    value = queue.store.get(f"{RESULTS}{id}")
    return None if value is None else read_end(queue, id, value)


def read_end(queue: BaseQueue, id: str, value: bytes) -> End:
    """How a message ended, by its result as the store has it. Raises NoResult if that cannot be trusted or read."""
    record = _unpacked(queue, RESULT, id, value)
    end = End(*record["end"])
    call: dict[str, Any] = {"body": b""} | record.get("call", {})
    about: dict[str, Any] = {"id": id, "command": end.command, "created": end.enqueued, "attempts": end.attempts}
    return replace(
        end,
        errors=record.get("errors", ()),
        begun=[Attempt(*one) for one in record.get("begun", ())],
        value=record.get("value"),
        has_value="value" in record,
        entry=Entry(**call, **about),
    )


def report_progress(queue: BaseQueue, id: str, progress: Progress) -> None:
    """Keep the progress of a command for a day."""
    queue.store.put(*progress_fact(queue, id, progress))


def progress_fact(queue: BaseQueue, id: str, progress: Progress) -> Fact:
    """The progress of a command, as a fact that is kept for a day."""
    return Fact(f"{PROGRESS}:{id}", _packed(queue, PROGRESS, id, asdict(progress)), KEPT)


def progress_of(queue: BaseQueue, id: str) -> Progress | None:
    """The progress that was last reported. Raises NoResult if that cannot be trusted or read."""
    value = queue.store.get(f"{PROGRESS}:{id}")
    return None if value is None else Progress(**_unpacked(queue, PROGRESS, id, value))


def ask_to_stop(queue: BaseQueue, id: str) -> None:
    """Keep a request to cancel a message, for a day."""
    queue.store.put(f"{CANCEL}:{id}", str(queue.store.now()).encode(), KEPT)


def is_cancelled(queue: BaseQueue, entry: Entry) -> bool:
    """Whether there is a request to cancel it, made after it was put, or requeued from the failed queue."""
    return _is_since(queue.store.get(f"{CANCEL}:{entry.id}"), entry)


def are_cancelled(queue: BaseQueue, entries: Sequence[Entry]) -> list[bool]:
    """:func:`is_cancelled` for several entries, in as few round trips as the store can."""
    asked = queue.store.get_many([f"{CANCEL}:{entry.id}" for entry in entries])
    return [_is_since(when, entry) for when, entry in zip(asked, entries, strict=True)]


def _is_since(asked: bytes | None, entry: Entry) -> bool:
    try:
        return asked is not None and float(asked) >= entry.created
    except ValueError:  # not written by djqueue
        return False


# ---- as bytes: signed, and good for this message alone


def _packed(queue: BaseQueue, kind: str, id: str, record: dict[str, Any], **limits: int) -> bytes:
    serializer, models = conf.get("QUEUE_SERIALIZER"), conf.get("QUEUE_MODELS")
    return pack_item(record, id=id, queue=_bound_to(queue, kind), serializer=serializer, models=models, **limits)


def _packed_end(queue: BaseQueue, id: str, end: End) -> bytes:
    """How a message ended as signed bytes; without the value, or the errors, if they cannot be kept."""
    with_call = end.entry is not None
    try:
        return _packed(queue, RESULT, id, _record_of(end), max_size=_most(with_call))
    except BaseException as error:  # a value may do anything while it is pickled
        why = f"what it returned could not be kept: {text_of(error)}"[:LONGEST_REASON]
        if end.has_value:
            extra = {"message_id": id, "command": end.command, "queue": queue.alias, "event": "result_lost"}
            log_safely(
                logger, logging.WARNING, LOST, plain(end.command), kind_of(end.value), text_of(error), extra=extra
            )
        rest = replace(end, reason=end.reason or why, errors=(), value=None, has_value=False)
        return _packed(queue, RESULT, id, _record_of(rest), max_size=max(DEFAULT_MAX_SIZE, _most(True)))


def _record_of(end: End) -> dict[str, Any]:
    record: dict[str, Any] = {"end": [*ABOUT_OF(end)]}
    if end.has_value:
        record["value"] = end.value
    if end.errors:
        record["errors"] = end.errors
    if end.entry is not None:
        record["call"] = {name: getattr(end.entry, name) for name in OF_ENTRY}
        record["begun"] = written(end.begun)
    return record


def _most(with_call: bool) -> int:
    """The bytes that a record may have; one with its call has the message in it, which serializers may make longer."""
    most: int = conf.get("QUEUE_MAX_MESSAGE_SIZE")
    return 3 * most if with_call else most


def _unpacked(queue: BaseQueue, kind: str, id: str, value: bytes) -> dict[str, Any]:
    accept, most = conf.get("QUEUE_ACCEPT"), max(DEFAULT_MAX_SIZE, _most(with_call=True))
    try:
        return unpack_item(value, id=id, queue=_bound_to(queue, kind), accept=accept, max_size=most)
    except InvalidMessage as error:
        raise NoResult(f"what is kept of message {id} cannot be trusted or read: {error.reason}") from error


def _bound_to(queue: BaseQueue, kind: str) -> str:
    """A name that no queue can have, to sign for: a result never passes for a message, nor an item for a result."""
    return f"{queue.base_name}:{kind}"
