"""From a call to an entry in a queue: the enqueue page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        _when_committed(queue, partial(_put, queue, entries))
    return [Result(entry.id, command.name, policy.queue_name) for entry in entries]


def send_once(command: Command, guard: Guard, id: str) -> bool:
    """Put one call without arguments unless the guard's key was used, in one atomic step; whether it was put."""
    queue = queues[command.policy.queue_name]
    entry = _entry(command.name, id, ((), {}), command.policy, queue)
    return bool(_put(queue, [entry], [guard]))


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


def _when_committed(queue: BaseQueue, put: partial) -> None:
    alias = queue.on_commit
    if alias is None or not transaction.get_connection(alias).in_atomic_block:
        put()
    else:
        transaction.on_commit(partial(_put_or_tell, put), using=alias)


def _put(queue: BaseQueue, entries: Sequence[Entry], guards: Sequence[Guard] | None = None) -> list[Entry]:
    accepted = []
    for start in range(0, len(entries), CHUNK):
        chunk = entries[start : start + CHUNK]
        answers = queue.put(chunk, guards)
        accepted += [entry for entry, answer in zip(chunk, answers, strict=True) if answer]
    for entry in accepted:
        events.emit(events.enqueued, entry.label, id=entry.id, queue_name=queue.alias)
    return accepted


def _put_or_tell(put: partial) -> None:
    """After the commit nobody is left to raise to: what cannot be sent is logged and signalled."""
    try:
        put()
    except Exception as error:
        queue, entries = put.args
        for entry in entries:
            extra = {"message_id": entry.id, "command": entry.label, "queue": queue.alias}
            logger.exception("%s was not sent although its transaction committed", entry.label, extra=extra)
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
