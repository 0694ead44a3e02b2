"""The file descriptors for which messages wait on the event loop that they share."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from djqueue.consumer.loop_tasks import GuardedLoop, answerable, are_same, context_of
from djqueue.exceptions import EventLoopMisused
from djqueue.running.context import jobs_of

READER, WRITER = 0, 1
"""Where the selector of asyncio keeps the handles of a descriptor."""


class Descriptors:
    """Guards readers and writers, which asyncio keys by the number of their descriptor alone."""

    def __init__(self, shared: GuardedLoop):
        self._shared, self._loop = shared, cast(Any, shared.loop)
        self._own = set(self._loop._selector.get_map())
        """Those of the loop itself."""
        self._files: dict[int, tuple[int, int] | None] = {number: _file_of(number) for number in self._own}
        """The file that each of them meant when it was last added."""

    @property
    def guards(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of methods of the loop."""
        guards: dict[str, Callable[..., Any]] = {
            "add_reader": partial(self._change, READER),
            "add_writer": partial(self._change, WRITER),
            "remove_reader": partial(self._change, READER),
            "remove_writer": partial(self._change, WRITER),
            "_add_reader": partial(self._add, READER),
            "_add_writer": partial(self._add, WRITER),
            "_remove_reader": self._remove,
            "_remove_writer": self._remove,
            "_ensure_fd_no_transport": self._ensure_free,
        }
        return {name: partial(guard, getattr(self._loop, name)) for name, guard in guards.items()}

    def _change(self, slot: int, change: Callable[..., Any], fd: Any, *args: Any) -> Any:
        """Add or remove, unless that takes from another message that runs, or from the loop, what it waits for."""
        number = _number_of(fd)
        key = self._loop._selector.get_map().get(number)
        if key is not None and _file_of(number) == self._files.get(number):
            if number in self._own or self._is_of_another(key.data[slot]):
                raise self._refuse()
        return change(number, *args)

    def _add(self, slot: int, add: Callable[..., Any], fd: Any, *args: Any) -> Any:
        """Add it, in the place of one for a file that was closed: the selector would go on waiting for that."""
        number, selector = _number_of(fd), self._loop._selector
        file, key = _file_of(number), selector.get_map().get(number)
        if key is not None and self._files.get(number) != file:
            selector.unregister(number)
            self._own.discard(number)
            for handle in key.data:
                if handle is not None:
                    handle.cancel()
        elif key is not None:
            held = key.data[slot]
            if number in self._own or self._is_of_another(held) and not _may_take(held._callback, args[0]):
                raise self._refuse()
        self._files[number] = file
        context = context_of(None)
        return add(number, *args) if context is None else context.run(add, number, *args)

    def _is_of_another(self, handle: Any) -> bool:
        """Whether it was added by a message that runs, but by another one."""
        owner = () if handle is None or handle.cancelled() else jobs_of(handle._context)
        return bool(owner) and not are_same(answerable(), owner) and self._shared.serves(owner)

    def _refuse(self) -> EventLoopMisused:
        return self._shared.refuse(answerable(), "it changed a file descriptor for which others wait")

    def _remove(self, remove: Callable[..., Any], number: Any) -> Any:
        """Remove it, unless a transport asks for what is not its own: its socket was closed, and the number is of
        another one now."""
        caller, key = sys._getframe(1).f_locals.get("self"), self._loop._selector.get_map().get(number)
        if key is not None and isinstance(caller, asyncio.BaseTransport):
            handles = [handle for handle in key.data if handle is not None]
            if not any(getattr(handle._callback, "__self__", None) is caller for handle in handles):
                return False
        return remove(number)

    def _ensure_free(self, ensure: Callable[..., Any], fd: Any) -> Any:
        """Refuse what a transport uses, but not for one whose socket was closed without it."""
        number, transports = _number_of(fd), self._loop._transports
        if (transport := transports.get(number)) is not None:
            file = _file_of(number)
            if transport._sock is None or transport._sock.fileno() != number or self._files.get(number, file) != file:
                del transports[number]
        return ensure(number)


def _may_take(held: Any, callback: Any) -> bool:
    """Whether both are of one transport, which messages may share, or it is of a transport that closes its pipe in
    the end: that of a subprocess asks for it a while after it was opened."""
    transport = getattr(callback, "__self__", None)
    pipe = getattr(transport, "_pipe", None)
    is_the_same = isinstance(transport, asyncio.BaseTransport) and getattr(held, "__self__", None) is transport
    return is_the_same or bool(getattr(getattr(pipe, "raw", pipe), "closefd", False))


def _number_of(fd: Any) -> int:
    """Asked once, and a plain int: an object may answer otherwise the next time."""
    return int.__int__(fd if isinstance(fd, int) else int(fd.fileno()))


def _file_of(number: int) -> tuple[int, int] | None:
    """What distinguishes one open file or socket from another; None if it is closed."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino
