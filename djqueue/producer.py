"""From a call to an entry in a queue: the enqueue page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction

from djqueue import conf, events
from djqueue.backends.base import BaseQueue, Entry, Guard
from djqueue.exceptions import NotSupported
from djqueue.message import Message, encode, new_id
from djqueue.policies import Policy
from djqueue.queues import queues
from djqueue.results import Result
from djqueue.running import CurrentMessage, open_entry, run

if TYPE_CHECKING:
    from djqueue.registry import Call, Command

logger = logging.getLogger(__name__)

CHUNK = 1000
"""Entries per round trip."""


def send(command: Command, calls: Sequence[Call], policy: Policy) -> list[Result]:
    """Encode the calls and put them, within the caller's transaction or when it commits."""
    queue = queues[policy.queue_name]
    _refuse_what_it_cannot(queue, policy)
    entries = [_entry(command.name, new_id(), call, policy, queue) for call in calls]
    if conf.get("QUEUE_ALWAYS_EAGER"):
        _run_inline(command, queue, entries)
    else:
        _when_committed(queue, entries)
    return [Result(entry.id, command.name, policy.queue_name) for entry in entries]


def send_once(command: Command, guard: Guard, id: str) -> bool:
    """Put one call without arguments unless the guard's key was used, in one atomic step; whether it was put."""
    queue = queues[command.policy.queue_name]
    _refuse_what_it_cannot(queue, command.policy)
    entry = _entry(command.name, id, ((), {}), command.policy, queue)
    [accepted] = queue.put([entry], [guard])
    if accepted:
        _tell(queue, [entry])
    return accepted


def _entry(name: str, id: str, call: tuple[tuple, dict], policy: Policy, queue: BaseQueue) -> Entry:
    data = encode(
        Message(id, queue.logical, name, *call),
        codec=policy.codec or conf.get("QUEUE_CODEC"),
        models=policy.models or conf.get("QUEUE_MODELS"),
        max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
    )
    return policy.admit(data, id, name)


def _refuse_what_it_cannot(queue: BaseQueue, policy: Policy) -> None:
    lacking = policy.needs & queue.cannot
    if lacking:
        raise NotSupported(f"{type(queue).__name__} ({policy.queue_name!r}) cannot do: {', '.join(sorted(lacking))}.")


def _when_committed(queue: BaseQueue, entries: Sequence[Entry]) -> None:
    alias = queue.on_commit
    if alias is None or not transaction.get_connection(alias).in_atomic_block:
        for piece in _pieces(queue, entries):
            _put(queue, piece)
    else:
        transaction.on_commit(partial(_put_or_report, queue, entries), using=alias)


def _pieces(queue: BaseQueue, entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """What is sent as a whole or not at all: everything in a database, elsewhere a round trip."""
    return _chunks(entries) if queue.database is None else [entries]


def _chunks(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    return [entries[start : start + CHUNK] for start in range(0, len(entries), CHUNK)]


def _put(queue: BaseQueue, piece: Sequence[Entry]) -> None:
    chunks = _chunks(piece)
    with transaction.atomic(using=queue.database) if len(chunks) > 1 else nullcontext():
        for chunk in chunks:
            answers = queue.put(chunk)
            _tell(queue, [entry for entry, accepted in zip(chunk, answers, strict=True) if accepted])


def _tell(queue: BaseQueue, accepted: Sequence[Entry]) -> None:
    """Signal what was accepted, once it is certain: what is part of a transaction may be rolled back with it."""
    if queue.database is not None and transaction.get_connection(queue.database).in_atomic_block:
        transaction.on_commit(partial(_signal, queue, accepted), using=queue.database)
    else:
        _signal(queue, accepted)


def _signal(queue: BaseQueue, accepted: Sequence[Entry]) -> None:
    for entry in accepted:
        events.emit(events.enqueued, entry.label, id=entry.id, queue_name=queue.alias)


def _put_or_report(queue: BaseQueue, entries: Sequence[Entry]) -> None:
    """After the commit nobody is left to raise to: what cannot be sent is logged and signalled."""
    pieces = _pieces(queue, entries)
    for number, piece in enumerate(pieces):
        try:
            _put(queue, piece)
        except Exception as error:
            return _report(queue, [entry for left in pieces[number:] for entry in left], error)


def _report(queue: BaseQueue, unsent: Sequence[Entry], error: Exception) -> None:
    first, ids = unsent[0], [entry.id for entry in unsent]
    extra = {"message_id": first.id, "message_ids": ids, "command": first.label, "queue": queue.alias}
    text = "%s: %d messages were not sent although their transaction committed"
    logger.error(text, first.label, len(unsent), exc_info=error, extra=extra)
    for entry in unsent:
        events.emit(events.enqueue_failed, entry.label, id=entry.id, queue_name=queue.alias, exception=error)


def _run_inline(command: Command, queue: BaseQueue, entries: Sequence[Entry]) -> None:
    """Eager mode: through encoding and checking like any message; its exception reaches the caller."""
    for entry in entries:
        args, kwargs = open_entry(queue, entry).arguments()
        run(command, args, kwargs, CurrentMessage(entry.id, 1, command.name, queue.alias), _await_anywhere)


def _await_anywhere(coroutine: Coroutine) -> object:
    """Run a coroutine to its end, in a thread of its own if this one already runs an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
