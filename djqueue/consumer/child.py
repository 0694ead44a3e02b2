"""The process of its own in which one message is run: ``python -m djqueue.consumer.child FD PARENT``.

Its standard input has what it is to run, and then the permission to begin; it answers in frames, on the descriptor FD.
It ends when the process PARENT has ended.
"""

from __future__ import annotations

import copy
import logging
import logging.handlers
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from math import inf
from queue import SimpleQueue
from typing import IO, Any

import django

from djqueue.consumer.isolation import BEGINS, LENGTH, PERMISSION, READY, ChildInput, ChildOutput
from djqueue.messages.failures import kind_of, text_of
from djqueue.policies.outcomes import Verdict
from djqueue.policies.policy import Policy
from djqueue.utils import clock, handle_signals

STDIN = 0
CHECKED = 1.0  # seconds between two checks whether the parent is there


class FrameWriter(logging.handlers.QueueHandler):
    """Sends log records and the verdict on the message to the parent."""

    def __init__(self, frames: IO[bytes]):
        super().__init__(SimpleQueue())  # which stays empty: see enqueue()
        self._frames, self._lock = frames, threading.Lock()
        self.seen_by: list[str] = []
        """The instruments that see the records in this process, so that they need not see them in the parent."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record as it can travel: its text is made, and its traceback is a text next to it."""
        output = copy.copy(record)
        if record.exc_info and not record.exc_text:
            output.exc_text = logging.Formatter().formatException(record.exc_info)
        output.msg, output.args, output.exc_info, output.seen_by = record.getMessage(), None, None, self.seen_by
        return output

    def enqueue(self, record: logging.LogRecord) -> None:
        self.send(record)

    def send(self, frame: Any) -> None:
        text = pickle.dumps(frame)
        with self._lock:
            self._frames.write(LENGTH.pack(len(text)) + text)
            self._frames.flush()


class Parent:
    """The process that has started this one, and writes to its standard input."""

    def __init__(self, pid: int):
        self._pid = pid

    @property
    def is_there(self) -> bool:
        return os.getppid() == self._pid

    def next_word(self) -> bytes:
        """The next word that it writes; empty once it is gone."""
        [size] = LENGTH.unpack(self._read(LENGTH.size).ljust(LENGTH.size, b"\0"))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        """That many bytes, fewer if no more come. Without a buffer, which a thread would hold at the end."""
        found = b""
        while len(found) < size and self._writes() and (more := os.read(STDIN, size - len(found))):
            found += more
        return found

    def _writes(self) -> bool:
        """Wait for input; False once it is gone: a process that it has forked may keep the pipe open."""
        while not select.select([STDIN], [], [], CHECKED)[0]:
            if not self.is_there:
                return False
        return True

    def watch(self) -> None:
        """End this process once it is gone: at once by the end of the input, soon whatever keeps that open."""
        for duty in (self._await_end_of_input, self._await_end):
            threading.Thread(target=duty, name="djqueue-parent", daemon=True).start()

    def _await_end_of_input(self) -> None:
        os.read(STDIN, 1)  # one call, which what a command does to the descriptor later cannot reach
        os._exit(1)

    def _await_end(self) -> None:
        while self.is_there:
            time.sleep(CHECKED)
        os._exit(1)


def main() -> None:
    descriptor, pid = map(int, sys.argv[1:])
    os.set_inheritable(descriptor, False)
    writer, parent = FrameWriter(os.fdopen(descriptor, "wb")), Parent(pid)
    if not (text := parent.next_word()):
        return
    given: ChildInput = pickle.loads(text)  # from our own parent, and no store
    django.setup()
    root = logging.getLogger("djqueue")  # its records are logged by the parent, which knows where to
    root.setLevel(given.level)
    root.handlers[:], root.propagate = [writer], False
    _run(given, writer, parent)


def _run(given: ChildInput, writer: FrameWriter, parent: Parent) -> None:
    """Run the message; its function begins once the parent permits it. If the parent is gone, this process ends."""
    from djqueue.discovery import autodiscover
    from djqueue.running.context import Control
    from djqueue.running.executor import execute
    from djqueue.running.instruments import instruments
    from djqueue.wiring import queues

    class ChildControl(Control):
        patience = given.patience
        stopping = False
        owner = given.owner

        def begin(self, policy: Policy) -> None:
            self.begins_by = _await_permission(writer, parent)
            self.throttled = self.begins_by < inf

        @property
        def late(self) -> float:
            return max(0.0, clock() - self.begins_by)

        def touch(self, seconds: float) -> bool:
            return True  # the parent extends it

    threading.current_thread().name = given.thread
    autodiscover()
    writer.seen_by = [one.namespace for one in instruments.registered if one.sees_logs]
    queue = queues[given.alias]
    control = ChildControl(queue, given.lease)
    handle_signals([signal.SIGTERM], lambda *_: setattr(control, "stopping", True))
    writer.send(READY)
    writer.send(_output_of(execute(queue, given.lease, control=control)))


def _await_permission(writer: FrameWriter, parent: Parent) -> float:
    """Wait until the function may be called; until when it may."""
    try:
        writer.send(BEGINS)
        word = parent.next_word()
    except BrokenPipeError:
        word = b""
    if len(word) != PERMISSION.size:  # the parent is gone
        os._exit(1)
    parent.watch()
    [begins_by] = PERMISSION.unpack(word)
    return begins_by


def _output_of(verdict: Verdict) -> ChildOutput:
    """The verdict for the parent. A value or an exception that cannot be pickled is left out."""
    error = verdict.exception
    text = "" if error is None else "".join(traceback.format_exception(error))
    output = ChildOutput(verdict._replace(exception=None), error, text)
    if _travels(output):
        return output
    if error is not None:
        output = replace(output, exception=RuntimeError(f"{kind_of(error)}: {text_of(error)}"))
    return output if _travels(output) else replace(output, verdict=output.verdict._replace(value=None))


def _travels(output: ChildOutput) -> bool:
    try:
        pickle.loads(pickle.dumps(output))
    except Exception:
        return False
    return True


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
