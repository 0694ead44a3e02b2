"""Where the child of a fork ends: it is a copy of its parent, and must not go on as that."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Any


def run_in_parent(step: Callable[[], Any]) -> Any:
    """Run code of others: a child that it forks ends where it would return, or raise.

    It ends as a child of ``multiprocessing`` does: with 0, with what it gave to ``sys.exit``, or with 1 and a
    traceback; nothing of what called this is run in it. It is not made of ChildrenEnd, as every message passes here.
    """
    parent = os.getpid()
    try:
        value = step()
    except BaseException as error:
        if os.getpid() != parent:
            _end(error)
        raise
    if os.getpid() != parent:
        _end(None)
    return value


def handle_signals(numbers: Collection[int], handler: Callable[..., None]) -> None:
    """Handle them in this process; in a forked child they do what they did before, as nobody there hears of ours."""
    before = {number: signal.signal(number, handler) for number in numbers}
    mask = threading.local()

    def block() -> None:  # one that comes just behind the fork would be ours
        mask.was = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask.was)

    def restore() -> None:
        for number, was in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL if was is None else was)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


class ChildrenEnd:
    """The same around what is awaited: a child that was forked within ends where it would leave the block."""

    def __enter__(self) -> None:
        self._parent = os.getpid()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._parent:
            _end(error)


def _end(error: BaseException | None) -> None:
    code = 1
    try:
        code = _code_of(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _code_of(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
