"""How djqueue's log records look: a line for a terminal, the full form for files and pipes, or JSON.

All three serve in the project's own ``LOGGING``, as ``{"()": "djqueue.logs.ConsoleFormatter"}``, for any logger.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from djqueue.log_handlers import Done, DoneFormatter
from djqueue.messages.metadata import request_id
from djqueue.registry import registry
from djqueue.running.context import current_message
from djqueue.running.reporting import logger as reports
from djqueue.running.reporting import text_of_done
from djqueue.utils import one_line, plain
from djqueue.words import SHORT_ID, attempt_of, duration, short_names

KEYS = {
    "event": "what happened, such as done, failed or started",
    "queue": "the alias of the queue",
    "command": "the full name of the command",
    "message_id": "the id of the message",
    "message_ids": "the ids of messages that are one record, as those of a batch",
    "count": "how many messages the record is about, if it is about several",
    "alike": "of messages of a batch that failed by one exception: how many, in the first record; 0 in the others",
    "attempt": "the number of this start, from 1",
    "max_attempts": "of what is retried: how many attempts it may have, if that is bounded",
    "worker": "the thread that ran it",
    "consumer": "the name of the consumer",
    "duration": "how many seconds it ran",
    "delay": "the seconds until it is retried",
    "reason": "why it failed, is retried or was put back",
    "description": "what describe= says of the call",
    "request_id": "the id of the web request that the message comes from",
}
"""The attributes that djqueue's records may have next to Python's own: each only where it says something."""


class ProcessLabel(NamedTuple):
    """The number of this process of a consumer, if it is not the only one, its name, and how lines show them."""

    number: int | None = None
    consumer: str = ""
    text: str = ""
    json: str = ""


_process = ProcessLabel()


def name_process(number: int | None, consumer: str = "") -> None:
    """Have all formatters show the number of this process from now on, and JSON the name of its consumer."""
    global _process
    who = {name: value for name, value in (("process", number), ("consumer", consumer)) if value not in (None, "")}
    json_text = "".join(f', "{name}": {json.dumps(value)}' for name, value in who.items())
    _process = ProcessLabel(number, consumer, "" if number is None else f"[{number}] ", json_text)


def about_run(record: logging.LogRecord) -> dict[str, Any]:
    """What this thread or task runs, by the :data:`KEYS`, for a record that does not say itself what it is about.

    Of any record: its request, and the consumer of this process.
    """
    about: dict[str, Any] = {"request_id": request_id.get(), "consumer": _process.consumer}
    message = None if hasattr(record, "message_id") or hasattr(record, "event") else current_message()
    if message is not None:
        about |= {"queue": message.queue_name, "command": message.command}
        about |= {"message_id": message.id, "attempt": message.attempt}
    return about


class MessageFilter(logging.Filter):
    """Gives records the name of the consumer, those of the project's own loggers also what runs: for any handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        for key, value in about_run(record).items():
            if value and not hasattr(record, key):
                setattr(record, key, value)
        return True


def _of_request(id: str) -> str:
    return f" [request {id}]" if id else ""


class FullFormatter(DoneFormatter):
    """One line that names all: date, level, thread and logger, whole ids and names. For files and pipes."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(process_shown)s%(threadName)s %(name)s: %(message)s")
        self._clock = PerSecond(lambda second: time.strftime(self.default_time_format, self.converter(second)))

    def done(self, about: Done) -> str:
        at, thread, _, command, id, attempt, seconds, description, request = about
        second = int(at)
        clock, thousandths = self._clock.of(second), THOUSANDTHS[int((at - second) * 1000)]
        text = text_of_done(plain(command), plain(id), attempt, seconds, one_line(description))
        return f"{clock},{thousandths} INFO     {_process.text}{thread} {reports.name}: {text}{_of_request(request)}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.process_shown = _process.text
        return super().formatMessage(record) + _of_request(getattr(record, "request_id", "") or request_id.get())


class JsonFormatter(DoneFormatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``text``, the :data:`KEYS` that a record has, and
    ``exception``, the traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = PerSecond(_clock_and_zone)

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
            "worker": record.threadName,
        }
        if _process.number is not None:
            fields["process"] = _process.number
        if _process.consumer:
            fields["consumer"] = _process.consumer
        about = about_run(record) | vars(record)
        fields |= {key: value for key in KEYS if (value := about.get(key)) not in (None, "")}
        if trace := _traceback_of(self, record):
            fields["exception"] = trace
        return json.dumps(fields, default=str)

    def done(self, about: Done) -> str:
        at, thread, queue, command, id, attempt, seconds, description, request = about
        command, id, description = plain(command), plain(id), one_line(description)
        text = text_of_done(command, id, attempt, seconds, description)
        more = f', "description": {_quoted(description)}' if description else ""
        more += f', "request_id": {_quoted(request)}' if request else ""
        return (
            f'{{"time": "{self._time(at)}", "level": "INFO", "logger": "{reports.name}", "text": {_quoted(text)}, '
            f'"worker": {_quoted(thread)}{_process.json}, "event": "done", '
            f'"queue": {_quoted(queue)}, "command": {_quoted(command)}, '
            f'"message_id": {_quoted(id)}, "attempt": {attempt}, "duration": {round(seconds, 6)!r}{more}}}'
        )

    def _time(self, at: float) -> str:
        """As datetime makes it, but for the date, the clock and the zone, which are the same for a second."""
        second = int(at)
        thousandths = round((at - second) * 1e6) // 1000
        if thousandths == 1000:
            second, thousandths = second + 1, 0
        clock, zone = self._clock.of(second)
        return f"{clock}.{THOUSANDTHS[thousandths]}{zone}"


THOUSANDTHS = [f"{number:03d}" for number in range(1000)]
_quoted = json.encoder.encode_basestring_ascii


def _clock_and_zone(second: int) -> tuple[str, str]:
    text = datetime.fromtimestamp(second).astimezone().isoformat()
    return text[:19], text[19:]


T = TypeVar("T")


class PerSecond(Generic[T]):
    """What is made of a second, kept until the next one."""

    def __init__(self, make: Callable[[int], T]):
        self._make = make
        self._latest: tuple[int, T] | None = None

    def of(self, second: int) -> T:
        latest = self._latest
        if latest is None or latest[0] != second:
            self._latest = latest = second, self._make(second)
        return latest[1]


class Mark(NamedTuple):
    """How an event looks: a symbol in a colour, and the words before the reason."""

    symbol: str
    colour: str
    words: str = ""


GREEN, RED, YELLOW, DIM, BOLD = "32", "31", "33", "2", "1"
MARKS = {
    "done": Mark("✓", GREEN),
    "failed": Mark("✗", RED),
    "paused": Mark("✗", RED, "its shard is paused"),
    "retried": Mark("↻", YELLOW, "{2}again in {1}"),
    "released": Mark("…", DIM, "put back{0}"),
    "discarded": Mark("…", DIM, "discarded"),
    "expired": Mark("…", DIM, "expired"),
    "started": Mark("▶", DIM),
    "enqueued": Mark("+", DIM),
}
"""The events of messages, which have a line of columns."""
LEVELS = {"DEBUG": Mark("·", DIM), "INFO": Mark(" ", ""), "WARNING": Mark("!", YELLOW)}
WORSE = Mark("!", RED)
INDENT = 11
"""The characters before a text, without the number of a process: the time, the symbol, and a blank after each."""
MOST_OF_A_NAME, FEWER, MOST_OF_A_TIME, GAP = 24, 16, 7, 2
"""Characters of the columns. A longer name takes from the blanks before the time, then it shifts what follows."""
WIDE = 110
LEAST_WIDTH = 40
OVER_THE_KEY = "\r"
"""Ahead of the line that answers a Ctrl-C, as the terminal has shown ``^C`` there."""


class ConsoleFormatter(DoneFormatter):
    """One aligned line for each event of a message, for people who watch: ``14:03:07 ✓ send_receipt  33 ms  order 42``.

    By default it is coloured if standard output is a terminal that can be and NO_COLOR is not set, and as wide as the
    terminal; ``colored`` and ``width`` (characters, 0 for no limit) say otherwise. Other texts are wrapped.
    """

    def __init__(self, colored: bool | None = None, width: int | None = None):
        super().__init__()
        self._colored = has_colors() if colored is None else colored
        self._width = _Width(width)
        self._names = _Names()
        self._clock = PerSecond(self._shown_at)

    def format(self, record: logging.LogRecord) -> str:
        width = self._width.at(record.created)
        if rows := getattr(record, "banner", None):
            return self._banner(rows, width)
        mark = MARKS.get(getattr(record, "event", None) or "")
        of_message = mark is not None and hasattr(record, "command")
        line = self._of_message(record, mark, width) if mark and of_message else self._text(record, width)
        trace = _traceback_of(self, record)
        return f"{line}\n{trace}" if trace else line

    def done(self, about: Done) -> str:
        at, _, _, command, id, _, seconds, description, _ = about
        columns, room = self._columns(MARKS["done"], at, plain(command), round(seconds, 6), self._width.at(at))
        return self._line(columns, *_fitting(one_line(description), plain(id)[-SHORT_ID:], room))

    def _of_message(self, record: logging.LogRecord, mark: Mark, width: float) -> str:
        about = vars(record)
        columns, room = self._columns(mark, record.created, about["command"], about.get("duration"), width)
        return self._line(columns, *self._fitted(record, mark, room))

    def _columns(self, mark: Mark, at: float, command: str, seconds: float | None, width: float) -> tuple[str, float]:
        """The time, the symbol, the name and how long it ran, and the room behind them."""
        name = self._names.short(command)
        took = duration(seconds) if seconds else ""
        most = min(self._names.width, MOST_OF_A_NAME if width >= WIDE else FEWER) + GAP + MOST_OF_A_TIME
        took = took.rjust(max(most - len(name), GAP + len(took)))
        colour = mark.colour if mark.colour in (RED, YELLOW) else ""
        columns = f"{self._prefix(at, mark)}{self._paint(name, colour)}{self._paint(took, DIM)}"
        return columns, width - INDENT - len(name) - len(took) - GAP

    def _line(self, columns: str, text: str, id: str) -> str:
        return "  ".join([part for part in (columns, text, self._paint(id, DIM)) if part]).rstrip()

    def _fitted(self, record: logging.LogRecord, mark: Mark, room: float) -> tuple[str, str]:
        """What a line says behind its columns, and the end of the id, in as many characters as there is room for.

        What failed keeps its id, by which it can be looked up, and its reason, unless a traceback repeats that. What
        is retried keeps its id, and which attempt it was.
        """
        about = vars(record)
        text, id = _words(about, mark), (about.get("message_id") or "")[-SHORT_ID:]
        if mark.symbol not in "✗↻" or not id or len(text) + GAP + len(id) <= room:
            return _fitting(text, id, room)
        room -= GAP + len(id)
        if mark.symbol == "↻":
            return _words_of_retry(about, mark, room), id
        if record.exc_info or record.exc_text:
            return _cut(text, room), id
        return _wrapped(text, room).replace("\n", self._below), id

    def _text(self, record: logging.LogRecord, width: float) -> str:
        mark = LEVELS.get(record.levelname, WORSE)
        text = record.getMessage()
        text = _wrapped(text, width - INDENT).replace("\n", self._below)
        if record.levelno <= logging.DEBUG:
            text = self._paint(text, DIM)
        is_by_key = getattr(record, "event", "") == "stopping" and self._width.of_terminal
        return f"{OVER_THE_KEY if is_by_key else ''}{self._prefix(record.created, mark)}{text}"

    def _banner(self, rows: Sequence[tuple[str, str, str]], width: float) -> str:
        """The rows of a consumer's start; each heading once."""
        lines, last = [], ""
        columns = [max(len(row[column]) for row in rows if row[0]) + 2 for column in (0, 1)]
        for heading, name, text in rows:
            if not heading:
                lines.append(f"{self._paint(name, BOLD)}{', ' if name else ''}{text}")
                continue
            ahead = f"{heading if heading != last else '':{columns[0]}}"
            rest = _wrapped(text, width - 2 - sum(columns)).replace("\n", "\n" + " " * (2 + sum(columns)))
            lines.append(f"  {self._paint(ahead, DIM)}{name:{columns[1]}}{rest}")
            last = heading
        return "\n".join(lines)

    @property
    def _below(self) -> str:
        return "\n" + " " * (INDENT + len(_process.text))

    def _shown_at(self, second: int) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(second))
        return self._paint(f"{clock} {_process.text}".rstrip(), DIM)

    def _prefix(self, at: float, mark: Mark) -> str:
        return f"{self._clock.of(int(at))} {self._paint(mark.symbol, mark.colour)} "

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colored and colour and text else text


def has_colors(force: bool = False, never: bool = False) -> bool:
    """Whether to colour what goes to standard output: as Django decides it, and not where NO_COLOR is set."""
    if force or never:
        return force
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("DJANGO_COLORS") != "nocolor"


def _words(about: dict[str, Any], mark: Mark) -> str:
    """What a line says behind its columns."""
    alike = about.get("count") or about.get("alike", 0)
    count = f"{alike:,} messages" if alike > 1 else ""
    reason = _reason(about, _ahead_of_reason(about, mark))
    return " · ".join(part for part in (count, plain(about.get("description", "")), reason) if part)


def _words_of_retry(about: dict[str, Any], mark: Mark, room: float) -> str:
    """The same of a retry that has not so much room: no description, and no delay if that leaves too little."""
    attempt, ahead = _attempt(about), _ahead_of_reason(about, mark)
    return _cut(_reason(about, ahead if len(ahead) * 2 <= room else attempt), max(room, len(attempt) + 1))


def _ahead_of_reason(about: dict[str, Any], mark: Mark) -> str:
    delay, attempt = about.get("delay"), _attempt(about)
    waits = f" for {duration(delay)}" if delay else "", duration(delay or 0.0)
    return mark.words.format(*waits, attempt and f"{attempt}, ") if mark.words else ""


def _reason(about: dict[str, Any], ahead: str) -> str:
    return ": ".join(part for part in (ahead, plain(about.get("reason", ""))) if part)


def _attempt(about: dict[str, Any]) -> str:
    """Which attempt it was; empty for several messages."""
    number = about.get("attempt")
    return attempt_of(number, about.get("max_attempts")) if number else ""


def _wrapped(text: str, room: float) -> str:
    if len(text) <= room:
        return text
    wrap = partial(textwrap.wrap, width=max(20, int(room)), break_long_words=False, break_on_hyphens=False)
    return "\n".join(one for line in text.split("\n") for one in wrap(line) or [""])


def _fitting(text: str, id: str, room: float) -> tuple[str, str]:
    """A text and an id, or if there is not so much room the beginning of the text."""
    return (text, id) if not text or len(text) + GAP + len(id) <= room else (_cut(text, room), "")


def _cut(text: str, room: float) -> str:
    if len(text) <= room:
        return text
    return f"{text[: int(room) - 1].rstrip()}…" if room > 1 else ""


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of a record, kept in it as Python's own formatter does, and its stack."""
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    stack = formatter.formatStack(record.stack_info) if record.stack_info else ""
    return "\n".join(part for part in (record.exc_text, stack) if part)


class _Width:
    """How wide lines may be, without the number of the process: as the terminal, asked once a second."""

    def __init__(self, fixed: int | None):
        self._fixed: float | None = fixed or inf if fixed is not None else None
        self._until = 0.0
        self._known = inf

    @property
    def of_terminal(self) -> bool:
        return self._fixed is None and self._known < inf

    def at(self, now: float) -> float:
        if self._fixed is not None:
            return self._fixed - len(_process.text)
        if not self._until > now > self._until - 1:  # the clock may have been set
            is_terminal = sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()
            self._known = max(LEAST_WIDTH, shutil.get_terminal_size().columns) if is_terminal else inf
            self._until = now + 1
        return self._known - len(_process.text)


class _Names:
    """The short names of the registered commands, and the width of their column."""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}
        self._count = -1
        self.width = 0

    def short(self, name: str) -> str:
        """The last part of the name; the whole name of a command that shares it, and of one that is not known."""
        if name not in self._short and self._count != len(registry):
            short = short_names(command.name for command in registry)
            self.width = min(MOST_OF_A_NAME, max(map(len, short.values()), default=0))
            self._short, self._count = short, len(short)
        return self._short.get(name, name)
