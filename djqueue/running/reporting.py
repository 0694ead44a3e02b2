"""What the log says of messages that run: that they have started, and what became of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import log_extra
from djqueue.exceptions import BadSignature, Discard, Fail, InvalidMessage, Retry
from djqueue.log_handlers import BackgroundStreamHandler
from djqueue.messages.failures import has_frames
from djqueue.messages.metadata import request_id
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.utils import RareReports, log_safely, one_line, plain
from djqueue.words import attempt_of

logger = logging.getLogger(__name__)

TOLD_IN_WORDS = (Discard, Fail, InvalidMessage, Retry)
"""Exceptions whose text says all: no traceback of them is logged."""
BAD_SIGNATURES = RareReports(60.0)
"""A wrong SECRET_KEY fails all messages of a queue: one record a minute says how many more there were."""
LEVEL, DONE = Outcome.DONE.effect.level, Outcome.DONE.effect.words
LOOK = 0.02  # seconds between two looks at how logging is set up


class DoneLog:
    """What the log says of messages that are done: nothing, a line without a record, or a record.

    A line is enough where all that would see the record is a handler of :mod:`djqueue.log_handlers`, with a format of
    djqueue's: it takes a tenth of the time.
    """

    def __init__(self) -> None:
        self._known: tuple[float, BackgroundStreamHandler | None] = (0.0, None)
        """When logging was looked at, and the handler that takes lines."""

    def say(
        self, queue: str, command: str, id: str, attempt: int, seconds: float, description: str = "", request: str = ""
    ) -> bool:
        """Log that a message is done unless that takes a record, and whether nothing is left to log."""
        if not logger.isEnabledFor(LEVEL):
            return True
        now = time.time()
        looked, handler = self._known
        if not 0.0 <= now - looked < LOOK:
            handler = _only_handler()
            self._known = now, handler
        if handler is None:
            return False
        try:
            name = threading.current_thread().name
            handler.put((now, name, queue, command, id, attempt, seconds, description, request))
        except Exception:  # a record may fare better
            return False
        return True


done_log = DoneLog()


def _only_handler() -> BackgroundStreamHandler | None:
    """The handler that needs no record of a message that is done, if nothing else would see it."""
    if logger.filters or _others_take_part():
        return None
    handlers: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        handlers += (handler for handler in at.handlers if handler.level <= LEVEL)
        at = at.parent if at.propagate else None
    [only] = handlers if len(handlers) == 1 else [None]
    return only if isinstance(only, BackgroundStreamHandler) and only.takes_done(LEVEL) else None


def _others_take_part() -> bool:
    """Whether another library makes the records, or has replaced functions of logging, as those that trace do."""
    kind = logging.Logger
    functions = kind.getEffectiveLevel, kind.log, kind._log, kind.makeRecord, kind.handle, kind.callHandlers
    files = {one.__code__.co_filename if type(one) is FunctionType else "" for one in functions}
    return len(files) > 1 or type(logger) is not kind or logging.getLogRecordFactory() is not logging.LogRecord


def log_started(level: int, alias: str, entries: Sequence[Entry], ago: float = 0.0, **more: Any) -> None:
    """Log that messages, several of a batch, were started, ``ago`` seconds before; ``more`` are keys of the log."""
    if not logger.isEnabledFor(level):
        return
    about = {"event": "started", **more, **({"duration": round(ago, 3)} if ago else {})}
    if len(entries) > 1:
        about |= _several(entries)
    extra = log_extra(alias, entries[0], **about)
    which = f"{len(entries)} messages" if len(entries) > 1 else f"message {extra['message_id']}"
    names = extra["command"], _in_brackets(more.get("description"))
    log_safely(logger, level, "%s%s started%s (%s)", *names, f" {ago:.1f} s ago" if ago else "", which, extra=extra)


def report_together(queue: BaseQueue, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    """Log what became of messages that ran together: a record for each outcome, but one for each failed message.

    So error mails are one for each failure. A traceback that several of them share is logged with the first.
    """
    if len(finished) == 1:
        report(queue, *finished[0])
        return
    of_outcome: dict[Outcome, list[tuple[Lease, Verdict]]] = {}
    for pair in finished:
        of_outcome.setdefault(pair[1].outcome, []).append(pair)
    for outcome, pairs in of_outcome.items():
        if not logger.isEnabledFor(outcome.effect.level):
            continue
        if len(pairs) > 1 and outcome.effect.level < logging.ERROR:
            _report_many(queue, pairs)
            continue
        alike = Counter(id(verdict.exception) for _, verdict in pairs)
        for lease, verdict in pairs:
            report(queue, lease, verdict, alike.pop(id(verdict.exception), 0))


def report_done(queue: BaseQueue, entry: Entry, verdict: Verdict, request: str) -> bool:
    """Log that a message is done, if it is and a line without a record is enough; whether nothing is left to log.

    ``request`` is the id of the web request that it comes from.
    """
    if verdict.outcome is not Outcome.DONE:
        return False
    ran, about = verdict.seconds, verdict.description
    return done_log.say(queue.alias, entry.command, entry.id, entry.attempts, ran, about, request)


def report(queue: BaseQueue, lease: Lease, verdict: Verdict, alike: int = 1) -> None:
    """Log what became of a message; without its traceback if it is none of those ``alike`` that need it."""
    entry, effect = lease.entry, verdict.outcome.effect
    if not logger.isEnabledFor(effect.level):
        return
    if alike == 1 and report_done(queue, entry, verdict, request_id.get()):
        return
    about = _about(verdict)
    if issubclass(type(verdict.exception), BadSignature):
        if (unreported := BAD_SIGNATURES.take(queue.alias)) is None:
            return
        about["reason"] += f"; {unreported} more since the last such record" if unreported else ""
    if alike != 1:
        about["alike"] = alike
    extra = log_extra(queue.alias, entry, **about, duration=round(verdict.seconds, 6))
    names = extra["command"], _in_brackets(about.get("description")), effect.words, _after_colon(about.get("reason"))
    text, attempt = "%s%s %s%s (message %s, %s, %.3f s%s)", attempt_of(entry.attempts, verdict.max_attempts)
    args = *names, extra["message_id"], attempt, verdict.seconds, _later(verdict)
    log_safely(logger, effect.level, text, *args, exc_info=_trace_of(verdict) if alike else None, extra=extra)


def text_of_done(command: str, id: str, attempt: int, seconds: float, description: str) -> str:
    """The text of the record that :func:`report` makes of a message that is done."""
    about = _in_brackets(description) if description else ""
    return f"{command}{about} {DONE} (message {id}, attempt {attempt}, {seconds:.3f} s)"


def _report_many(queue: BaseQueue, finished: Sequence[tuple[Lease, Verdict]]) -> None:
    """Log, in one record, what became of messages of one batch that ended alike."""
    lease, verdict = finished[0]
    effect, about = verdict.outcome.effect, _about(verdict._replace(description="", max_attempts=None))
    if any(other.reason != verdict.reason for _, other in finished):
        about["reason"] += ", and others"
    about |= {"duration": round(verdict.seconds, 6), **_several([lease.entry for lease, _ in finished])}
    extra = log_extra(queue.alias, lease.entry, **about)
    reason = _after_colon(about.get("reason"))
    text, later = "%s %s%s (%d messages, %.3f s%s)", _later(verdict)
    args = extra["command"], effect.words, reason, len(finished), verdict.seconds, later
    log_safely(logger, effect.level, text, *args, exc_info=_trace_of(verdict), extra=extra)


def _about(verdict: Verdict) -> dict[str, Any]:
    """What a record says of a verdict, by the keys of the log."""
    about: dict[str, Any] = {"event": verdict.outcome.effect.status}
    if verdict.description:
        about["description"] = one_line(verdict.description)
    if verdict.reason:
        about["reason"] = one_line(verdict.reason)
    if verdict.delay or verdict.outcome.effect.again:
        about["delay"] = verdict.delay
    if verdict.max_attempts:
        about["max_attempts"] = verdict.max_attempts
    return about


def _several(entries: Sequence[Entry]) -> dict[str, Any]:
    ids = [plain(entry.id) for entry in entries]
    return {"message_id": None, "attempt": None, "message_ids": ids, "count": len(ids)}


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _after_colon(text: str | None) -> str:
    return f": {text}" if text else ""


def _later(verdict: Verdict) -> str:
    return f", again in {verdict.delay:.1f} s" if verdict.outcome.effect.again else ""


def _trace_of(verdict: Verdict) -> BaseException | None:
    """The exception whose traceback is logged: of what is over. Of a retry a line says enough, unless all is wanted."""
    error, is_over = verdict.exception, verdict.outcome.effect.level >= logging.ERROR
    if error is None or issubclass(type(error), TOLD_IN_WORDS) or not has_frames(error):
        return None
    return error if is_over or logger.isEnabledFor(logging.DEBUG) else None
