"""Running one call: what surrounds it, and what it can learn of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

from djqueue import conf
from djqueue.backends.base import BaseQueue, Entry
from djqueue.message import Envelope, open_envelope

if TYPE_CHECKING:
    from djqueue.registry import Command

Awaiter = Callable[[Coroutine], Any]
"""Runs a coroutine to its end; a worker thread brings the one of its own event loop."""


@dataclass(frozen=True, slots=True)
class CurrentMessage:
    """What a running command can learn of the message that it serves."""

    id: str
    """Unique, and the same at every attempt: an idempotency key for other systems."""
    attempt: int
    """1 at the first start."""
    command: str
    queue_name: str
    """The alias of its queue."""


_current: ContextVar[CurrentMessage | None] = ContextVar("djqueue_current_message", default=None)


def current_message() -> CurrentMessage | None:
    """The message that is being run by this thread or task; None outside of a command."""
    return _current.get()


def open_entry(queue: BaseQueue, entry: Entry) -> Envelope:
    """What an entry says, verified. Raises InvalidMessage."""
    return open_envelope(
        entry.data,
        id=entry.id,
        queue=queue.logical,
        accept=conf.get("QUEUE_ACCEPT"),
        max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
    )


def run(command: Command, args: tuple, kwargs: dict, message: CurrentMessage, await_: Awaiter = asyncio.run) -> Any:
    """Call the command in a context of its own, so that nothing it activates (language, time zone) outlives it."""
    return copy_context().run(_run, command, args, kwargs, message, await_)


def _run(command: Command, args: tuple, kwargs: dict, message: CurrentMessage, await_: Awaiter) -> Any:
    _current.set(message)
    if command.is_async:
        return await_(_with_own_thread(command.func, args, kwargs))
    return command.func(*args, **kwargs)


async def _with_own_thread(func: Callable[..., Coroutine], args: tuple, kwargs: dict) -> Any:
    """Django's async ORM works in a thread beside the loop: one of this call alone, whose connections end with it."""
    async with ThreadSensitiveContext():
        try:
            return await func(*args, **kwargs)
        finally:
            await sync_to_async(connections.close_all)()
