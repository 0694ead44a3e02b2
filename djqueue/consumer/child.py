"""The process of its own in which one message is run: ``python -m djqueue.consumer.child FD``.

Its standard input has the errand, and then the permission to begin; it answers in frames, on the descriptor FD.
"""

from __future__ import annotations

import copy
import logging
import logging.handlers
import os
import pickle
import signal
import sys
import threading
import traceback
from dataclasses import replace
from queue import SimpleQueue
from typing import IO, Any

import django

from djqueue.consumer.isolation import BEGINS, GO, LENGTH, READY, Errand, Told
from djqueue.messages.failures import kind_of, text_of
from djqueue.policies.outcomes import Verdict
from djqueue.policies.policy import Policy
from djqueue.utils import handle_signals

STDIN = 0


class Teller(logging.handlers.QueueHandler):
    """Sends log records and the verdict on the message to the parent."""

    def __init__(self, frames: IO[bytes]):
        super().__init__(SimpleQueue())  # which stays empty: see enqueue()
        self._frames, self._lock = frames, threading.Lock()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record as it can travel: its text is made, and its traceback is a text beside it."""
        told = copy.copy(record)
        if record.exc_info and not record.exc_text:
            told.exc_text = logging.Formatter().formatException(record.exc_info)
        told.msg, told.args, told.exc_info = record.getMessage(), None, None
        return told

    def enqueue(self, record: logging.LogRecord) -> None:
        self.tell(record)

    def tell(self, frame: Any) -> None:
        text = pickle.dumps(frame)
        with self._lock:
            self._frames.write(LENGTH.pack(len(text)) + text)
            self._frames.flush()


def main() -> None:
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    teller = Teller(os.fdopen(descriptor, "wb"))
    if not (text := _heard()):
        return
    errand: Errand = pickle.loads(text)  # from our own parent, and no store
    django.setup()
    root = logging.getLogger("djqueue")  # its records are logged by the parent, which knows where to
    root.setLevel(errand.level)
    root.handlers[:], root.propagate = [teller], False
    _run(errand, teller)


def _run(errand: Errand, teller: Teller) -> None:
    """Run the message; its function begins once the parent permits it. If the parent is gone, this process ends."""
    from djqueue.registry import autodiscover
    from djqueue.running.context import Control
    from djqueue.running.executor import execute
    from djqueue.wiring import queues

    class ChildControl(Control):
        patience = errand.patience
        stopping = False

        def begin(self, policy: Policy) -> None:
            _await_the_word(teller)

        def touch(self, seconds: float) -> bool:
            return True  # the parent extends it

    threading.current_thread().name = errand.thread
    autodiscover()
    queue = queues[errand.alias]
    control = ChildControl(queue, errand.lease)
    handle_signals([signal.SIGTERM], lambda *_: setattr(control, "stopping", True))
    teller.tell(READY)
    teller.tell(_told(execute(queue, errand.lease, control=control)))


def _await_the_word(teller: Teller) -> None:
    try:
        teller.tell(BEGINS)
        word = _heard()
    except BrokenPipeError:
        word = b""
    if word != GO:  # the parent is gone
        os._exit(1)
    threading.Thread(target=_end_with_parent, name="djqueue-parent", daemon=True).start()


def _heard() -> bytes:
    """The next word from the parent; empty once the parent is gone."""
    [size] = LENGTH.unpack(_read(LENGTH.size).ljust(LENGTH.size, b"\0"))
    return _read(size)


def _read(size: int) -> bytes:
    """That many bytes, fewer if no more come. Without a buffer, which a thread would hold at the end of the process."""
    found = b""
    while len(found) < size and (more := os.read(STDIN, size - len(found))):
        found += more
    return found


def _end_with_parent() -> None:
    _read(1)
    os._exit(1)


def _told(verdict: Verdict) -> Told:
    """The verdict for the parent. A value or an exception that cannot be pickled is left out."""
    error = verdict.exception
    text = "" if error is None else "".join(traceback.format_exception(error))
    told = Told(verdict._replace(exception=None), error, text)
    if _travels(told):
        return told
    if error is not None:
        told = replace(told, exception=RuntimeError(f"{kind_of(error)}: {text_of(error)}"))
    return told if _travels(told) else replace(told, verdict=told.verdict._replace(value=None))


def _travels(told: Told) -> bool:
    try:
        pickle.loads(pickle.dumps(told))
    except Exception:
        return False
    return True


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
