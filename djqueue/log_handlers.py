"""Handlers that write log records in a thread of their own: a thread that logs does not wait for the output.

They serve in the project's own ``LOGGING``, for any logger, where Python's StreamHandler, RotatingFileHandler and
WatchedFileHandler do.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from math import inf
from select import PIPE_BUF
from typing import Any
from weakref import WeakSet

from djqueue.utils import portions

GATHER = 0.05
"""Seconds between two writes while there is much to write; the first line after a pause is written at once."""
MOST = 5_000
"""Lines that may wait. The thread that adds one more writes them, so it waits if the output does not take them."""

Done = tuple[float, str, str, str, str, int, float, str, str]
"""That a message is done: when (epoch seconds), the thread, the alias of the queue, the command, the id of the message,
the number of the start, how many seconds it ran, what ``describe=`` says of the call, and the id of the web request."""


class DoneFormatter(logging.Formatter):
    """A formatter that also makes the line of a message that is done without a record."""

    def done(self, about: Done) -> str:
        """What :meth:`format` returns for the record about it."""
        raise NotImplementedError


def is_no_repetition(record: logging.LogRecord) -> bool:
    """A filter, for handlers of people's terminals: one record for all messages of a batch that failed alike."""
    return getattr(record, "alike", 1) != 0


class BackgroundStreamHandler(logging.StreamHandler):
    """A StreamHandler whose thread writes what is logged: at once after a pause, then all that has come every 50 ms.

    A record is formatted in the thread that logs it, and the order is kept. What has level WARNING or above is written
    at once with all before it, and ``flush()`` writes all in the thread that calls it, as ``logging.shutdown()`` does
    at the end of the process. A forked child writes each line itself, and so does a handler that was closed.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._begin(is_direct=False)
        _handlers.add(self)

    def _begin(self, is_direct: bool) -> None:
        self._waiting: deque[str | Done] = deque()
        self._news = threading.Event()
        self._starting = threading.Lock()
        self._writer: threading.Thread | None = None
        self._is_direct = is_direct
        self._is_asleep = True
        """Whether the thread must be notified of what waits, or there is none."""

    def takes_done(self, level: int) -> bool:
        """Whether :meth:`put` makes the same line of a :data:`Done` as a record of this level would."""
        formatter = self.formatter
        return (
            level >= self.level
            and isinstance(formatter, DoneFormatter)
            and "done" in vars(type(formatter))  # of a subclass only format() may be its own
            and type(self).__module__ == __name__
            and all(one is is_no_repetition for one in self.filters)
        )

    def put(self, line: str | Done) -> None:
        """Add a line, or that a message is done."""
        self._waiting.append(line)
        if self._is_asleep or len(self._waiting) >= MOST:
            self._call()

    # ---- what logging calls

    def handle(self, record: logging.LogRecord) -> bool:
        """As of any handler, but without its lock, which the writer has while the output is blocked."""
        kept: Any = self.filter(record)
        if kept:
            self.emit(record if kept is True else kept)  # a filter of Python 3.12 may return another record
        return kept

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)
            return
        self.put(line)
        if record.levelno >= logging.WARNING:
            self._news.set()

    def setFormatter(self, formatter: logging.Formatter | None) -> None:
        self._drain()  # by the former one
        super().setFormatter(formatter)

    def flush(self) -> None:
        """Write what waits, in this thread."""
        self._drain()
        super().flush()

    def close(self) -> None:
        """Write what waits; from now on each line is written where it is logged."""
        self._is_direct = self._is_asleep = True
        self._news.set()
        self._drain()
        super().close()

    # ---- the thread

    def _call(self) -> None:
        """Notify the thread that something waits. Write it here if there is none, or too much for it."""
        if self._is_direct or len(self._waiting) >= MOST:
            self._drain()
            return
        self._is_asleep = False  # before the thread is looked at: one that ends says that there is none
        if self._has_writer():
            self._news.set()
            if not self._is_direct:
                return
        self._is_asleep = True
        self._drain()

    def _has_writer(self) -> bool:
        with self._starting:
            if self._writer is None or not self._writer.is_alive():
                writer = threading.Thread(target=self._write_on, name="djqueue-log", daemon=True)
                try:
                    writer.start()
                except (RuntimeError, MemoryError):  # no more threads can be had
                    return False
                self._writer = writer
        return True

    def _write_on(self) -> None:
        try:
            while not self._is_direct:
                self._is_asleep = True
                if not self._waiting:  # looked at behind that, so that no line is left without a call
                    self._news.wait()
                self._is_asleep = False
                self._news.clear()
                self._drain()
                self._news.wait(GATHER)
        finally:
            self._is_asleep = True
            self._drain()

    # ---- writing

    def _drain(self) -> None:
        self.acquire()
        try:
            if self._waiting:
                self._write(self._lines())
        finally:
            self.release()

    def _lines(self) -> list[str]:
        lines, take, formatter = [], self._waiting.popleft, self.formatter
        done = formatter.done if isinstance(formatter, DoneFormatter) else str
        for _ in range(len(self._waiting)):
            one = take()
            try:
                lines.append(one if type(one) is str else done(one))  # type: ignore[arg-type]
            except Exception:
                self._report(str(one))
        return lines

    def _write(self, lines: list[str]) -> None:
        try:
            for batch in self._batches(lines):
                self._write_batch(batch)
        except Exception:
            self._report("\n".join(lines))

    def _batches(self, lines: list[str]) -> Iterable[list[str]]:
        """Lines that go to the same place."""
        return [lines]

    def _write_batch(self, lines: list[str]) -> None:
        """Write lines; if one of them cannot be encoded, each alone."""
        try:
            self._put_out(lines)
        except UnicodeEncodeError:  # nothing was written
            for line in lines:
                self._write_escaped(line)
        except Exception:
            self._report("\n".join(lines))

    def _write_escaped(self, line: str) -> None:
        """Write a line with escapes for what the stream cannot encode, as Python does on its standard error."""
        encoding = getattr(self.stream, "encoding", None) or "ascii"
        try:
            self._put_out([line.encode(encoding, "backslashreplace").decode(encoding)])
        except Exception:
            self._report(line)

    def _put_out(self, lines: list[str]) -> None:
        """Write lines past the buffer of the stream, if it is a file.

        So a child that is forked meanwhile has no copy of them to write, and no signal cuts a write short.
        """
        stream = self.stream
        descriptor = _descriptor_of(stream)
        if descriptor is None:
            stream.write(self._joined(lines))
            super().flush()
            return
        encoding, errors = stream.encoding, stream.errors or "strict"
        blocks = [self._joined(some).encode(encoding, errors) for some in _pieces(lines, descriptor, encoding)]
        super().flush()  # what was printed before
        for block in blocks:
            _write_all(descriptor, block)

    def _joined(self, lines: list[str]) -> str:
        return f"{self.terminator.join(lines)}{self.terminator}" if lines else ""

    def _report(self, text: str) -> None:
        """Show an error of the output as logging does, with the lines that it cost."""
        with suppress(Exception):
            self.handleError(logging.makeLogRecord({"msg": text}))


class BackgroundFileHandler(BackgroundStreamHandler, logging.handlers.RotatingFileHandler):
    """A RotatingFileHandler that writes as a :class:`BackgroundStreamHandler` does."""

    def close(self) -> None:
        super().close()
        self.mode = "a"  # what is logged later opens the file again

    def _batches(self, lines: list[str]) -> Iterator[list[str]]:
        """The lines for each file: the next one begins with the line that would fill this one."""
        size = self._size()
        some: list[str] = []
        for line in lines:
            length = len(line) + len(self.terminator)
            if size + length >= self.maxBytes and size > 0:
                yield some
                self.doRollover()
                size, some = self._size(), []
            size += length
            some.append(line)
        yield some

    def _size(self) -> float:
        """The size of the file; less than can be counted up if it has no next one, or is a pipe."""
        if self.stream is None:
            self.stream = self._open()
        about = os.fstat(self.stream.fileno())
        return about.st_size if self.maxBytes > 0 and stat.S_ISREG(about.st_mode) else -inf


class BackgroundSharedFileHandler(BackgroundStreamHandler, logging.handlers.WatchedFileHandler):
    """A WatchedFileHandler that writes as a :class:`BackgroundStreamHandler` does: another process rotates the file."""

    def _batches(self, lines: list[str]) -> list[list[str]]:
        self.reopenIfNeeded()
        if self.stream is None:
            self.stream = self._open()
        return [lines]


_handlers: WeakSet[BackgroundStreamHandler] = WeakSet()


def _begin_in_child() -> None:
    """What waits is written by the parent, whose threads a child does not have."""
    for handler in list(_handlers):
        handler._begin(is_direct=True)


os.register_at_fork(after_in_child=_begin_in_child)


def _descriptor_of(stream: Any) -> int | None:
    """The descriptor of a file of Python's own, such as standard output; None for anything else."""
    if type(stream) is not TextIOWrapper or stream.closed:
        return None
    buffer: Any = stream.buffer
    raw = buffer.raw if type(buffer) is BufferedWriter else buffer
    return raw.fileno() if type(raw) is FileIO else None


def _pieces(lines: list[str], descriptor: int, encoding: str) -> Iterable[list[str]]:
    """The lines for one write each: all; for a pipe as many as it takes whole, next to those of other processes."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return [lines]
    return portions(lines, len(lines), PIPE_BUF, lambda line: len(line.encode(encoding, "replace")) + 1)


def _write_all(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]
