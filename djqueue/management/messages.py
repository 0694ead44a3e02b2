"""All that is known about one message, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from djqueue.backends.entries import DELAYED, FAILED, READY
from djqueue.management.tables import Paint, shown_parts
from djqueue.operations.messages import RUNNING, MessageRow
from djqueue.running.ends import End
from djqueue.words import NONE, full_moment, number, printable


def page(one: MessageRow, more: Mapping[str, str], paint: Paint) -> str:
    """All that is known about a message, as text; ``more`` are further lines by their titles."""
    when = {DELAYED: "due", READY: "ready", RUNNING: "leased to", FAILED: "failed"}[one.state]
    lines = {
        "id": one.id,
        "queue": one.queue,
        "state": one.state,
        "command": one.command or NONE,
        "about": one.description,
        **more,
        "lane": one.lane,
        "consumer": one.consumer,
        "priority": number(one.priority),
        "created": full_moment(one.created),
        when: full_moment(one.at),
        "attempts": f"{one.attempts} (failed: {one.failures}, lost: {one.lost})",
        "size": f"{number(one.bytes)} bytes",
    }
    return shown_parts(lines, paint) + shown_errors(one.end, paint)


def said(call: Mapping[str, str]) -> dict[str, str]:
    """The line that shows a call, or says why it cannot be shown, if it was asked for."""
    return {"call": call["call"] or f"cannot be shown: {call['call_error']}"} if call else {}


def shown_errors(end: End, paint: Paint) -> str:
    """The error of each attempt, to show below a message."""
    return "".join(f"\n{_error(error, paint)}" for error in end.errors)


def _error(error: dict, paint: Paint) -> str:
    at, where = full_moment(error.get("at")), error.get("consumer") or error.get("host") or NONE
    head = f"{at}  attempt {error.get('attempt', NONE)} on {where}: {error.get('reason') or NONE}"
    trace = printable(str(error.get("traceback") or "")).rstrip()
    return "\n" + paint(printable(head), "ERROR") + (f"\n{trace}" if trace else "")
